"""Decide whether two statements that are alike word for word speak of two different things: "pays rent by
standing order", "pays electricity by standing order".

No table knows everything that may stand side by side. But somebody who corrects a fact mostly says so, or
gives a new value to something that has only one. So where two statements differ in a few places, and what
differs is neither a number nor a day, they are taken for two facts that hold side by side.
"""

import re
from itertools import takewhile

from proxy.background.write_gate.reading import WEEKDAY, read
from proxy.terms import terms
from proxy.writing_systems import IDEOGRAPH

# What has one value at a time, in other languages, too.
_IS = re.compile(r"\b(?:is|are|was|were|will be|es|son|era|est|sont|etait|ist|sind|war|heisst)\b")
_ARTICLES = frozenset("the a an el la los las un una der die das den dem ein eine einen le les une".split())
_SAID_OF = re.compile("[在是有的叫放]")
# A weekday on which something is done again and again.
HABIT = re.compile(
    rf"\b(?:every|each|jeden|los|cada|les?|chaque|tous les) {WEEKDAY}\b"
    r"|\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days|(?:mon|diens|donners|frei|sams|sonn)tags|mittwochs)\b"
)
_COUNTED = re.compile(
    "ein[es]?|zwei|drei|vier|funf|sechs|sieben|acht|neun|zehn|una?|dos|tres|cuatro|cinco|seis|siete|ocho|nueve"
    "|diez|une?|deux|trois|quatre|cinq|six|sept|huit|neuf|dix"
)
_MOST = 3  # places


def tells_beside(one: str, other: str) -> bool:
    """Return whether the folded texts differ in single words, each in its place. Where something is or has a
    value, the subjects must be two: "the spare key is with Jo", "the car key …"."""
    if IDEOGRAPH.search(one + other):
        return _two_subjects(one, other)
    a, b = ([w for w in text.rstrip(".!").split() if w not in _ARTICLES] for text in (one, other))
    if len(a) != len(b):
        return False
    at = [n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    pairs = [(a[n], b[n]) for n in at]
    if len(pairs) > _MOST:
        return False  # alike in form alone
    copula = next((n for n, word in enumerate(a) if _IS.fullmatch(word)), None)
    if any(_are_akin(x, y) for x, y in pairs) or (copula is not None and not any(n < copula for n in at)):
        return False
    often = copula is None and bool(HABIT.search(one) and HABIT.search(other))
    return bool(pairs) and all(_are_words(pair) or (often and _are_days(pair)) for pair in pairs)


def is_form(one: str, other: str) -> bool:
    """True for two forms of a word: "allergic" and "allergy", not "penicillin" and "penicillamine"."""
    if one == other:
        return True
    if not (one.isascii() and one.isalpha() and other.isalpha()):
        return False
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    return shared >= 5 and max(len(one), len(other)) - shared <= 3


def _are_akin(one: str, other: str) -> bool:
    """True for two forms or two spellings of a word: "favorite" and "favourite", "cats," and "cats"."""
    if one.strip(".,;:") == other.strip(".,;:") or is_form(one, other):
        return True
    said = read(one).words
    return bool(said) and said == read(other).words and not set(terms(one)) & set(terms(other))


def _are_words(pair: tuple[str, str]) -> bool:
    """True unless one of the two is a value: a number, a day, a price."""
    return not any(read(word).values or _COUNTED.fullmatch(word) for word in pair)


def _are_days(pair: tuple[str, str]) -> bool:
    return all(read(word).of_kind("weekday") for word in pair)


def _two_subjects(one: str, other: str) -> bool:
    """True for two Chinese statements that differ in one place, before what is said of the subject."""
    start = len(_shared(one, other))
    tail = len(_shared(one[start:][::-1], other[start:][::-1]))
    gone, come = one[start : len(one) - tail], other[start : len(other) - tail]
    told = _SAID_OF.search(one[: start + len(gone)]) or re.search(r"\d", gone + come)
    return bool(gone and come and tail) and not told


def _shared(one: str, other: str) -> str:
    """Return what both begin with."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return "".join(x for x, _ in same)
