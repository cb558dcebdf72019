"""The read path, told in order: decide, rewrite, retrieve, rank, leave out what is visible, inject.

Nothing is caught here but what a stage can do without. The deadline, and forwarding the turn unchanged
when memory fails, stand once, in the caller.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.domain import Level, MemoryFilter, Prepared, Ranked, Scope, Status, Turn
from proxy.errors import StoreError
from proxy.observe import log
from proxy.pipeline.decide import decide, expects_memory
from proxy.pipeline.gate import gate_for
from proxy.pipeline.inject import inject
from proxy.pipeline.rank import Ranking, rank
from proxy.pipeline.retrieve import Found, retrieve
from proxy.pipeline.rewrite import Query, is_vague, rewrite
from proxy.pipeline.visible import unseen
from proxy.ports import Clock, Embedder, MemoryStore, SessionStore, TokenCounter


@dataclass(frozen=True, slots=True)
class Tools:
    """What the read path needs from outside, and its settings."""

    memories: MemoryStore
    sessions: SessionStore
    embedder: Embedder | None
    tokens: TokenCounter
    clock: Clock
    budget_tokens: int = 600
    history_messages: int = 3  # user messages that lend a vague question their topic
    ranking: Ranking = field(default_factory=Ranking)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which memories to look for: one question inside one scope."""

    scope: Scope
    types: tuple[str, ...] | None
    limit: int
    threshold: float | None  # None: the embedding model's own
    expects_memory: bool = True  # the question's form says that memory should know


async def prepare(turn: Turn, tools: Tools) -> Prepared:
    """Return the block of relevant memories for the turn, within the token budget, or why there is none.

    Raises StoreUnavailable.
    """
    verdict = decide(turn)
    if not verdict.search:
        return Prepared(status=Status.SKIPPED, reason=verdict.reason)
    query, wanted = await _ask(turn, tools)
    found, ranked = await _find(query, wanted, tools)
    if not found.hits and not await _has_memories(turn.scope, tools):
        return _nothing("no_memories", found.level)
    if not ranked:
        return _nothing("below_threshold", found.level)
    fresh = unseen(ranked, turn.messages)
    if not fresh:
        return _nothing("already_visible", found.level)
    block = inject(fresh, budget_tokens=tools.budget_tokens, tokens=tools.tokens, model=turn.model)
    if not block.text:
        return _nothing("over_budget", found.level)
    return Prepared(
        status=Status.INJECTED,
        block=block.text,
        memory_ids=block.memory_ids,
        tokens=block.tokens,
        level=found.level,
    )


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
        query, wanted.scope, wanted.types, now=now, memories=tools.memories, embedder=tools.embedder
    )
    gate = gate_for(
        expects_memory=wanted.expects_memory,
        dense=found.dense,
        model_threshold=tools.embedder.model.similarity_threshold if tools.embedder else 0.0,
        asked=wanted.threshold,
    )
    ranked = rank(found.hits, query.terms, gate, limit=wanted.limit, now=now, ranking=tools.ranking)
    return found, ranked


async def _ask(turn: Turn, tools: Tools) -> tuple[Query, Wanted]:
    """Return what to look for: the turn's question, with the topic of the conversation where it has none."""
    history = await _earlier(turn, tools) if is_vague(turn.query) else ()
    query = rewrite(turn.query, history)
    expects = bool(history) or expects_memory(query.text)
    asked = turn.options
    return query, Wanted(turn.scope, asked.types, asked.limit, asked.threshold, expects_memory=expects)


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


def _nothing(reason: str, level: Level) -> Prepared:
    return Prepared(status=Status.NONE, reason=reason, level=level)
