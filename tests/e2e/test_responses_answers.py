"""What an upstream may answer on the translated Responses route, over real sockets."""

import asyncio
import json
import time
from itertools import product
from typing import Any

import brotli
import httpx2
import pytest

from tests.e2e.chat_only import ChatOnly, chunk
from tests.e2e.conftest import House
from tests.support.model import known
from tests.support.upstream import Exchange, Script, completion_events

BUSY = b'{"error": {"message": "slow  down", "type": "requests", "code": null, "param": null}}'
STREAM = completion_events("All ", "is ", "well.")
HTML = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1>nginx</body></html>"


def events_of(body: bytes) -> list[Any]:
    return [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: ")]


async def asked(h: House, *, stream: bool = True, **headers: str) -> httpx2.Response:
    return await h.post("/responses", {"model": "m", "input": "How are you?", "stream": stream}, **headers)


def after(seconds: float, script: Script) -> Script:
    async def answer(exchange: Exchange) -> None:
        await asyncio.sleep(seconds)
        await script(exchange)

    return answer


async def well(exchange: Exchange) -> None:
    await exchange.stream(*STREAM)


async def busy(exchange: Exchange) -> None:
    await exchange.reply(BUSY, 429, [(b"retry-after", b"7"), (b"content-type", b"application/json")])


# ---------------------------------------------------------------- the beginning, and silence
async def test_a_stream_begins_while_the_upstream_thinks_and_silence_is_filled(house):
    settings = {"stream_start_seconds": 0.1, "keep_alive_seconds": 0.2}
    async with (
        house(ChatOnly(script=after(1.0, well)), upstream_extra=settings) as h,
        httpx2.AsyncClient(timeout=60) as http,
    ):
        begun, first, received = time.monotonic(), 0.0, b""
        body = {"model": "m", "input": "How are you?", "stream": True}
        async with http.stream("POST", f"{h.base_url}/responses", json=body) as answer:
            async for piece in answer.aiter_bytes():
                first = first or time.monotonic() - begun
                received += piece
    assert first < 0.65
    assert received.startswith(b"event: response.created\n")
    assert 2 <= received.count(b": keep-alive\n\n") <= 8
    events = events_of(received)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "All is well."


async def test_an_error_is_a_status_before_the_stream_begins_and_fails_the_response_later(house):
    async with house(ChatOnly(script=busy), upstream_extra={"stream_start_seconds": 20}) as h:
        got = await asked(h)
        assert (got.status_code, got.headers["retry-after"], got.content) == (429, "7", BUSY)
    late = ChatOnly(script=after(0.5, busy), facts=known(("tea", "User likes tea.")))
    async with house(late, upstream_extra={"stream_start_seconds": 0.05}) as h:
        got = await asked(h, **{"x-memory-user-id": "alice"})
        assert (got.status_code, got.headers["x-memory-store"]) == (200, "queued")
        last = events_of(got.content)[-1]
        assert last["type"] == "response.failed"
        assert last["response"]["error"] == {"code": "rate_limit_exceeded", "message": "slow down"}
        stored = await h.get(f"/responses/{last['response']['id']}", user_id="alice")
        assert stored["status"] == "failed"


# ---------------------------------------------------------------- invalid answers
REFUSALS = [
    (502, b"text/html", HTML, "The upstream answered with status 502 and a page: 502 Bad Gateway nginx"),
    (400, b"application/json", b'{"error": "no such model"}', "no such model"),
    (500, b"text/plain", b"", "The upstream answered with status 500 and without a message."),
    (500, b"", brotli.compress(b'{"message": "packed"}'), "packed"),
]


async def test_a_refusal_has_openais_shape(house):
    async def refuse(exchange):
        status, kind, body, _ = case
        given = [(b"content-type", kind), (b"retry-after", b"3"), (b"x-request-id", b"up-1")]
        await exchange.reply(body, status, given)

    async with house(ChatOnly(script=refuse)) as h:
        for case, stream in product(REFUSALS, (True, False)):
            got = await asked(h, stream=stream)
            assert got.status_code == case[0]
            assert set(got.json()["error"]) == {"message", "type", "param", "code"}
            assert got.json()["error"]["message"] == case[3]
            assert got.headers["content-type"] == "application/json"
            assert (got.headers["retry-after"], got.headers["x-request-id"]) == ("3", "up-1")


# ---------------------------------------------------------------- bounds
@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
async def test_an_answer_without_end_is_an_error_that_says_so(house, streams):
    sent = 0

    async def answer(exchange):
        nonlocal sent
        await exchange.start_stream()
        piece = chunk({"content": "lorem ipsum " * 5_000}) if streams else b" " * 60_000
        await exchange.chunk(b": one\n\n" if streams else b'{"choices": [')
        for _ in range(1_000):
            await exchange.chunk(piece)
            sent += len(piece)
        await exchange.end()

    async with house(ChatOnly(script=answer), upstream_extra={"max_answer_mb": 1}) as h:
        got = await asked(h, stream=False)
        assert got.status_code == 502
        assert "longer than 1 MB" in got.json()["error"]["message"]
        last = events_of((await asked(h)).content)[-1]
        assert last["type"] == "response.failed"
        assert "longer than 1 MB" in last["response"]["error"]["message"]
    assert sent < 50_000_000, "the upstream is left"
