"""Triage: does this message need memory?

The trained head decides; a missed memory is worse than a wasted search, and the head is calibrated for that.
Without a judge everything that holds a letter or a digit is searched for.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from proxy.domain.core import Reason, Turn
from proxy.domain.errors import EmbeddingFailed, StoreError
from proxy.domain.judging import Judge, Needs, Reading
from proxy.domain.ports import SessionStore
from proxy.recall.query import Query, leans, query_of, was_asked

NEEDED = 0.5  # the operating point of the calibrated heads
SURELY = 0.8  # from here on a model's plan may not call the search off

Before = Callable[[], Awaitable[str]]
"""Returns the user's message before this one, "" if there is none."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to search, and if not, why. `query`: what to search for. `reading`: what the judge read, None
    without a judge."""

    search: bool
    query: Query
    reason: Reason | None = None
    reading: Reading | None = None

    @property
    def may_be_life(self) -> bool:
        """True if the message is none of small talk, world knowledge, live data and a self-contained task."""
        return self.reading is None or max(_others(self.reading.needs).values()) < NEEDED

    @property
    def is_sure(self) -> bool:
        """True if memory is needed beyond doubt."""
        return self.reading is None or self.reading.needs.memory >= SURELY


async def triage(turn: Turn, query: Query, judge: Judge | None, before: Before) -> Verdict:
    """Return whether memory could help with the turn's last user message, the query. Never fails: a judge
    that does is done without."""
    if turn.tool_forced:
        return Verdict(False, query, Reason.TOOL_FORCED)
    if not query.text or (judge is None and not any(c.isalnum() for c in query.text)):
        return Verdict(False, query, Reason.NO_QUERY)
    if judge is None:
        return Verdict(True, await _with_context(turn, query, before))
    try:
        return judged(*await _read(turn, query, judge, before))
    except EmbeddingFailed:
        return Verdict(True, query)


def judged(query: Query, reading: Reading) -> Verdict:
    """Return the verdict that a reading gives."""
    if reading.needs.memory >= NEEDED:
        return Verdict(True, query, None, reading)
    others = _others(reading.needs)
    return Verdict(False, query, max(others, key=others.__getitem__), reading)


async def _read(turn: Turn, query: Query, judge: Judge, before: Before) -> tuple[Query, Reading]:
    """Return the reading of the message, or of a short one together with the user's message before it."""
    reading = await judge.read(query.text)
    if not leans(query.text) or (reading.needs.small_talk >= NEEDED and not was_asked(turn.messages)):
        return query, reading
    if not (earlier := await before()):
        return query, reading
    whole = query_of(turn.query, earlier)
    both = await judge.read(whole.text)
    if both.needs.memory < NEEDED and reading.needs.memory >= SURELY:
        return query, reading  # a change of topic: alone it needs memory beyond doubt
    # What is asked of memory, the message says alone: the one before it has had its effect.
    return whole, replace(both, asks=reading.asks)


async def _with_context(turn: Turn, query: Query, before: Before) -> Query:
    return query_of(turn.query, await before()) if leans(query.text) else query


def _others(needs: Needs) -> dict[Reason, float]:
    return {
        Reason.GREETING: needs.small_talk,
        Reason.GENERAL_FACT: needs.world,
        Reason.TOOL_ANSWERS: needs.tool,
        Reason.SELF_CONTAINED: needs.self_contained,
    }


@dataclass(frozen=True, slots=True)
class Restraint:
    """Turns that an operator wants left without memories, whatever they ask: by default there are none.

    Anchors and the session's last turns are shown all the same: they are the conversation's own.
    """

    skip_first_turn: bool = False
    min_query_chars: int = 0

    async def holds_back(self, turn: Turn, sessions: SessionStore) -> Reason | None:
        """Return why the turn gets no memories, None if it may have them."""
        if 0 < len(turn.query.strip()) < self.min_query_chars:
            return Reason.SHORT_QUERY
        if self.skip_first_turn and await _is_first(turn, sessions):
            return Reason.FIRST_TURN
        return None


async def _is_first(turn: Turn, sessions: SessionStore) -> bool:
    """True if nothing was answered in the conversation before, as far as that can be known."""
    if not begins(turn):
        return False
    if not turn.standalone:
        return True
    try:
        return not await sessions.recent(turn.scope, turn.session_id, 1)
    except StoreError:
        return False


def begins(turn: Turn) -> bool:
    """True if the request shows nothing that was answered before."""
    return turn.continues is None and not any(m.role == "assistant" for m in turn.messages)
