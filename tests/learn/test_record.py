"""What is read of a message before its answer begins: a short one at once, a long one in a thread."""

import asyncio
import threading
from dataclasses import dataclass, field, replace

import pytest

from proxy.domain.core import MemoryOptions, Message, Scope, Turn
from proxy.domain.errors import EmbeddingFailed, StoreUnavailable
from proxy.domain.judging import Reading
from proxy.domain.ports import Trigger
from proxy.domain.session import EXPLICIT, NewExchange, Outcome, StoredExchange
from proxy.learn.recorder import IN_THREAD_CHARS, MAX_CHARS, ExchangeRecorder
from proxy.learn.triggers import TriggerPolicy, on_completion
from proxy.storage.sql.sessions import SqlSessions
from tests.learn.support import ANA, NOON, House
from tests.support.judge import ASKS_NOTHING, CHANGED, ScriptedJudge

BEN = Scope("t", "ben")


@dataclass
class Readers:
    """Stand for the detectors; note in which threads they ran."""

    threads: set[int] = field(default_factory=set)

    def redact(self, text: str) -> str:
        self.threads.add(threading.get_ident())
        return text


def recorder(house: House, readers: Readers) -> ExchangeRecorder:
    return ExchangeRecorder(
        sessions=house.stores.sessions,
        trigger=on_completion(TriggerPolicy(batch_size=1)),
        wake=asyncio.Event(),
        redact=readers.redact,
    )


RULE = replace(ASKS_NOTHING, rule=0.9)


def turn(said: str) -> Turn:
    options = MemoryOptions(True, True, None, 5, None)
    return Turn(
        request_id="r",
        scope=ANA,
        session_id="s-1",
        model="m",
        messages=(Message("user", said),),
        options=options,
        at=NOON,
    )


