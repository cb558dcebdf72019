"""Translated answers of many MB do not stall other clients."""

import asyncio
import json
import sys

from tests.e2e.chat_only import ChatOnly, chunk
from tests.e2e.conftest import House
from tests.http.test_large_bodies import MOST_S, TRANSLATE, TRIES, Watchdog
from tests.support.upstream import Exchange

PIECE = 'say "this"\n and 区 ' * 2_000  # is escaped, and not ASCII
PIECES = 400  # 15 MB


def long_answer() -> ChatOnly:
    events = [chunk({"content": PIECE})] * PIECES

    async def script(exchange: Exchange) -> None:
        await exchange.stream(*events, chunk({}, "stop"), b"data: [DONE]\n\n")

    return ChatOnly(script=script)


# Reads an answer and prints its size and the id of the response.
CLIENT = r"""
import http.client, re, sys
connection = http.client.HTTPConnection(sys.argv[1], timeout=60)
connection.request(*sys.argv[2:4], *sys.argv[4:], headers={"Content-Type": "application/json"})
answer = connection.getresponse().read()
print(len(answer), re.search(rb'"id": ?"(resp_\w+)"', answer)[1].decode())
"""


async def asked(house: House, *request: str) -> tuple[int, str, float]:
    """Return the answer's size, the response's id, and the shortest of the longest stalls of the event loop.
    The answer is read in another process: reading it here would stall the loop."""
    stalls: list[float] = []
    while len(stalls) < TRIES and min(stalls, default=MOST_S) >= MOST_S:
        async with Watchdog() as watchdog:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CLIENT, house.origin.removeprefix("http://"), *request,
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, _ = await process.communicate()
        stalls.append(watchdog.longest_s)
    size, id_ = out.decode().split()
    return int(size), id_, min(stalls)


async def test_an_answer_of_15_mb_does_not_stall_other_clients(house):
    body = json.dumps({"model": "m", "input": "x"})
    async with house(long_answer(), **TRANSLATE) as h:
        size, id_, stall_s = await asked(h, "POST", "/v1/responses", body)
        again, _, stall_again_s = await asked(h, "GET", f"/v1/responses/{id_}")
    assert min(size, again) > PIECES * len(PIECE)
    assert max(stall_s, stall_again_s) < MOST_S
