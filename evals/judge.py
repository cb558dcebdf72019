"""Stored memories against gold facts, one by one: the same text, or the same meaning with equal numbers."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evals.data import Persona
from evals.model import flat
from proxy.text.words import normalise

SAME_COSINE = 0.8
# A day that was put behind the words that mean it: "next week (2026-03-02 to 2026-03-08)".
_RESOLVED = re.compile(r"\s?\(\d{4}(?:-\d\d)?(?:-\d\d)?(?: to [\d-]{4,10})?\)")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
Embed = Callable[[str], Awaitable[npt.NDArray[np.float32] | None]]
"""Returns a text's unit vector, None where it cannot be known."""


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A current memory of a user."""

    id: str
    content: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one user's memories are worth. Ids are those of gold facts."""

    gold: int
    stored: int
    found: frozenset[str]  # gold facts that are stored
    missing: tuple[str, ...]
    covered: frozenset[str]  # gold facts that are stored, or whose evidence is, in the user's own words
    useful: int  # memories that state a gold fact or are part of the evidence of one
    stale: tuple[str, ...]  # superseded facts that are stored as current
    doubled: tuple[str, ...]  # gold facts stored more than once
    extra: int  # memories that state no gold fact

    @property
    def recall(self) -> float:
        return len(self.found) / self.gold if self.gold else 1.0

    @property
    def precision(self) -> float:
        return (self.stored - self.extra - len(self.stale)) / self.stored if self.stored else 1.0


@dataclass(frozen=True, slots=True)
class Judge:
    """Compares texts; `embed` decides where they are not equal."""

    embed: Embed

    async def same(self, one: str, other: str) -> float:
        """Return how sure it is that both state one fact: 1 for equal texts, the cosine from SAME_COSINE on
        if both hold the same numbers, else 0."""
        plain = _RESOLVED.sub("", one)
        if normalise(other) in (normalise(one), normalise(plain)):
            return 1.0
        if _numbers(other) not in (_numbers(one), _numbers(plain)):
            return 0.0
        first, second = await self.embed(one), await self.embed(other)
        if first is None or second is None:
            return 0.0
        cosine = float(first @ second)
        return min(cosine, 0.999) if cosine >= SAME_COSINE else 0.0

    async def verdict(self, persona: Persona, memories: Sequence[StoredMemory]) -> Verdict:
        """Return what the memories are worth: each is held against the gold fact that it is most like."""
        contents = {f.id: f.content for _, f in persona.facts()}
        superseded = persona.successors()
        evidence = _evidence(persona)
        quoted = {
            k.id: {i for i, said in evidence.items() if flat(_RESOLVED.sub("", k.content)) in said}
            for k in memories
        }
        stated: dict[str, list[StoredMemory]] = {}
        extra = 0
        for memory in memories:
            fact = await self._best(memory.content, contents)
            if fact is None:
                extra += 1
            else:
                stated.setdefault(fact, []).append(memory)
        current = {f.id for f in persona.current()}
        found = frozenset(stated) & current
        return Verdict(
            gold=len(current),
            stored=len(memories),
            found=found,
            missing=tuple(sorted(current - found)),
            covered=frozenset(current & set().union(found, *quoted.values())),
            useful=sum(bool(quoted[k.id]) or any(k in held for held in stated.values()) for k in memories),
            stale=tuple(sorted(i for i in stated if i in superseded)),
            doubled=tuple(sorted(i for i, held in stated.items() if len(held) > 1)),
            extra=extra,
        )

    async def _best(self, content: str, facts: Mapping[str, str]) -> str | None:
        scores = {i: await self.same(content, fact) for i, fact in facts.items()}
        best = max(scores, key=lambda i: scores[i], default=None)
        return best if best is not None and scores[best] > 0 else None


def _evidence(persona: Persona) -> dict[str, str]:
    """Return, for each current fact, the words of the turns that state it."""
    turns = {t.id: flat(t.content) for s in persona.sessions for t in s.turns}
    return {f.id: "\n".join(turns[t] for t in f.evidence) for f in persona.current()}


def _numbers(text: str) -> list[str]:
    return sorted(_NUMBER.findall(text.replace(",", "")))