@pytest.mark.parametrize(("chars", "in_loop"), [(IN_THREAD_CHARS - 2, True), (IN_THREAD_CHARS + 2, False)])
async def test_reading_a_long_message_holds_no_other_request_up(
    house: House, chars: int, in_loop: bool
) -> None:
    readers = Readers()
    recording = recorder(house, readers)
    begun = await recording.begin(turn("w " * (chars // 2)), "k-1")
    await recording.finish(begun, Outcome("w " * (chars // 2), True))
    assert (threading.get_ident() in readers.threads) is in_loop
    assert len(readers.threads) >= 1


async def test_what_is_written_down_is_bounded(house: House) -> None:
    recording = recorder(house, Readers())
    begun = await recording.begin(turn("word " * MAX_CHARS), "k-1")
    await recording.finish(begun, Outcome("word " * MAX_CHARS, True))
    (kept,) = await house.stores.sessions.recent(ANA, "s-1", 5)
    assert len(kept.said) <= MAX_CHARS + 10
    assert len(kept.answer) <= MAX_CHARS + 10


async def test_an_answer_that_is_being_committed_late_is_not_lost_where_that_is_broken_off(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(*_: object) -> bool:
        await asyncio.Event().wait()
        return False

    recording = recorder(house, Readers())
    recording.keep(await recording.begin(turn("I like tea."), "k-1"), Outcome("Noted.", True))
    with monkeypatch.context() as patched:
        patched.setattr(SqlSessions, "complete", hangs)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(recording.catch_up(), 0.05)
    await recording.catch_up()
    (kept,) = await house.stores.sessions.recent(ANA, "s-1", 5)
    assert kept.answer == "Noted."
    assert not recording.late


async def test_an_exchange_whose_commit_was_not_acknowledged_is_ended_once_it_is_there(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, may_commit = SqlSessions.begin, asyncio.Event()

    async def slow(sessions: SqlSessions, new: NewExchange) -> StoredExchange:
        async def later() -> StoredExchange:
            await may_commit.wait()
            return await begin(sessions, new)

        commits.append(asyncio.create_task(later()))
        return await asyncio.shield(commits[0])

    commits: list[asyncio.Task[StoredExchange]] = []
    recording = recorder(house, Readers())
    with monkeypatch.context() as patched:
        patched.setattr(SqlSessions, "begin", slow)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(recording.begin(turn("I like tea."), "k-1"), 0.05)
    await recording.catch_up()
    assert recording.unacknowledged
    may_commit.set()
    await commits[0]
    assert await house.stores.jobs.claim(NOON + 1, 60.0) is None  # it is open
    await recording.catch_up()
    assert not recording.unacknowledged
    assert await house.stores.jobs.claim(NOON + 1, 60.0) is not None


async def test_responses_that_two_users_have_under_one_id_are_told_apart_by_what_is_stored(
    house: House,
) -> None:
    recording = recorder(house, Readers())
    for scope in (ANA, BEN):
        begun = await recording.begin(replace(turn("When does it end?"), scope=scope), "k-1")
        await recording.finish(begun, Outcome("Let me look.", whole=False, response_id="resp_1"))
    for scope in (ANA, BEN):
        step = replace(turn(""), scope=scope, messages=(Message("tool", "May"),), continues="resp_1")
        begun = await recording.resume(step, None)
        assert begun is not None
        await recording.finish(begun, Outcome(f"In May, {scope.user}.", whole=True, response_id="resp_2"))
    for scope in (ANA, BEN):
        (exchange,) = await house.stores.sessions.recent(scope, "s-1", 9)
        assert exchange.answer.endswith(f"In May, {scope.user}.")


async def test_of_a_response_nothing_is_kept_once_it_is_on_disk(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording, complete = recorder(house, Readers()), house.stores.sessions.complete

    async def away(begun: StoredExchange, outcome: Outcome, trigger: Trigger) -> bool:
        raise StoreUnavailable("away")

    begun = await recording.begin(turn("When does it end?"), "k-1")
    outcome = Outcome("Let me look.", whole=False, response_id="resp_1")
    step = replace(turn(""), messages=(Message("tool", "May"),), continues="resp_1")
    monkeypatch.setattr(house.stores.sessions, "complete", away)
    with pytest.raises(StoreUnavailable):
        await recording.finish(begun, outcome)
    assert await recording.resume(step, None) == begun  # not on disk: known all the same
    monkeypatch.setattr(house.stores.sessions, "complete", complete)
    await recording.finish(begun, outcome)
    assert not recording.pending_responses
    assert await recording.resume(step, None) == begun


@pytest.mark.parametrize(("named", "anew"), [(False, True), (True, False)])
async def test_a_day_later_the_first_words_of_an_unnamed_conversation_begin_another(
    house: House, named: bool, anew: bool
) -> None:
    recording = recorder(house, Readers())
    opening = replace(turn("I live in Berlin."), named=named)
    first = await recording.begin(opening, "k-1")
    await recording.finish(first, Outcome("All right.", True))
    more = (*opening.messages, Message("assistant", "All right."), Message("user", "And a joke."))
    await recording.finish(
        await recording.begin(replace(opening, messages=more), "k-2"), Outcome("A bear.", True)
    )
    again = await recording.begin(replace(opening, at=NOON + 86_400), "k-1")
    assert (again != first) is anew


# ---------------------------------------------------------------- what is asked for
async def test_a_rule_is_in_force_on_the_next_turn_and_ends_the_one_that_it_changes(house: House) -> None:
    judge = ScriptedJudge(
        asks=lambda text: RULE if text.startswith("Answer") else ASKS_NOTHING, relation=lambda *_: CHANGED
    )
    recording = replace(recorder(house, Readers()), judge=judge, notes=house.stores.notes)
    for number, said in enumerate(("Answer in Welsh.", "I like tea.", "Answer in Dutch.")):
        await recording.begin(turn(said), f"k-{number}")
    (anchor,) = (await house.stores.notes.notes(ANA, "s-1")).anchors
    assert anchor.text == "Answer in Dutch."


async def test_what_is_asked_for_is_extracted_at_once(house: House) -> None:
    asks = replace(ASKS_NOTHING, remember=0.6)
    patient = replace(
        recorder(house, Readers()),
        judge=ScriptedJudge(asks=lambda _: asks),
        trigger=on_completion(TriggerPolicy(batch_size=9)),
    )
    begun = await patient.begin(turn("My locker is 4471, keep that in mind."), "k-1")
    await patient.finish(begun, Outcome("Noted.", True))
    job = await house.stores.jobs.claim(NOON, 60)
    assert job is not None
    assert job.lane == EXPLICIT


async def test_a_judge_that_fails_costs_the_ask_and_not_the_exchange(house: House) -> None:
    class Failing(ScriptedJudge):
        async def read(self, text: str, *, closely: bool = False) -> Reading:
            raise EmbeddingFailed("no")

    recording = replace(recorder(house, Readers()), judge=Failing(), notes=house.stores.notes)
    begun = await recording.begin(turn("Answer in Welsh."), "k-1")
    await recording.finish(begun, Outcome("Iawn.", True))
    assert [e.said for e in await house.stores.sessions.recent(ANA, "s-1", 5)] == ["Answer in Welsh."]
