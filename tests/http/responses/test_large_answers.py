"""Answers of many MB, translated: other clients do not wait for them."""

import asyncio
import json
import sys
from typing import Any

import pytest

from tests.e2e.chat_only import ChatOnly, chunk
from tests.e2e.conftest import House, Houses
from tests.http.test_large_bodies import MOST_S, TRANSLATE, TRIES, Watchdog
from tests.support.upstream import Exchange

PIECE = 'say "this"\n and 区 ' * 2_000  # is escaped, and no ASCII
PIECES = 400  # 15 MB


def long_answer() -> ChatOnly:
    events = [chunk({"content": PIECE})] * PIECES

    async def script(exchange: Exchange) -> None:
        await exchange.stream(*events, chunk({}, "stop"), b"data: [DONE]\n\n")

    return ChatOnly(script=script)


async def asked(h: House, body: dict[str, Any]) -> tuple[int, float]:
    """Return how many bytes came, and the shortest of the longest stalls. The answer is read in a process of
    its own: this one would hold up the loop by reading it."""
    script = (
        "import http.client,sys\n"
        "c = http.client.HTTPConnection(sys.argv[1], timeout=60)\n"
        "c.request('POST', '/v1/responses', sys.argv[2], {'Content-Type': 'application/json'})\n"
        "print(len(c.getresponse().read()))\n"
    )
    size, stalls = 0, []
    for _ in range(TRIES):
        async with Watchdog() as watchdog:
            size = int(await run(script, h.origin.removeprefix("http://"), json.dumps(body)))
        stalls.append(watchdog.longest_s)
        if watchdog.longest_s < MOST_S:
            break
    return size, min(stalls)


async def run(script: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *arguments, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("store", [True, False], ids=["stored", "not stored"])
async def test_nobody_waits_for_an_answer_of_15_mb(house: Houses, stream: bool, store: bool) -> None:
    async with house(long_answer(), **TRANSLATE) as h:
        size, stall_s = await asked(h, {"model": "m", "input": "x", "stream": stream, "store": store})
    assert size > PIECES * len(PIECE)
    assert stall_s < MOST_S


async def test_nobody_waits_for_a_stored_answer_of_15_mb(house: Houses) -> None:
    async with house(long_answer(), **TRANSLATE) as h:
        origin = h.origin.removeprefix("http://")
        made = await run(
            "import http.client,json,sys\n"
            "c = http.client.HTTPConnection(sys.argv[1], timeout=60)\n"
            "body = json.dumps({'model': 'm', 'input': 'x'})\n"
            "c.request('POST', '/v1/responses', body, {'Content-Type': 'application/json'})\n"
            "print(json.load(c.getresponse())['id'])\n",
            origin,
        )
        script = (
            "import http.client,sys\n"
            "c = http.client.HTTPConnection(sys.argv[1], timeout=60)\n"
            "c.request('GET', sys.argv[2])\n"
            "print(len(c.getresponse().read()))\n"
        )
        stalls = []
        for _ in range(TRIES):
            async with Watchdog() as watchdog:
                size = int(await run(script, origin, f"/v1/responses/{made.strip()}"))
            stalls.append(watchdog.longest_s)
            if watchdog.longest_s < MOST_S:
                break
    assert size > PIECES * len(PIECE)
    assert min(stalls) < MOST_S
