"""The profile: memories that hold in every conversation, offered within a small budget of their own.

A rule says how to answer (language, tone, form of address) and is offered always. A trait (diet, health,
accessibility) is offered wherever the message may concern the user's life. The judge tells both from the
memory's vector. The store sorts a user's memories when they have changed and remembers the result, so that a
request pays nothing for it; a store that has no vectors at hand lists the user's preferences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from proxy.domain.core import Memory, MemoryFilter, MemoryOptions, Scope, with_children
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.judging import Judge
from proxy.domain.limits import TTLCache
from proxy.domain.ports import Clock, Embedder, MemoryStore, ProfileKind, Snapshot
from proxy.recall.relevance import is_doubted

HOLDS = 0.5  # the operating point of the calibrated head
_LISTED = 100  # preferences of a store without vectors
_LASTS_S = 600.0
_USERS = 1024

Held = Sequence[tuple[Memory, ProfileKind]]
"""The user's memories that hold in every conversation, the latest first."""


@dataclass(frozen=True, slots=True)
class Sorter:
    """Sorts memories by their vectors: passed to a store as ports.SortProfile."""

    judge: Judge

    def __call__(self, vectors: Sequence[bytes]) -> list[ProfileKind]:
        """Return for each vector whether it is a rule, a trait or neither. A judge that fails finds none."""
        try:
            scores = self.judge.profile(vectors)
        except EmbeddingFailed:
            return [""] * len(vectors)
        return ["rule" if s.rule >= HOLDS else "trait" if s.trait >= HOLDS else "" for s in scores]


class Profiles:
    """Reads the profile of a scope."""

    def __init__(
        self, memories: MemoryStore, embedder: Embedder | None, judge: Judge | None, clock: Clock
    ) -> None:
        self._memories, self._embedder, self._clock = memories, embedder, clock
        self.sorter = Sorter(judge) if judge is not None else None
        self._listed = TTLCache[bytes, Held](_USERS, ttl_s=_LASTS_S, clock=clock)

    async def of(self, scope: Scope, snapshot: Snapshot | None, options: MemoryOptions) -> Held:
        """Return what the request may see of it. Raises StoreUnavailable."""
        if self.sorter is None:
            return ()
        held = snapshot.profile if snapshot is not None else await self._list(scope, self.sorter)
        now, types = self._clock(), None if options.types is None else with_children(options.types)
        return [
            (memory, kind)
            for memory, kind in held
            if memory.is_current(now)
            and (types is None or memory.type in types)
            and memory.scope.project in (None, scope.project or memory.scope.project)
            and not is_doubted(memory)
        ]

    async def _list(self, scope: Scope, sorter: Sorter) -> Held:
        """Return the profile of a store that has no vectors at hand: of the latest preferences."""
        if self._embedder is None:
            return ()
        stamp = await self._memories.stamp(scope)
        key = blake2b(repr((scope.tenant, scope.user, stamp)).encode("utf-8", "surrogatepass")).digest()
        if (known := self._listed.get(key)) is not None:
            return known
        where = MemoryFilter(tenant=scope.tenant, user=scope.user, type="preference", now=self._clock())
        listed = (await self._memories.list(where, limit=_LISTED, total=False)).items
        try:
            kinds = sorter(await self._embedder.embed([m.content for m in listed]) if listed else [])
        except EmbeddingFailed:
            return ()
        held: Held = [(m, kind) for m, kind in zip(listed, kinds, strict=True) if kind]
        self._listed.put(key, held)
        return held


def offered(held: Held, *, traits: bool) -> list[Memory]:
    """Return the memories to offer: rules, then traits if they are wanted, each the latest first."""
    rules = [memory for memory, kind in held if kind == "rule"]
    return rules + [memory for memory, kind in held if traits and kind == "trait"]
