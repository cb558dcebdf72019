"""Exchanges being committed, and what later requests see of them."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from proxy.domain.core import MemoryOptions, Message, Scope, Turn
from proxy.domain.session import Outcome, StoredExchange
from proxy.http import memory_work as module
from proxy.http.memory_work import ExchangeCommit, FailOpen, PendingCommits
from proxy.telemetry import Metrics

LONG_S = 30.0  # no machine is that busy
ASKED = (Message("user", "Book it."),)
AFTER_TOOLS = (*ASKED, Message("assistant", ""), Message("tool", "booked"))
TURN = Turn(
    request_id="r", scope=Scope("t", "anna"), session_id="s", model="m", messages=ASKED, at=0.0,
    options=MemoryOptions(read=True, write=True, types=None, limit=5, threshold=None),
)  # fmt: skip


# ---------------------------------------------------------------- the commit
@dataclass
class Recorder:
    """Knows one exchange, or none; notes what it is asked to do."""

    known: bool = True
    calls: list[str] = field(default_factory=list)

    async def begin(self, turn: Turn, key: str) -> StoredExchange:
        return StoredExchange("e1", 0)

    async def resume(self, turn: Turn, key: str | None) -> StoredExchange | None:
        return StoredExchange("e1", 0) if self.known else None

    async def finish(self, begun: StoredExchange, outcome: Outcome) -> None:
        self.calls.append("finish")

    async def abandon(self, begun: StoredExchange) -> None:
        self.calls.append("abandon")

    def keep(self, begun: StoredExchange, outcome: Outcome) -> None:
        self.calls.append("keep")


def commit(turn: Turn, recorder: Recorder, tasks: asyncio.TaskGroup) -> ExchangeCommit:
    return ExchangeCommit(turn, recorder, FailOpen(float, Metrics()), tasks)


@pytest.mark.parametrize("known_later", [True, False])
async def test_a_step_is_acknowledged_only_once_its_question_is_stored(*, known_later):
    recorder = Recorder(known=False)
    async with asyncio.TaskGroup() as tasks:
        step = commit(replace(TURN, messages=AFTER_TOOLS), recorder, tasks)
        assert not await step.committed(1.0)
        recorder.known = known_later
        assert await step.finish(Outcome("", whole=True)) is known_later
    assert recorder.calls == (["finish"] if known_later else [])


# ---------------------------------------------------------------- the answer before
ALONE = replace(TURN, named=True, standalone=True)


@pytest.mark.parametrize(
    "other",
    [
        replace(ALONE, standalone=False),  # it brings its history
        replace(ALONE, session_id="another"),
        replace(ALONE, scope=Scope("t", "bob")),
        replace(ALONE, scope=Scope("t", "anna", "p")),
    ],
)
async def test_a_request_of_another_session_or_with_its_history_does_not_wait(other):
    pending = PendingCommits()
    with pending.answered(ALONE), pytest.raises(StopIteration):  # it ends without having waited
        pending.wait(other, within_s=1).send(None)


async def test_a_slow_disk_delays_a_request_for_a_moment_only(monkeypatch):
    assert module.WAIT_S < 0.1
    pending = PendingCommits()
    with pending.answered(ALONE):
        async with asyncio.timeout(LONG_S / 3):
            await pending.wait(replace(ALONE, standalone=False, continues="resp_1"), within_s=LONG_S)
            monkeypatch.setattr(module, "WAIT_S", LONG_S)
            await pending.wait(ALONE, within_s=0.01)
            await pending.wait(ALONE, within_s=-1)
