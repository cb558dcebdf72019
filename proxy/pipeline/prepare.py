"""The read path, stage by stage: decide, build the query, search, leave out what is already visible, inject.

The session's notes are read at the same time, and are injected also where no memory is searched for or
found. The only errors caught here are those of stages that the result can do without. The deadline, and
forwarding the turn unchanged when memory fails, are handled once, in the caller.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from proxy.domain import (
    DEFAULT_TIMEZONE,
    Level,
    Memory,
    MemoryFilter,
    MemoryOptions,
    Message,
    Prepared,
    Ranked,
    Scope,
    Status,
    Turn,
)
from proxy.errors import StoreError
from proxy.judging import Judge
from proxy.note_store import NoteStore
from proxy.notes import NOTHING, SessionNotes
from proxy.observe import Seldom
from proxy.pipeline.begun import begun
from proxy.pipeline.decision.expect import Expectation
from proxy.pipeline.decision.restraint import Restraint
from proxy.pipeline.decision.triage import Triage
from proxy.pipeline.documents import Shelf, look_up, with_passages
from proxy.pipeline.inject import inject
from proxy.pipeline.recall.find import Finder, Finding, Wanted
from proxy.pipeline.recall.plan import NO_PLAN, Planner, narrowed, planned
from proxy.pipeline.recall.rank import Ranking
from proxy.pipeline.recall.rerank import Reranking
from proxy.pipeline.recall.rewrite import VAGUE_CHARS, Query, is_vague, may_lean, rewrite
from proxy.pipeline.recall.wording import Wording
from proxy.pipeline.visible import unseen
from proxy.ports import Answerability, Clock, Embedder, MemoryStore, SessionStore, Snapshot, TokenCounter
from proxy.reasons import Reason

SURE = 0.7  # a preference that is no surer than this steers nobody; saying it again makes it surer
LINES = 3  # turns of the session that a request without history is reminded of

Stage = Callable[[str], AbstractContextManager[None]]


def _untimed(name: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Tools:
    """What the read path needs from outside, and its settings."""

    memories: MemoryStore
    sessions: SessionStore
    notes: NoteStore
    shelf: Shelf  # the users' documents
    embedder: Embedder | None
    tokens: TokenCounter
    clock: Clock
    budget_tokens: int = 600
    history_messages: int = 3  # user messages that lend a vague question their topic
    ranking: Ranking = field(default_factory=Ranking)
    triage: Triage = field(default_factory=Triage)
    restraint: Restraint = field(default_factory=Restraint)
    wording: Wording | None = None  # a model that says vague questions in full
    planner: Planner | None = None  # a model that plans the search
    reranking: Reranking | None = None  # a model that reads question and memory together
    answerability: Answerability | None = None  # models that tell whether they answer
    judge: Judge | None = None  # the trained heads; None: the level "without judge"
    stage: Stage = _untimed  # is told when a stage begins and ends
    seldom: Seldom = field(default_factory=Seldom)  # logs what a stage did without

    @property
    def finder(self) -> Finder:
        """What searches the memories."""
        return Finder(
            self.memories,
            self.embedder,
            self.ranking,
            self.clock,
            self.reranking,
            self.answerability,
            self.seldom,
        )

    @property
    def waits(self) -> bool:
        """True where a turn may have to wait for a model that runs elsewhere."""
        return self.wording is not None or self.planner is not None


@dataclass(frozen=True, slots=True)
class _Recalled:
    """The memories to show, and where there are none, why."""

    fresh: Sequence[Ranked] = ()
    status: Status = Status.NONE
    reason: Reason | None = None
    level: Level = Level.FULL
    error: StoreError | None = None


async def prepare(turn: Turn, tools: Tools) -> Prepared:
    """Return the block of session notes and relevant memories for the turn, within the token budget, or why
    there is none. Where only notes can be read, the level is SESSION.

    Raises StoreUnavailable.
    """
    if (held := await tools.restraint.holds_back(turn, tools.sessions)) is None:
        # The recall first: it takes longest, and what the others need of the loop is done meanwhile.
        recalled, notes, passages = await asyncio.gather(
            _recall(turn, tools), _noted(turn, tools), look_up(turn, tools.shelf, tools.triage.judge)
        )
    else:
        recalled, passages = _Recalled(status=Status.SKIPPED, reason=held), ()
        notes = await _noted(turn, tools)
    with tools.stage("inject"):
        block = inject(
            recalled.fresh,
            budget_tokens=tools.budget_tokens,
            tokens=tools.tokens,
            model=turn.model,
            notes=notes,
            messages=turn.messages,
            timezone=turn.timezone or DEFAULT_TIMEZONE,
        )
        block = with_passages(block, passages, tools.shelf, tools.tokens, turn.model)
    if block.text:
        return Prepared(
            status=Status.INJECTED,
            reason=None if block.memory_ids else Reason.SESSION,
            block=block.text,
            memory_ids=block.memory_ids,
            tokens=block.tokens,
            level=recalled.level,
        )
    if recalled.error is not None:
        raise recalled.error
    reason = Reason.OVER_BUDGET if recalled.fresh else recalled.reason
    return Prepared(status=recalled.status, reason=reason, level=recalled.level)


async def _recall(turn: Turn, tools: Tools) -> _Recalled:
    """Return what memory has for the turn. A store that fails is told of, not raised: notes may remain."""
    with tools.stage("decide"):
        judged = tools.triage.judge(turn)
    if not judged.verdict.search:
        return _Recalled(status=Status.SKIPPED, reason=judged.verdict.reason)
    try:
        with begun(tools.memories.snapshot(turn.scope)) as snapshot:  # while the model reads the question
            with tools.stage("query"):
                query, wanted = await _ask(turn, judged.expected, tools)
            if wanted is None:
                return _Recalled(status=Status.SKIPPED, reason=Reason.PLAN)
            with tools.stage("search"):
                # While a model was asked, another process may have forgotten: what was read brought the rows
                # in, and is looked at anew.
                found = await _find(query, wanted, None if tools.waits else snapshot, turn, tools)
        if found.empty and not await _has_memories(turn.scope, tools):
            return _Recalled(reason=Reason.NO_MEMORIES, level=found.level)
    except StoreError as error:
        return _Recalled(level=Level.SESSION, error=error)
    if not found.ranked:
        return _Recalled(reason=found.reason, level=found.level)
    sure = [r for r in found.ranked if not _is_doubted(r.memory)]
    if not sure:
        return _Recalled(reason=Reason.DOUBTED, level=found.level)
    fresh = unseen([r for r in sure if r.memory.id not in turn.shown], turn.messages)
    return _Recalled(fresh, reason=None if fresh else Reason.ALREADY_VISIBLE, level=found.level)


def _is_doubted(memory: Memory) -> bool:
    return memory.type == "preference" and memory.confidence <= SURE


async def _noted(turn: Turn, tools: Tools) -> SessionNotes:
    """Return the notes of the turn's session.

    A session that the client did not name is a guess: another conversation may begin with the same words. It
    gives back only the anchors of messages that this request held and that the session's state replaced.
    """
    if not turn.named and not turn.left_out:
        return NOTHING
    try:
        with tools.stage("notes"):
            lines = LINES if turn.standalone else 0
            notes = await tools.notes.notes(turn.scope, turn.session_id, lines=lines)
            return notes if turn.named else _of_messages(notes, turn.left_out)
    except StoreError:
        tools.seldom.warning("memory.notes_unavailable")
        return NOTHING


def _of_messages(notes: SessionNotes, messages: Sequence[Message]) -> SessionNotes:
    """Return the anchors that the user set in the messages."""
    said = [m.words for m in messages if m.role == "user"]
    anchors = (a for a in notes.anchors if any(a.text.removesuffix("…") in words for words in said))
    return SessionNotes(anchors=tuple(anchors))


async def search(
    scope: Scope,
    text: str,
    tools: Tools,
    *,
    types: tuple[str, ...] | None = None,
    limit: int,
    threshold: float | None = None,
    timezone: str = DEFAULT_TIMEZONE,
) -> Sequence[Ranked]:
    """Return what the read path would rank for the text, best first, if it were a question about the user
    that memory is known to answer: no decision, no budget. `unshown` says whether a turn would be shown any.

    Raises StoreUnavailable.
    """
    wanted = Wanted(scope, types, limit, threshold, timezone=timezone)
    found = await tools.finder.find(rewrite(text, ()), wanted, began=tools.clock())
    return found.ranked


async def unshown(
    scope: Scope,
    text: str,
    tools: Tools,
    *,
    types: tuple[str, ...] | None = None,
    limit: int,
    threshold: float | None = None,
    timezone: str = DEFAULT_TIMEZONE,
) -> Reason | None:
    """Return why a conversation that begins with the text would be shown no memory, None where it would. By
    the rules alone: neither is a model asked, nor is the budget looked at.

    Raises StoreUnavailable.
    """
    turn = Turn(
        request_id="",
        scope=scope,
        session_id="",
        model="",
        messages=(Message("user", text),),
        options=MemoryOptions(read=True, write=False, types=types, limit=limit, threshold=threshold),
        at=tools.clock(),
        timezone=timezone,
    )
    recalled = await _recall(turn, replace(tools, wording=None, planner=None, stage=_untimed))
    if recalled.error is not None:
        raise recalled.error
    return recalled.reason


async def _ask(turn: Turn, expected: Expectation, tools: Tools) -> tuple[Query, Wanted | None]:
    """Return what to look for: the turn's question, with the topic of the conversation where it has none.

    Nothing is wanted where a model's plan says so and the rules see nothing of the user in the question."""
    vague = is_vague(turn.query)
    if tools.embedder is not None and not vague and len(turn.query) <= VAGUE_CHARS:
        tools.embedder.begin(turn.query)  # most likely it is embedded as it stands
    history = await _earlier(turn, tools) if vague else ()
    expected = Expectation.STRONG if history else expected
    spent_s = tools.clock() - turn.at
    if tools.planner is None:
        query, plan = await _worded(turn, history, tools, spent_s=spent_s), NO_PLAN
    else:
        query, plan = await asyncio.gather(
            _worded(turn, history, tools, spent_s=spent_s),
            tools.planner.plan(turn, history, spent_s=spent_s),
        )
    if not plan.search and expected is not Expectation.STRONG:
        return query, None
    asked = turn.options
    # A threshold of the request's own is taken at its word: the gate's other rules stand back.
    ruled = turn.query if asked.threshold is None else ""
    wanted = Wanted(
        turn.scope,
        narrowed(asked.types, plan),
        asked.limit,
        asked.threshold,
        expected=expected,
        named=ruled,
        typed="" if not ruled or await _leans(turn, tools) else ruled,
        timezone=turn.timezone or DEFAULT_TIMEZONE,
    )
    return planned(query, plan), wanted


