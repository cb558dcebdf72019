"""A request waits for the answer before it only where it needs to, and never for long."""

import asyncio
from dataclasses import replace

import pytest

from proxy.domain.core import MemoryOptions, Message, Scope, Turn
from proxy.http import exchange as module
from proxy.http.exchange import Settling

LONG_S = 30.0  # no machine is that busy

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


async def test_it_goes_on_as_soon_as_the_answer_is_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", LONG_S)
    settling, order = Settling(), list[str]()

    async def written() -> None:
        with settling.answered(TURN):
            await asyncio.sleep(0.005)
            order.append("on disk")

    task = asyncio.create_task(written())
    await asyncio.sleep(0)
    async with asyncio.timeout(LONG_S / 3):
        await settling.settled(TURN, within_s=LONG_S)
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
        waits = settling.settled(other, within_s=1)
        with pytest.raises(StopIteration):  # it is over without having waited for anything
            waits.send(None)


async def test_a_slow_disk_is_not_waited_for_beyond_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.WAIT_S < 0.1
    settling = Settling()
    with settling.answered(TURN):
        async with asyncio.timeout(LONG_S / 3):
            with monkeypatch.context() as patched:
                patched.setattr(module, "WAIT_S", LONG_S)
                await settling.settled(TURN, within_s=0.01)
                await settling.settled(TURN, within_s=-1)
            await settling.settled(replace(TURN, standalone=False, continues="resp_1"), within_s=LONG_S)
