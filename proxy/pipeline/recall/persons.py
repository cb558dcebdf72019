"""Check that the person whom the question asks about is in memory at all.

"What did my mother cook at Christmas?" comes close to every memory of Christmas. Where no memory speaks of
the user's mother, or of parents, none of them is the answer. Only roles that are told by their names are
looked for: a dog may be in memory as "Miso" alone, a niece as a sister's daughter. The question has to say
whose they are ("my mother"): "a friend is cooking" asks about nobody.
"""

import re
from collections.abc import Sequence
from functools import cache

from proxy.overlap import MEMORY_CHARS
from proxy.pipeline.recall.named import Lack, asks_for_fact, is_advice
from proxy.pipeline.roles import Role, roles_in
from proxy.terms import fold

_WHOSE = re.compile(
    r"(?:\b(?:my|our|mis?|nuestr[oa]s?|mein(?:e[mnrs]?)?|unser(?:e[mnrs]?)?|mon|ma|mes|notre|nos)\s+"
    r"(?:[^\W\d_]+\s+)?|我(?:们|家)?的?|咱(?:们|家)?的?)$"
)
# "Pickle's vet", "小满的舞蹈老师": somebody else's, by a name or by another role.
_ANOTHERS = re.compile(r"(?:[^\W\d_]+['’]s\s+(?:[^\W\d_]+\s+)?|的[\u3400-\u9fff]{0,3})$")
_MINE = re.compile("[我咱]")  # some Chinese roles have it among their words
_BEFORE = 30  # characters in which the possessive stands
# Who may be told of under another role, by the roles' English names.
_FAMILIES = (("wife", "husband", "partner", "boyfriend", "girlfriend", "fiance"),)
# Relatives alone: who does something for the user is told of by what it is ("Fatou cleans on Fridays").
_ALONE = "sister brother mother father parent grandmother grandfather aunt uncle cousin".split()
# Somebody else's may be the user's under another name: a niece's mother is a sister.
_RELATIVES = frozenset(
    "sister brother mother father parent grandmother grandfather aunt uncle cousin wife husband partner"
    " boyfriend girlfriend fiance".split()
)
_LEADING = frozenset("son daughter child baby".split())
# What a role is told by beside its own words.
_TOLD = {
    **dict.fromkeys(
        ("mother", "father"),
        r"\bparents?\b|\bfolks\b|父母|爸妈|家长|\bpadres\b|\beltern\b",
    ),
    **dict.fromkeys(
        ("grandmother", "grandfather"),
        r"\bgrandparents?\b|祖父母|爷爷奶奶|\babuelos\b|\bgrosseltern\b|\bgrands-parents\b",
    ),
    **dict.fromkeys(
        ("sister", "brother"),
        r"\bsiblings?\b|兄弟姐妹|姐弟|兄妹|\bhermanos\b|\bgeschwister\b|\bfreres et soeurs\b",
    ),
    "parent": r"\b(?:mother|father|mum|mom|dad)\b|妈|爸|母亲|父亲|\b(?:madre|padre|mutter|vater|mere|pere)\b",
    "wife": r"\bmarried\b|\bwedding\b|\bhochzeit|\bboda\b|\bmariage\b|结婚|\bcasad[oa]\b|\bverheiratet\b"
    r"|\bmariee?\b|爱人|先生|对象|领证|領證|登记|成家|娶|嫁"
    r"|\bcas(?:o|aron)\b|\bnoces\b|\bepous|\b(?:dating|couple|engaged)\b"
    r"|\b(?:going|went) out with\b|\bgot to know\b"
    r"|\b(?:together|moved in|lives|living) with\b|\bsal(?:e|ir) con\b|\bzusammen mit\b|\bpareja\b",
}

_PARENTS = ("mother", "father", "parent")
# Who is told of by two others: "Mum's sister", "Dad's wife", "my aunt's son".
_BETWEEN = {
    **dict.fromkeys(("aunt", "uncle"), (_PARENTS, ("sister", "brother"))),
    **dict.fromkeys(("grandmother", "grandfather"), (_PARENTS, _PARENTS)),
    "cousin": (("aunt", "uncle"), ("son", "daughter", "child")),
    **dict.fromkeys(("sister", "brother"), (_PARENTS, ("son", "daughter", "child"))),
    **dict.fromkeys(_PARENTS, (_PARENTS, ("wife", "husband"))),
}


def stranger(text: str) -> Lack | None:
    """Return what says that no memory speaks of anybody in the role of the relative about whom the text asks
    for a fact; None if it asks about none."""
    if not asks_for_fact(text) or is_advice(fold(text)) or not (asked := _asked(text)):
        return None

    def lacks(contents: Sequence[str]) -> bool:
        return not any(_is_told(role, fold(content, MEMORY_CHARS)) for content in contents for role in asked)

    return lacks


def asked_roles(text: str) -> Sequence[Role]:
    """Return the roles that the text calls the user's own, or somebody's of the user's world."""
    folded = fold(text)
    return [r for r in roles_in(text) if any(_is_own(r, folded, place) for place in r.places(folded))]


def speaks_of(role: Role, folded: str) -> bool:
    """True if the (folded) text speaks of somebody in the role, under any of its words."""
    return _is_told(role, folded) if _name(role) in _KNOWN else bool(role.places(folded))


def _asked(text: str) -> Sequence[Role]:
    """Return the roles that the text calls the user's own; none if one of them may be told of otherwise."""
    own = asked_roles(text)
    if not own or not all(_name(role) in _KNOWN for role in own):
        return ()
    # "The son of my brother" is told of as a nephew.
    leads_on = any(_name(role) in _LEADING for role in roles_in(text) if role not in own)
    return () if leads_on and all(_name(role) in _RELATIVES for role in own) else own


def _is_own(role: Role, folded: str, place: tuple[int, int]) -> bool:
    """True if the role belongs to the user, or to somebody of the user's world."""
    start, end = place
    before = folded[max(0, start - _BEFORE) : start]
    if _WHOSE.search(before) or _MINE.match(folded[start:end]):
        return True
    return _name(role) not in _RELATIVES and _ANOTHERS.search(before) is not None


def _is_told(role: Role, said: str) -> bool:
    family = _KNOWN[_name(role)]
    if any(_of(name).places(said) for name in family):
        return True
    if any(told.search(said) for name in family if (told := _OTHERWISE.get(name))):
        return True
    return any(_leads_to(name, said) for name in family if name in _BETWEEN)


def _leads_to(name: str, said: str) -> bool:
    """True if the (folded) text speaks of two others in a breath, who lead to whom the name stands for."""
    first, second = ({place for of in names for place in _of(of).places(said)} for names in _BETWEEN[name])
    return any(one != other for one in first for other in second)


@cache
def _of(name: str) -> Role:
    return next(role for role in roles_in(name) if _name(role) == name)


def _name(role: Role) -> str:
    return role.words[0]


_KNOWN = {name: family for family in (*_FAMILIES, *((name,) for name in _ALONE)) for name in family}
_OTHERWISE = {name: re.compile(pattern) for name, pattern in _TOLD.items()}
