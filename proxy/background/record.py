"""The exchange as it is written down: the user's half before the answer begins, the answer after it ended."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import uuid4

from proxy.domain import Begun, NewExchange, Outcome, Turn
from proxy.ports import SessionStore, Trigger

REDACT_IN_THREAD_CHARS = 10_000  # some 3 ms
MOST_LATE = 1_000


@dataclass(frozen=True, slots=True)
class ExchangeRecorder:
    """Commits exchanges and wakes the worker. Raises StoreUnavailable; holds nothing back."""

    sessions: SessionStore
    trigger: Trigger
    wake: asyncio.Event
    redact: Callable[[str], str]  # applied before anything is written to disk
    is_explicit: Callable[[str], bool]
    is_personal: Callable[[str], bool]
    late: deque[tuple[Begun, Outcome]] = field(default_factory=lambda: deque(maxlen=MOST_LATE))

    async def begin(self, turn: Turn, key: str) -> Begun:
        """Commit what the user said, durable on return."""
        said = turn.said
        redacted = await self._redacted(said)
        return await self.sessions.begin(
            NewExchange(
                id=f"ex_{uuid4().hex}",
                key=key,
                standalone=sum(m.role in ("user", "assistant") for m in turn.messages) == 1,
                scope=turn.scope,
                session_id=turn.session_id,
                model=turn.model,
                said=redacted,
                at=turn.at,
                explicit=self.is_explicit(said),
                personal=self.is_personal(said),
            )
        )

    async def finish(self, begun: Begun, outcome: Outcome) -> None:
        """Commit the answer, and the job if one is due; what fails is kept for `catch_up`."""
        answer = replace(outcome, answer=await self._redacted(outcome.answer))
        try:
            await self._complete(begun, answer)
        except BaseException:  # the store is away, or its time is up
            self.late.append((begun, answer))
            raise

    async def catch_up(self) -> None:
        """Commit what could not be committed in its time. Raises StoreUnavailable while that lasts.

        What a crash takes from `late` is not lost: its exchange is on disk, and is adopted unanswered.
        """
        while self.late:
            begun, answer = self.late[0]
            await self._complete(begun, answer)
            self.late.popleft()

    async def _complete(self, begun: Begun, answer: Outcome) -> None:
        if await self.sessions.complete(begun, answer, self.trigger):
            self.wake.set()

    async def _redacted(self, text: str) -> str:
        if len(text) < REDACT_IN_THREAD_CHARS:
            return self.redact(text)
        return await asyncio.to_thread(self.redact, text)

    async def abandon(self, begun: Begun) -> None:
        """Take back an exchange that the upstream refused."""
        await self.sessions.abort(begun)
