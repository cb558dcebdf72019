"""The worker claims extraction jobs as the load allows and runs them: read, extract, admit, finish.

A job is finished in the transaction that stores its memories, so a crash at any point before it leaves the
job to be claimed again: it may run more than once, and its result is stored once. What fails is retried with
growing pauses, then stored as a dead letter.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from proxy.admit.decision import Decision
from proxy.admit.gate import Basis, Gate, Sorted, admit
from proxy.domain.changes import Confirm, Create, Hold, Supersede
from proxy.domain.core import Candidate, Memory, Scope
from proxy.domain.errors import (
    CompletionFailed,
    CompletionPostponed,
    CompletionRefused,
    Conflict,
    CredentialNeeded,
    EmbeddingFailed,
    LeaseLost,
    StoreError,
    StoreUnavailable,
)
from proxy.domain.limits import TurnPriority
from proxy.domain.ports import Clock, Completer, Embedder
from proxy.domain.session import (
    BATCH,
    EXPLICIT,
    ORDINARY,
    Batch,
    Exchange,
    Job,
    JobQueue,
    NewJob,
    SessionState,
    SessionStore,
)
from proxy.learn import extractor
from proxy.learn.budget import NO_LANE, Load
from proxy.learn.extractor import related
from proxy.learn.llm_io import Unreadable
from proxy.learn.recorder import TriggerPolicy, on_end
from proxy.telemetry import ThrottledLog, log
from proxy.text.words import terms

# ---------------------------------------------------------------- topic drift
# A text's distance alone says little: people wander, some more than others. So a text is compared with how
# near to their past the session's earlier texts came: its own running spread. Measured in the background, for
# sessions that wait for more exchanges. With MiniLM on eight personas (690 turns after another persona's
# session, 82 in their own) it finds .35 of the changes, and .04 without one; at -0.08 it would be .40 and
# .10. What is missed is extracted later, by the number of turns or when the session rests.
SHIFT = -0.12  # relative to the session's own expectation
MIN_TERMS = 5  # new words: "thanks, and the other one?" has no topic
_PRIOR, _PRIOR_WEIGHT = 0.4, 3  # nearness expected of texts before the session has shown any
_TOPIC_WEIGHT, _WORDS_WEIGHT = 0.5, 0.6  # of the topic's mean and of shared words; the nearest text weighs 1
_TEXT = 600  # characters; the end of a text matters most
_LOOK_BACK = 8  # exchanges
_SESSIONS_A_SWEEP = 20

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TopicSample:
    """One exchange: the words and vectors of both sides, and the user's own."""

    words: frozenset[str]
    own: frozenset[str]
    vector: Vector | None  # of the user's words; None: not understood
    vectors: tuple[Vector, ...]


def state_key(state: SessionState) -> tuple[Scope, str]:
    return state.scope, state.session_id


def shifts(samples: Sequence[TopicSample]) -> list[int]:
    """Return the index of the first exchange of each new topic. A topic needs at least two exchanges."""
    found, start = [], 0
    for index in range(2, len(samples)):
        if index - start >= 2 and _leaves(samples[start:index], samples[index]):
            found.append(index)
            start = index
    return found


def _leaves(before: Sequence[TopicSample], new: TopicSample) -> bool:
    if new.vector is None or len(new.own) < MIN_TERMS or not any(s.vectors for s in before):
        return False
    shown = [_nearest(before[:i], v) for i, s in enumerate(before) if i and (v := s.vector) is not None]
    expected = (_PRIOR * _PRIOR_WEIGHT + sum(shown)) / (_PRIOR_WEIGHT + len(shown))
    words = frozenset[str]().union(*(s.words for s in before))
    # The mean direction, every exchange counting alike.
    topic = _unit(np.sum([_unit(np.sum(s.vectors, axis=0)) for s in before if s.vectors], axis=0))
    score = (
        _nearest(before, new.vector)
        + _TOPIC_WEIGHT * float(new.vector @ topic)
        + _WORDS_WEIGHT * len(new.own & words) / len(new.own)
    )
    return score - expected < SHIFT


def _nearest(before: Sequence[TopicSample], vector: Vector) -> float:
    return max((float(vector @ v) for s in before for v in s.vectors), default=1.0)


def _unit(vector: Vector) -> Vector:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector


