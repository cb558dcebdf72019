"""Write each exchange to the session store: the user's half before the answer begins, the answer after it
ended; with what the message asks for, the rules that it sets, and when it becomes an extraction job.

What a message asks for is read by the heads of the encoder. Triggers are pure functions, called by the
session store: an explicit ask, a full batch, silence, a new topic.

Standing instructions ("anchors") are in force from the next turn on, whatever conversation the client sends.
One that changes an older one takes its slot, so that the older one ends.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import TypeVar
from uuid import uuid4

from proxy.admit.safety import REDACTED, REMOVED, is_planted, safe_id
from proxy.domain.core import DEFAULT_TIMEZONE, Scope, Turn
from proxy.domain.errors import EmbeddingFailed, StoreError
from proxy.domain.limits import TTLCache
from proxy.domain.ports import Asks, Clock, Judge, MemoryStore
from proxy.domain.session import (
    BATCH,
    EXPLICIT,
    MOST_ANCHOR_CHARS,
    MOST_ANCHORS,
    ORDINARY,
    Anchor,
    NewExchange,
    NewJob,
    NoteStore,
    Outcome,
    SessionState,
    SessionStore,
    StoredExchange,
    Trigger,
    rest_of,
)
from proxy.telemetry import ThrottledLog
from proxy.text.words import cut_short, is_question, sentences, window_of

# ---------------------------------------------------------------- what a message asks for
RULE = 0.8  # of the message head: what the statement head takes for an instruction is a rule from here on
YES = 0.5
NOTHING = Asks(remember=0.0, forget=0.0, off_record=0.0, rule=0.0)
_LOG = ThrottledLog()


@dataclass(frozen=True, slots=True)
class MessageIntent:
    """Decides whether and how soon a message is extracted. `personal`: it may state something that other
    conversations need."""

    asks: Asks
    personal: bool

    @property
    def is_rule(self) -> bool:
        """True for a standing instruction."""
        return self.asks.rule >= YES

    @property
    def is_unrecorded(self) -> bool:
        """True if nothing of it may be stored: it is off the record, or says what to forget."""
        return self.asks.off_record >= YES or self.asks.forget >= YES

    @property
    def is_explicit(self) -> bool:
        """True if it is extracted at once: the user asks to remember something, or sets a rule."""
        return self.is_rule or self.asks.remember >= YES


async def intent_of(judge: Judge | None, text: str) -> MessageIntent:
    """Return the message's intent; the judge has mostly read it already for the read path, and caches its
    readings. Without a judge, or if it fails, nothing is asked, and all but questions may be personal."""
    states = any(not is_question(s) for s in sentences(text[:2_000]))
    if judge is None or not text.strip():
        return MessageIntent(NOTHING, states)
    try:
        reading = await judge.read(text, closely=True)
    except EmbeddingFailed:
        _LOG.warning("asks.unread")
        return MessageIntent(NOTHING, states)
    return MessageIntent(reading.asks, states and reading.needs.memory >= YES)


# ---------------------------------------------------------------- triggers
TOOLS_S = 120.0  # for tools to run, from the question on; then the exchange is read without its end


@dataclass(frozen=True, slots=True)
class TriggerPolicy:
    """How long exchanges may wait. One LLM call a batch: larger batches cost less and come later."""

    batch_size: int = 5
    idle_seconds: float = 600
    personal_idle_seconds: float = 15

    def on_completion(self, state: SessionState) -> NewJob | None:
        """Trigger for a completed exchange: an explicit ask, or a full batch."""
        if state.pending and state.explicit:
            return _job(state, EXPLICIT)
        is_full = state.pending >= self.batch_size * (2 if state.at_work else 1)
        return _job(state, ORDINARY) if is_full else None

    def on_sweep(self, state: SessionState, now: float) -> NewJob | None:
        """Trigger for an idle session. One that says something about the user is due sooner, so that a user
        who opens a new conversation right away is known in it."""
        if due := self.on_completion(state):  # left over by a crash, or by a larger batch size
            return due
        idle = now - state.last_at
        is_personal = state.pending and state.personal and idle >= self.personal_idle_seconds
        if (is_personal or state.pending >= self.batch_size) and (not state.at_work or idle >= TOOLS_S):
            return _job(state, ORDINARY)
        return _job(state, BATCH) if state.pending and idle >= self.idle_seconds else None


def on_end(state: SessionState) -> NewJob | None:
    """Trigger for the end of a session and for shutdown: everything that is pending."""
    return rest_of(state) if state.pending else None


def _job(state: SessionState, lane: int) -> NewJob:
    return NewJob(session_id=state.session_id, upto=state.last_seq, lane=lane)


# ---------------------------------------------------------------- anchors
_MOST_SENTENCES, _MOST_CHARS = 12, 400  # of a message, of a sentence: longer ones are statements


async def anchors_of(judge: Judge, said: str, in_force: Sequence[Anchor] = ()) -> tuple[Anchor, ...]:
    """Return the standing instructions of a message that sets some (MessageIntent.is_rule), at most ten.

    `said` is redacted. A sentence that held a secret or a planted instruction gives none. Raises
    EmbeddingFailed."""
    rules = [cut_short(rule, MOST_ANCHOR_CHARS) for rule in await _rules(judge, said)][:MOST_ANCHORS]
    pairs = [(old.text, rule) for rule in rules for old in in_force]
    relations = await judge.relations(pairs) if pairs else []
    found: list[Anchor] = []
    for number, rule in enumerate(rules):
        related = zip(in_force, relations[number * len(in_force) :], strict=False)
        new = f"rule-{blake2b(rule.encode(), digest_size=8).hexdigest()}"
        slot = next((old.slot for old, r in related if r.apart < max(r.same, r.changed)), new)
        found.append(Anchor(slot, rule))
    return tuple(found)


async def _rules(judge: Judge, said: str) -> list[str]:
    """Return the sentences that set a rule; if none does by itself, the most likely one."""
    parts = sentences(said)
    safe = [n for n, s in enumerate(parts) if _is_safe(s)][-_MOST_SENTENCES:]
    if len(safe) <= 1:
        return [parts[n] for n in safe]
    pairs = [(window_of(parts, n, n, parts[n]), parts[n]) for n in safe]
    statements = await judge.statements(pairs)
    asked = [(await judge.read(parts[n])).asks.rule for n in safe]
    chances = [max(s.sense.get("rule", 0.0), rule) for s, rule in zip(statements, asked, strict=True)]
    read = zip(safe, statements, asked, strict=True)
    found = [parts[n] for n, s, rule in read if s.main_sense == "rule" or rule >= RULE]
    return found or [parts[safe[chances.index(max(chances))]]]


def _is_safe(sentence: str) -> bool:
    unsafe = REDACTED in sentence or REMOVED in sentence or is_planted(sentence)
    return len(sentence) <= _MOST_CHARS and any(map(str.isalpha, sentence)) and not unsafe


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
    # Exchanges that may have been committed, or may be yet, and how often that was checked: no request will
    # finish them.
    unacknowledged: deque[tuple[NewExchange, int]] = field(default_factory=lambda: deque(maxlen=MOST_LATE))
    # Response id to exchange id, before it is on disk: the client may continue at once.
    pending_responses: TTLCache[str, str] = field(default_factory=partial(TTLCache, MOST_PENDING_RESPONSES))

    async def begin(self, turn: Turn, key: str) -> StoredExchange | None:
        """Commit the user's message, durable on return. `key` is equal for the same request sent again. None,
        and nothing stored, if it asks to forget something or is off the record."""
        stored = await _aside(turn.said, self._storable)
        meant = await intent_of(self.judge, turn.said)
        if self.gist is not None:
            gist = self.gist(turn.query)
            is_read = meant.is_unrecorded or gist in ("", turn.said)
            if (meant if is_read else await intent_of(self.judge, gist)).is_unrecorded:
                return None
        anchors: tuple[Anchor, ...] = ()
        if self.judge is not None and meant.is_rule:
            session = (turn.scope, safe_id(turn.session_id))
            in_force = () if self.notes is None else (await self.notes.notes(*session)).anchors
            with suppress(EmbeddingFailed):
                anchors = await anchors_of(self.judge, stored, in_force)
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
            anchors=anchors,
            stateful=turn.options.compress or turn.standalone,
            timezone=turn.timezone,
            said_at=turn.said_at,
            default_timezone=self.default_timezone,
        )
        try:
            return await self.sessions.begin(new)
        except (StoreError, asyncio.CancelledError):
            self.unacknowledged.append((new, 0))
            raise

    async def resume(self, turn: Turn, key: str | None) -> StoredExchange | None:
        """Return the exchange that the turn continues, None if it is unknown (see SessionStore.resume)."""
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
            new, checks = self.unacknowledged.popleft()
            found = await self.sessions.resume(new.scope, new.session_id, new.key)
            if found is not None and found.id == new.id:  # it was committed after all
                await self._complete(found, Outcome("", whole=False))
            elif checks < _CHECKS:
                self.unacknowledged.append((new, checks + 1))

    async def _complete(self, begun: StoredExchange, answer: Outcome) -> None:
        if await self.sessions.complete(begun, answer, self.trigger):
            self.wake.set()

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
