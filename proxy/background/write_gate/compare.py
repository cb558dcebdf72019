"""Compare a new fact with an old one: the same fact, its successor, or another fact that holds beside it.

Measured on hand-written pairs, "same fact reworded" and "value changed" have the same cosine, and facts
that hold side by side ("has a cat named Miso", "… named Tofu") come close. So nearness only asks the
question; the words decide. The dear mistake is to close a fact that still holds, hence every doubt
ends in APART: a duplicate costs a line in the block, a lost fact is lost.
"""

import re
from collections import Counter
from dataclasses import replace
from enum import Enum

from proxy.background.write_gate.claims import claims_change
from proxy.background.write_gate.contrast import CONTRAST, TIMES
from proxy.background.write_gate.fact import Fact, read_fact
from proxy.background.write_gate.numbered import about_other_numbers, hold_at_other_times
from proxy.background.write_gate.reading import COMMON
from proxy.background.write_gate.slots import is_form, tells_beside
from proxy.background.write_gate.whose import about_others, as_of_the_user
from proxy.terms import normalise

LEXICAL_NEAR = 0.6  # Jaccard over terms that asks the question where no vector means anything


class Relation(Enum):
    """What the new fact is to the old."""

    SAME = "same"  # says nothing that the old one does not say
    UPDATE = "update"  # says it anew: the old one is closed
    APART = "apart"


_MATTER = re.compile(
    "(?![用户我的在了和与是有为叫将已会也就于对一只个时间周一每从])[\u3400-\u4dbf\u4e00-\u9fff]|[a-z0-9.:%]+"
)
_DIRECTED = re.compile("比|给|向|到")  # who does what to whom stands in the order


def relate(old: str, new: str, cosine: float | None, *, near: float) -> Relation:
    """Return what `new`, said later, is to `old`. `near` is the model's duplicate threshold; without a
    cosine the shared terms stand in for it."""
    if normalise(old) == normalise(new):
        return Relation.SAME
    if about_other_numbers(old, new):
        return Relation.APART
    old, new = as_of_the_user(old, new)
    a, b = _aligned(old, new)
    if a.cjk and _same_characters(a, b):
        return Relation.SAME
    if a.cjk or b.cjk:
        cosine = None  # of glosses (see proxy.gloss), which leave names and rare values out
    if a.words == b.words and a.names == b.names and a.numbers == b.numbers:
        same = (a.negations, a.changed == 2) == (b.negations, b.changed == 2)
        return Relation.SAME if same else Relation.UPDATE
    if about_others(old, new) or (_opposed(a, b) and not b.changed):
        return Relation.APART
    if not b.changed and not _of_one(a, b) and hold_at_other_times(old, new):
        return Relation.APART
    closeness = _closeness(a, b, cosine, near)
    if _same_slot(a, b, closeness):
        return Relation.SAME if _adds_nothing(a, b) else Relation.UPDATE
    if claims_change(old, new, cosine):
        return Relation.UPDATE
    if _two_things(a, b):
        return Relation.APART
    if _replaced_names(a, b) and not _is_change(a, b, closeness):
        return Relation.APART
    if b.changed < 2 and _of_another(a, b):
        return Relation.APART
    if closeness >= 1:
        return Relation.APART if _beside(a, b) else _close(a, b, closeness)
    return Relation.UPDATE if _is_change(a, b, closeness) else Relation.APART


def overlap(one: str, other: str) -> float:
    """Return the Jaccard similarity of the two facts' terms."""
    a, b = (fact.words for fact in _aligned(one, other))
    return len(a & b) / len(a | b) if a or b else 0.0


def _aligned(one: str, other: str) -> tuple[Fact, Fact]:
    """Return both facts read, with "allergy" of the second taken for the first's "allergic"."""
    a, b = read_fact(one), read_fact(other)
    if a.words == b.words:
        return a, b
    alone = a.words - b.words  # what both say needs no other form: "trains" is none of "Trainline"
    words = frozenset(t if t in a.words else next((w for w in alone if is_form(w, t)), t) for t in b.words)
    return a, replace(b, words=words)


