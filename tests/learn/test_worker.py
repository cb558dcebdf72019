"""The worker over the real store: what was said is extracted and admitted, once, whatever fails."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.domain.core import MemoryFilter, Scope
from proxy.domain.errors import CompletionFailed, CompletionRefused, CredentialNeeded, StoreUnavailable
from proxy.learn import worker as module
from proxy.learn.recorder import TriggerPolicy
from proxy.learn.worker import HAND_ON_EVERY_S, Worker, WorkerConfig, WorkerPace
from proxy.storage.sql.jobs import SqlJobs
from proxy.storage.sql.memories import SqlMemories
from tests.learn.support import ANA, House, facts

BOB = Scope("t", "bob")
HAWAII = "User's budget for the Hawaii trip is $10,000"
SAID = "$10,000 for the Hawaii trip"


async def work_all(house: House) -> None:
    while await house.worker().work_one():
        pass


def outcomes(house: House) -> list[str]:
    return [report.outcome for report in house.reports]


# ---------------------------------------------------------------- extracted
async def test_what_was_said_is_remembered_and_reported(house):
    house.completer.answers = [facts(HAWAII, "User is rich", confidence=0.9)]
    await house.say("We said $10,000 all in for the Hawaii trip. We are rich. Remember it.")
    house.now += 7
    assert await house.worker().work_one()
    assert await house.contents() == [HAWAII, "User is rich"]
    (report,) = house.reports
    assert (report.outcome, report.created, report.superseded) == ("extracted", 2, 0)
    assert (report.lane, report.since_said_s) == (1, 7)
    assert not await house.worker().work_one()
    assert len(house.completer.requests) == 1


async def test_memories_and_prompts_cross_no_users(house):
    house.completer.answers = [facts(HAWAII), facts(HAWAII)]
    await house.say(SAID)
    await house.say(SAID, scope=BOB)
    await work_all(house)
    (ana,), (bob,) = await house.memories(), await house.memories(BOB)
    assert (ana.scope, bob.scope) == (ANA, BOB)
    assert HAWAII not in house.completer.requests[1].user


async def test_without_a_model_the_users_statements_are_stored_as_said(house):
    house.mode = "verbatim"
    await house.say("I'm allergic to peanuts. What can I eat?")
    await house.worker().work_one()
    (memory,) = await house.memories()
    assert (memory.content, memory.source) == ("I'm allergic to peanuts.", "verbatim")
    assert house.completer.requests == []


# ---------------------------------------------------------------- once
class Killed(BaseException):
    pass


@pytest.mark.parametrize("committed", [False, True])
async def test_a_crash_around_the_commit_loses_and_doubles_nothing(house, monkeypatch, committed):
    apply = SqlMemories.apply

    async def killed(self, *args, **kwargs):
        if committed:
            await apply(self, *args, **kwargs)
        raise Killed

    house.completer.answers = [facts(HAWAII), facts(HAWAII)]
    await house.say(SAID)
    with monkeypatch.context() as patch:
        patch.setattr(SqlMemories, "apply", killed)
        with pytest.raises(Killed):
            await house.worker().work_one()
    house.now += house.pace.lease_seconds + 1
    await work_all(house)
    assert await house.contents() == [HAWAII]
    assert len(house.completer.requests) == (1 if committed else 2)


async def test_a_worker_whose_lease_ended_leaves_the_job_to_its_new_owner(house):
    house.completer.go_on.clear()
    await house.say(SAID)
    slow = asyncio.create_task(house.worker().work_one())
    async with asyncio.timeout(60):
        await house.completer.reached.wait()
    house.now += house.pace.lease_seconds + 1
    theirs = await house.stores.jobs.claim(house.now, house.pace.lease_seconds)
    house.completer.answers = [facts(HAWAII)] * 3
    house.completer.go_on.set()
    assert await slow
    assert (outcomes(house), len(house.completer.requests)) == (["lost"], 1)
    assert await house.contents() == []
    assert theirs is not None
    assert (await house.stores.jobs.counts()).running == 1
    assert len((await house.stores.jobs.batch(theirs, limit=9, context=0)).pending) == 1


async def test_what_is_forgotten_during_extraction_stays_forgotten(house):
    house.completer.answers = [facts("User's dog is called Rex"), facts("User has a dog, Rex"), facts(HAWAII)]
    await house.say("My dog is called Rex.")
    await house.worker().work_one()
    (dog,) = await house.memories()
    await house.say(SAID)
    house.completer.reached.clear()
    house.completer.go_on.clear()
    working = asyncio.create_task(house.worker().work_one())
    await asyncio.wait_for(house.completer.reached.wait(), 5)
    await house.stores.memories.forget(MemoryFilter(tenant="t", user="ana"), dog.id, by="test")
    house.completer.go_on.set()
    await working
    assert await house.contents() == [HAWAII]
    assert "Rex" not in house.completer.requests[2].user


async def test_another_process_between_search_and_commit_stores_no_fact_twice(house, monkeypatch):
    apply, raced = SqlMemories.apply, False

    async def overtaken(self, scope, changes, *, expect, done=None):
        nonlocal raced
        if not raced:
            raced = True
            twins = [replace(c, memory=replace(c.memory, id="mem_other", evidence=())) for c in changes]
            await apply(self, scope, twins, expect=expect)
        return await apply(self, scope, changes, expect=expect, done=done)

    monkeypatch.setattr(SqlMemories, "apply", overtaken)
    house.completer.answers = [facts(HAWAII)]
    await house.say(SAID)
    await house.worker().work_one()
    assert [m.id for m in await house.memories()] == ["mem_other"]
    assert house.reports[0].confirmed == 1


# ---------------------------------------------------------------- failures
async def test_a_failing_model_is_asked_again_with_growing_pauses_and_finally_no_more(house):
    house.pace = WorkerPace(max_attempts=5)
    house.completer.answers = [CompletionFailed("429"), ZeroDivisionError("a bug"), *[CompletionFailed()] * 3]
    await house.say(SAID)
    pauses = []
    for _ in range(5):
        before = house.now
        while not await house.worker().work_one():
            house.now += 1
        pauses.append(house.now - before)
    assert pauses == [0, 2, 4, 8, 16]
    assert outcomes(house) == ["retried"] * 4 + ["dead"]
    house.completer.answers = [CompletionRefused("400")]  # no retry could help
    await house.say("I live in Ghent.")
    await house.worker().work_one()
    assert outcomes(house)[5:] == ["dead"]
    assert (await house.stores.jobs.counts()).dead == 2
    house.now += 10_000
    assert not await house.worker().work_one()


async def test_a_job_without_a_credential_waits_for_its_user(house):
    house.completer.answers = [CredentialNeeded("401"), facts(HAWAII)]
    await house.say(SAID)
    await house.worker().work_one()
    house.now += 10_000
    assert not await house.worker().work_one()
    await house.stores.jobs.wake(ANA)
    assert await house.worker().work_one()
    assert outcomes(house) == ["waiting", "extracted"]
    assert await house.contents() == [HAWAII]


@pytest.mark.parametrize("known_elsewhere", [True, False])
async def test_a_new_job_without_a_credential_is_handed_on_until_it_waits(house, known_elsewhere):
    house.shared = True
    house.completer.answers = [CredentialNeeded("401"), facts(HAWAII)]
    if not known_elsewhere:
        house.completer.answers = [CredentialNeeded("401")] * 20
    await house.say(SAID)
    while not house.reports or outcomes(house)[-1] == "handed_on":
        assert await house.worker().work_one()
        assert not await house.worker().work_one()
        house.now += HAND_ON_EVERY_S
    assert outcomes(house)[-1] == ("extracted" if known_elsewhere else "waiting")
    assert len(house.reports) < 15


async def test_an_unreadable_answer_is_asked_for_once_more_and_an_explicit_ask_is_stored_anyway(house):
    for said in (SAID, "I went to the market. Please remember that my locker is number 4471."):
        house.completer.answers = ["Sorry, no.", "I cannot do that."]
        await house.say(said)
        await house.worker().work_one()
    house.completer.answers = ["Sorry, no.", "I cannot do that."]
    await house.say("Please remember that my password is Kiebitz!83.")
    await house.worker().work_one()
    assert outcomes(house) == ["unreadable"] * 3
    assert len(house.completer.requests) == 6
    assert await house.contents() == ["Please remember that my locker is number 4471."]


async def test_a_job_that_could_not_be_given_back_runs_once_the_store_is_back(house, monkeypatch):
    async def away(*_, **__):
        raise StoreUnavailable("a full disk")

    house.completer.answers = [facts(HAWAII), facts(HAWAII)]
    await house.say(SAID)
    worker = house.worker()
    with monkeypatch.context() as fault:
        fault.setattr(SqlMemories, "apply", away)
        fault.setattr(SqlJobs, "retry", away)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await worker.work_one()
    house.now += 1  # the lease has minutes to go
    assert await worker.work_one()
    assert await house.contents() == [HAWAII]
    assert not await worker.work_one()


# ---------------------------------------------------------------- running and stopping
async def test_shutdown_extracts_pending_exchanges_and_leaves_a_stuck_job_to_the_next_worker(house):
    house.policy = TriggerPolicy(batch_size=10, personal_idle_seconds=15)
    house.completer.answers = [facts(HAWAII)]
    await house.say(SAID)
    assert not await house.worker().work_one()
    house.completer.go_on.clear()
    await asyncio.wait_for(house.worker().drain(0.05), 5)
    assert await house.contents() == []
    house.completer.go_on.set()
    await house.worker().drain(5)  # at once: the lease was given back
    assert await house.contents() == [HAWAII]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_job_claimed_for_a_cancelled_worker_is_given_back(house, monkeypatch, fails):
    jobs, reached, go_on = house.stores.jobs, asyncio.Event(), asyncio.Event()
    claim = jobs.claim

    async def slowly(now, lease_s, *, upto_lane):
        job = None if fails else await claim(now, lease_s, upto_lane=upto_lane)
        reached.set()
        await go_on.wait()
        return job if not fails else 1 / 0

    house.completer.answers = [facts(HAWAII)]
    await house.say(SAID)
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "claim", slowly)
        working = asyncio.create_task(house.worker().work_one())
        await reached.wait()
        working.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await working
    assert await house.worker().work_one()  # at once, not when the lease ends
    assert await house.contents() == [HAWAII]


# ---------------------------------------------------------------- whole sessions
async def work_and_close(house: House, worker: Worker) -> None:
    """Do what is due, then what is due of ended sessions."""
    while await worker.work_one():
        pass
    await house.stores.notes.close(idle_since=house.now, left_since=house.now, now=house.now)
    while await worker.work_one():
        pass


@pytest.mark.parametrize("error", [CompletionFailed("500"), ZeroDivisionError("a bug")])
async def test_failures_of_summary_and_state_cost_no_fact(house, error):
    states: list[list[str]] = []

    async def failing(job, batch):
        states.append(await house.contents())
        raise error

    house.completer.answers = [facts(HAWAII)]
    await house.say(SAID)
    await house.say("Thanks.")
    tools = replace(house.worker()._tools, closing=failing, state=failing)
    config = WorkerConfig(house.mode, pace=house.pace)
    await work_and_close(house, Worker(tools, config, clock=lambda: house.now, report=house.reports.append))
    assert await house.contents() == [HAWAII]
    assert states[0] == [HAWAII], "a state is updated once the facts are stored"
    assert outcomes(house) == ["extracted", "retried"]


# ---------------------------------------------------------------- logs


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (CompletionRefused("status 400"), {"error": "CompletionRefused", "reason": "status 400"}),
        (KeyError("user words"), {"error": "KeyError"}),
    ],
)
async def test_the_log_says_why_an_extraction_failed_and_nothing_of_what_was_said(
    house, error, facts, monkeypatch
):
    lines = list[tuple[str, dict[str, Any]]]()
    log = SimpleNamespace(warning=lambda event, **facts: lines.append((event, facts)))
    monkeypatch.setattr(module, "log", log)
    house.completer.answers = [error]
    await house.say("I like tea.")
    assert await house.worker().work_one()
    dead = isinstance(error, CompletionRefused)
    assert lines == [("memory.extraction_failed", {**facts, "attempt": 1, "dead": dead})]
