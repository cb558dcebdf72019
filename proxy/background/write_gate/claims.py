"""Decide whether a statement itself says that what an older one states has changed.

Changed values mostly come with words that say so ("was moved to", "no longer", "now", "现在", "ya no"), and
far from the old wording, so that no cosine tells. What tells: the clause speaks of the same thing, and
gives it another value of the same kind, ends it, or names what it takes the place of. Facts about other
people, other named things and other values of the same thing do not match, and stay.
"""

import re
from collections.abc import Iterable

from proxy.background.write_gate.change_words import KIN, Cue
from proxy.background.write_gate.contrast import CONTRAST
from proxy.background.write_gate.reading import COMMON, VALUE_KINDS, Claim, Statement, read
from proxy.terms import plain

_COMMON_WEIGHT = 0.25
_COVERED = 0.76  # share of what the clause speaks of that the old fact has to speak of too
_FEW = 4
_COVERED_CJK = 0.6  # bigrams across two words are nobody's words
_OWNER = re.compile("(?!用户|我)([^,，的]{2,12})的")  # whose matter a Chinese statement begins with
_SUBJECT = re.compile(
    r"(?!(?:The|An?|This|That|These|Those|There|It|He|She|They|We|My|Our|His|Her|Their|Its|On|In|At|Since|From"
    r"|To|For|By|No|All|Both|Each|Every|Some|Most|Nightly|Daily|Weekly|Monthly|Yearly|Annual|New|Old|First|Last"
    r"|Next|Current|El|La|Los|Las|Le|Les|Un|Une|Una|Mi|Su|Mon|Ma|Mes|Sa|Ses)\b)"
    r"([A-Z][\w-]+)(?=['’]s\b|,? )"
)
_SUBJECT_ZH = re.compile("[小老阿](?![时区孩板师家人院姨公婆是说友鼠虎])[\u4e00-\u9fff]")  # 小王, not 小区
# Of folded text: "my sister", "user's older sister", "tom's wife", "la hermana del usuario", "用户的妹妹".
_KIN = rf"(?!teams?\b|office\b|company\b|公司|部门|团队)(?:{KIN.pattern})"
_RELATIVE = re.compile(
    rf"(?:my|(?:the )?\w+'s|mein\w*|mi|m[ao]n?) (?:\w+ )?{_KIN}"
    rf"|(?:el|la|le|der|die) {_KIN} (?:del? |de la |de l'|des |der )(?:usuari[oa]|utilisat\w+|nutzer\w*)"
    rf"|(?:用户|我)的?(?:{_KIN})+"
)
_USERS = {  # how the user is called where a relative is spoken of so
    "^(?:用户|我)": "用户",
    "^mein|nutzer": "Der Nutzer",
    "^mi |usuari": "El usuario",
    "^m[ao]n? |utilisat": "L'utilisateur",
    "": "User",
}
_CALLED = re.compile(r" ([A-Z]\w+)(?=[' ,])|([小老阿][\u4e00-\u9fff])")
_IS_JUST = re.compile(
    r"(?:用户是|(?:User|El usuario|L'utilisateur|Der Nutzer) (?:is|was|es|est|ist) )(?!called|named)"
)
_SAME_ZH = re.compile("用户(?:现在|已经|目前)?([上读住开])")  # 孩子上大班, 孩子现在上小学
_DOES = re.compile(r"\b(?:lives?|works?|stud(?:y|ies))\b")  # many facts share the word: yet no mere value
_APPOSITION = re.compile(r"^(\w[\w-]+), [^,]{2,60},")  # "Lantern, the new form, is due"
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
            of_itself = _matter(claim.before - b.names) or not _matter(claim.changed)
            topic = claim.before if of_itself and _matter(claim.before) else claim.changed
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
        and not _says_more(a)
        and (says_moved(b.text) or not _says_more(b))
    )


def _says_more(a: Statement) -> bool:
    """True if the fact says more of the one that it begins with than a value."""
    matter = _matter(read(_APPOSITION.sub(r"\1", a.text)).words - a.names)
    return matter or _DOES.search(a.text) is not None


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
    ended = claim.after if _matter(claim.after) else claim.before
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


def _matter(words: frozenset[str]) -> bool:
    """True if there is a word among them that few facts share."""
    return bool(words - COMMON)


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


# ------------------------------------------------------------ whose
def as_of_the_user(old: str, new: str) -> tuple[str, str]:
    """Return both facts told of the user where both begin with one name, or one relative, else as they are: that
    they are Sam's tells as little of what they are about as that they are the user's. A fact that gives
    nothing but a value ("Lantern is due on 3 May") is about the named thing itself, and stays as it is."""
    first, second = _SUBJECT_ZH.match(old), _SUBJECT_ZH.match(new)
    if first and second and first[0] == second[0]:
        return old.replace(first[0], "用户"), new.replace(first[0], "用户")
    if (ours := _of_one_relative(old, new)) is not None:
        is_value = _IS_JUST.match(ours[0]) is not None and not _says_more(read(ours[0]))
        one, other = map(_SAME_ZH.match, ours)
        return (old, new) if is_value or (one and other and one[1] == other[1]) else ours
    first, second = _SUBJECT.match(old), _SUBJECT.match(new)
    if first is None or second is None or first[1] != second[1]:
        return old, new
    a = read(old)
    if a.is_german or a.is_cjk or a.holder == "user" or not _says_more(a):
        return old, new
    name = re.compile(rf"(?<!\w){re.escape(first[1])}(?!\w)")
    return name.sub("User", old), name.sub("User", new)


def _of_one_relative(old: str, new: str) -> tuple[str, str] | None:
    """Return both facts told of the user where both begin with the same relative, else None."""
    first, second = _relative(old), _relative(new)
    if not first or not second or first[0] != second[0] or (first[1] and second[1] and first[1] != second[1]):
        return None  # of two sisters, too
    user = next(name for of, name in _USERS.items() if re.search(of, first[0]))
    return user + first[2], user + second[2]


def _relative(text: str) -> tuple[str, str, str] | None:
    """Return the relative that the fact begins with, the name that follows, and the rest."""
    told = text.replace("œ", "oe").replace("’", "'")
    match = _RELATIVE.match(plain(told))
    if match is None:
        return None
    rest = told[match.end() :]
    called = _CALLED.match(rest)
    name = called.group() if called else ""
    return re.sub(r"^(?:my|the user's|user's) ", "", match.group()), name, rest.removeprefix(name)


def about_others(old: str, new: str) -> bool:
    """Return whether the facts are about different people: relatives, or somebody or something named."""
    a, b = read(old), read(new)
    shared = any(n in b.text for n in a.names) or any(n in a.text for n in b.names)
    unheard = any(k not in b.text for k in a.kin) or any(k not in a.text for k in b.kin)
    if unheard and not shared:
        return True
    one, other = _OWNER.match(a.text), _OWNER.match(b.text)
    if one and other and one[1] not in other[1] and other[1] not in one[1]:
        return True
    if not a.holder or not b.holder or a.holder == b.holder or "user" in (a.holder, b.holder):
        return False
    return not (set(a.holder.split()) & b.names or set(b.holder.split()) & a.names)
