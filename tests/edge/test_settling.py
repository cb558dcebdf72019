"""A request waits for the answer before it only where it needs to, and never for long."""

import asyncio
from dataclasses import replace
from time import perf_counter

import pytest

from proxy.domain import MemoryOptions, Message, Scope, Turn
from proxy.edge.settling import WAIT_S, Settling

TURN = Turn(
    request_id="",
    scope=Scope("t", "anna"),
    session_id="s",
    model="m",
    messages=(Message("user", "How much?"),),
    options=MemoryOptions(read=True, write=True, types=None, limit=5, threshold=None),
    at=0.0,
    named=True,
    standalone=True,
)


async def test_it_goes_on_as_soon_as_the_answer_is_on_disk() -> None:
    settling, order = Settling(), list[str]()

    async def written() -> None:
        with settling.answered(TURN):
            await asyncio.sleep(0.005)
            order.append("on disk")

    task = asyncio.create_task(written())
    await asyncio.sleep(0)
    await settling.settled(TURN, within_s=1)
    order.append("recalled")
    await task
    assert order == ["on disk", "recalled"]
    assert settling._under_way == {}


@pytest.mark.parametrize(
    "other",
    [
        replace(TURN, standalone=False),  # it brings its history
        replace(TURN, session_id="another"),
        replace(TURN, scope=Scope("t", "bob")),
        replace(TURN, scope=Scope("t", "anna", "p")),
    ],
)
async def test_nobody_else_waits(other: Turn) -> None:
    settling = Settling()
    with settling.answered(TURN):
        before = perf_counter()
        await settling.settled(other, within_s=1)
        assert perf_counter() - before < WAIT_S / 2


async def test_a_slow_disk_is_not_waited_for_beyond_the_deadline() -> None:
    settling = Settling()
    with settling.answered(TURN):
        before = perf_counter()
        await settling.settled(TURN, within_s=0.01)
        assert perf_counter() - before < WAIT_S
        await settling.settled(TURN, within_s=-1)
        await settling.settled(replace(TURN, standalone=False, continues="resp_1"), within_s=10)
        assert perf_counter() - before < 1
