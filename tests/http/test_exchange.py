"""What is begun for a request is taken back if the upstream refuses it; what another request began is not."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from proxy.domain.core import MemoryOptions, Message, Scope, Turn
from proxy.domain.session import Outcome, StoredExchange
from proxy.http.exchange import Writing
from proxy.http.failopen import FailOpen
from proxy.telemetry import Metrics

ASKED = (Message("user", "Book it."),)
AFTER_TOOLS = (*ASKED, Message("assistant", ""), Message("tool", "booked"))


@dataclass
class Recorder:
    """Knows of one exchange, or of none; keeps what it was told."""

    known: bool = True
    told: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    async def begin(self, turn: Turn, key: str) -> StoredExchange:
        self.keys.append(key)
        return StoredExchange("e1", 0)

    async def resume(self, turn: Turn, key: str | None) -> StoredExchange | None:
        self.keys.append(key)
        return StoredExchange("e1", 0) if self.known else None

    async def finish(self, begun: StoredExchange, outcome: Outcome) -> None:
        self.told.append("finish")

    async def abandon(self, begun: StoredExchange) -> None:
        self.told.append("abandon")

    def keep(self, begun: StoredExchange, outcome: Outcome) -> None:
        self.told.append("keep")


def turn(messages: tuple[Message, ...]) -> Turn:
    options = MemoryOptions(read=True, write=True, types=None, limit=10, threshold=None)
    return Turn(
        request_id="r", scope=Scope("t", "u"), session_id="s", model="m", messages=messages,
        options=options, at=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(("messages", "told"), [(ASKED, ["abandon"]), (AFTER_TOOLS, [])])
async def test_only_who_began_an_exchange_takes_it_back(
    messages: tuple[Message, ...], told: list[str]
) -> None:
    recorder = Recorder()
    async with asyncio.TaskGroup() as tasks:
        await Writing(turn(messages), recorder, FailOpen(float, Metrics()), tasks).abandon()
    assert recorder.told == told


async def test_every_step_of_an_answer_has_the_key_of_its_question() -> None:
    recorder = Recorder()
    steps = (ASKED, AFTER_TOOLS, (*AFTER_TOOLS, Message("assistant", "Hm."), Message("tool", "paid")))
    async with asyncio.TaskGroup() as tasks:
        for messages in (*steps, (Message("tool", "an upstream that keeps the rest"),)):
            writing = Writing(turn(messages), recorder, FailOpen(float, Metrics()), tasks)
            assert await writing.finish(Outcome("", whole=True))
    assert len(set(recorder.keys[:3])) == 1
    assert recorder.keys[3] is None


async def test_a_step_may_come_before_the_one_ahead_of_it_is_written_down() -> None:
    recorder = Recorder(known=False)
    async with asyncio.TaskGroup() as tasks:
        writing = Writing(turn(AFTER_TOOLS), recorder, FailOpen(float, Metrics()), tasks)
        assert not await writing.committed(1.0)
        recorder.known = True
        assert await writing.finish(Outcome("", whole=True))
    assert recorder.told == ["finish"]


async def test_in_a_session_of_many_questions_nothing_tells_whose_answer_it_is() -> None:
    recorder = Recorder()
    for named, told in ((False, ["finish"]), (True, ["finish"])):
        async with asyncio.TaskGroup() as tasks:
            asked = replace(turn((Message("tool", "booked"),)), named=named)
            await Writing(asked, recorder, FailOpen(float, Metrics()), tasks).finish(Outcome("", whole=True))
        assert recorder.told == told


async def test_an_answer_that_belongs_to_nothing_is_not_acknowledged() -> None:
    recorder = Recorder(known=False)
    async with asyncio.TaskGroup() as tasks:
        writing = Writing(turn(AFTER_TOOLS), recorder, FailOpen(float, Metrics()), tasks)
        assert not await writing.committed(1.0)
        assert not await writing.finish(Outcome("", whole=True))
    assert recorder.told == []
