"""What a request may continue is bounded, whole, and alive: over each backend."""

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from proxy.domain.core import Scope
from proxy.domain.errors import InvalidRequest, NotFound
from proxy.http.failopen import FailOpen
from proxy.http.responses.owners import Owner
from proxy.http.responses.response_store import NewResponse, ResponseStore
from proxy.telemetry import Metrics
from proxy.wire.body import dump
from proxy.wire.translation.items import as_items
from tests.support.backends import Place, place

__all__ = ["place"]

ANNA = Owner(Scope("default", "anna"), None)
APP = Owner(Scope("default", "ben"), Scope("default", "app"))
TEXT = "x" * 1_000


@pytest.fixture
async def keeping(place: Place) -> AsyncIterator[ResponseStore]:
    async with place.stores() as stores:
        fail_open = FailOpen(time.time, Metrics())
        yield ResponseStore(
            stores.chains, stores.conversations, stores.memories, fail_open, time.time, 1e6, 1e6
        )  # fmt: skip


def said(id: str) -> tuple[dict[str, Any], ...]:
    return as_items([{"type": "message", "role": "user", "id": f"msg_{id}", "content": TEXT}])


async def answered(keeping: ResponseStore, *ids: str) -> None:
    """Keep a chain of responses, one after the other."""
    for previous, id_ in zip((None, *ids), ids, strict=False):
        made = NewResponse(
            id=id_, owner=ANNA, generation=0, session_id="s", previous_id=previous, conversation_id=None,
            response=dump({"id": id_, "status": "completed", "output": []}), input_items=said(id_),
            created_at=time.time(),
        )  # fmt: skip
        assert await keeping.keep(made)


class Unread:
    """A store of which nothing large may be read: what is continued is refused before."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        async def watched(*args: Any, **named: Any) -> Any:
            found = await getattr(self._store, name)(*args, **named)
            assert TEXT not in str(found)
            return found

        return watched


async def test_a_chain_that_is_too_large_is_refused_unread(keeping: ResponseStore) -> None:
    await answered(keeping, "a", "b", "c")
    small = replace(keeping, responses=Unread(keeping.responses), most_replayed_bytes=3_000)
    with pytest.raises(InvalidRequest, match=r"more than 0\.00286 MB") as refused:
        await small.earlier(ANNA, "c", None)
    assert (refused.value.param, refused.value.code) == ("previous_response_id", "string_above_max_length")
    assert len((await replace(small, responses=keeping.responses).earlier(ANNA, "b", None)).items) == 2


async def test_a_conversation_that_is_too_large_is_refused_unread(keeping: ResponseStore) -> None:
    talk = await keeping.converse(ANNA, [*said("a"), *said("b"), *said("c")], {})
    small = replace(keeping, conversations=Unread(keeping.conversations), most_replayed_bytes=3_000)
    with pytest.raises(InvalidRequest, match="The conversation holds more than") as refused:
        await small.earlier(ANNA, None, talk.id)
    assert refused.value.param == "conversation"
    assert len((await keeping.earlier(ANNA, None, talk.id)).items) == 3


async def test_a_chain_does_not_go_on_without_its_beginning(keeping: ResponseStore) -> None:
    await answered(keeping, "a", "b", "c")
    assert await keeping.responses.trim(ANNA.scope, 2_500) == 1
    with pytest.raises(InvalidRequest, match=r"with id 'a' not found\. 'c' continues it") as refused:
        await keeping.earlier(ANNA, "c", None)
    assert refused.value.code == "previous_response_not_found"


@pytest.mark.parametrize("owner", [ANNA, APP], ids=["a user's key", "an application's key"])
async def test_a_conversation_lives_on_from_its_last_use(keeping: ResponseStore, owner: Owner) -> None:
    """Also for a client that names no user."""
    now = time.time()
    one, two = [await replace(keeping, clock=lambda: now).converse(owner, said("a"), {}) for _ in range(2)]
    later = replace(keeping, clock=lambda: now + 9e5)
    await later.append(owner, one, said("b"))
    last = replace(keeping, clock=lambda: now + 1.1e6)
    assert await last.conversation(owner, two.id) is None  # at once, not at the next sweep
    with pytest.raises(NotFound):
        await last.earlier(owner, None, two.id)
    await last.responses.expire(now + 1.1e6, unused_since=now + 1e5)
    for asker in (owner, replace(owner, scope=owner.credential or owner.scope)):
        assert await last.conversation(asker, one.id) is not None
    await last.responses.expire(now + 3e6, unused_since=now + 2e6)
    assert await keeping.conversation(owner, one.id) is None
