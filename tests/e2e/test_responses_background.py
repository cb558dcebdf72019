"""Responses made in the background."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import APIStatusError, NotFoundError

from proxy.http.responses import endpoints as responses_api
from proxy.http.responses import response_store as background
from tests.e2e.chat_only import ChatOnly, chunk
from tests.e2e.conftest import House, Houses, context, until
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


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_one_that_is_cancelled_or_deleted_stops_the_upstream_and_stays_so(house, how):
    async with slow(house) as (h, model, client):
        made = await client.responses.create(model="m", input="A story", background=True)
        await until(lambda: client.responses.retrieve(made.id), lambda r: r.output_text == "Once ")
        await getattr(client.responses, how)(made.id)
        await h.upstream.until_closed(model.chats[-1].connection.number)
        if how == "delete":
            with pytest.raises(NotFoundError):
                await client.responses.retrieve(made.id)
            return
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


@pytest.mark.parametrize(("status", "stream"), [(0, False), (429, True)])
async def test_if_the_upstream_refuses_the_response_fails_and_the_words_are_stored_as_promised(
    house, status, stream
):
    """The answer in the background says `queued` before the upstream was asked."""

    async def fails(exchange):
        if status:
            await exchange.json({"error": {"message": "not now"}}, status)
        else:
            exchange.reset()

    model = ChatOnly(script=fails, facts=known(("Zanzibar", "The user will travel to Zanzibar in October.")))
    async with house(model) as h:
        words = "Please remember that I will travel to Zanzibar in October."
        said = {"model": "m", "input": words, "stream": stream, **context(session_id="s")}
        refused = await h.post("/responses", said)
        assert refused.headers["x-memory-store"] == "off"
        created = await h.post("/responses", said | {"background": True})
        assert (created.status_code, created.headers["x-memory-store"]) == (200, "queued")
        assert await until(h.listed) == ["The user will travel to Zanzibar in October."]
        if stream:
            assert "event: response.failed" in created.text
        else:
            path = f"/responses/{created.json()['id']}"
            await until(lambda: h.get(path, user_id="alice"), lambda r: r["status"] == "failed")


async def test_a_background_response_has_failed_if_its_process_died(house, monkeypatch):
    async with slow(house) as (_, _, client):
        made = await client.responses.create(model="m", input="A story", background=True)
        async with house(ChatOnly()) as other, other.client() as elsewhere:  # shares the data directory
            assert (await elsewhere.responses.retrieve(made.id)).status in background.UNDER_WAY
            monkeypatch.setattr(background, "LEASE_S", -1.0)
            assert (await elsewhere.responses.retrieve(made.id)).status == "failed"


async def test_one_that_cannot_be_stored_is_refused(house):
    async with house(ChatOnly()) as h:
        got = await h.post("/responses", {"model": "m", "input": "Hi", "background": True, "store": False})
        assert (got.status_code, got.json()["error"]["param"]) == (400, "background")
        assert not h.model.chats


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
