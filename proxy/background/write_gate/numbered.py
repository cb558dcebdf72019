"""Decide whether two statements are about two different numbered things: "project 1" and "project 2", "in
2024" and "in 2025".

A number is a thing's name or a value. It is a name in the subject, before the verb that gives the value, as
the label of a noun ("room 101", "web1", "3号楼") or as a time ("the dose at 8:00"): another one is another
thing, however alike the rest is. With a unit, a currency or a noun that it counts it is a value, which may
change. After the verb it is a value, too, unless it is of what one has many of ("read chapter 3") or puts
somewhere ("keeps item 4 in drawer 2"), or stands behind the value and changes along with it ("was 50000 euros
in 2024"). What is in doubt is another thing.
"""

import re

from proxy.background.write_gate.marks import DIGITS, TIMES, Mark, told


def about_other_numbers(old: str, new: str) -> bool:
    """Return whether the numbers of the subjects name two things, or two of what one has many of."""
    a, b = told(old), told(new)
    if a.turned and a.turned == b.turned:
        return False
    if a.moved or b.moved:  # "Room 1's tenant moved to room 2" is about both
        named = {(m.noun, m.number) for m in a.labels} & {(m.noun, m.number) for m in b.labels}
        one = tuple(m for m in a.subject if (m.noun, m.number) not in named)
        other = tuple(m for m in b.subject if (m.noun, m.number) not in named)
        return _differ(one, other)
    if _differ(a.subject, b.subject):
        return True
    if _labels_differ(a.put, b.put, akin=True):
        return True
    return a.done and b.done and _labels_differ(a.labels, b.labels, akin=True)


def hold_at_other_times(old: str, new: str) -> bool:
    """Return whether the statements give two values, each for its own time or place: "in 2024", "at 8:00"."""
    a, b = told(old), told(new)
    if a.moved or b.moved or b.planned:
        return False
    counted = bool(a.quantities - b.quantities and b.quantities - a.quantities)
    worded = counted or bool(a.words - b.words and b.words - a.words)
    elsewhere = worded or _labels_differ(a.labels, b.labels)
    for kinds, enough in (
        (("year", "label"), worded),
        (("time", "date"), counted),
        (("weekday",), elsewhere),
    ):
        one, other = (tuple(m for m in each.behind if m.kind in kinds) for each in (a, b))
        if enough and _differ(one, other):
            return True
    return False


# ------------------------------------------------------------ two sets of marks
def _differ(one: tuple[Mark, ...], other: tuple[Mark, ...]) -> bool:
    """True if a kind of marks that both have is another in each."""
    if _labels_differ(one, other):
        return True
    for kind in TIMES:
        a, b = ({m.number for m in marks if m.kind == kind} for marks in (one, other))
        if kind == "date":
            if a and b and not any(_one_date(x, y) for x in a for y in b):
                return True
        elif a - b and b - a:
            return True
    return False


def _labels_differ(one: tuple[Mark, ...], other: tuple[Mark, ...], *, akin: bool = False) -> bool:
    """True if both label the same noun otherwise, or, unless they must be `akin`, have no label in common."""
    a, b = ({(m.noun, m.number) for m in marks if m.kind == "label"} for marks in (one, other))
    nouns = {noun for noun, _ in a} & {noun for noun, _ in b}
    if nouns:
        return any(noun in nouns for noun, _ in a - b) and any(noun in nouns for noun, _ in b - a)
    return bool(a and b) and not akin and {n for _, n in a}.isdisjoint(n for _, n in b)


def _one_date(one: str, other: str) -> bool:
    """True if two dates may be the same: what both name of year, month and day is equal."""
    a, b = _fields(one), _fields(other)
    return all(_one_field(a[field], b[field]) for field in a.keys() & b.keys())


def _one_field(one: str, other: str) -> bool:
    """True for equal ones, and for "sept" and "september"."""
    abbreviated = one.isalpha() and (one.startswith(other) or other.startswith(one))
    return one == other or abbreviated


def _fields(date: str) -> dict[str, str]:
    found = {}
    for piece in re.findall(rf"\d+ ?[年月]|\d+|[a-z]{{3,}}|{DIGITS} ?月|{DIGITS}", date):
        if piece.endswith("月") or piece.isalpha():
            found["month"] = piece
        else:
            found["year" if len(piece) >= 4 else "day"] = piece.rstrip("年 ").lstrip("0")
    return found
