"""The order in which jobs are served: lanes, users, and a bounded load, with a clock set by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.admit.gate import Gate
from proxy.domain.core import Scope
from proxy.domain.errors import CompletionPostponed
from proxy.domain.ports import CompletionRequest
from proxy.domain.session import Job, NewExchange, Outcome
from proxy.learn.budget import NO_LANE, CallBounds, Load, MeteredCompleter
from proxy.learn.recorder import TriggerPolicy
from proxy.learn.worker import JobReport, Worker, WorkerConfig, WorkerPace, WorkerTools
from proxy.storage.sql.jobs import SqlJobs
from proxy.storage.sqlite import SqliteStores
from tests.learn.support import NOON


class Town:
    """A store full of sessions, a worker, and an upstream whose calls take `call_s` seconds. Time passes only
    while all running jobs wait for the upstream."""

    def __init__(self, stores: SqliteStores, bounds: CallBounds) -> None:
        self.now, self.call_s = NOON, 1.0
        self.most_at_once, self.calls = 0, list[str]()
        self.refusal: CompletionPostponed | None = None
        self._under_way: list[tuple[float, asyncio.Future[str]]] = []
        self._stores, self._count = stores, 0
        self._in_vain: tuple[int, int] | None = None  # (jobs served, lanes asked for) when none was due
        self.reports: list[JobReport] = []
        self.load = Load(bounds, lambda: self.now)
        self.worker = Worker(
            WorkerTools(
                self._watched(stores.jobs),
                stores.sessions,
                Gate(stores.memories, None),
                MeteredCompleter(self, self.load, timer=lambda: self.now),
                load=self.load,
            ),
            WorkerConfig(pace=WorkerPace(poll_seconds=3600, sweep_seconds=3600)),
            clock=lambda: self.now,
            report=self.reports.append,
            jitter=lambda: 0.0,
        )

    async def complete(self, request: CompletionRequest) -> str:
        """Answer after `call_s` seconds."""
        self.calls.append(request.scope.user)
        if self.refusal is not None:
            raise self.refusal
        answer = asyncio.get_running_loop().create_future()
        self._under_way.append((self.now + self.call_s, answer))
        self.most_at_once = max(self.most_at_once, len(self._under_way))
        return await answer

    async def say(self, said: str, *, user: str, session: str = "s", explicit: bool = False) -> None:
        """Commit an exchange; every one is due, in the ordinary lane or as an explicit ask."""
        self._count += 1
        begun = await self._stores.sessions.begin(
            NewExchange(
                id=f"ex_{self._count}", key=f"k{self._count}", scope=Scope("t", user), session_id=session,
                model="m", said=said, at=self.now, explicit=explicit,
            )
        )  # fmt: skip
        await self._stores.sessions.complete(
            begun, Outcome("ok", True), TriggerPolicy(batch_size=1).on_completion
        )
        self._in_vain = None
        self.worker.wake.set()

    async def pass_seconds(self, seconds: int) -> None:
        """Let so many seconds pass."""
        for _ in range(seconds):
            await self._all_wait()
            self.now += 1
            for at, answer in [call for call in self._under_way if call[0] <= self.now]:
                self._under_way.remove((at, answer))
                answer.set_result('{"facts": []}')
            self._in_vain = None
            self.worker.wake.set()
        await self._all_wait()

    async def _all_wait(self) -> None:
        async with asyncio.timeout(20):
            while not self._settled:  # noqa: ASYNC110 the store's threads are at work
                await asyncio.sleep(0.001)

    @property
    def _settled(self) -> bool:
        served, lane = self.load.running, self.load.lane()
        found_none = self._in_vain is not None and self._in_vain[0] == served and self._in_vain[1] >= lane
        return served == len(self._under_way) and (lane == NO_LANE or found_none)

    def _watched(self, jobs: SqlJobs) -> SqlJobs:
        claim = jobs.claim

        async def watched(now: float, lease_s: float, *, upto_lane: int = 3) -> Job | None:
            job = await claim(now, lease_s, upto_lane=upto_lane)
            self._in_vain = (self.load.running, upto_lane) if job is None else None
            return job

        jobs.claim = watched
        return jobs


@pytest.fixture
def stores(house):
    return house.stores


async def crowd(town: Town, jobs: int, *, sessions_of_one_user: bool = False, explicit: bool = False) -> None:
    """Fill the queue."""
    for n in range(jobs):
        user, session = ("flood", f"s{n}") if sessions_of_one_user else (f"user-{n}", "s")
        await town.say(f"I own boat {n}.", user=user, session=session, explicit=explicit)


@asynccontextmanager
async def at_work(town: Town) -> AsyncIterator[None]:
    """Run the worker."""
    working = asyncio.create_task(town.worker.run())
    yield
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


async def test_an_ask_is_stored_in_seconds_with_many_jobs_ahead_which_are_done_in_a_minute(stores):
    town = Town(stores, CallBounds())
    await crowd(town, 60)
    await town.say("I live in Ghent.", user="ben")
    async with at_work(town):
        await town.pass_seconds(3)
        await town.say("Remember that I live in Ghent.", user="ana", explicit=True)
        await town.pass_seconds(2)
        assert [r.lane for r in town.reports if r.lane == 1] == [1]
        await town.pass_seconds(20)
        assert len(town.reports) == 62
        assert town.most_at_once <= 25


@pytest.mark.parametrize("explicit", [False, True])
async def test_one_users_many_sessions_do_not_delay_the_others(stores, explicit):
    town = Town(stores, CallBounds(concurrency=1, peak=1))
    await crowd(town, 20, sessions_of_one_user=True, explicit=explicit)
    async with at_work(town):
        await town.pass_seconds(2)
        await town.say("I live in Ghent.", user="ana", explicit=explicit)
        await town.pass_seconds(1)
        assert town.calls[-2:].count("ana") == 1
        assert town.calls.count("flood") <= 4  # users take turns


async def test_a_429_stops_all_calls_until_one_succeeds_and_costs_no_attempt(stores):
    town = Town(stores, CallBounds(concurrency=4))
    await crowd(town, 20)
    town.refusal = CompletionPostponed("429", retry_after_s=30, shared=True)
    async with at_work(town):
        await town.pass_seconds(29)
        asked = len(town.calls)
        assert asked <= 4  # those that ran together
        town.refusal = None
        await town.pass_seconds(1)
        assert len(town.calls) == asked + 1
        await town.pass_seconds(1)
        assert town.load.limit == 2
        await town.pass_seconds(10)
        assert [r.outcome for r in town.reports] == ["postponed"] * asked + ["extracted"] * 20
