"""What the steps that make memories from memories share: which words a made text may hold, and how it is
stored.

A model's text is data. Whatever has a form (numbers, dates, names) must come from the sources, with the same
unit; what belongs to one name must not be moved to another. Texts are compared as `text.terms` folds them."""

import re
from collections.abc import Collection, Iterable, Sequence
from string import Template

from proxy.admit.gate import Gate
from proxy.admit.safety import SafetyPolicy, clean
from proxy.domain import timezones
from proxy.domain.changes import Applied, Change
from proxy.domain.core import (
    DEFAULT_TIMEZONE,
    Memory,
    MemoryFilter,
    Scope,
    Stamp,
)
from proxy.domain.errors import Conflict
from proxy.domain.ports import CompletionRequest
from proxy.learn.extractor import RESOLVED
from proxy.learn.llm_io import defused
from proxy.prompts import prompt
from proxy.text.words import fold, sentences, terms, without_inner_stops

SUPPORT = 0.7  # share of a made text's terms that its sources hold: the rest is narration
_ATTEMPTS = 8
_NUMBER = re.compile(r"\d+(?:[.:/-]\d+)*")
_NAME = re.compile(r"[^\W\d_][\w'’-]*")
_AROUND = re.compile(r"[^\W\d_]+|[^\w\s.,;:()\"'-]")  # a word, or a sign such as a currency's


# ---------------------------------------------------------------- forms
def numbers(text: str) -> set[str]:
    """Return the numbers, dates among them, without thousands separators."""
    return set(_NUMBER.findall(fold(text).replace(",", "")))


def names(text: str) -> set[str]:
    """Return the capitalised words within sentences, folded: names, in most languages that have capitals."""
    found = set[str]()
    for sentence in sentences(without_inner_stops(text)):
        first = True
        for match in _NAME.finditer(sentence):
            word = match.group()
            if word[0].isupper() and not first:
                found |= set(terms(word))
            first = False
    return found


def capitalised(text: str) -> set[str]:
    """Return the terms of all capitalised words, also of those that begin a sentence."""
    return {term for word in _NAME.findall(text) if word[0].isupper() for term in terms(word)}


def fits(names_of: Iterable[set[str]]) -> bool:
    """True if no two of the texts name different things only."""
    known = [found for found in names_of if found]
    return all(not one.isdisjoint(other) for n, one in enumerate(known) for other in known[:n])


def unsupported(text: str, sources: Sequence[Memory], of_others: Collection[str] = ()) -> str:
    """Return why the text cannot have been made of the sources alone, in a word; "" if it can. `of_others`:
    ids of the sources that are about another person than the user."""
    said = " ".join(m.content for m in sources)
    dates = {timezones.local(m.valid_from, DEFAULT_TIMEZONE).date().isoformat() for m in sources}
    known, held = set(terms(said)), set(terms(text))
    if not held or len(held & known) < SUPPORT * len(held):
        return "unsupported"
    if not numbers(text) <= numbers(said) | dates:
        return "number"
    if not capitalised(text) <= known:
        return "name"
    if any(not _in_place(number, text, sources) for number in numbers(text) - dates):
        return "unit"
    return "mixed" if any(_mixes(one, sources, of_others) for one in sentences(text)) else ""


def _in_place(number: str, text: str, sources: Sequence[Memory]) -> bool:
    """True if the number has a neighbour, a word or a sign, that it has in one of the sources."""
    around = _neighbours(number, text)
    return any(around & _neighbours(number, m.content) for m in sources)


def _neighbours(number: str, text: str) -> set[str]:
    flat, found = fold(text).replace(",", ""), set[str]()
    for match in _NUMBER.finditer(flat):
        if match.group() == number:
            before = _AROUND.findall(flat[max(0, match.start() - 24) : match.start()])
            after = _AROUND.findall(flat[match.end() : match.end() + 24])
            found |= {*before[-1:], *after[:1], *(word[:1] for word in after[:1] if word > "\u2e7f")}
    return found


def _mixes(sentence: str, sources: Sequence[Memory], of_others: Collection[str]) -> bool:
    """True if the sentence moves a statement from one name to another: it holds words that only one of
    the sources has, without all of that source's names."""
    held, named = set(terms(sentence)), capitalised(sentence)
    everyones = [set(terms(m.content)) for m in sources]
    for n, (memory, own) in enumerate(zip(sources, everyones, strict=True)):
        others = set().union(*(words for k, words in enumerate(everyones) if k != n))
        about = capitalised(memory.content) if memory.id in of_others else names(memory.content)
        if named and held & (own - others - about) and not about <= named:
            return True
    return False


def undated(first: str, then: str) -> tuple[str, str]:
    """Return two contents as the relation head compares them: without the days on which they were stated,
    which it was not trained on, unless that is all they differ in."""
    bare = RESOLVED.sub("", first), RESOLVED.sub("", then)
    return (first, then) if bare[0] == bare[1] else bare


# ---------------------------------------------------------------- what a model is shown
def request_of(role: str, name: str, scope: Scope, **shown: str) -> CompletionRequest:
    """Return the LLM call of a step: prompt `name`, and prompt `name`_input filled with what is `shown`."""
    user = Template(prompt(f"{name}_input.v1")).substitute(shown)
    system = prompt(f"{name}.v1")
    return CompletionRequest(role=role, system=system, user=user, model="", scope=scope, session_id="")


def numbered(memories: Sequence[Memory], policy: SafetyPolicy) -> str:
    """Return the memories in numbered lines, from 1, with their dates, as data."""
    return "\n".join(
        f"[{n}] ({m.type}, {timezones.local(m.valid_from, DEFAULT_TIMEZONE).date().isoformat()}"
        f"{', replaced since' if m.superseded_by else ''})"
        f" {' '.join(defused(clean(m.content, policy)).split())}"
        for n, m in enumerate(memories, 1)
    )


def chosen(given: object, memories: Sequence[Memory]) -> list[Memory]:
    """Return the memories that the model names by their numbers; [] if one of them does not exist."""
    listed = given if isinstance(given, list) else []
    picked = {n for n in listed if isinstance(n, int) and not isinstance(n, bool)}
    if len(picked) < len(listed) or not picked <= set(range(1, len(memories) + 1)):
        return []
    return [memories[n - 1] for n in sorted(picked)]


# ---------------------------------------------------------------- storing
async def commit(
    gate: Gate, scope: Scope, began: Stamp, read: Sequence[Memory], changes: Sequence[Change]
) -> Applied | None:
    """Apply the changes; None, with nothing applied, if the user forgot something since `began` or one of the
    memories that were `read` has changed. Raises StoreUnavailable."""
    where = MemoryFilter(tenant=scope.tenant, user=scope.user, include_inactive=True)
    for _ in range(_ATTEMPTS):
        stamp = await gate.memories.stamp(scope)
        if stamp.generation != began.generation:
            return None
        for old in read if stamp != began else ():
            now = await gate.memories.get(where, old.id)
            if now is None or _state(now) != _state(old):
                return None
        try:
            return await gate.memories.apply(scope, changes, expect=stamp)
        except Conflict:
            continue
    return None


def _state(memory: Memory) -> tuple[object, ...]:
    return memory.content, memory.type, memory.scope, memory.superseded_by, memory.archived