async def _leans(turn: Turn, tools: Tools) -> bool:
    """True where the question may be about what was said before it in the conversation, by whomever."""
    if tools.answerability is None or not may_lean(turn.query):
        return False
    if turn.continues is not None or any(m.role == "assistant" for m in turn.messages):
        return True
    return turn.standalone and bool(await _earlier(turn, replace(tools, history_messages=1)))


async def _worded(turn: Turn, history: Sequence[str], tools: Tools, *, spent_s: float) -> Query:
    query = rewrite(turn.query, history)
    if tools.wording is None:
        return query
    return await tools.wording.improve(turn, query, history, spent_s=spent_s)


async def _find(
    query: Query, wanted: Wanted, snapshot: Awaitable[Snapshot | None] | None, turn: Turn, tools: Tools
) -> Finding:
    """Return what is found; where a plan narrowed the kinds in vain, of all that were asked for."""
    found = await tools.finder.find(query, wanted, began=turn.at, snapshot=snapshot)
    if found.ranked or wanted.types == turn.options.types:
        return found
    unnarrowed = replace(wanted, types=turn.options.types)
    return await tools.finder.find(query, unnarrowed, began=turn.at, snapshot=snapshot)


async def _earlier(turn: Turn, tools: Tools) -> Sequence[str]:
    """Return the user's messages before this one, oldest first: the request's, else the session's."""
    said = [m.words for m in turn.messages if m.role == "user" and m.words][:-1]
    if said or tools.history_messages < 1:
        return said[-tools.history_messages :] if tools.history_messages else ()
    try:
        recent = await tools.sessions.recent(turn.scope, turn.session_id, tools.history_messages)
    except StoreError:
        # The question alone is a worse query than with its topic, and a better one than none.
        tools.seldom.warning("memory.history_unavailable")
        return ()
    return [exchange.said for exchange in recent if exchange.said]


async def _has_memories(scope: Scope, tools: Tools) -> bool:
    where = MemoryFilter(tenant=scope.tenant, user=scope.user, now=tools.clock())
    page = await tools.memories.list(where, limit=1, total=False)
    return bool(page.items)
