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
from proxy.domain.session import Anchor, Begun, NewExchange, NoteStore, Outcome
from proxy.learn.session_notes import anchors_of
from proxy.learn.triggers import Heard, heard

# ---------------------------------------------------------------- exchanges
T = TypeVar("T")

IN_THREAD_CHARS = 1_200  # some 2 ms
MAX_CHARS = 24_000  # of one side of an exchange: extraction reads less
MOST_LATE = 1_000
MOST_MADE = 2_000
_LOOKS = 24  # one each upkeep, every few seconds: longer than a commit can hang
_MARGIN = 4_096  # characters: longer than most keys
_CUT = "\n[…]\n"


@dataclass(frozen=True, slots=True)
class _Unsure:
    """An exchange of which the store did not say whether it was committed, or will be."""

    exchange: NewExchange
    looks: int = 0


@dataclass(frozen=True, slots=True)
class ExchangeRecorder:
    """Commits exchanges and wakes the worker. Raises StoreUnavailable; holds nothing back."""

    sessions: SessionStore
    trigger: Trigger
    wake: asyncio.Event
    redact: Callable[[str], str]  # applied before anything is written to disk
    judge: Judge | None = None  # None: nothing is known to be asked for
    notes: NoteStore | None = None  # the anchors in force, which a new one may change
    default_timezone: str = DEFAULT_TIMEZONE
    gist: Callable[[str], str] | None = None  # what the judge reads of a long message; None: all is stored
    late: deque[tuple[Begun, Outcome]] = field(default_factory=lambda: deque(maxlen=MOST_LATE))
    # A commit that came too late, or was not acknowledged, leaves an exchange that no request will end.
    unsure: deque[_Unsure] = field(default_factory=lambda: deque(maxlen=MOST_LATE))
    # Of which exchange a response is, known before it is on disk: its client may go on at once.
    made: TTLCache[str, str] = field(default_factory=partial(TTLCache, MOST_MADE))

    async def begin(self, turn: Turn, key: str) -> Begun | None:
        """Commit what the user said, durable on return. None, and nothing stored, for a message that asks to
        forget something, or that is off the record."""
        stored = await _aside(turn.said, self._storable)
        meant = await heard(self.judge, turn.said)
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
            self.unsure.append(_Unsure(new))
            raise

    async def resume(self, turn: Turn, key: str | None) -> Begun | None:
        """Return the exchange whose answer goes on in the turn, None if it is not known."""
        session = safe_id(turn.session_id)
        if key is None and (made := self.made.get(turn.continues or "")) is not None:
            last = await self.sessions.resume(turn.scope, session, None)
            if last is not None and last.id == made:
                return last
            # Two users' upstreams may count their responses alike: what is stored tells whose it is.
        return await self.sessions.resume(turn.scope, session, key, turn.continues)

    async def finish(self, begun: Begun, outcome: Outcome) -> None:
        """Commit the answer, and the job if one is due. Idempotent."""
        if outcome.response_id is not None:
            self.made.put(outcome.response_id, begun.id)
        answer = replace(outcome, answer=await _aside(outcome.answer, self._storable))
        await self._complete(begun, answer)
        if outcome.response_id is not None and self.made.get(outcome.response_id) == begun.id:
            self.made.pop(outcome.response_id)  # the store knows it now

    def keep(self, begun: Begun, outcome: Outcome) -> None:
        """Commit the answer later: it could not be committed in its time."""
        self.late.append((begun, outcome))

    async def catch_up(self) -> None:
        """Commit the buffered exchanges, and end those that were committed after their deadline. Raises
        StoreUnavailable while the store is away.

        What a crash takes from `late` is not lost: its exchange is on disk, and is adopted unanswered.
        """
        while self.late:
            begun, outcome = self.late.popleft()
            try:
                await self.finish(begun, outcome)
            except (StoreError, asyncio.CancelledError):
                self.late.appendleft((begun, outcome))
                raise
        for _ in range(len(self.unsure)):
            unsure = self.unsure.popleft()
            if not await self._ended(unsure.exchange) and unsure.looks < _LOOKS:
                self.unsure.append(_Unsure(unsure.exchange, unsure.looks + 1))

    async def _ended(self, new: NewExchange) -> bool:
        """End the exchange if it was committed after all; False if it is not there yet."""
        begun = await self.sessions.resume(new.scope, new.session_id, new.key)
        if begun is None or begun.id != new.id:
            return False
        await self._complete(begun, Outcome("", whole=False))
        return True

    async def _complete(self, begun: Begun, answer: Outcome) -> None:
        if await self.sessions.complete(begun, answer, self.trigger):
            self.wake.set()

    async def _is_unrecorded(self, turn: Turn, meant: Heard, gist: str) -> bool:
        """True if the message asks that nothing of it is stored. `gist`: what the read path reads of it."""
        if meant.is_unrecorded or gist in ("", turn.said):
            return meant.is_unrecorded
        return (await heard(self.judge, gist)).is_unrecorded

    async def _anchors(self, turn: Turn, stored: str, meant: Heard) -> tuple[Anchor, ...]:
        """Return the standing instructions that the words set."""
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
        """Return the text as it may be written to disk: of bounded length, without secrets.

        Redacted before it is cut, with some text beyond the cut: half a secret has no shape to know it by.
        """
        return shortened(self.redact(shortened(text, MAX_CHARS + 2 * _MARGIN)), MAX_CHARS)

    async def abandon(self, begun: Begun) -> None:
        """Take back an exchange that the upstream refused."""
        await self.sessions.abort(begun)


async def _aside(text: str, work: Callable[[str], T]) -> T:
    """Do work on a text, of a long one in a thread: some 60 ms for the longest."""
    return work(text) if len(text) < IN_THREAD_CHARS else await asyncio.to_thread(work, text)


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


# ---------------------------------------------------------------- access counts
AT_ONCE = 64
MOST_SCOPES = 10_000  # while the store is away; of more nothing is noted


class Touches:
    """What was accessed and is not written yet."""

    def __init__(self, memories: MemoryStore, clock: Clock) -> None:
        self._memories, self._clock = memories, clock
        self._noted: dict[Scope, Counter[str]] = {}

    def note(self, scope: Scope, ids: Sequence[str]) -> None:
        """Count an access of each of the scope's memories."""
        if scope in self._noted or len(self._noted) < MOST_SCOPES:
            self._noted.setdefault(scope, Counter()).update(ids)

    async def write(self) -> None:
        """Write what was noted. Raises StoreUnavailable; what is not written stays noted."""
        while self._noted:
            some = [self._noted.popitem() for _ in range(min(AT_ONCE, len(self._noted)))]
            at = self._clock()
            # Side by side: a store that commits in groups makes one commit of them.
            touched = (self._memories.touch(scope, [*ids.elements()], at) for scope, ids in some)
            results = await asyncio.gather(*touched, return_exceptions=True)
            failed = [(one, result) for one, result in zip(some, results, strict=True) if result]
            for (scope, ids), _ in failed:
                self._noted.setdefault(scope, Counter()).update(ids)
            for _, error in failed:
                raise error
