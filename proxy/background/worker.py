"""The worker: claims extraction jobs, extracts, admits, acknowledges; at least once, stored once.

A job is finished in the transaction that stores its memories, so a crash at any point before it leaves
the job to be claimed again. What fails is retried with growing pauses, then kept as a dead letter.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from proxy.background import extract, verbatim
from proxy.background.admit import Gate, admit
from proxy.background.decide import Decision
from proxy.background.doubt import judge_of
from proxy.background.extract import Facts
from proxy.background.related import related
from proxy.background.repair import Unreadable
from proxy.background.schedule import Policy, on_end, on_sweep
from proxy.domain import Batch, Confirm, Create, Hold, Job, Supersede
from proxy.errors import CompletionRefused, Conflict, CredentialNeeded, EmbeddingFailed, StoreError
from proxy.observe import log
from proxy.ports import Clock, Completer, JobQueue, SessionStore

Mode = Literal["llm", "verbatim", "off"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How the worker works. `lease_seconds` must outlast two LLM calls."""

    concurrency: int = 2
    poll_seconds: float = 1  # another process may have queued
    sweep_seconds: float = 5
    lease_seconds: float = 180
    max_attempts: int = 100  # some eight hours of an upstream that is down
    embedding_attempts: int = 5  # then stored without a vector
    backoff_seconds: float = 2  # before the second attempt; doubles
    backoff_limit_seconds: float = 300
    batch_limit: int = 20  # exchanges in one LLM call
    context: int = 3
    verbatim_if_refused: bool = False


