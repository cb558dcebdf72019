"""The exchange as it is written down: the user's half before the answer begins, the answer after it ended."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import uuid4

from proxy.background.anchors import anchors_of
from proxy.background.filters import safe_id
from proxy.domain import Begun, NewExchange, Outcome, Turn
from proxy.errors import StoreError
from proxy.ports import SessionStore, Trigger

REDACT_IN_THREAD_CHARS = 1_200  # under 1 ms
MAX_CHARS = 24_000  # of one side of an exchange: extraction reads less
MOST_LATE = 1_000
_MARGIN = 4_096  # characters: longer than most keys
_CUT = "\n[…]\n"


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
        said, stored = shortened(turn.said, MAX_CHARS), await self._storable(turn.said)
        return await self.sessions.begin(
            NewExchange(
                id=f"ex_{uuid4().hex}",
                key=key,
                standalone=sum(m.role in ("user", "assistant") for m in turn.messages) == 1,
                scope=turn.scope,
                session_id=safe_id(turn.session_id),
                model=turn.model,
                said=stored,
                at=turn.at,
                explicit=self.is_explicit(said),
                personal=self.is_personal(said),
                anchors=anchors_of(stored),
                stateful=turn.options.compress or turn.standalone,
            )
        )

    async def finish(self, begun: Begun, outcome: Outcome) -> None:
        """Commit the answer, and the job if one is due. Idempotent."""
        answer = replace(outcome, answer=await self._storable(outcome.answer))
        await self._complete(begun, answer)

    def keep(self, begun: Begun, outcome: Outcome) -> None:
        """Commit the answer later: it could not be committed in its time."""
        self.late.append((begun, outcome))

    async def catch_up(self) -> None:
        """Commit what was kept. Raises StoreUnavailable while the store is away.

        What a crash takes from `late` is not lost: its exchange is on disk, and is adopted unanswered.
        """
        while self.late:
            begun, outcome = self.late.popleft()
            try:
                await self.finish(begun, outcome)
            except StoreError:
                self.late.appendleft((begun, outcome))
                raise

    async def _complete(self, begun: Begun, answer: Outcome) -> None:
        if await self.sessions.complete(begun, answer, self.trigger):
            self.wake.set()

    async def _storable(self, text: str) -> str:
        """Return the text as it may be written to disk: of bounded length, without secrets.

        Redacted before it is cut, with some text beyond the cut: half a secret has no shape to know it by.
        """
        text = shortened(text, MAX_CHARS + 2 * _MARGIN)
        if len(text) < REDACT_IN_THREAD_CHARS:
            return self.redact(text)
        return shortened(await asyncio.to_thread(self.redact, text), MAX_CHARS)

    async def abandon(self, begun: Begun) -> None:
        """Take back an exchange that the upstream refused."""
        await self.sessions.abort(begun)


def shortened(text: str, limit: int) -> str:
    """Return the text's beginning and end where it is longer than `limit` characters.

    Cut between words, so that no half of a secret is left that no detector would know.
    """
    if len(text) <= limit:
        return text
    head, tail = text[: limit // 2], text[-(limit // 2) :]
    return head[: _last_space(head)] + _CUT + tail[len(tail) - _last_space(tail[::-1]) :]


def _last_space(text: str) -> int:
    """Return the place of the last white space, 0 without any."""
    return max((place for place, char in enumerate(text) if char.isspace()), default=0)
