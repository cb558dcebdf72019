"""Decide whether a statement itself says that what an older one states has changed.

Changed values mostly come with words that say so ("was moved to", "no longer", "now", "现在", "ya no"), and
far from the old wording, so that no cosine tells. What tells: the clause speaks of the same thing, and
gives it another value of the same kind, ends it, or names what it takes the place of. Facts about other
people, other named things and other values of the same thing do not match, and stay.
"""

import re
from collections.abc import Iterable

from proxy.background.write_gate.change_words import Cue
from proxy.background.write_gate.contrast import CONTRAST
from proxy.background.write_gate.reading import COMMON, VALUE_KINDS, Claim, Statement, has_matter, read
from proxy.background.write_gate.whose import about_others, says_more

_COMMON_WEIGHT = 0.25
_COVERED = 0.76  # share of what the clause speaks of that the old fact has to speak of too
_FEW = 4
_COVERED_CJK = 0.6  # bigrams across two words are nobody's words
_NOT_ON = re.compile(
    r"(?:\b(?:not|instead of|rather than|nicht|statt|y no|en (?:lugar|vez) del?|et (?:non|pas)|au lieu d[eu])"
    r" (?:(?:on|the|am|an|den|dem|el|le|du) ){0,2}|而?不是|而非)"
    rf"(?P<day>{VALUE_KINDS['date']}|{VALUE_KINDS['weekday']})"
)


def claims_change(old: str, new: str, cosine: float | None) -> bool:
    """Return whether `new`, said later, says that what `old` says holds no more, or has another value."""
    a, b = read(old), read(new)
    if b.beside or about_others(old, new):
        return False
    if any(_claim_meets(claim, a, b, cosine) for claim in b.claims):
        return True
    return _came_to_be(a, b)


def says_moved(text: str, *, to: str | None = None) -> bool:
    """Return whether the statement says that something was moved or called off; with `to`, that it was moved
    to a value of this kind."""
    claims = read(text).claims
    if to is None:
        return any(claim.cue in (Cue.MOVED, Cue.ENDED) for claim in claims)
    return any(claim.cue is Cue.MOVED and to in claim.kinds for claim in claims)


def takes_back_date(old: str, new: str) -> bool:
    """Return whether `new` names the day that `old` gives as the wrong one: "on 10 March, not 3 March"."""
    a = read(old)
    given = a.of_kind("date") | a.of_kind("weekday")
    refused = (" ".join(m["day"].replace(",", "").split()) for m in _NOT_ON.finditer(read(new).text))
    return any(day in given for day in refused)


def _claim_meets(claim: Claim, a: Statement, b: Statement, cosine: float | None) -> bool:
    match claim.cue:
        case Cue.MOVED:
            of_itself = has_matter(claim.before - b.names) or not has_matter(claim.changed)
            topic = claim.before if of_itself and has_matter(claim.before) else claim.changed
            values = _other_values(claim, a, b)
            return _is_owners(claim, a, b) and _speaks_of(topic, claim.names_before, a, b, values)
        case Cue.NOW:
            return _holds_now(claim, a, b)
        case Cue.ENDED:
            return _ends(claim, a, b)
        case Cue.DENIED:
            return (
                not a.denied
                and _covered(claim.before | claim.after, a) >= 0.99
                and _tells(claim.before | claim.after, a, b)
            )
        case Cue.INSTEAD:
            return _takes_the_place(claim, a, b, cosine)
        case Cue.GONE:
            return _left_it(claim, a, b)


def _speaks_of(topic: frozenset[str], names: frozenset[str], a: Statement, b: Statement, values: int) -> bool:
    """True if the old fact speaks of what the clause speaks of, with all the names that it names, and has
    other `values`: where several are others, less needs to be shared."""
    if not values or not (_tells(topic, a, b) or _is_about(topic, a, b)):
        return False
    if not b.is_german and any(n not in a.text for n in names):
        return False
    enough = _COVERED_CJK if b.is_cjk or values > 1 else _COVERED
    return _covered(topic, a) >= enough and not _contrast(topic, a)