class TopicDrift:
    """Finds topic changes in waiting sessions; measures each once per new exchange."""

    def __init__(self, sessions: SessionStore, embedder: Embedder) -> None:
        self._sessions, self._embedder = sessions, embedder
        self._measured_at: dict[tuple[Scope, str], int] = {}  # waiting sessions: their last exchange then

    async def left_behind(self, waiting: Sequence[SessionState]) -> Mapping[tuple[Scope, str], int]:
        """Return the sessions whose topic changed, each with the last exchange before the change.

        `waiting`: all waiting sessions, or none if another replica swept. A session that waits again has
        another last exchange, so the others may be dropped from memory.
        """
        if waiting:
            keys = (state_key(s) for s in waiting)
            self._measured_at = {key: self._measured_at[key] for key in keys if key in self._measured_at}
        fresh = [s for s in waiting if s.pending >= 2 and self._measured_at.get(state_key(s)) != s.last_seq]
        found: dict[tuple[Scope, str], int] = {}
        for state in fresh[:_SESSIONS_A_SWEEP]:
            exchanges = await self._sessions.recent(state.scope, state.session_id, _LOOK_BACK)
            try:
                changes = shifts([await self._sample(e) for e in exchanges])
            except EmbeddingFailed:
                return found  # the others at the next sweep
            self._measured_at[state_key(state)] = state.last_seq
            # Otherwise nothing waits from before the change.
            if changes and changes[-1] > max(0, len(exchanges) - state.pending):
                found[state_key(state)] = exchanges[changes[-1] - 1].seq
        return found

    async def _sample(self, exchange: Exchange) -> TopicSample:
        own, answer = exchange.said[-_TEXT:].strip(), exchange.answer[-_TEXT:].strip()
        texts = [t for t in (own, answer) if t and self._embedder.understands(t)]
        vectors = [np.frombuffer(v, np.float32) for v in await self._embedder.embed(texts)]
        words = frozenset(terms(own))
        vector = vectors[0] if texts and texts[0] == own else None
        return TopicSample(words | frozenset(terms(answer)), words, vector, tuple(vectors))


# ---------------------------------------------------------------- one job
Mode = Literal["llm", "verbatim", "off"]
Closing = Callable[[Job, Batch], Awaitable[Sequence[Candidate]]]
"""Returns the summary of a session once its last exchanges are extracted; () if it has not ended."""
Refresh = Callable[[Job, Batch], Awaitable[None]]
"""Updates the session's state, after the job's memories are stored."""

HAND_ON_S, HAND_ON_EVERY_S = 20.0, 2.0  # for a job whose credential another process may have


@dataclass(frozen=True, slots=True)
class WorkerPace:
    """Intervals and limits. `lease_seconds` must outlast two LLM calls."""

    poll_seconds: float = 1  # for jobs queued by other processes
    sweep_seconds: float = 5
    lease_seconds: float = 180
    max_attempts: int = 100  # some eight hours of an upstream that is down
    embedding_attempts: int = 5  # then stored without a vector
    backoff_seconds: float = 2  # before the second attempt; doubles
    backoff_limit_seconds: float = 300
    batch_limit: int = 20  # exchanges in one LLM call
    context: int = 3


@dataclass(frozen=True, slots=True)
class WorkerTools:
    """The worker's ports and parts; those with a default are optional."""

    jobs: JobQueue
    sessions: SessionStore
    gate: Gate
    completer: Completer
    closing: Closing | None = None
    state: Refresh | None = None
    drift: TopicDrift | None = None
    load: Load = field(default_factory=Load)  # the one that meters the completer's calls
    turns: TurnPriority = field(default_factory=TurnPriority)
    shared: bool = False  # other processes may know credentials that this one does not


@dataclass(frozen=True, slots=True)
class JobReport:
    """The outcome of one job, in counts. `outcome`: extracted | unreadable | empty | handed_on | waiting |
    postponed | retried | dead | lost."""

    outcome: str
    created: int = 0
    superseded: int = 0
    confirmed: int = 0
    held: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    lane: int = 0
    since_said_s: float | None = None  # from the oldest exchange to its memories stored


_COUNTED = {"created": Create, "superseded": Supersede, "confirmed": Confirm, "held": Hold}


