"""Write each exchange to the session store: the user's half before the answer begins, the answer after it
ended.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar
from uuid import uuid4

from proxy.admit.safety import safe_id
from proxy.domain.core import DEFAULT_TIMEZONE, Scope, Turn
from proxy.domain.errors import EmbeddingFailed, StoreError
from proxy.domain.judging import Judge
from proxy.domain.limits import TTLCache
from proxy.domain.ports import Clock, MemoryStore, SessionStore, Trigger
from proxy.domain.session import Anchor, NewExchange, NoteStore, Outcome, StoredExchange
from proxy.learn.session_notes import anchors_of
from proxy.learn.triggers import MessageIntent, intent_of

# ---------------------------------------------------------------- exchanges
T = TypeVar("T")

IN_THREAD_CHARS = 1_200  # redacting them takes some 2 ms
MAX_CHARS = 24_000  # of one side of an exchange: extraction reads less
MOST_LATE = 1_000
MOST_PENDING_RESPONSES = 2_000
_CHECKS = 24  # one per upkeep, every few seconds: longer than a commit can hang
_MARGIN = 4_096  # characters: longer than most keys
_CUT = "\n[…]\n"


@dataclass(frozen=True, slots=True)
class _Unacknowledged:
    """An exchange that may have been committed, or may be yet."""

    exchange: NewExchange
    checks: int = 0


@dataclass(frozen=True, slots=True)
class ExchangeRecorder:
    """Commits exchanges and wakes the worker. Raises StoreUnavailable."""

    sessions: SessionStore
    trigger: Trigger
    wake: asyncio.Event
    redact: Callable[[str], str]  # applied before anything is written to disk
    judge: Judge | None = None
    notes: NoteStore | None = None  # for the anchors in force, which a new one may change
    default_timezone: str = DEFAULT_TIMEZONE
    gist: Callable[[str], str] | None = None  # what the judge reads of a long message; None: store everything
    late: deque[tuple[StoredExchange, Outcome]] = field(default_factory=lambda: deque(maxlen=MOST_LATE))
    # No request will finish these exchanges.
    unacknowledged: deque[_Unacknowledged] = field(default_factory=lambda: deque(maxlen=MOST_LATE))
    # Response id to exchange id, before it is on disk: the client may continue at once.
    pending_responses: TTLCache[str, str] = field(default_factory=partial(TTLCache, MOST_PENDING_RESPONSES))

    async def begin(self, turn: Turn, key: str) -> StoredExchange | None:
        """Commit the user's message, durable on return. None, and nothing stored, if it asks to forget
        something or is off the record."""
        stored = await _aside(turn.said, self._storable)
        meant = await intent_of(self.judge, turn.said)
        if self.gist is not None and await self._is_unrecorded(turn, meant, self.gist(turn.query)):
            return None
        new = NewExchange(
            id=f"ex_{uuid4().hex}",
            key=key,
            standalone=sum(m.role in ("user", "assistant") for m in turn.messages) == 1,
            unnamed=not turn.named and turn.continues is None,
            scope=turn.scope,
            session_id=safe_id(turn.session_id),
            model=turn.model,
            said=stored,
            at=turn.at,
            explicit=meant.is_explicit,
            personal=meant.personal,
            anchors=await self._anchors(turn, stored, meant),
            stateful=turn.options.compress or turn.standalone,
            timezone=turn.timezone,
            said_at=turn.said_at,
            default_timezone=self.default_timezone,
        )
        try:
            return await self.sessions.begin(new)
        except (StoreError, asyncio.CancelledError):
            self.unacknowledged.append(_Unacknowledged(new))
            raise

    async def resume(self, turn: Turn, key: str | None) -> StoredExchange | None:
        """Return the exchange that the turn continues, None if it is unknown."""
        session = safe_id(turn.session_id)
        if key is None and (made := self.pending_responses.get(turn.continues or "")):
            last = await self.sessions.resume(turn.scope, session, None)
            if last is not None and last.id == made:
                return last
            # Response ids of two users' upstreams may collide: the store knows the owner.
        return await self.sessions.resume(turn.scope, session, key, turn.continues)

    async def finish(self, begun: StoredExchange, outcome: Outcome) -> None:
        """Commit the answer, and the job if one is due. Idempotent."""
        if outcome.response_id is not None:
            self.pending_responses.put(outcome.response_id, begun.id)
        answer = replace(outcome, answer=await _aside(outcome.answer, self._storable))
        await self._complete(begun, answer)
        if outcome.response_id is not None and self.pending_responses.get(outcome.response_id) == begun.id:
            self.pending_responses.pop(outcome.response_id)  # the store knows it now

    def keep(self, begun: StoredExchange, outcome: Outcome) -> None:
        """Commit the answer later: it could not be committed in time."""
        self.late.append((begun, outcome))

    async def catch_up(self) -> None:
        """Commit late answers, and end exchanges that were committed after their deadline. Raises
        StoreUnavailable. After a crash, the exchanges of late answers are on disk, unanswered."""
        while self.late:
            begun, outcome = self.late.popleft()
            try:
                await self.finish(begun, outcome)
            except (StoreError, asyncio.CancelledError):
                self.late.appendleft((begun, outcome))
                raise
        for _ in range(len(self.unacknowledged)):
            one = self.unacknowledged.popleft()
            if not await self._ended(one.exchange) and one.checks < _CHECKS:
                self.unacknowledged.append(_Unacknowledged(one.exchange, one.checks + 1))

    async def _ended(self, new: NewExchange) -> bool:
        """End the exchange if it was committed after all; False if it is not there yet."""
        begun = await self.sessions.resume(new.scope, new.session_id, new.key)
        if begun is None or begun.id != new.id:
            return False
        await self._complete(begun, Outcome("", whole=False))
        return True

    async def _complete(self, begun: StoredExchange, answer: Outcome) -> None:
        if await self.sessions.complete(begun, answer, self.trigger):
            self.wake.set()

    async def _is_unrecorded(self, turn: Turn, meant: MessageIntent, gist: str) -> bool:
        """True if the message asks that nothing of it is stored. `gist`: what the read path reads."""
        if meant.is_unrecorded or gist in ("", turn.said):
            return meant.is_unrecorded
        return (await intent_of(self.judge, gist)).is_unrecorded

    async def _anchors(self, turn: Turn, stored: str, meant: MessageIntent) -> tuple[Anchor, ...]:
        """Return the standing instructions that the message sets."""
        if self.judge is None or not meant.is_rule:
            return ()
        held: tuple[Anchor, ...] = ()
        if self.notes is not None:
            held = (await self.notes.notes(turn.scope, safe_id(turn.session_id))).anchors
        try:
            return await anchors_of(self.judge, stored, held)
        except EmbeddingFailed:
            return ()

    def _storable(self, text: str) -> str:
        """Return the text bounded and without secrets. It is redacted before it is cut, with some text beyond
        the cut, since half a secret could not be detected."""
        return shortened(self.redact(shortened(text, MAX_CHARS + 2 * _MARGIN)), MAX_CHARS)

    async def abandon(self, begun: StoredExchange) -> None:
        """Take back an exchange that the upstream refused."""
        await self.sessions.abort(begun)


async def _aside(text: str, work: Callable[[str], T]) -> T:
    """Run `work` on a text, of a long one in a thread: some 60 ms for the longest."""
    return work(text) if len(text) < IN_THREAD_CHARS else await asyncio.to_thread(work, text)


def shortened(text: str, limit: int) -> str:
    """Return the beginning and end of a text longer than `limit`, cut between words, so that no half of a
    secret is left, which could not be detected."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit // 2], text[-(limit // 2) :]
    return head[: _last_space(head)] + _CUT + tail[len(tail) - _last_space(tail[::-1]) :]