def _is_about(topic: frozenset[str], a: Statement, b: Statement) -> bool:
    """True if both are about the named thing itself: "Lantern is due …", "Lantern was moved to …". What the
    old fact says of it beside a value is another matter: somebody who "now drives a Volvo" is as allergic."""
    return (
        bool(topic and a.holder)
        and topic <= b.names
        and a.holder == b.holder
        and f"{a.holder}'s" not in a.text
        and not says_more(a)
        and (says_moved(b.text) or not says_more(b))
    )


def _holds_now(claim: Claim, a: Statement, b: Statement) -> bool:
    """True if the clause gives what the old fact speaks of another value, before or after the cue."""
    values = _other_values(claim, a, b)
    if not _is_owners(claim, a, b):
        return False
    if _speaks_of(claim.before, claim.names_before, a, b, values) and _value_of_the_same(claim, a, b):
        return True
    if _one_word_differs(a, b):
        return True
    whole = frozenset(w for w in claim.before | claim.after if w not in b.names or w in a.words)
    return _speaks_of(whole, claim.names_before, a, b, values)


def _is_owners(claim: Claim, a: Statement, b: Statement) -> bool:
    """True if a Chinese clause begins with what the old fact speaks of, too, whose matter it is, and ends
    in it before the cue: what has changed."""
    return not b.is_cjk or all(_covered(part, a) >= 0.5 for part in (claim.owner, claim.head) if part)


def _value_of_the_same(claim: Claim, a: Statement, b: Statement) -> bool:
    """True unless the value is that of something that the old fact does not know: "pays 40 for internet"."""
    beside = {w for w in claim.after if w not in COMMON and w not in b.names}
    unheard = {w for w in beside if not speaks(a, w)}
    return not claim.kinds or 2 * len(unheard) <= len(beside)


def _one_word_differs(a: Statement, b: Statement) -> bool:
    """True if two statements about the same two things or more differ in one word: dark and light mode."""
    one, other = a.words - a.names - COMMON, b.words - b.names - COMMON
    return a.names == b.names and len(one & other) >= 2 and len(one - other) == len(other - one) == 1


def _ends(claim: Claim, a: Statement, b: Statement) -> bool:
    """True if what the clause ends is what the old fact says; a fact that was ended before is another."""
    ended = claim.after if has_matter(claim.after) else claim.before
    if not b.is_german and any(n in ended and n not in a.text for n in b.names):
        return False
    others = claim.names_before if ended is claim.after and b.holder != "user" else ()
    if others and not any(n in a.text for n in others):
        return False  # it ended for somebody else
    if not (ended & a.words - b.names) and ended is claim.before and not _names_the_plan(ended, a):
        return False
    if len(ended) == 1 and not ended <= a.words and len(a.words - COMMON) > _FEW:
        return False  # one word, and only akin to one of many
    limits = [k for k in claim.kinds if k in ("weekday", "time", "every")]
    if limits and not any(a.of_kind(k) for k in limits):
        return False  # on some days only
    counted = [k for k in claim.kinds if k.startswith("count:")]
    if counted and not any(a.of_kind(k) for k in counted):
        return False  # so many of something else: "sold 20 mugs at the fair" ends no stand there
    covered = _covered(ended, a) >= (_COVERED_CJK if b.is_cjk else _COVERED)
    return covered and not _contrast(ended, a) and not _was_ended(a)


def _takes_the_place(claim: Claim, a: Statement, b: Statement, cosine: float | None) -> bool:
    """True if the old fact names what is replaced, and speaks of the same thing otherwise."""
    replaced = claim.changed
    if not (replaced - COMMON) or _covered(replaced, a) < _COVERED:
        return False
    elsewhere = (a.words & b.words) - replaced - COMMON
    near = cosine is not None and cosine >= 0.5
    return bool(elsewhere) or near or len(a.words) <= 3


def _left_it(claim: Claim, a: Statement, b: Statement) -> bool:
    """True if somebody or something that the old fact names is gone, and the rest speaks of the same."""
    gone = {n for n in a.names & b.names if n in claim.before}
    matter = a.words - a.names
    return bool(gone) and bool(b.names - a.names) and _share(matter, b) >= 0.5 and bool(matter - COMMON)


