"""The worker: claims extraction jobs as the load allows and runs them. A job may run more than once
(at-least-once delivery); its result is stored once.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from proxy.domain.core import Job, SessionState
from proxy.domain.errors import StoreError, StoreUnavailable
from proxy.domain.lanes import BATCH
from proxy.domain.ports import Clock
from proxy.learn.budget import NO_LANE, Bounds, Load
from proxy.learn.one_job import Closing, Mode, OneJob, Pace, Refresh, Report, Tools
from proxy.learn.schedule import Policy, on_end, on_sweep, unless_due, up_to
from proxy.telemetry import Seldom, log

__all__ = ["Closing", "Mode", "Pace", "Refresh", "Report", "Tools", "Worker", "WorkerConfig"]


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """How a worker works: who extracts, when exchanges become a job, and how often and how long it tries."""

    mode: Mode = "llm"
    policy: Policy = field(default_factory=Policy)
    pace: Pace = field(default_factory=Pace)


class Worker:
    """Works until cancelled. `wake` is set by whoever queues; `report` is told of every job."""

    def __init__(
        self,
        tools: Tools,
        config: WorkerConfig = WorkerConfig(),
        *,
        clock: Clock = time.time,
        report: Callable[[Report], None] = lambda report: None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        at_once = config.pace.concurrency
        self._tools, self._mode, self._policy, self._pace = tools, config.mode, config.policy, config.pace
        self._load = tools.load or Load(Bounds(at_once, peak=at_once), clock)
        self._clock, self._report = clock, report
        self._one = OneJob(tools, config.mode, config.pace, clock, jitter)
        self._seldom = Seldom(clock)
        self._stranded = deque[Job]()  # ours no longer, and not given back yet: the store was away
        self.wake = asyncio.Event()

    # ------------------------------------------------------------ loops
    async def run(self) -> None:
        """Serve jobs and sweep sessions until cancelled."""
        if self._mode == "off":
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweeper())
            while True:
                self.wake.clear()  # before the claim: a wake after it is not lost
                if not await self._round(lambda: self._start_one(group)):
                    await self._wait()

    async def _wait(self) -> None:
        """Wait until somebody wakes us, or it is time to look for what other processes have queued."""
        with suppress(TimeoutError):
            # Not wait_for: in Python 3.11 it drops a cancellation that comes with the wake.
            async with asyncio.timeout(self._pace.poll_seconds):
                await self.wake.wait()

    async def drain(self, timeout_s: float) -> None:
        """Queue what every session holds and work until nothing is due or the time is up."""
        if self._mode == "off":
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._round(lambda: self._tools.sessions.sweep(self._clock(), on_end))
                async with asyncio.TaskGroup() as group:
                    await self._drain(group)
        except TimeoutError:
            log.warning("worker.drain_cut", seconds=timeout_s)  # the queue is durable: next start

    async def _drain(self, group: asyncio.TaskGroup) -> None:
        while True:
            self.wake.clear()
            if await self._round(lambda: self._start_one(group)):
                continue
            if not self._load.running:
                return
            await self.wake.wait()  # a job that ends sets it

    async def sweep(self) -> int:
        """Offer idle sessions, and those that changed their topic, to the triggers; return the number of
        jobs made."""
        now, others = self._clock(), list[SessionState]()
        made = await self._tools.sessions.sweep(now, unless_due(on_sweep(self._policy, now), others))
        if self._tools.drift is not None:
            await self._tools.rush.over()
            left = await self._tools.drift.left_behind(others)
            made += await self._tools.sessions.sweep(now, up_to(left)) if left else 0
        if made:
            self.wake.set()
        return made

    async def _sweeper(self) -> None:
        while True:
            await self._round(self.sweep)
            await asyncio.sleep(self._pace.sweep_seconds)

    async def _round(self, work: Callable[[], Awaitable[int | bool]]) -> bool:
        """Return whether there was work. The loops have to outlive whatever one round does."""
        try:
            return bool(await work())
        except Exception as e:  # noqa: BLE001
            if type(e) is not StoreUnavailable:  # of that the store's own lines tell, with place and cause
                self._seldom.error("worker.round_failed", error=type(e).__name__)
            return False

    # ------------------------------------------------------------ jobs
    async def work_one(self) -> bool:
        """Claim and serve one job; False if none is due. Raises StoreError."""
        job = await self._claim()
        if job is not None:
            await self._serve(job)
        return job is not None

    async def _start_one(self, group: asyncio.TaskGroup) -> bool:
        job = await self._claim()
        if job is not None:
            group.create_task(self._served(job))
        return job is not None

    async def _claim(self) -> Job | None:
        """Claim the next job that the load allows, and count it as served."""
        await self._return_stranded()
        await self._load.look()
        if (lane := self._load.lane()) == NO_LANE:
            return None
        now = self._clock()
        job = await self._claimed(now, lane)
        if job is not None:
            self._load.began(waited_s=now - job.created_at)
        elif lane == BATCH:
            self._load.idle()
            self._tools.rush.nothing_due()
        return job

    async def _claimed(self, now: float, lane: int) -> Job | None:
        """Claim a job. A store goes on with a claim whose caller is cancelled: what it claimed goes back."""
        claiming = asyncio.ensure_future(
            self._tools.jobs.claim(now, self._pace.lease_seconds, upto_lane=lane)
        )
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            with suppress(Exception):  # none of which may stand in the place of the cancellation
                if (job := await claiming) is not None:
                    await self._tools.jobs.retry(job, at=now, reason="cancelled", counted=False)
            raise

    async def _return_stranded(self) -> None:
        """Give back what could not be given back: until its lease ends, the user's other jobs wait for it."""
        while self._stranded:
            await self._tools.jobs.retry(
                self._stranded[0], at=self._clock(), reason="store_unavailable", counted=False
            )
            self._stranded.popleft()

    async def _served(self, job: Job) -> None:
        await self._round(lambda: self._serve(job))

    async def _serve(self, job: Job) -> bool:
        try:
            report, batch = await self._one.serve(job)
            self._report(report)
            if batch is not None:
                await self._one.refresh(job, batch)
        except StoreError:
            self._stranded.append(job)
            raise
        except asyncio.CancelledError:
            with suppress(StoreError):
                await asyncio.shield(
                    self._tools.jobs.retry(job, at=self._clock(), reason="cancelled", counted=False)
                )
            raise
        finally:
            self._load.ended()
            self.wake.set()  # there is room for the next
        return True
