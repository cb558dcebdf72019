"""Whole-session work of the background: summaries of sessions that ended, and the state of long ones.

Both are hooks that the worker calls. A summary is the only candidate of a job of its own, which runs after
the session's facts are stored. A state is updated after a job; if that fails, the old state stays.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.admit.safety.policy import DEFAULT, SafetyPolicy
from proxy.domain.core import Batch, Candidate, Exchange, Job
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.judging import Judge
from proxy.domain.note_store import NoteStore
from proxy.domain.ports import Completer
from proxy.learn.asks import YES
from proxy.learn.session import state, summarise
from proxy.telemetry import log

_MOST = 60  # exchanges of a session that are summed up: the last ones
_READ_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Keeper:
    """The hooks. `mark`: pipeline.compress.mark."""

    notes: NoteStore
    completer: Completer
    mark: Callable[[str, str], str]
    policy: SafetyPolicy = DEFAULT
    step_turns: int = 5
    summaries: bool = True
    idle_seconds: float = 600
    judge: Judge | None = None  # None: a state replaces no turn, since each may set a rule
    left_seconds: float = 60  # of silence after which a session is over whose user has begun another

    async def close(self, now: float) -> int:
        """Queue the summing up of sessions that have ended; return how many."""
        if not self.summaries:
            return 0
        return await self.notes.close(
            idle_since=now - self.idle_seconds, left_since=now - self.left_seconds, now=now
        )

    async def close_all(self, now: float) -> int:
        """The same for every session: the process ends. One that goes on is summed up anew."""
        return await self.notes.close(idle_since=now, left_since=now, now=now) if self.summaries else 0

    async def closing(self, job: Job, batch: Batch) -> Sequence[Candidate]:
        """Return the summary of the session, () where it has not ended or says too little, or where the model
        fails twice to tell what happened. Raises CompletionFailed, StoreUnavailable."""
        if not (job.closing and self.summaries):
            return ()
        episode = await self.notes.episode(job, limit=_MOST)
        if episode is None or not summarise.has_substance(episode.exchanges):
            return ()
        request = await asyncio.to_thread(summarise.request, episode.exchanges, self.policy)
        for attempt in (1, 2):
            answer = await self.completer.complete(request)
            found = await asyncio.to_thread(
                summarise.read, answer, episode.exchanges, episode.before, self.policy
            )
            if found is not None:
                return (found,)
            log.info("memory.poor_summary", attempt=attempt)
        return ()

    async def refresh(self, job: Job, batch: Batch) -> None:
        """Bring the session's state up to date, if anybody wants it and enough was said since. Raises
        CompletionFailed, StoreUnavailable; the old state stays then."""
        while True:
            unread = await self.notes.unread(job.scope, job.session_id, limit=_READ_AT_ONCE)
            if unread is None or len(unread.exchanges) < self.step_turns:
                return
            now = state.portion(unread.exchanges)
            request = await asyncio.to_thread(state.request, unread.state, now, self.policy)
            answer = await self.completer.complete(request)
            new = await asyncio.to_thread(_state_of, answer, unread.state, now, self.policy)
            if new is None:
                log.info("memory.poor_state")
                return
            marks = [
                self.mark(key, exchange.answer)
                for key, exchange in zip(unread.keys, now, strict=False)
                if await self._covers(exchange)
            ]
            if not await self.notes.keep_state(
                job.scope, job.session_id, new, now[-1], marks, expect=unread.stamp
            ):
                return

    async def _covers(self, exchange: Exchange) -> bool:
        """True if the new state stands for the exchange."""
        if self.judge is None or not exchange.whole:
            return False
        try:
            reading = await self.judge.read(exchange.said, closely=True)
        except EmbeddingFailed:
            return False
        return state.covers(exchange, is_rule=reading.asks.rule >= YES)


def _state_of(
    answer: str, previous: Mapping[str, Any] | None, exchanges: Sequence[Exchange], policy: SafetyPolicy
) -> state.State | None:
    found = state.read(answer, policy)
    return None if found is None else state.grounded(found, previous, exchanges, policy)