@dataclass(frozen=True, slots=True)
class Tools:
    """The ports of the write path. `completer` None: verbatim in place of an LLM."""

    jobs: JobQueue
    sessions: SessionStore
    gate: Gate
    completer: Completer | None


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one job: counts only. `outcome`: extracted | unreadable | empty | waiting |
    retried | dead."""

    outcome: str
    created: int = 0
    superseded: int = 0
    confirmed: int = 0
    held: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0


class Worker:
    """Works until cancelled. `wake` is set by whoever queues; `report` is told of every job."""

    def __init__(
        self,
        tools: Tools,
        *,
        mode: Mode = "llm",
        policy: Policy = Policy(),  # noqa: B008 frozen
        pace: Pace = Pace(),
        clock: Clock = time.time,
        wake: asyncio.Event | None = None,
        report: Callable[[Report], None] = lambda report: None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._tools, self._mode, self._policy, self._pace = tools, mode, policy, pace
        self._clock, self._report, self._jitter = clock, report, jitter
        self.wake = wake or asyncio.Event()

    # ------------------------------------------------------------ loops
    async def run(self) -> None:
        """Serve jobs and sweep sessions until cancelled."""
        if self._mode == "off":
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweeper())
            for _ in range(self._pace.concurrency):
                group.create_task(self._server())

    async def drain(self, timeout_s: float) -> None:
        """Queue what every session holds and work until nothing is due or the time is up."""
        if self._mode == "off":
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._round(lambda: self._tools.sessions.sweep(self._clock(), on_end))
                while await self._round(self.work_one):
                    pass
        except TimeoutError:
            log.warning("worker.drain_cut", seconds=timeout_s)  # the queue is durable: next start

    async def sweep(self) -> int:
        """Offer idle sessions to the triggers; return the number of jobs made."""
        now = self._clock()
        made = await self._tools.sessions.sweep(now, on_sweep(self._policy, now))
        if made:
            self.wake.set()
        return made

    async def _sweeper(self) -> None:
        while True:
            await self._round(self.sweep)
            await asyncio.sleep(self._pace.sweep_seconds)

    async def _server(self) -> None:
        while True:
            self.wake.clear()  # before the claim: a wake after it is not lost
            if not await self._round(self.work_one):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.wake.wait(), self._pace.poll_seconds)

    async def _round(self, work: Callable[[], Awaitable[int | bool]]) -> bool:
        """Return whether there was work. The loops have to outlive whatever one round does."""
        try:
            return bool(await work())
        except Exception as e:  # noqa: BLE001
            log.error("worker.round_failed", error=type(e).__name__)
            return False

    # ------------------------------------------------------------ one job
    async def work_one(self) -> bool:
        """Claim and work on one job; False if none is due. Raises StoreError."""
        job = await self._tools.jobs.claim(self._clock(), self._pace.lease_seconds)
        if job is None:
            return False
        started = time.perf_counter()
        try:
            report = await self._work(job)
        except asyncio.CancelledError:
            with suppress(StoreError):
                await asyncio.shield(self._tools.jobs.retry(job, at=self._clock(), reason="cancelled"))
            raise
        except Exception as e:  # noqa: BLE001 whatever fails in here costs one job, not the worker
            report = await self._give_back(job, e)
        self._report(replace(report, seconds=time.perf_counter() - started))
        return True

    async def _work(self, job: Job) -> Report:
        """Extract, admit and finish the job. When the user forgets something meanwhile, what was
        extracted is thrown away and the batch read again, without what is gone."""
        for _ in range(3):
            batch = await self._tools.jobs.batch(
                job, limit=self._pace.batch_limit, context=self._pace.context
            )
            facts, outcome = await self._extract(batch)
            try:
                decision = await self._admit(job, batch, facts)
            except Conflict:
                continue
            return self._extracted(job, batch, decision, facts, outcome)
        raise Conflict("overtaken three times")

    async def _extract(self, batch: Batch) -> tuple[Facts, str]:
        completer, gate = self._tools.completer, self._tools.gate
        if not batch.pending:
            return Facts(()), "empty"
        if self._mode == "verbatim" or completer is None:
            return Facts(verbatim.candidates(batch, gate.policy)), "extracted"
        known = await related(gate.memories, gate.embedder, batch, self._clock())
        request = extract.request(batch, known, gate.policy)
        for attempt in (1, 2):
            try:
                answer = await completer.complete(request)
                return extract.facts(answer, batch, known, gate.policy), "extracted"
            except Unreadable as e:
                log.warning("memory.unreadable_answer", attempt=attempt, reason=str(e))
            except CompletionRefused:
                if not self._pace.verbatim_if_refused:
                    raise
                return Facts(verbatim.candidates(batch, gate.policy)), "extracted"
        return Facts(()), "unreadable"

    async def _admit(self, job: Job, batch: Batch, facts: Facts) -> Decision:
        gate = self._tools.gate
        run = partial(
            admit,
            scope=job.scope,
            candidates=facts.candidates,
            began=batch.stamp,
            now=self._clock(),
            seed=job.id,
            done=job,
            judge=judge_of(gate.policy, batch.pending),
        )
        try:
            return await run(gate)
        except EmbeddingFailed:
            if job.attempts < self._pace.embedding_attempts:
                raise
        return await run(replace(gate, embedder=None))  # better found by its words alone than lost

    def _extracted(self, job: Job, batch: Batch, decision: Decision, facts: Facts, outcome: str) -> Report:
        dropped = dict(decision.dropped)
        if facts.ungrounded:
            dropped["ungrounded"] = facts.ungrounded
        report = Report(
            outcome,
            created=decision.count(Create),
            superseded=decision.count(Supersede),
            confirmed=decision.count(Confirm),
            held=decision.count(Hold),
            dropped=dropped,
        )
        log.info(
            "memory.extracted",
            outcome=outcome,
            exchanges=len(batch.pending),
            stored=report.created + report.superseded,
            superseded=report.superseded,
            confirmed=report.confirmed,
            held=report.held,
            dropped=sum(dropped.values()),
            waited_s=round(self._clock() - job.created_at, 1),
        )
        return report

    async def _give_back(self, job: Job, error: Exception) -> Report:
        """Park, postpone or bury a job that failed. Raises StoreError if not even that can be stored."""
        name = type(error).__name__
        if isinstance(error, CredentialNeeded):
            await self._tools.jobs.wait_for_credential(job)
            log.info("memory.extraction_waits", error=name)
            return Report("waiting")
        dead = isinstance(error, CompletionRefused) or job.attempts >= self._pace.max_attempts
        at = self._clock() + self._pause(job.attempts)
        await self._tools.jobs.retry(job, at=at, reason=name, dead=dead)
        log.warning("memory.extraction_failed", error=name, attempt=job.attempts, dead=dead)
        return Report("dead" if dead else "retried")

    def _pause(self, attempts: int) -> float:
        """Return the pause before the next attempt: doubling, bounded, half of it random."""
        full = min(self._pace.backoff_limit_seconds, self._pace.backoff_seconds * 2.0 ** (attempts - 1))
        return full * (0.5 + 0.5 * self._jitter())
