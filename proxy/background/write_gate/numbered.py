"""Whether two statements are about two numbered things: "project 1" and "project 2", "in 2024" and "in 2025".

A number is a thing's name or a value. It is a name in the subject, before the verb that gives the value, as
the label of a noun ("room 101", "web1", "3号楼") or as a time ("the dose at 8:00"): another one is another
thing, however alike the rest is. With a unit, a currency or a noun that it counts it is a value, which may
change. After the verb it is a value, too, unless it is of what one has many of ("read chapter 3") or puts
somewhere ("keeps item 4 in drawer 2"), or stands behind the value and changes along with it ("was 50000 euros
in 2024"). What is in doubt is another thing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from proxy.background.write_gate.change_words import PLANNED, Cue
from proxy.background.write_gate.reading import VALUE_KINDS, WEEKDAY, read
from proxy.embedtext import without_note
from proxy.terms import plain, terms
from proxy.wordlists import whole_words


def _said(section: str) -> str:
    return whole_words("numbered", section)


_MOST = 500  # characters of a statement that are read: what it is about stands at its beginning
_CJK = "\u3400-\u4dbf\u4e00-\u9fff"
_DIGITS = r"(?:\d+|[一二两三四五六七八九十百]+)"
_VERB = re.compile(rf"{_said('verbs')}|[:\uff1a](?!\d)")
# Where no verb is known, what ends like one: "flight 123 departs", "Projekt 1 verlangt".
_AFTER_LABEL = re.compile(r"(?<=\d) [a-z]{3,}(?:s|ed|t)\b")
_LIKE_A_VERB = re.compile(r"(?<= )(?!\w+ss\b)[a-z]{2,}(?:s|ed)\b")
_LIKE_A_GERMAN_VERB = re.compile(r"(?<= )[a-z]{3,}t\b")
_GERMAN = re.compile(r"\b(?:der|die|das|des|dem|den|meine?)\b")
_DONE = re.compile(_said("done"))
_PUT = re.compile(_said("put"))
_SCALE = re.compile(_said("scale"))
_NUMBERED = re.compile(_said("numbered"))
_NO_THING = re.compile("|".join(_said(s) for s in ("no thing", "done", "verbs")))
# Who does it is the user, and what stands before tells when. "The user's", "del usuario" is an owner.
_USER = re.compile(
    r"\busers?\b(?!')|\b(?:der nutzer|die nutzerin|el usuario|la usuaria)\b|(?<!\bde )\bl'utilisat\w+\b"
    r"|^(?:nutzer(?:in)?|usuari[oa]|utilisat\w+)\b|\bi(?=(?:'\w+)? [a-z])|\b(?:ich|yo)\b|\bj(?:e |')(?=[a-z])"
)
_TURNED = re.compile(r"^[^,;']{2,40} (?:is|are|was) (the user's .+)$")  # "Room 12 is the user's office"
# Since when or until when it holds is not what it is about.
_SINCE = re.compile(
    r"\b(?:since|from|until|till|by|as of|starting|seit|ab|bis|stand|desde|hasta|depuis|a partir d[eu])"
    rf"(?: (?:the|in|on|el|le|dem|de|the end of|ende?|early|late))* (?:{VALUE_KINDS['date']}|(?:19|20)\d\d\b)"
    rf"(?: (?:to|bis|al?|au) (?:the end of )?{VALUE_KINDS['date']})?"
    r"|[自从] ?(?:\d+ ?[年月日号] ?)+|(?:\d+ ?[年月日号] ?)+起"
)
_NEXT = re.compile(r"\b(?:next|upcoming|nachste\w*|proxim\w+|prochain\w*)\b|下次|下一")
_QUANTITY = re.compile(
    rf"{VALUE_KINDS['money']}|(?<![\d.,])\d[\d.,]*+(?:\s?%|[\s-]?(?:{_said('units')}))"
    r"|(?<![\d.,])\d[\d.,]*+\s?[次杯个只条台家口人岁分名张克斤米公千天周毫升小厘页本匹辆件套倍亩平]"
)
_TIMES = {
    "time": re.compile(
        r"\b(?P<hour>\d{1,2})(?::(?P<colon>\d\d)|h(?P<h>\d\d)?|\s?(?P<half>am|pm|uhr))\b"
        rf"|(?P<zh>{_DIGITS})\s?点(?P<zh_minute>半|\d+分?)?"
    ),
    "date": re.compile(VALUE_KINDS["date"]),
    "weekday": re.compile(rf"\b{WEEKDAY}\b|(?:周|星期|礼拜)[一二三四五六日天末]"),
    "year": re.compile(r"(?<![\d.,:/$€£#-])(?:19|20)\d\d(?![.,:/-]?\d)(?!\w*[a-z])"),
}
_LABEL = re.compile(
    r"(?P<noun>(?<![^\W\d_])[^\W\d_]+|§)(?: (?:no\.?|nr\.?|number|nummer|numero|n°|num\.?))?[ -]?#?"
    r"(?P<number>\d+(?:[./-]\d+)*[a-z]?|one|two|three|four|five|six)(?![\w%]|[:.,]\d)",
)
_LABEL_CJK = re.compile(
    rf"第\s?(?P<nth>{_DIGITS})\s?(?P<of>[{_CJK}]{{1,2}})"
    rf"|(?:(?<![{_CJK}\d])|(?<=[户的住坐乘在]))(?P<no>{_DIGITS})\s?"
    rf"(?P<kind>号(?![的是在到])[{_CJK}]|[室楼栋幢层班线路组队])"
    rf"|(?P<what>(?![有了是共约满在第每的和与])[{_CJK}]{{1,2}})\s?(?P<number>\d+)(?![\d.:/-]|\s?[{_CJK}](?<![的是在由]))"
)
_CJK_TEXT = re.compile(f"[{_CJK}]")
_BEHIND = re.compile(
    r"\b(?:in|on|at|during|im|am|um|auf|en|a las?|a|au|aux|pour|for|fur|para)"
    r" (?:the |der |dem |el |la |le )?$"
)
_ONLY_ARTICLE = re.compile(r" (?:(?:the|an?|h(?:er|is)|their|its|my|d(?:as|en|ie|er)|el|las?|los|les?) )?")
_BREAK = re.compile(r"[,;，；。]|\b(?:and|und|y|et|but|aber|pero|mais)\b")
_CLAUSE_END = re.compile(r"[,;](?!\d)")
_CLAUSE_END_CJK = re.compile("[,，;；。]")
_NEXT_WORD = re.compile(r"\S+")
_EVERY = re.compile(r"[ygioh]s$")  # "Mondays", "montags"; "lunes" is one day, too
_DIGIT_OF = {
    **dict(zip("one two three four five six".split(), "123456", strict=True)),
    **dict(zip("一二三四五六七八九两", "1234567892", strict=True)),
}


@dataclass(frozen=True, slots=True)
class _Mark:
    """A number that tells a thing from its like: its kind, the noun that it labels ("" of times), itself."""

    kind: str
    noun: str
    number: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Told:
    """What a statement tells by numbers."""

    subject: tuple[_Mark, ...]  # before the verb
    behind: tuple[_Mark, ...]  # after the verb and something else
    labels: tuple[_Mark, ...]  # everywhere
    put: tuple[_Mark, ...]  # of them, what somebody puts somewhere, keeps there or gives away
    turned: frozenset[str]  # the words of the subject, where it stands behind the verb
    done: bool  # one has many of these
    moved: bool  # says that something changed
    planned: bool
    quantities: frozenset[str]
    words: frozenset[str]  # without all of these


def about_other_numbers(old: str, new: str) -> bool:
    """Return whether the numbers of the subjects name two things, or two of what one has many of."""
    a, b = _told(old), _told(new)
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
    a, b = _told(old), _told(new)
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
        one, other = (tuple(m for m in told.behind if m.kind in kinds) for told in (a, b))
        if enough and _differ(one, other):
            return True
    return False


# ------------------------------------------------------------ two sets of marks
def _differ(one: tuple[_Mark, ...], other: tuple[_Mark, ...]) -> bool:
    """True if a kind of marks that both have is another in each."""
    if _labels_differ(one, other):
        return True
    for kind in _TIMES:
        a, b = ({m.number for m in marks if m.kind == kind} for marks in (one, other))
        if kind == "date":
            if a and b and not any(_one_date(x, y) for x in a for y in b):
                return True
        elif a - b and b - a:
            return True
    return False


def _labels_differ(one: tuple[_Mark, ...], other: tuple[_Mark, ...], *, akin: bool = False) -> bool:
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
    for piece in re.findall(rf"\d+ ?[年月]|\d+|[a-z]{{3,}}|{_DIGITS} ?月|{_DIGITS}", date):
        if piece.endswith("月") or piece.isalpha():
            found["month"] = piece
        else:
            found["year" if len(piece) >= 4 else "day"] = piece.rstrip("年 ").lstrip("0")
    return found


# ------------------------------------------------------------ one statement
@lru_cache(maxsize=256)
def _told(text: str) -> _Told:
    said = plain(without_note(text[:_MOST])).strip().rstrip(".。!")
    clear = _SINCE.sub(_blank, said)
    subject, rest, known = _parted(clear)
    turned = _TURNED.match(said)
    marks, quantities, bare = _marks(clear)
    before = [m for m in marks if m.end <= subject and (m.kind == "label" or _is_subjects(clear, m, subject))]
    if not known:  # "Budget 500" has a value, "Camera 1 in the garage" a thing, "floor 2" alone a thing, too
        before = [m for m in before if m.end < len(clear) or _NUMBERED.match(clear, m.start)]
    if not (terms(bare[:subject]) or _USER.search(clear[subject:][:16])):
        before = [m for m in before if m.kind == "label"]  # "3 May is the wedding day" gives a date
    if _NEXT.search(clear[:subject]):
        before = [m for m in before if m.kind not in ("date", "weekday", "time")]
    labels = tuple(m for m in marks if m.kind == "label")
    return _Told(
        subject=tuple(before),
        behind=tuple(_behind(clear, marks, rest)),
        labels=labels,
        put=tuple(_put(clear, labels)),
        turned=frozenset(terms(turned.group(1))) if turned else frozenset(),
        done=bool(_DONE.search(said)),
        moved=any(claim.cue is Cue.MOVED for claim in read(text).claims),
        planned=bool(PLANNED.search(bare)),  # without its dates: "may" is a month there
        quantities=quantities,
        words=frozenset(terms(bare)),
    )


def _is_subjects(text: str, mark: _Mark, verb: int) -> bool:
    """True if the time is the subject's: it stands near the verb, or the statement begins with it. Behind a
    verb that is not known it tells when something happened: "Ana fell in May and her wrist is in plaster"."""
    between = text[mark.end : verb]
    if _CJK_TEXT.search(text):
        owned = between.lstrip("度份 ").startswith("的") and "了" not in text[: mark.start]
        return owned or (text.startswith(("是", "为", "叫"), verb) and len(between) <= 5)
    begins = not terms(text[: mark.start])
    return begins or (len(between.split()) <= 3 and not _BREAK.search(between))


def _parted(text: str) -> tuple[int, int, bool]:
    """Return where the subject ends, where what is said of it begins, and whether a verb tells so."""
    if _CJK_TEXT.search(text):
        return _parted_cjk(text)
    clause = _CLAUSE_END.split(text)[0]
    verb, user = _VERB.search(clause) or _like_a_verb(clause) or _VERB.search(text), _USER.search(text)
    if user and (verb is None or user.start() < verb.start()):
        word = _NEXT_WORD.search(text, user.end())
        return user.start(), word.end() if word else user.end(), True
    return (verb.start(), verb.end(), True) if verb else (len(text), len(text), False)


def _like_a_verb(clause: str) -> re.Match[str] | None:
    found = _AFTER_LABEL.search(clause) or _LIKE_A_VERB.search(clause)
    return found or (_LIKE_A_GERMAN_VERB.search(clause) if _GERMAN.search(clause) else None)


def _parted_cjk(text: str) -> tuple[int, int, bool]:
    clause = _CLAUSE_END_CJK.split(text)[0]
    if clause.startswith(("用户", "我")) and "的" not in clause:
        return 0, 2, True
    if verb := _VERB.search(clause):
        return verb.start(), verb.end(), True
    end = clause.rfind("的") + 1 or len(clause)
    return end, end, True


def _marks(text: str) -> tuple[list[_Mark], frozenset[str], str]:
    """Return the marks in their order, the quantities, and the text without either."""
    quantities: frozenset[str] = frozenset()
    found: list[_Mark] = []
    for label in (*_labels_cjk(text), *_labels(text, known=True)):
        found.append(label)
        text = _without(text, label)
    for kind, pattern in _TIMES.items():
        if kind == "year":
            quantities = frozenset("".join(m.group().split()) for m in _QUANTITY.finditer(text))
            text = _QUANTITY.sub(_blank, text)
        for match in pattern.finditer(text):
            found.append(_Mark(kind, "", _time(match) if kind == "time" else match.group(), *match.span()))
        text = pattern.sub(_blank, text)
    for label in _labels(text, known=False):
        found.append(label)
        text = _without(text, label)
    return sorted(found, key=lambda mark: mark.start), quantities, text


def _labels(text: str, *, known: bool) -> Iterator[_Mark]:
    for match in _LABEL.finditer(text):
        noun, number = match["noun"], match["number"]
        thing = _NUMBERED.fullmatch(noun) or noun == "§"
        if known and not thing:
            continue
        if _CJK_TEXT.search(noun) or _NO_THING.fullmatch(noun) or (number.isalpha() and not thing):
            continue
        if len(noun) == 1 and noun.isalpha() and match.end("noun") < match.start("number"):
            continue  # "Ana's 2 cats"
        yield _Mark("label", (terms(noun) or (noun,))[0], _DIGIT_OF.get(number, number), *match.span())


def _labels_cjk(text: str) -> Iterator[_Mark]:
    for match in _LABEL_CJK.finditer(text):
        noun = match["of"] or match["kind"] or match["what"]
        number = match["nth"] or match["no"] or match["number"]
        yield _Mark("label", noun, _DIGIT_OF.get(number, number), *match.span())


def _behind(text: str, marks: list[_Mark], start: int) -> Iterator[_Mark]:
    """Return the marks that stand behind a value, and say when or where it holds."""
    cjk = _CJK_TEXT.search(text)
    for mark in marks:
        between = text[start : mark.start]
        if cjk:
            first = not _BREAK.search(text[: mark.start])
            if mark.kind in ("year", "time") and first and (mark.start < start or between):
                yield mark
        elif mark.start < start or _BREAK.search(between):
            continue
        elif not terms(between):  # "war 2024 50000 Euro"
            if mark.kind == "year" and _QUANTITY.match(text[mark.end :].strip()):
                yield mark
        elif mark.kind == "label":
            if _NUMBERED.match(text, mark.start) and _BEHIND.search(between):
                yield mark
        elif mark.kind == "weekday":
            if _EVERY.search(mark.number):
                yield mark
        elif _BEHIND.search(between) and (mark.kind != "date" or mark.number.isalpha()):
            yield mark


def _put(text: str, labels: tuple[_Mark, ...]) -> Iterator[_Mark]:
    """Yield the labels that stand right behind such a verb, and no preposition between."""
    for verb in _PUT.finditer(text):
        behind = [m for m in labels if m.start >= verb.end()]
        if not behind or _SCALE.match(text, behind[0].start):
            continue
        if _ONLY_ARTICLE.fullmatch(text, verb.end(), behind[0].start):
            yield behind[0]


def _time(match: re.Match[str]) -> str:
    """Return hour and minute: "8:00", "8 Uhr" and "8 am" are one."""
    if match["zh"]:
        return match["zh"] + (match["zh_minute"] or "")
    hour = int(match["hour"]) % 12 + 12 if match["half"] == "pm" else int(match["hour"])
    return f"{hour}:{match['colon'] or match['h'] or '00'}"


def _without(text: str, mark: _Mark) -> str:
    return text[: mark.start] + " " * (mark.end - mark.start) + text[mark.end :]


def _blank(match: re.Match[str]) -> str:
    return " " * len(match.group())  # as long, so that what is found later keeps its place
