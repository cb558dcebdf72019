"""Items that a client brings into its conversation are kept, or refused: over each backend."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from proxy.domain.core import Create, Memory, MemoryFilter, Scope, Stamp
from proxy.domain.errors import NotFound
from proxy.domain.responses import Conversation
from proxy.http.failopen import FailOpen
from proxy.http.responses.owners import Owner
from proxy.http.responses.response_store import ResponseStore
from proxy.telemetry import Metrics
from proxy.wire.translation.items import as_items
from tests.support.backends import Place, place

__all__ = ["place"]

ANNA = Scope("default", "anna")
Forget = Callable[[], Awaitable[None]]


class Beside:
    """The user's memories; a forget falls between the stamp and what is written under it."""

    def __init__(self, memories: Any) -> None:
        self._memories = memories
        self.forgets: list[Forget] = []

    async def stamp(self, scope: Scope) -> Stamp:
        stamp: Stamp = await self._memories.stamp(scope)
        if self.forgets:
            await self.forgets.pop()()
        return stamp


class Table:
    """A conversation of Anna's, and what else she has stored."""

    def __init__(self, stores: Any) -> None:
        self._stores = stores
        self.beside = Beside(stores.memories)
        self.keeping = ResponseStore(
            stores.chains, stores.conversations, self.beside, FailOpen(time.time, Metrics()),  # type: ignore[arg-type]
            time.time, 1e6, 1e6,
        )  # fmt: skip
        self._count = 0

    async def talk(self, *said: str) -> Conversation:
        return await self.keeping.converse(Owner(ANNA, None), items(*said), {})

    async def forget_another(self) -> None:
        """Store a memory that has nothing to do with it, and forget it."""
        self._count += 1
        now, id_ = time.time(), f"mem_{self._count}"
        memory = Memory(
            id=id_, scope=ANNA, type="semantic", content=f"A comet, the {self._count}th.", source="api",
            created_at=now, updated_at=now, valid_from=now,
        )  # fmt: skip
        memories = self._stores.memories
        await memories.apply(ANNA, (Create(memory, None),), expect=await memories.stamp(ANNA))
        assert (await memories.forget(_all(), id_, by="test")).memories == 1

    async def forget_all(self) -> None:
        await self._stores.memories.forget(_all(), by="test")

    async def said(self, talk: Conversation) -> list[str]:
        page = await self._stores.conversations.items(ANNA, talk.id, limit=99, after=None, ascending=True)
        return [item.decode() for item in page.items] if page else []


def _all() -> MemoryFilter:
    return MemoryFilter(tenant=ANNA.tenant, user=ANNA.user, include_inactive=True, now=time.time())


def items(*said: str) -> tuple[dict[str, Any], ...]:
    return as_items(
        [{"type": "message", "role": "user", "id": f"msg_{text}", "content": text} for text in said]
    )


@pytest.fixture
async def table(place: Place) -> AsyncIterator[Table]:
    async with place.stores() as stores:
        yield Table(stores)


@pytest.mark.parametrize("forgets", [1, 3])
async def test_a_forget_of_something_else_beside_it_costs_no_item(table: Table, forgets: int) -> None:
    talk = await table.talk("One")
    table.beside.forgets = [table.forget_another] * forgets
    await table.keeping.append(Owner(ANNA, None), talk, items("Two"))
    assert not table.beside.forgets
    assert [text for text in await table.said(talk) if "Two" in text]


async def test_a_conversation_that_is_forgotten_meanwhile_takes_nothing_more(table: Table) -> None:
    talk = await table.talk("One")
    table.beside.forgets = [table.forget_all]
    with pytest.raises(NotFound):
        await table.keeping.append(Owner(ANNA, None), talk, items("Two"))
    assert await table.said(talk) == []
