"""Small values for store tests: what a test does not name does not matter to it."""

import itertools
from dataclasses import replace

import numpy as np

from proxy.domain.changes import Applied, Change, Create, Supersede
from proxy.domain.core import ForgetCounts, Memory, MemoryFilter, Scope, Search
from proxy.domain.ports import Key, MemoryStore
from proxy.text.words import terms

ANNA = Scope("acme", "anna")
BEN = Scope("acme", "ben")
APOLLO = Scope("acme", "anna", "apollo")
NOW = 1_000.0
_numbers = itertools.count(1)


def vector(*components: float) -> bytes:
    """A unit vector of three dimensions."""
    values = np.array((*components, 0, 0)[:3], np.float32)
    return (values / np.linalg.norm(values)).astype(np.float32).tobytes()


def memory(content: str, scope: Scope = ANNA, *, id: str | None = None, **fields: object) -> Memory:
    defaults = {"type": "semantic", "source": "api", "created_at": NOW, "updated_at": NOW, "valid_from": NOW}
    return Memory(id=id or f"m{next(_numbers)}", scope=scope, content=content, **{**defaults, **fields})


def create(content: str, scope: Scope = ANNA, *, vec: bytes | None = None, **fields: object) -> Create:
    return Create(memory(content, scope, **fields), vec)


def supersede(old: str, content: str, scope: Scope = ANNA, **fields: object) -> Supersede:
    return Supersede(old, memory(content, scope, **fields), None)


async def store(memories: MemoryStore, *changes: Change, scope: Scope = ANNA) -> Applied:
    """Apply under the current stamp."""
    return await memories.apply(scope, changes, expect=await memories.stamp(scope))


async def find(memories, words="", scope=ANNA, *, vec=None, **fields):
    search = Search(vector=vec, terms=terms(words), **{"now": NOW, **fields})
    return await memories.search(scope, search)


async def contents(memories: MemoryStore, words: str, scope: Scope = ANNA, **fields: object) -> set[str]:
    return {hit.memory.content for hit in await find(memories, words, scope, **fields)}


def of(scope: Scope, **fields: object) -> MemoryFilter:
    return MemoryFilter(tenant=scope.tenant, user=scope.user, project=scope.project, now=NOW, **fields)


async def forgotten(memories: MemoryStore, where: MemoryFilter, memory_id: str | None = None) -> ForgetCounts:
    """Forget, and return the counts without the receipt's id."""
    return replace(await memories.forget(where, memory_id, by="test"), receipt=None)


def key(id_="k1", **fields):
    defaults = {"name": "laptop", "tenant": "acme", "user": "anna", "rights": frozenset({"chat", "memory"}),
                "upstream_key": b"sealed\x00\xff", "created_at": NOW}  # fmt: skip
    return Key(id=id_, **{**defaults, **fields})
