"""Made-up users with made-up memories in a store, and what they do there.

A crowd is remembered in a small file beside its store, so that it can be measured again, or grown further.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import numpy as np

from proxy.domain.core import (
    Create,
    Memory,
    MemoryFilter,
    NewExchange,
    Outcome,
    Scope,
    Search,
    SessionState,
    Stamp,
)
from proxy.domain.errors import Conflict
from proxy.domain.storage import Stores
from proxy.http.auth.caller import OPEN_TENANT
from proxy.text import terms

DIMENSION = 384
USERS_AT_ONCE = 32  # whose writes wait together while a crowd is filled: as many share a commit
_PORTION = 2_000  # memories of a heavy user in one write
_STARTS = ("ka", "lo", "mi", "nu", "re", "so", "ti", "vu")
WORDS = np.array([f"{a}{b}{c}" for a in _STARTS for b in "abcdefgh" for c in "lmnrst"])


@dataclass(frozen=True, slots=True)
class Census:
    """Who lives in a store: `users` with `each` memories, and heavy ones with as many as are listed."""

    each: int
    users: int = 0
    heavy: tuple[int, ...] = ()

    @property
    def memories(self) -> int:
        return self.users * self.each + sum(self.heavy)

    def save(self, data: Path) -> None:
        _file(data).write_text(json.dumps(asdict(self)) + "\n", "utf-8")

    @classmethod
    def load(cls, data: Path) -> "Census | None":
        """Return who was left in the directory; None where nobody was."""
        if not _file(data).exists():
            return None
        kept = json.loads(_file(data).read_text("utf-8"))
        return cls(kept["each"], kept["users"], tuple(kept["heavy"]))


class Crowd:
    """The users of one store. `storing_s`: what the store took so far for what was filled; making vectors
    and texts up is not in it."""

    def __init__(self, stores: Stores, data: Path, census: Census, seed: int) -> None:
        self.stores, self.census = stores, census
        self.storing_s = 0.0
        self._data = data
        self._rng, self._numbers = Random(seed), np.random.default_rng([seed, census.memories])

    # ------------------------------------------------------------ filling
    async def grow(self, users: int, told: Callable[[int], None], until: float) -> None:
        """Add users up to a number, or until the time is up."""
        each = self.census.each
        while self.census.users < users and time.monotonic() < until:
            first = self.census.users
            scopes = [scope_of(number) for number in range(first, min(first + USERS_AT_ONCE, users))]
            made = self._made([scope for scope in scopes for _ in range(each)])
            began = time.monotonic()
            await asyncio.gather(
                *(self._add(scope, made[at * each :][:each]) for at, scope in enumerate(scopes))
            )
            self.storing_s += time.monotonic() - began
            self._now(Census(each, first + len(scopes), self.census.heavy))
            told(self.census.users)

    async def add_heavy(self, memories: int) -> None:
        """Add one user with so many memories."""
        scope, memory_store = heavy_scope(memories), self.stores.memories
        while (present := (await memory_store.stamp(scope)).version * _PORTION) < memories:
            made = self._made([scope] * min(_PORTION, memories - present))
            began = time.monotonic()
            await memory_store.apply(scope, made, expect=await memory_store.stamp(scope))
            self.storing_s += time.monotonic() - began
        self._now(Census(self.census.each, self.census.users, (*self.census.heavy, memories)))

    async def _add(self, scope: Scope, made: Sequence[Create]) -> None:
        with suppress(Conflict):  # there since a run that was broken off
            await self.stores.memories.apply(scope, made, expect=Stamp(0, 0))

    def _now(self, census: Census) -> None:
        self.census = census
        census.save(self._data)

    def _made(self, scopes: Sequence[Scope]) -> list[Create]:
        """Make one memory for each scope up."""
        vectors = self._vectors(len(scopes))
        said = WORDS[self._numbers.integers(len(WORDS), size=(len(scopes), 9))].tolist()
        now = time.time()
        return [
            Create(
                Memory(
                    id=f"mem_{self._rng.getrandbits(96):024x}", scope=scope, type="semantic",
                    content="User " + " ".join(words), source="api", created_at=now, updated_at=now,
                    valid_from=now,
                ),
                vector,
            )
            for scope, words, vector in zip(scopes, said, vectors, strict=True)
        ]  # fmt: skip

    def _vectors(self, count: int) -> list[bytes]:
        values = self._numbers.standard_normal((count, DIMENSION), dtype=np.float32)
        values /= np.linalg.norm(values, axis=1, keepdims=True)
        return [row.tobytes() for row in values]

    # ------------------------------------------------------------ what users do
    async def search(self, scope: Scope) -> None:
        (vector,) = self._vectors(1)
        words = terms.terms(" ".join(self._rng.choices(WORDS.tolist(), k=5)))
        await self.stores.memories.search(scope, Search(vector, words, now=time.time()))

    async def store(self, scope: Scope) -> None:
        made = self._made([scope])
        await self.stores.memories.apply(scope, made, expect=await self.stores.memories.stamp(scope))

    async def page(self, scope: Scope) -> None:
        where = MemoryFilter(tenant=scope.tenant, user=scope.user, now=time.time())
        await self.stores.memories.list(where, limit=20)

    async def exchange(self, scope: Scope) -> None:
        name = f"{self._rng.getrandbits(96):024x}"
        new = NewExchange(
            id=f"ex_{name}", key=name, scope=scope, session_id="s", model="m",
            said=" ".join(self._rng.choices(WORDS.tolist(), k=30)), at=time.time(),
        )  # fmt: skip
        begun = await self.stores.sessions.begin(new)
        await self.stores.sessions.complete(begun, Outcome("Noted.", whole=True), _no_job)

    async def count_forget(self, scope: Scope) -> None:
        where = MemoryFilter(tenant=scope.tenant, user=scope.user, now=time.time())
        await self.stores.memories.forget(where, by="scale", dry_run=True)

    # ------------------------------------------------------------ measured
    async def times(self, ask: Callable[[Scope], Awaitable[None]], scopes: Sequence[Scope]) -> list[float]:
        """Return how long each took, one after the other, in ms, the shortest first."""
        found = []
        for scope in scopes:
            began = time.perf_counter()
            await ask(scope)
            found.append((time.perf_counter() - began) * 1000)
        return sorted(found)

    async def rate(self, ask: Callable[[Scope], Awaitable[None]], count: int, at_once: int) -> float:
        """Return how many a second are done, so many users asking at once."""
        turn = asyncio.Semaphore(at_once)

        async def one(scope: Scope) -> None:
            async with turn:
                await ask(scope)

        users = [scope_of(self._rng.randrange(self.census.users)) for _ in range(count)]
        began = time.monotonic()
        await asyncio.gather(*(one(scope) for scope in users))
        return count / (time.monotonic() - began)

    def different(self, count: int) -> list[Scope]:
        """Return users at random, nobody twice."""
        users = range(self.census.users)
        return [scope_of(number) for number in self._rng.sample(users, min(count, len(users)))]


def scope_of(number: int) -> Scope:
    return Scope(OPEN_TENANT, f"user-{number}")


def heavy_scope(memories: int) -> Scope:
    return Scope(OPEN_TENANT, f"heavy-{memories}")


def _no_job(state: SessionState) -> None:
    return None


def _file(data: Path) -> Path:
    return data / "crowd.json"
