"""Responses made in the background."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from openai import APIStatusError, NotFoundError

from proxy.http.responses import endpoints as responses_api
from proxy.http.responses import response_store as background
from proxy.http.responses.translated import TranslatedForwarding
from tests.e2e.chat_only import ChatOnly, chunk
from tests.e2e.conftest import House, Houses, until
from tests.support.model import known
from tests.support.upstream import Exchange


class Slow(ChatOnly):
    """Streams a first word, and the rest when `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def converse(self, exchange: Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(chunk({"role": "assistant", "content": "Once "}))
        left = asyncio.create_task(exchange.client_left())
        go = asyncio.create_task(self.go.wait())
        await asyncio.wait({left, go}, return_when=asyncio.FIRST_COMPLETED)
        left.cancel()
        await asyncio.wait({left})
        if go.done():
            await exchange.chunk(chunk({"content": "upon."}), chunk({}, "stop"), b"data: [DONE]\n\n")
            await exchange.end()
        go.cancel()


@contextlib.asynccontextmanager
async def slow(house: Houses) -> AsyncIterator[tuple[House, Slow, Any]]:
    model = Slow()
    async with house(model) as h, h.client() as client:
        try:
            yield h, model, client
        finally:
            model.go.set()


async def test_it_is_answered_at_once_and_polled(house):
    async with slow(house) as (_, model, client):
        made = await client.responses.create(model="m", input="A story", background=True)
        assert (made.status, made.background, made.output) == ("queued", True, [])
        half = await until(lambda: client.responses.retrieve(made.id), lambda r: r.output_text == "Once ")
        assert half.status == "in_progress"
        model.go.set()
        whole = await until(lambda: client.responses.retrieve(made.id), lambda r: r.status == "completed")
        assert (whole.id, whole.output_text) == (made.id, "Once upon.")
        await client.responses.create(model="m", input="More", previous_response_id=made.id)


async def test_a_cancelled_one_stops_the_upstream_and_stays_cancelled(house):
    async with slow(house) as (h, model, client):
        made = await client.responses.create(model="m", input="A story", background=True)
        await until(lambda: client.responses.retrieve(made.id), lambda r: r.output_text == "Once ")
        cancelled = await client.responses.cancel(made.id)
        assert cancelled.status == "cancelled"
        await h.upstream.until_closed(model.chats[-1].connection.number)
        assert (await client.responses.cancel(made.id)).status == "cancelled"
        assert (await client.responses.retrieve(made.id)).status == "cancelled"


async def test_a_stream_continues_without_its_client_and_can_be_resumed(house):
    async with slow(house) as (_, model, client):
        stream = await client.responses.create(model="m", input="A story", background=True, stream=True)
        async for event in stream:
            last = event
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        response_id = last.item_id.removeprefix("msg_").rpartition("_")[0]
        resumed = await client.responses.retrieve(
            f"resp_{response_id}", stream=True, starting_after=last.sequence_number
        )
        model.go.set()
        events = [event async for event in resumed]
        assert [e.sequence_number for e in events] == list(
            range(last.sequence_number + 1, events[-1].sequence_number + 1)
        )
        assert events[-1].response.output_text == "Once upon."
        again = await client.responses.retrieve(f"resp_{response_id}", stream=True)
        assert len([event async for event in again]) == events[-1].sequence_number + 1


async def test_the_upstreams_refusal_fails_it(house):
    async def answer(exchange):
        await exchange.json({"error": {"message": "too much", "code": "rate_limit_exceeded"}}, 429)

    async with house(ChatOnly(script=answer)) as h, h.client() as client:
        made = await client.responses.create(model="m", input="Hi", background=True)
        failed = await until(lambda: client.responses.retrieve(made.id), lambda r: r.status == "failed")
        assert failed.error.message == "too much"
        stream = await client.responses.create(model="m", input="Hi", background=True, stream=True)
        assert [event async for event in stream][-1].type == "response.failed"


@pytest.mark.parametrize(("status", "stream"), [(0, False), (400, True), (503, False)])
async def test_words_that_were_promised_to_be_stored_are_read_even_if_the_upstream_refuses(
    house, status, stream
):
    """The answer in the background says `queued` before the upstream was asked."""

    async def fails(exchange):
        if status:
            await exchange.json({"error": {"message": "not now"}}, status)
        else:
            exchange.reset()

    model = ChatOnly(script=fails, facts=known(("Zanzibar", "The user will travel to Zanzibar in October.")))
    async with house(model) as h, httpx2.AsyncClient(base_url=h.base_url, timeout=30) as http:
        said = {
            "model": "m",
            "input": "Please remember that I will travel to Zanzibar in October.",
            "memory_context": {"user_id": "alice", "session_id": "s"},
        }
        refused = await http.post("/responses", json=said | {"stream": stream})
        assert refused.headers["x-memory-store"] == "off"
        created = await http.post("/responses", json=said | {"background": True, "stream": stream})
        assert (created.status_code, created.headers["x-memory-store"]) == (200, "queued")

        async def remembered():
            answer = await http.get("/memory", params={"user_id": "alice"})
            return [memory["content"] for memory in answer.json()["data"]]

        assert await until(remembered) == ["The user will travel to Zanzibar in October."]


async def test_a_background_response_has_failed_if_its_process_died(house, monkeypatch):
    async with slow(house) as (_, _, client):
        made = await client.responses.create(model="m", input="A story", background=True)
        async with house(ChatOnly()) as other, other.client() as elsewhere:  # shares the data directory
            assert (await elsewhere.responses.retrieve(made.id)).status in background.UNDER_WAY
            monkeypatch.setattr(background, "LEASE_S", -1.0)
            assert (await elsewhere.responses.retrieve(made.id)).status == "failed"


async def test_one_that_cannot_be_stored_is_refused(house):
    async with house(ChatOnly()) as h, httpx2.AsyncClient(timeout=30) as http:
        got = await http.post(
            f"{h.base_url}/responses", json={"model": "m", "input": "Hi", "background": True, "store": False}
        )
        assert (got.status_code, got.json()["error"]["param"]) == (400, "background")
        assert not h.model.chats


async def test_another_process_sees_how_far_it_is_and_can_cancel_it(house, monkeypatch):
    monkeypatch.setattr(background, "BEAT_S", 0.1)
    monkeypatch.setattr(responses_api, "CANCEL_TRIES", 1_000)  # each loses to a beat
    async with slow(house) as (h, model, client), house(ChatOnly()) as other, other.client() as elsewhere:
        made = await client.responses.create(model="m", input="A story", background=True)
        await until(lambda: elsewhere.responses.retrieve(made.id), lambda r: r.output_text == "Once ")
        assert (await elsewhere.responses.cancel(made.id)).status == "cancelled"
        await h.upstream.until_closed(model.chats[-1].connection.number)
        await until(lambda: client.responses.retrieve(made.id), lambda r: r.status == "cancelled")


async def test_one_that_is_cancelled_while_its_end_is_saved_stays_cancelled(house, monkeypatch):
    keep, looked, go = TranslatedForwarding._keep, asyncio.Event(), asyncio.Event()

    async def late(*arguments, **named):
        looked.set()  # the end has looked, and found nothing
        await go.wait()
        return await keep(*arguments, **named)

    async with slow(house) as (_, model, client), house(ChatOnly()) as other, other.client() as elsewhere:
        talk = await client.conversations.create()
        made = await client.responses.create(
            model="m", input="A story", background=True, conversation=talk.id
        )
        with monkeypatch.context() as patched:
            patched.setattr(TranslatedForwarding, "_keep", late)
            model.go.set()
            await looked.wait()
            assert (await elsewhere.responses.cancel(made.id)).status == "cancelled"
            go.set()  # and saves, long after
            await asyncio.sleep(0.2)
        assert (await client.responses.retrieve(made.id)).status == "cancelled"
        assert not (await client.conversations.items.list(talk.id)).data


async def test_a_stream_can_be_resumed_at_another_process(house, monkeypatch):
    monkeypatch.setattr(responses_api, "POLL_S", 0.02)
    async with slow(house) as (_, model, client), house(ChatOnly()) as other, other.client() as elsewhere:
        made = await client.responses.create(model="m", input="A story", background=True)
        stream = await elsewhere.responses.retrieve(made.id, stream=True, starting_after=3)
        model.go.set()
        (event,) = [event async for event in stream]
        assert (event.type, event.sequence_number) == ("response.completed", 4)
        assert event.response.output_text == "Once upon."
        again = await elsewhere.responses.retrieve(made.id, stream=True)
        assert [event.type async for event in again] == ["response.completed"]
        other_one = await elsewhere.responses.create(model="m", input="Hi")
        with pytest.raises(APIStatusError) as refused:
            await elsewhere.responses.retrieve(other_one.id, stream=True)
        assert refused.value.param == "stream"


async def test_a_background_response_is_remembered(house):
    facts = known(("Madison", "User lives in Madison."))
    async with (
        house(ChatOnly(facts=facts)) as h,
        h.client() as client,
        httpx2.AsyncClient(timeout=30) as http,
    ):
        await client.responses.create(
            model="m",
            input="I live in Madison.",
            background=True,
            extra_body={"memory_context": {"user_id": "ann"}},
        )

        async def memories():
            return (await http.get(f"{h.base_url}/memory", params={"user_id": "ann"})).json()["data"]

        assert "Madison" in str(await until(memories))


async def test_a_deleted_one_stops_the_upstream_and_stays_deleted(house):
    async with slow(house) as (h, model, client):
        made = await client.responses.create(model="m", input="A story", background=True)
        await until(lambda: client.responses.retrieve(made.id), lambda r: r.output_text == "Once ")
        await client.responses.delete(made.id)
        await h.upstream.until_closed(model.chats[-1].connection.number)
        with pytest.raises(NotFoundError):
            await client.responses.retrieve(made.id)
