"""The exchange as it is written down: the user's half before the answer begins, the answer after it ended."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import uuid4

from proxy.domain import Begun, NewExchange, Outcome, Turn
from proxy.ports import SessionStore, Trigger

REDACT_IN_THREAD_CHARS = 10_000  # some 3 ms


@dataclass(frozen=True, slots=True)
class ExchangeRecorder:
    """Commits exchanges and wakes the worker. Raises StoreUnavailable; holds nothing back."""

    sessions: SessionStore
    trigger: Trigger
    wake: asyncio.Event
    redact: Callable[[str], str]  # applied before anything is written to disk
    is_explicit: Callable[[str], bool]
    is_personal: Callable[[str], bool]

    async def begin(self, turn: Turn, key: str) -> Begun:
        """Commit what the user said, durable on return."""
        said = turn.said
        redacted = await self._redacted(said)
        return await self.sessions.begin(
            NewExchange(
                id=f"ex_{uuid4().hex}",
                key=key,
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
        """Commit the answer, and the job if one is due."""
        answer = replace(outcome, answer=await self._redacted(outcome.answer))
        if await self.sessions.complete(begun, answer, self.trigger):
            self.wake.set()

    async def _redacted(self, text: str) -> str:
        if len(text) < REDACT_IN_THREAD_CHARS:
            return self.redact(text)
        return await asyncio.to_thread(self.redact, text)

    async def abandon(self, begun: Begun) -> None:
        """Take back an exchange that the upstream refused."""
        await self.sessions.abort(begun)