def _close(a: Fact, b: Fact, closeness: float) -> Relation:
    """Return the relation of two near facts in which no name was replaced by another."""
    removed, added = a.words - b.words - a.numbers, b.words - a.words - b.numbers
    numbers_differ = bool(a.numbers - b.numbers and b.numbers - a.numbers)
    if _adds_nothing(a, b):
        return Relation.SAME
    if a.event is not b.event and not b.changed and a.negations == b.negations:
        return Relation.APART  # what happened once, and what holds
    if numbers_differ and not b.changed and (a.event or ((removed or added) and closeness < 1.08)):
        return Relation.APART
    if a.attribute and a.attribute == b.attribute and a.value != b.value and not b.changed:
        return Relation.APART
    if a.several and removed and added and a.negations == b.negations and not b.changed:
        return Relation.APART
    return Relation.UPDATE


def _same_slot(a: Fact, b: Fact, closeness: float) -> bool:
    """True where both give a value to what has one value at a time. "User's mother is 74" and "… is on
    warfarin" give it to different things: of two values of "is" the shapes must agree."""
    if not a.attribute or a.attribute != b.attribute:
        return False
    return a.attribute[0] != "is" or (
        a.value == b.value and closeness >= (0.95 if a.value == "other" else 0.5)
    )


def _of_one(a: Fact, b: Fact) -> bool:
    """True where both give what a person has one of, a home or an employer: a year is that of the change."""
    return bool(a.attribute) and a.attribute == b.attribute and a.attribute[0] != "is"


def _same_characters(a: Fact, b: Fact) -> bool:
    """True where two Chinese wordings differ only in characters that carry no matter, or in their order."""
    if (a.numbers ^ b.numbers) - {"一"} or a.negations != b.negations or _DIRECTED.search(a.text + b.text):
        return False
    one, other = Counter(_MATTER.findall(a.text)), Counter(_MATTER.findall(b.text))
    more, less = (other - one).total(), (one - other).total()
    return more + less <= (1 if min(more, less) == 0 and one.total() >= 6 else 0)


def _opposed(a: Fact, b: Fact) -> bool:
    """True where each speaks of its own of two things: weekdays and weekends."""
    return bool((a.words - b.words) & CONTRAST) and bool((b.words - a.words) & CONTRAST)


def _of_another(a: Fact, b: Fact) -> bool:
    """True where a word tells that one of them is about another thing: "the flight back". When it is done
    makes a fact that says the same otherwise narrower: "drinks coffee", "drinks coffee in the morning"."""
    told = (a.words ^ b.words) & CONTRAST
    narrower = told <= TIMES and a.numbers == b.numbers and (a.words <= b.words or b.words <= a.words)
    return bool(told) and not narrower


def _beside(a: Fact, b: Fact) -> bool:
    """True where nothing says that something changed, and, word for word, another thing is told of."""
    differ = bool(a.words - b.words and b.words - a.words) or a.cjk
    return differ and not b.changed and a.negations == b.negations and tells_beside(a.text, b.text)


def _two_things(a: Fact, b: Fact) -> bool:
    """True where each gives a value to another thing: of another owner, or of another kind."""
    one, other = a.attribute, b.attribute
    return bool(one and other) and one != other and not one[0] == other[0] == "is"


def _adds_nothing(a: Fact, b: Fact) -> bool:
    said = b.words <= a.words and b.names <= a.names
    return said and b.numbers <= a.numbers and a.negations == b.negations


def _is_change(a: Fact, b: Fact, closeness: float) -> bool:
    """True where the new fact says itself that something changed, and is about what the old one is."""
    if not b.changed or not a.words:
        return False
    one, other = a.words - a.numbers, b.words - b.numbers
    if not (one & other) - a.names - COMMON:
        return False
    shared = len(one & other) / min(len(one), len(other))
    return shared >= 0.55 and closeness >= (0.7 if b.changed == 2 else 0.88)


def _closeness(a: Fact, b: Fact, cosine: float | None, near: float) -> float:
    """Return nearness in units of the threshold: 1 and more asks whether it is the same fact."""
    if cosine is not None:
        return cosine / near
    union = len(a.words | b.words)
    return len(a.words & b.words) / union / LEXICAL_NEAR if union else 0.0


def _replaced_names(a: Fact, b: Fact) -> bool:
    return any(not _names(b, n) for n in a.names) and any(not _names(a, n) for n in b.names)


def _names(fact: Fact, name: str) -> bool:
    """True if the fact holds the name, whole: "Daniela" does not name Daniel."""
    if not name.isascii():
        return name in fact.text
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", fact.text) is not None
