"""The read path, told in order: decide, rewrite, retrieve, rank, leave out what is visible, inject.

What the session's notes hold is read meanwhile, and is injected also where no memory is looked for or found.
Nothing is caught here but what a stage can do without. The deadline, and forwarding the turn unchanged
when memory fails, stand once, in the caller.
"""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from proxy.domain import Level, MemoryFilter, Prepared, Ranked, Scope, Status, Turn
from proxy.errors import StoreError
from proxy.note_store import NoteStore
from proxy.notes import NOTHING, SessionNotes
from proxy.observe import log
from proxy.pipeline.decide import decide
from proxy.pipeline.expect import Expectation, expectation
from proxy.pipeline.gate import gate_for
from proxy.pipeline.inject import inject
from proxy.pipeline.named import is_missing
from proxy.pipeline.rank import Ranking, rank
from proxy.pipeline.retrieve import Found, retrieve
from proxy.pipeline.rewrite import Query, is_vague, rewrite
from proxy.pipeline.times import named_times
from proxy.pipeline.visible import unseen
from proxy.pipeline.wording import Wording
from proxy.ports import Clock, Embedder, MemoryStore, SessionStore, TokenCounter

TURNS_AT_ONCE = 6  # more keep no more threads busy, and in a burst make all of them late
LINES = 3  # turns of the session that a request without history is reminded of
SESSION_ONLY = "session"  # the reason where the block holds what the session's notes say, and no memory