@dataclass(frozen=True, slots=True)
class JobRunner:
    """Processes claimed jobs."""

    tools: WorkerTools
    mode: Mode
    pace: WorkerPace
    clock: Clock
    jitter: Callable[[], float] = random.random
    _computing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, job: Job) -> tuple[JobReport, Batch | None]:
        """Finish the job, or give it back; return the outcome, and the batch if it is finished. Raises
        StoreError if it cannot be given back."""
        try:
            report, batch = await self._work(job)
        except Exception as e:  # noqa: BLE001 any failure costs one job, not the worker
            report, batch = await self._give_back(job, e), None
        return replace(report, lane=job.lane), batch

    async def refresh(self, job: Job, batch: Batch) -> None:
        """Update the session's state. The job is finished: if this fails, the old state stays."""
        if self.tools.state is None or not batch.pending:
            return
        try:
            await self.tools.state(job, batch)
        except Exception as e:  # noqa: BLE001 see above
            log.warning("memory.state_failed", error=type(e).__name__)

    async def _work(self, job: Job) -> tuple[JobReport, Batch]:
        """Extract, admit and finish the job. If the user forgets something in the meantime, the facts are
        discarded and the batch is read again, without what was forgotten."""
        for _ in range(3):
            await self._give_way(job)
            batch = await self.tools.jobs.batch(job, limit=self.pace.batch_limit, context=self.pace.context)
            facts, outcome = await self._extract(job, batch)
            # The session's summary has a job of its own, once the facts are stored.
            done = replace(job, closing=False) if batch.pending else job
            try:
                decision = await self._admit(done, batch, facts)
            except LeaseLost:
                raise
            except Conflict:
                continue
            return self._done(job, batch, decision, facts, outcome), batch
        raise Conflict("overtaken three times")

    async def _extract(self, job: Job, batch: Batch) -> tuple[Sorted, str]:
        """Return the batch's facts, judged, and the outcome."""
        gate = self.tools.gate
        if not batch.pending:
            closing = self.tools.closing if self.mode != "verbatim" else None
            return Sorted(tuple(await closing(job, batch)) if closing else ()), "empty"
        if self.mode == "verbatim":
            return await extractor.from_sentences(gate.judge, batch.pending, gate.policy), "extracted"
        known = await related(gate.memories, gate.embedder, batch, self.clock())
        async with self._computing:  # one thread at a time: each competes with the event loop for the GIL
            request = await asyncio.to_thread(extractor.request, batch, known, gate.policy)
        for attempt in (1, 2):
            try:
                answer = await self.tools.completer.complete(request)
                await self._give_way(job)
                return await self._facts(job, batch, answer, known), "extracted"
            except Unreadable as e:
                log.warning("memory.unreadable_answer", attempt=attempt, reason=str(e))
            except CompletionFailed:
                if job.lane == EXPLICIT:
                    await self._store_as_said(job, batch)
                raise
        # An explicit ask must not fail with the extraction: store the user's own words.
        return await extractor.asked_for(gate.judge, batch.pending, gate.policy), "unreadable"

    async def _store_as_said(self, job: Job, batch: Batch) -> None:
        """Store what the user asked to be remembered in the user's own words until the model answers; its
        facts are compared with them then. If this fails, all of it waits for the model."""
        gate = self.tools.gate
        with suppress(StoreError, EmbeddingFailed):
            said = await extractor.asked_for(gate.judge, batch.pending, gate.policy)
            if not said.stored:
                return
            basis = Basis(batch.stamp, self.clock(), seed=job.id)
            decision = await admit(gate, job.scope, said.stored, basis)
            log.info("memory.kept_as_said", stored=decision.count(Create), attempt=job.attempts)

    async def _facts(self, job: Job, batch: Batch, answer: str, known: Sequence[Memory]) -> Sorted:
        """Return the facts of the model's answer, judged; by literal evidence if the heads keep failing."""
        gate = self.tools.gate
        read = partial(extractor.facts, answer, batch, known, gate.policy, embedder=gate.embedder)
        try:
            return await read(judge=gate.judge)
        except EmbeddingFailed:
            if job.attempts < self.pace.embedding_attempts:
                raise
        return await read(judge=None)

    async def _give_way(self, job: Job) -> None:
        """Let turns go first, unless a user asked to remember something."""
        if job.lane > EXPLICIT:
            await self.tools.turns.pause()

    async def _admit(self, job: Job, batch: Batch, facts: Sorted) -> Decision:
        gate = self.tools.gate
        basis = Basis(batch.stamp, self.clock(), seed=job.id, done=job)
        try:
            return await admit(gate, job.scope, facts.stored, basis, facts.held)
        except EmbeddingFailed:
            if job.attempts < self.pace.embedding_attempts:
                raise
            gate = replace(gate, embedder=None)  # without vectors rather than lost
        return await admit(gate, job.scope, facts.stored, basis, facts.held)

    def _done(self, job: Job, batch: Batch, decision: Decision, facts: Sorted, outcome: str) -> JobReport:
        dropped = dict(decision.dropped + facts.dropped)
        said_at = min((e.at for e in batch.pending), default=None)
        counts = {name: decision.count(kind) for name, kind in _COUNTED.items()}
        others = {name: n for name, n in counts.items() if name != "created"}
        log.info(
            "memory.extracted",
            outcome=outcome,
            lane=job.lane,
            exchanges=len(batch.pending),
            stored=counts["created"] + counts["superseded"],
            dropped=sum(dropped.values()),
            waited_s=round(self.clock() - job.created_at, 1),
            **others,
        )
        since_said_s = None if said_at is None else max(0.0, self.clock() - said_at)
        return JobReport(outcome, **counts, dropped=dropped, since_said_s=since_said_s)

    async def _give_back(self, job: Job, error: Exception) -> JobReport:
        """Postpone, park, retry or dead-letter a failed job. Raises StoreError if that cannot be stored."""
        name = type(error).__name__
        if isinstance(error, LeaseLost):
            log.info("memory.lease_lost", attempt=job.attempts)
            return JobReport("lost")
        now = self.clock()
        if isinstance(error, CredentialNeeded):
            # A new job is left to the process that served the user and has a credential; an older one parked.
            if self.tools.shared and now - job.created_at < HAND_ON_S:
                at = now + HAND_ON_EVERY_S
                await self.tools.jobs.retry(job, at=at, reason=name, counted=False)
                log.info("memory.extraction_handed_on")
                return JobReport("handed_on")
            await self.tools.jobs.wait_for_credential(job)
            log.info("memory.extraction_waits", error=name)
            return JobReport("waiting")
        # As the upstream asks, plus jitter; else doubling and bounded, half of it random.
        asked = error.retry_after_s if isinstance(error, CompletionFailed) else None
        attempts = 1 if isinstance(error, CompletionPostponed) else job.attempts
        doubled = self.pace.backoff_seconds * 2.0 ** (attempts - 1)
        pause = min(self.pace.backoff_limit_seconds, doubled) * (0.5 + 0.5 * self.jitter())
        if asked is not None:
            pause = max(pause, asked + self.pace.backoff_seconds * self.jitter())
        at = now + pause
        if isinstance(error, CompletionPostponed):
            await self.tools.jobs.retry(job, at=at, reason=name, counted=False)
            log.info("memory.extraction_postponed", seconds=round(at - self.clock(), 1))
            return JobReport("postponed")
        why = {"reason": str(error)} if isinstance(error, CompletionFailed) and str(error) else {}
        dead = isinstance(error, CompletionRefused) or job.attempts >= self.pace.max_attempts
        await self.tools.jobs.retry(job, at=at, reason=name, dead=dead)
        log.warning("memory.extraction_failed", error=name, **why, attempt=job.attempts, dead=dead)
        return JobReport("dead" if dead else "retried")


