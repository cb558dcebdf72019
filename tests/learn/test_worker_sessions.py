"""The worker's hooks for sessions as wholes: their summaries, and their state."""

from collections.abc import Sequence
from typing import Any

import pytest

from proxy.admit.gate import Gate
from proxy.domain.core import Candidate
from proxy.domain.errors import CompletionFailed
from proxy.domain.session import Batch, Job
from proxy.learn.triggers import TriggerPolicy
from proxy.learn.worker import Worker, WorkerConfig, WorkerPace, WorkerTools
from tests.learn.support import House, facts

HAWAII = "User's budget for the Hawaii trip is $10,000"
SUMMARY = Candidate(type="episodic", content="User planned the Hawaii trip with its budget", source="summary")


def keeping(house: House, **hooks: Any) -> Worker:
    """Return a worker with these hooks."""
    completer = house.completer
    tools = WorkerTools(
        house.stores.jobs,
        house.stores.sessions,
        Gate(house.stores.memories, None, judge=house.judge),
        completer,
        **hooks,
    )
    config = WorkerConfig(house.mode, pace=house.pace)
    return Worker(tools, config, clock=lambda: house.now, report=house.reports.append)


async def work(house: House, worker: Worker) -> None:
    """Do what is due, then what is due of sessions that are over."""
    while await worker.work_one():
        pass
    await house.stores.notes.close(idle_since=house.now, left_since=house.now, now=house.now)
    while await worker.work_one():
        pass


async def test_a_sessions_summary_is_stored_once_its_last_facts_are(house: House) -> None:
    asked: list[str] = []

    async def closing(job: Job, batch: Batch) -> Sequence[Candidate]:
        asked.append(job.session_id)
        assert await house.contents() == [HAWAII]
        return (SUMMARY,)

    house.completer.answers = [facts(HAWAII)]
    await house.say("$10,000 for the Hawaii trip")
    await house.say("Thanks.")
    await work(house, keeping(house, closing=closing))
    assert asked == ["s-1"]
    assert sorted(await house.contents()) == sorted([HAWAII, SUMMARY.content])


async def test_a_session_is_not_summed_up_before_its_last_exchanges_are_read(house: House) -> None:
    read: list[int] = []

    async def closing(job: Job, batch: Batch) -> Sequence[Candidate]:
        read.append(len(house.completer.requests))
        return ()

    house.policy, house.pace = TriggerPolicy(batch_size=9), WorkerPace(batch_limit=2)
    for n in range(3):
        await house.say(f"I own boat number {n}.")
    worker = keeping(house, closing=closing)
    await work(house, worker)  # the closing job has read two, then the third
    assert (len(house.completer.requests), read) == (2, [])
    await work(house, worker)
    assert read == [2]


@pytest.mark.parametrize("error", [CompletionFailed("500"), ZeroDivisionError("a bug")])
async def test_what_fails_for_the_whole_session_costs_no_fact(house: House, error: Exception) -> None:
    async def failing(job: Job, batch: Batch) -> Any:
        raise error

    house.completer.answers = [facts(HAWAII)]
    await house.say("$10,000 for the Hawaii trip")
    await house.say("Thanks.")
    await work(house, keeping(house, closing=failing, state=failing))
    assert await house.contents() == [HAWAII]
    assert [r.outcome for r in house.reports] == ["extracted", "retried"]


async def test_the_state_is_brought_up_to_date_once_the_facts_are_stored(house: House) -> None:
    seen: list[list[str]] = []

    async def refresh(job: Job, batch: Batch) -> None:
        seen.append(await house.contents())

    house.completer.answers = [CompletionFailed("500"), facts(HAWAII)]
    await house.say("$10,000 for the Hawaii trip")
    worker = keeping(house, state=refresh)
    await worker.work_one()
    assert seen == []
    house.now += 10
    await worker.work_one()
    assert seen == [[HAWAII]]