@dataclass(frozen=True, slots=True)
class Tools:
    """What the read path needs from outside, and its settings."""

    memories: MemoryStore
    sessions: SessionStore
    embedder: Embedder | None
    tokens: TokenCounter
    clock: Clock
    budget_tokens: int = 600
    notes: NoteStore | None = None
    history_messages: int = 3  # user messages that lend a vague question their topic
    ranking: Ranking = field(default_factory=Ranking)
    # First come, first served: of a burst that is too much for the deadline, the first still make it.
    at_once: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(TURNS_AT_ONCE))
    wording: Wording | None = None  # a model that says vague questions in full


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which memories to look for: one question inside one scope."""

    scope: Scope
    types: tuple[str, ...] | None
    limit: int
    threshold: float | None  # None: the embedding model's own
    expected: Expectation = Expectation.STRONG  # by the form of the question


@dataclass(frozen=True, slots=True)
class _Recalled:
    """The memories to show, and where there are none, why."""

    fresh: Sequence[Ranked] = ()
    status: Status = Status.NONE
    reason: str = ""
    level: Level = Level.FULL
    error: StoreError | None = None


async def prepare(turn: Turn, tools: Tools) -> Prepared:
    """Return the block of session notes and relevant memories for the turn, within the token budget, or why
    there is none. Where only notes can be read, the level is SESSION.

    Raises StoreUnavailable.
    """
    # A turn that may have to wait for a model takes no place: it would keep the others waiting as well.
    async with tools.at_once if tools.wording is None else nullcontext():
        notes, recalled = await asyncio.gather(_noted(turn, tools), _recall(turn, tools))
    block = inject(
        recalled.fresh,
        budget_tokens=tools.budget_tokens,
        tokens=tools.tokens,
        model=turn.model,
        notes=notes,
        messages=turn.messages,
    )
    if block.text:
        return Prepared(
            status=Status.INJECTED,
            reason="" if block.memory_ids else SESSION_ONLY,
            block=block.text,
            memory_ids=block.memory_ids,
            tokens=block.tokens,
            level=recalled.level,
        )
    if recalled.error is not None:
        raise recalled.error
    reason = "over_budget" if recalled.fresh else recalled.reason
    return Prepared(status=recalled.status, reason=reason, level=recalled.level)


async def _recall(turn: Turn, tools: Tools) -> _Recalled:
    """Return what memory has for the turn. A store that fails is told of, not raised: notes may remain."""
    verdict = decide(turn)
    if not verdict.search:
        return _Recalled(status=Status.SKIPPED, reason=verdict.reason)
    try:
        query, wanted = await _ask(turn, tools)
        found, ranked = await _find(query, wanted, tools)
        if not found.hits and not await _has_memories(turn.scope, tools):
            return _Recalled(reason="no_memories", level=found.level)
    except StoreError as error:
        return _Recalled(level=Level.SESSION, error=error)
    if not ranked:
        return _Recalled(reason="below_threshold", level=found.level)
    if wanted.threshold is None and is_missing(turn.query, (h.memory.content for h in found.hits)):
        return _Recalled(reason="not_in_memory", level=found.level)
    fresh = unseen(ranked, turn.messages)
    return _Recalled(fresh, reason="" if fresh else "already_visible", level=found.level)


async def _noted(turn: Turn, tools: Tools) -> SessionNotes:
    """Return the notes of the turn's session. One that has its id by its beginning is known to be this very
    conversation by the last answer; before there is one, there is nothing to be reminded of."""
    answers = (m.text for m in reversed(turn.messages) if m.role == "assistant")
    after = None if turn.named else next(answers, None)
    if tools.notes is None or (after is None and not turn.named):
        return NOTHING
    try:
        return await tools.notes.notes(
            turn.scope, turn.session_id, after=after, lines=LINES if turn.standalone else 0
        )
    except StoreError:
        log.warning("memory.notes_unavailable")
        return NOTHING


async def search(
    scope: Scope,
    text: str,
    tools: Tools,
    *,
    types: tuple[str, ...] | None = None,
    limit: int,
    threshold: float | None = None,
) -> list[Ranked]:
    """Return what the read path would rank for the text, best first; no decision, no budget.

    Raises StoreUnavailable.
    """
    _, ranked = await _find(rewrite(text, ()), Wanted(scope, types, limit, threshold), tools)
    return ranked


async def _find(query: Query, wanted: Wanted, tools: Tools) -> tuple[Found, list[Ranked]]:
    """Return what was found and, of it, what belongs to the query, best first. Raises StoreUnavailable."""
    now = tools.clock()
    found = await retrieve(
        query if tools.ranking.lexical else replace(query, terms=()),
        wanted.scope,
        wanted.types,
        now=now,
        memories=tools.memories,
        embedder=tools.embedder if tools.ranking.dense else None,
    )
    gate = gate_for(
        expected=wanted.expected,
        dense=found.dense,
        model_threshold=tools.embedder.model.similarity_threshold if tools.embedder else 0.0,
        asked=wanted.threshold,
    )
    ranked = rank(
        found.hits,
        query.terms,
        gate,
        limit=wanted.limit,
        now=now,
        ranking=tools.ranking,
        times=named_times(query.text, now),
    )
    return found, ranked


async def _ask(turn: Turn, tools: Tools) -> tuple[Query, Wanted]:
    """Return what to look for: the turn's question, with the topic of the conversation where it has none."""
    history = await _earlier(turn, tools) if is_vague(turn.query) else ()
    query = rewrite(turn.query, history)
    if tools.wording is not None:
        query = await tools.wording.improve(turn, query, history, spent_s=tools.clock() - turn.at)
    expected = Expectation.STRONG if history else expectation(turn.query)
    asked = turn.options
    return query, Wanted(turn.scope, asked.types, asked.limit, asked.threshold, expected=expected)


async def _earlier(turn: Turn, tools: Tools) -> Sequence[str]:
    """Return the user's messages before this one, oldest first: the request's, else the session's."""
    said = [m.text for m in turn.messages if m.role == "user" and m.text][:-1]
    if said or tools.history_messages < 1:
        return said[-tools.history_messages :] if tools.history_messages else ()
    try:
        recent = await tools.sessions.recent(turn.scope, turn.session_id, tools.history_messages)
    except StoreError:
        # The question alone is a worse query than with its topic, and a better one than none.
        log.warning("memory.history_unavailable")
        return ()
    return [exchange.said for exchange in recent if exchange.said]


async def _has_memories(scope: Scope, tools: Tools) -> bool:
    where = MemoryFilter(tenant=scope.tenant, user=scope.user, now=tools.clock())
    page = await tools.memories.list(where, limit=1, total=False)
    return bool(page.items)
