"""Exchanges are committed bounded and redacted, late ones are not lost, and accesses are counted."""

import asyncio
from dataclasses import replace

import pytest

from proxy.domain.core import Message, Scope
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.session import EXPLICIT, Outcome, StoredExchange
from proxy.learn.recorder import ExchangeRecorder, TriggerPolicy
from proxy.storage.sql.sessions import SqlSessions
from tests.learn.support import ANA, NOON, House, turn
from tests.support.judge import ASKS_NOTHING, CHANGED, ScriptedJudge

BEN = Scope("t", "ben")


def recorder(house: House) -> ExchangeRecorder:
    return ExchangeRecorder(
        sessions=house.stores.sessions,
        trigger=TriggerPolicy(batch_size=1).on_completion,
        wake=asyncio.Event(),
        redact=str,
    )


RULE = replace(ASKS_NOTHING, rule=0.9)


async def test_a_late_answer_is_not_lost_if_its_commit_is_cancelled(house, monkeypatch):
    async def hangs(*_):
        await asyncio.Event().wait()
        return False

    recording = recorder(house)
    recording.keep(await recording.begin(turn("I like tea."), "k-1"), Outcome("Noted.", True))
    with monkeypatch.context() as patched:
        patched.setattr(SqlSessions, "complete", hangs)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(recording.catch_up(), 0.05)
    await recording.catch_up()
    (stored,) = await house.stores.sessions.recent(ANA, "s-1", 5)
    assert stored.answer == "Noted."
    assert not recording.late


async def test_an_exchange_whose_commit_was_not_acknowledged_is_ended_later(house, monkeypatch):
    begin, may_commit = SqlSessions.begin, asyncio.Event()

    async def slow(sessions, new):
        async def later():
            await may_commit.wait()
            return await begin(sessions, new)

        commits.append(asyncio.create_task(later()))
        return await asyncio.shield(commits[0])

    commits: list[asyncio.Task[StoredExchange]] = []
    recording = recorder(house)
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


async def test_responses_of_two_users_with_one_id_belong_to_their_users(house):
    recording = recorder(house)
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


# ---------------------------------------------------------------- rules and asks
async def test_a_rule_is_in_force_on_the_next_turn_and_ends_the_one_that_it_changes(house):
    judge = ScriptedJudge(
        asks=lambda text: RULE if text.startswith("Answer") else ASKS_NOTHING, relation=lambda *_: CHANGED
    )
    recording = replace(recorder(house), judge=judge, notes=house.stores.notes)
    for number, said in enumerate(("Answer in Welsh.", "I like tea.", "Answer in Dutch.")):
        await recording.begin(turn(said), f"k-{number}")
    (anchor,) = (await house.stores.notes.notes(ANA, "s-1")).anchors
    assert anchor.text == "Answer in Dutch."


async def test_an_explicit_ask_is_extracted_at_once_and_a_failing_judge_costs_no_exchange(house):
    class Failing(ScriptedJudge):
        async def read(self, text, *, closely=False):
            raise EmbeddingFailed("no")

    patient = replace(recorder(house), trigger=TriggerPolicy(batch_size=9).on_completion)
    asks = ScriptedJudge(asks=lambda _: replace(ASKS_NOTHING, remember=0.6))
    for key, judge in (("k-1", Failing()), ("k-2", asks)):
        recording = replace(patient, judge=judge, notes=house.stores.notes)
        assert await house.stores.jobs.claim(NOON, 60) is None
        begun = await recording.begin(turn(f"My locker is 4471, {key}."), key)
        await recording.finish(begun, Outcome("Noted.", True))
    job = await house.stores.jobs.claim(NOON, 60)
    assert job.lane == EXPLICIT
    assert len(await house.stores.sessions.recent(ANA, "s-1", 5)) == 2


# ---------------------------------------------------------------- access counts
