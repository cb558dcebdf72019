"""Stored chains and conversations are bounded, a forget is never undone, and followers miss nothing."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from proxy.domain.changes import Create
from proxy.domain.core import (
    Memory,
    MemoryFilter,
    Scope,
    Stamp,
)
from proxy.domain.errors import InvalidRequest, NotFound
from proxy.http.memory_work import FailOpen
from proxy.http.responses.ownership import Owner
from proxy.http.responses.response_store import BackgroundResponse, NewResponse, ResponseStore
from proxy.telemetry import Metrics
from proxy.wire.body import dump
from proxy.wire.translation.items import as_items

ANNA = Owner(Scope("default", "anna"), None)
APP = Owner(Scope("default", "ben"), Scope("default", "app"))
ALL_OF_ANNA = MemoryFilter(tenant="default", user="anna", include_inactive=True)
TEXT = "x" * 1_000


@pytest.fixture
def store(stores):
    fail_open = FailOpen(time.time, Metrics())
    return ResponseStore(
        stores.chains, stores.conversations, stores.memories, fail_open, time.time, 1e6, 1e6
    )  # fmt: skip


def items(*ids: str) -> tuple[dict[str, Any], ...]:
    return as_items([
        {"type": "message", "role": "user", "id": f"msg_{id_}", "content": TEXT} for id_ in ids
    ])  # fmt: skip


async def save_chain(store: ResponseStore, *ids: str) -> None:
    for previous, id_ in zip((None, *ids), ids, strict=False):
        response = NewResponse(
            id=id_, owner=ANNA, generation=0, session_id="s", previous_id=previous, conversation_id=None,
            response=dump({"id": id_, "status": "completed", "output": []}), input_items=items(id_),
            created_at=time.time(),
        )  # fmt: skip
        assert await store.keep(response)


# ---------------------------------------------------------------- bounds
class Unread:
    """A store from which no text may be read."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        async def watched(*args: Any, **named: Any) -> Any:
            found = await getattr(self._store, name)(*args, **named)
            assert TEXT not in str(found)
            return found

        return watched


async def test_a_chain_that_is_too_large_is_refused_unread(store):
    await save_chain(store, "a", "b", "c")
    small = replace(store, responses=Unread(store.responses), most_replayed_bytes=3_000)
    with pytest.raises(InvalidRequest, match=r"more than 0\.00286 MB") as refused:
        await small.earlier(ANNA, "c", None)
    assert (refused.value.param, refused.value.code) == ("previous_response_id", "string_above_max_length")
    assert len((await replace(small, responses=store.responses).earlier(ANNA, "b", None)).items) == 2


async def test_a_chain_without_its_beginning_cannot_be_continued(store):
    await save_chain(store, "a", "b", "c")
    assert await store.responses.trim(ANNA.scope, 2_500) == 1
    with pytest.raises(InvalidRequest, match=r"with id 'a' not found\. 'c' continues it") as refused:
        await store.earlier(ANNA, "c", None)
    assert refused.value.code == "previous_response_not_found"


@pytest.mark.parametrize("owner", [ANNA, APP], ids=["a user's key", "an application's key"])
async def test_a_conversation_expires_after_its_last_use(store, owner):
    now = time.time()
    used, unused = [await store.converse(owner, items("a"), {}) for _ in range(2)]
    await replace(store, clock=lambda: now + 9e5).append(owner, used, items("b"))
    last = replace(store, clock=lambda: now + 1.1e6)
    assert await last.conversation(owner, unused.id) is None  # at once, not at the next sweep
    with pytest.raises(NotFound):
        await last.earlier(owner, None, unused.id)
    await last.responses.expire(now + 1.1e6, unused_since=now + 1e5)
    for asker in (owner, replace(owner, scope=owner.credential or owner.scope)):
        assert await last.conversation(asker, used.id) is not None
    await last.responses.expire(now + 3e6, unused_since=now + 2e6)
    assert await store.conversation(owner, used.id) is None


# ---------------------------------------------------------------- concurrent forgets
class ForgettingMemories:
    """The user's memories; a forget happens between a stamp and what is written under it."""

    def __init__(self, memories: Any, *forgets: Callable[[], Awaitable[Any]]) -> None:
        self._memories, self.forgets = memories, list(forgets)

    async def stamp(self, scope: Scope) -> Stamp:
        stamp: Stamp = await self._memories.stamp(scope)
        if self.forgets:
            await self.forgets.pop()()
        return stamp


async def texts(store: ResponseStore, conversation_id: str) -> list[bytes]:
    page = await store.conversations.items(
        ANNA.scope, conversation_id, limit=99, after=None, ascending=True
    )  # fmt: skip
    return list(page.items) if page else []


async def test_a_concurrent_forget_of_a_memory_loses_no_appended_item(store):
    memories, now = store.memories, time.time()

    async def forget_another():
        memory = Memory(
            id="mem_1", scope=ANNA.scope, type="semantic", content="A comet.", source="api",
            created_at=now, updated_at=now, valid_from=now,
        )  # fmt: skip
        await memories.apply(ANNA.scope, (Create(memory, None),), expect=await memories.stamp(ANNA.scope))
        assert (await memories.forget(ALL_OF_ANNA, "mem_1", by="test")).memories == 1

    conversation = await store.converse(ANNA, items("one"), {})
    forgetting: Any = ForgettingMemories(memories, *[forget_another] * 3)
    await replace(store, memories=forgetting).append(ANNA, conversation, items("two"))
    assert not forgetting.forgets
    assert len(await texts(store, conversation.id)) == 2


async def test_nothing_is_appended_to_a_conversation_that_is_forgotten_concurrently(store):
    conversation = await store.converse(ANNA, items("one"), {})
    forgetting: Any = ForgettingMemories(
        store.memories, lambda: store.memories.forget(ALL_OF_ANNA, by="test")
    )
    with pytest.raises(NotFound):
        await replace(store, memories=forgetting).append(ANNA, conversation, items("two"))
    assert await texts(store, conversation.id) == []


# ---------------------------------------------------------------- in the background
async def test_a_follower_gets_every_event_once_from_where_it_wants_to_the_end():
    made = BackgroundResponse("resp_1", ANNA, lambda: {"status": "in_progress"})
    made.add(b"x")

    async def follow(after):
        return b"".join([piece async for piece in made.follow(after)])

    followers = [asyncio.create_task(follow(after)) for after in (-1, 0, 1, 9)]
    for event in (b"b", b"c"):
        await asyncio.sleep(0)
        made.add(event)
    made.end()
    assert await asyncio.gather(*followers) == [b"xbc", b"bc", b"c", b""]