def _came_to_be(a: Statement, b: Statement) -> bool:
    """True if the old fact is a plan, and the new one says what became of it."""
    if not a.planned or b.planned or b.is_cjk:
        return False
    meant = {w for w in a.words if w not in COMMON or w in a.names}
    return len(meant) >= 2 and _share(meant, b) >= 0.99


# ------------------------------------------------------------ what both speak of
def _covered(topic: Iterable[str], a: Statement) -> float:
    """Return the share of the topic's weight that the old fact speaks of."""
    total = found = 0.0
    for word in topic:
        weight = _COMMON_WEIGHT if word in COMMON else 1.0
        total += weight
        found += weight if speaks(a, word) else 0.0
    return found / total if total else 0.0


def _share(words: Iterable[str], b: Statement) -> float:
    wanted = list(words)
    return sum(speaks(b, w) for w in wanted) / len(wanted) if wanted else 0.0


def _tells(topic: frozenset[str], a: Statement, b: Statement) -> bool:
    """True if the old fact shares what tells the topic: not a name alone, which many facts share."""
    shared = {w for w in topic if speaks(a, w)}
    matter = {w for w in shared if w not in COMMON and (w not in a.names | b.names or a.is_german)}
    return bool(matter) or (len(shared) > 1 and bool(shared & COMMON)) or _names_the_plan(topic, a)


def _names_the_plan(topic: frozenset[str], a: Statement) -> bool:
    """True if the old fact is a plan, and the topic has nothing but its names: "the trip to Lisbon"."""
    return a.planned and bool(topic & a.names) and topic - COMMON <= a.names


def speaks(statement: Statement, word: str) -> bool:
    """True if the statement holds the word, a form of it, or a compound with it."""
    if word in statement.words:
        return True
    if not word.isascii() and len(word) <= 2:
        return len(word) == 1 and word in statement.text
    if len(word) < 4 or word in statement.names:
        return False
    return any(_akin(word, other) for other in statement.words if len(other) >= 4)


def _akin(one: str, other: str) -> bool:
    """True for "public" and "publicly", "Bericht" and "Prüfbericht"."""
    shorter = min(len(one), len(other))
    if one in other or other in one:
        return abs(len(one) - len(other)) <= (6 if shorter > 4 else 2)
    shared = next((i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), 0)
    return shared >= 5 and max(len(one), len(other)) - shared <= 3


def _other_values(claim: Claim, a: Statement, b: Statement) -> int:
    """Return how many values the new fact gives that the old one has of the same kind, and otherwise. A
    claim without such values may name another somebody or something: that counts as one."""
    kinds = list(dict.fromkeys(k for k in claim.kinds if k != "every")) or list(claim.kinds[:1])
    others = sum(bool(a.of_kind(k) and b.of_kind(k) - a.of_kind(k)) for k in kinds)
    if kinds:
        first = a.of_kind(kinds[0]) and b.of_kind(kinds[0]) - a.of_kind(kinds[0])
        return others if first or claim.cue is Cue.NOW else 0
    if claim.cue is Cue.MOVED and _is_priced(claim.before, a):
        return 0  # a place, a name or a person is no other price
    new = claim.after if claim.before else b.words
    fresh = {w for w in new if not speaks(a, w) and w not in COMMON}
    if b.is_cjk or b.is_german or not (b.names & new):
        return int(bool(fresh))
    return int(bool(fresh & b.names) and bool(a.names - b.names))


def _is_priced(topic: frozenset[str], a: Statement) -> bool:
    """True if the clause of the old fact that speaks of the topic gives an amount of money."""
    holders = (c for c in a.clauses if any(word in c for word in topic))
    return any(read(clause).of_kind("money") for clause in holders)


def _contrast(topic: frozenset[str], a: Statement) -> bool:
    return bool((topic - a.words) & CONTRAST)


def _was_ended(a: Statement) -> bool:
    return any(c.cue is Cue.ENDED for c in a.claims)