def _last_space(text: str) -> int:
    return max((place for place, char in enumerate(text) if char.isspace()), default=0)


# ---------------------------------------------------------------- access counts
AT_ONCE = 64
MOST_SCOPES = 10_000  # noted while the store is unavailable


class AccessCounts:
    """Batches the access counts of memories shown in answers that are not stored: not worth a commit within
    a request. Written every few seconds and at an orderly end; a crash loses the last seconds."""

    def __init__(self, memories: MemoryStore, clock: Clock) -> None:
        self._memories, self._clock = memories, clock
        self._noted: dict[Scope, Counter[str]] = {}

    def note(self, scope: Scope, ids: Sequence[str]) -> None:
        """Count an access of each of the scope's memories."""
        if scope in self._noted or len(self._noted) < MOST_SCOPES:
            self._noted.setdefault(scope, Counter()).update(ids)

    async def write(self) -> None:
        """Write the counts. Raises StoreUnavailable; unwritten counts stay noted."""
        while self._noted:
            some = [self._noted.popitem() for _ in range(min(AT_ONCE, len(self._noted)))]
            at = self._clock()
            # Concurrently: a store that commits in groups makes one commit of them.
            touched = (self._memories.touch(scope, [*ids.elements()], at) for scope, ids in some)
            results = await asyncio.gather(*touched, return_exceptions=True)
            failed = [(one, result) for one, result in zip(some, results, strict=True) if result]
            for (scope, ids), _ in failed:
                self._noted.setdefault(scope, Counter()).update(ids)
            for _, error in failed:
                raise error