# ---------------------------------------------------------------- the worker
@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Who extracts, when exchanges become a job, and the worker's pace."""

    mode: Mode = "llm"
    policy: TriggerPolicy = field(default_factory=TriggerPolicy)
    pace: WorkerPace = field(default_factory=WorkerPace)


class Worker:
    """Runs jobs until cancelled. Set `wake` after queueing a job; `report` is called after each."""

    def __init__(
        self,
        tools: WorkerTools,
        config: WorkerConfig = WorkerConfig(),
        *,
        clock: Clock = time.time,
        report: Callable[[JobReport], None] = lambda report: None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._tools, self._mode, self._policy, self._pace = tools, config.mode, config.policy, config.pace
        self._load, self._clock, self._report = tools.load, clock, report
        self._runner = JobRunner(tools, config.mode, config.pace, clock, jitter)
        self._throttled_log = ThrottledLog(clock)
        self._stranded = deque[Job]()  # to be given back once the store is available
        self.wake = asyncio.Event()

    # ------------------------------------------------------------ loops
    async def run(self) -> None:
        """Run jobs and sweep sessions until cancelled."""
        if self._mode == "off":
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweeper())
            while True:
                self.wake.clear()  # before the claim: a wake after it is not lost
                if not await self._round(lambda: self._start_one(group)):
                    await self._wait()

    async def _wait(self) -> None:
        """Wait for `wake`, or until it is time to look for jobs of other processes."""
        with suppress(TimeoutError):
            # Not wait_for: in Python 3.11 it drops a cancellation that comes with the wake.
            async with asyncio.timeout(self._pace.poll_seconds):
                await self.wake.wait()

    async def drain(self, timeout_s: float) -> None:
        """Queue all pending exchanges and work until no job is due or the time is up."""
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
        """Queue jobs for idle sessions and for those that changed their topic; return how many."""
        now, undue = self._clock(), list[SessionState]()

        def noting(state: SessionState) -> NewJob | None:
            job = self._policy.on_sweep(state, now)
            if job is None and state.pending:
                undue.append(state)
            return job

        made = await self._tools.sessions.sweep(now, noting)
        if self._tools.drift is not None:
            await self._tools.turns.pause()
            left = await self._tools.drift.left_behind(undue)

            def up_to_change(state: SessionState) -> NewJob | None:
                seq = left.get(state_key(state))
                return None if seq is None else NewJob(session_id=state.session_id, upto=seq, lane=ORDINARY)

            made += await self._tools.sessions.sweep(now, up_to_change) if left else 0
        if made:
            self.wake.set()
        return made

    async def _sweeper(self) -> None:
        while True:
            await self._round(self.sweep)
            await asyncio.sleep(self._pace.sweep_seconds)

    async def _round(self, work: Callable[[], Awaitable[int | bool]]) -> bool:
        """Return whether there was work. A failed round must not end its loop."""
        try:
            return bool(await work())
        except Exception as e:  # noqa: BLE001
            if type(e) is not StoreUnavailable:  # which the store logs itself
                self._throttled_log.error("worker.round_failed", error=type(e).__name__)
            return False

    # ------------------------------------------------------------ jobs
    async def work_one(self) -> bool:
        """Claim and run one job; False if none is due. Raises StoreError."""
        if (job := await self._claim()) is None:
            return False
        return await self._serve(job)

    async def _start_one(self, group: asyncio.TaskGroup) -> bool:
        if job := await self._claim():
            group.create_task(self._round(lambda: self._serve(job)))
        return job is not None

    async def _claim(self) -> Job | None:
        """Claim the next job that the load allows, and count it as running."""
        while self._stranded:  # until their leases end, the users' other jobs wait for them
            await self._return(self._stranded[0], "store_unavailable")
            self._stranded.popleft()
        await self._load.look()
        if (lane := self._load.lane()) == NO_LANE:
            return None
        now = self._clock()
        job = await self._claimed(now, lane)
        if job is not None:
            self._load.began(waited_s=now - job.created_at)
        elif lane == BATCH:
            self._load.idle()
            self._tools.turns.nothing_due()
        return job

    async def _claimed(self, now: float, lane: int) -> Job | None:
        """Claim a job. The store completes a claim whose caller is cancelled, so that job is given back."""
        claim = self._tools.jobs.claim(now, self._pace.lease_seconds, upto_lane=lane)
        claiming = asyncio.ensure_future(claim)
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            with suppress(Exception):  # the cancellation must be raised
                if (job := await claiming) is not None:
                    await self._return(job, "cancelled")
            raise

    async def _return(self, job: Job, reason: str) -> None:
        await self._tools.jobs.retry(job, at=self._clock(), reason=reason, counted=False)

    async def _serve(self, job: Job) -> bool:
        try:
            report, batch = await self._runner.run(job)
            self._report(report)
            if batch is not None:
                await self._runner.refresh(job, batch)
        except StoreError:
            self._stranded.append(job)
            raise
        except asyncio.CancelledError:
            with suppress(StoreError):
                await asyncio.shield(self._return(job, "cancelled"))
            raise
        finally:
            self._load.ended()
            self.wake.set()  # there is room for the next
        return True
