"""The read path, stage by stage: triage, query, search, profile, leave out what is visible, inject.

The store, the session's notes and the model begin at the same time. The only errors caught here are those of
stages that the result can do without. The deadline, and forwarding the turn unchanged when memory fails, are
handled once, in the caller.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

from proxy.domain.core import (
    DEFAULT_TIMEZONE,
    Level,
    Memory,
    MemoryFilter,
    Prepared,
    Ranked,
    Reason,
    Scope,
    Status,
    Turn,
    with_children,
)
from proxy.domain.errors import EmbeddingFailed, StoreError
from proxy.domain.ports import (
    Asks,
    Clock,
    EntityStore,
    MemoryText,
    Snapshot,
    Timeline,
)
from proxy.domain.session import NO_NOTES, NoteStore, SessionNotes, SessionStore
from proxy.recall.documents import RankedPassage, Shelf, passages_for, with_passages
from proxy.recall.pack import Block, Budget, inject, unseen
from proxy.recall.rewrite import NO_PLAN, QueryRewriter, SearchPlanner, narrowed, planned
from proxy.recall.search import (
    HELPS,
    EncodedQuery,
    Searcher,
    SearchRequest,
    SearchResult,
    is_doubted,
    offered,
)
from proxy.recall.triage import Restraint, Verdict, begins, query_of, triage
from proxy.telemetry import ThrottledLog, log
from proxy.text.dates import day_start, local_time, past_period
from proxy.text.words import names

QUESTION_CHARS = 300  # of a message that are read for the times that it names
LINKED = 8  # memories that are read with the message because of a name in common
LINES = 3  # turns of the session that a request without history is reminded of
HISTORY_MESSAGES = 3  # earlier messages of the user that a model which rewrites or plans queries is shown
FADED_HELPS = 0.1  # of a memory that lack of use had archived; a current one needs less next to others
FORGET_ASKED = 0.5  # the operating point of the calibrated head
FORGET_COVERED = 0.6  # above the operating point: forgetting too much cannot be undone
FORGET_CANDIDATES = 12  # memories, the nearest and those of the profile
FORGET_AT_MOST = 5  # memories that one message can forget
FORGOTTEN_BY = "conversation"  # in receipts
# Documents are not searched for these.
_NOT_IN_DOCUMENTS = frozenset((Reason.TOOL_FORCED, Reason.NO_QUERY, Reason.GREETING, Reason.SELF_CONTAINED))

T = TypeVar("T")
Stage = Callable[[str], AbstractContextManager[None]]


def untimed(name: str) -> AbstractContextManager[None]:
    """Return a stage that nothing measures."""
    return nullcontext()


@dataclass(frozen=True, slots=True)
class RecallTools:
    """What the stages work with; each stage is passed its own part."""

    searcher: Searcher
    sessions: SessionStore
    notes: NoteStore
    shelf: Shelf  # the users' documents
    budget: Budget
    clock: Clock
    patience_s: float = 1.0  # wait for the profile if nothing is searched
    restraint: Restraint = field(default_factory=Restraint)
    rewriter: QueryRewriter | None = None
    planner: SearchPlanner | None = None
    timeline: Timeline | None = None  # superseded values, for questions about the past
    entities: EntityStore | None = None  # names in the user's memories
    follows_links: bool = False  # from the names in the best memory to other memories
    forgets: bool = True  # memories that a message asks to forget
    searches_faded: bool = False  # what lack of use has archived, if nothing current helps
    stage: Stage = untimed  # context manager entered around each stage (timing)
    seldom: ThrottledLog = field(default_factory=ThrottledLog)  # logs failures of notes and history

    @property
    def waits(self) -> bool:
        """True if a turn may have to wait for a model that runs elsewhere."""
        return self.rewriter is not None or self.planner is not None


@dataclass(frozen=True, slots=True)
class Recalled:
    """The memories and passages to show, or why there are none. `found` and `offered`: what the search
    returned and the profile, before what the conversation shows is left out."""

    ranked: Sequence[Ranked] = ()
    profile: Sequence[Memory] = ()
    passages: Sequence[RankedPassage] = ()
    past: Sequence[Memory] = ()  # superseded values that the message asks about
    status: Status = Status.NONE
    reason: Reason | None = None
    level: Level = Level.FULL
    error: StoreError | None = None
    asks: Asks | None = None  # of the message alone; None: not read
    query: str = ""  # that triage decided on
    found: SearchResult | None = None
    offered: Sequence[Memory] = ()

    def without(self, hidden: Sequence[str]) -> "Recalled":
        """Return the same without the memories that the message asks to forget."""
        ranked = [one for one in self.ranked if one.memory.id not in hidden]
        reason = Reason.FORGOTTEN if self.ranked and not ranked else self.reason
        profile = [memory for memory in self.profile if memory.id not in hidden]
        return replace(self, ranked=ranked, profile=profile, reason=reason, past=())


@dataclass(frozen=True, slots=True)
class Selection:
    """What the stages chose for a turn, and the block made of it."""

    recalled: Recalled
    block: Block
    to_forget: tuple[str, ...] | None

    def prepared(self) -> Prepared:
        """Return what is injected, or why nothing is. Raises StoreUnavailable."""
        recalled, block, to_forget = self.recalled, self.block, self.to_forget
        if block.text:
            return Prepared(
                status=Status.INJECTED,
                reason=_injected(block.memory_ids, recalled),
                block=block.text,
                memory_ids=block.memory_ids,
                tokens=block.tokens,
                level=recalled.level,
                to_forget=to_forget,
            )
        if recalled.error is not None:
            raise recalled.error
        reason = Reason.OVER_BUDGET if recalled.ranked else recalled.reason
        return Prepared(status=recalled.status, reason=reason, level=recalled.level, to_forget=to_forget)


async def prepare(turn: Turn, tools: RecallTools) -> Prepared:
    """Return the block of session notes, relevant memories and the profile for the turn, within the token
    budgets, or why there is none. If only notes can be read, the level is SESSION.

    Raises StoreUnavailable.
    """
    return (await select(turn, tools)).prepared()


async def select(turn: Turn, tools: RecallTools) -> Selection:
    """Return what the turn is shown, and what it was chosen from."""
    if (reason := await tools.restraint.holds_back(turn, tools.sessions)) is not None:
        recalled, notes = Recalled(status=Status.SKIPPED, reason=reason), await _noted(turn, tools)
    elif turn.named or turn.left_out:
        with _begun(_noted(turn, tools)) as noting:
            recalled = await _recall(turn, tools)
            notes = await noting
    else:
        recalled, notes = await _recall(turn, tools), NO_NOTES
    if to_forget := await _to_forget(turn, tools, recalled.asks):
        # The session's last turns may say what the memories say.
        recalled, notes = recalled.without(to_forget), NO_NOTES
    with tools.stage("inject"):
        block = inject(
            recalled.ranked,
            recalled.profile,
            budget=tools.budget,
            model=turn.model,
            notes=notes,
            messages=turn.messages,
            timezone=turn.timezone or DEFAULT_TIMEZONE,
            past=recalled.past,
        )
        if recalled.passages:
            block = with_passages(block, recalled.passages, tools.shelf, tools.budget.tokens, turn.model)
    return Selection(recalled, block, to_forget)


def _injected(ids: Sequence[str], recalled: Recalled) -> Reason | None:
    """Return the reason of the status "injected": None if something was recalled for the message."""
    if not ids:
        return Reason.SESSION
    return Reason.PROFILE if {memory.id for memory in recalled.profile}.issuperset(ids) else None


async def _recall(turn: Turn, tools: RecallTools) -> Recalled:
    """Return what memory has for the turn. Store errors are returned, not raised, so that session notes can
    still be injected."""
    searcher, query = tools.searcher, query_of(turn.query)
    if not turn.tool_forced:
        searcher.begin(query)
    try:
        with _begun(searcher.snapshot(turn.scope)) as taking:
            with tools.stage("decide"):
                verdict = await triage(turn, query, searcher.judge, lambda: _before(turn, tools))
                if verdict.reason is Reason.GENERAL_FACT and await _names_known(turn, tools):
                    verdict = replace(verdict, search=True, reason=None)
            recalled = await _after_triage(turn, verdict, tools, taking)
            asks = verdict.reading.asks if verdict.reading else None
            return replace(recalled, asks=asks, query=verdict.query.text)
    except StoreError as error:
        return Recalled(level=Level.SESSION, error=error)


async def _after_triage(
    turn: Turn, verdict: Verdict, tools: RecallTools, taking: Awaitable[Snapshot | None]
) -> Recalled:
    if verdict.search:
        return await _searched(turn, verdict, tools, taking)
    passages = await look_up(turn, tools.shelf, verdict, None)
    if verdict.reason is Reason.TOOL_FORCED:
        return Recalled(passages=passages, status=Status.SKIPPED, reason=verdict.reason)
    return replace(await _skipped(turn, verdict.reason, verdict, tools, taking), passages=passages)


async def _skipped(
    turn: Turn,
    reason: Reason | None,
    verdict: Verdict,
    tools: RecallTools,
    taking: Awaitable[Snapshot | None],
) -> Recalled:
    """Return the profile alone. A message that needs no memory does not wait long for a store."""
    skipped = Recalled(status=Status.SKIPPED, reason=reason)
    try:
        async with asyncio.timeout(tools.patience_s):
            profile = await tools.searcher.profile(turn.scope, await taking, turn.options)
    except (StoreError, TimeoutError):
        return replace(skipped, level=Level.SESSION)
    memories = offered(profile, traits=verdict.may_be_life and begins(turn))
    return replace(skipped, profile=_not_visible(turn, memories), offered=memories)


async def _searched(
    turn: Turn, verdict: Verdict, tools: RecallTools, taking: Awaitable[Snapshot | None]
) -> Recalled:
    """Return what a search finds, and the profile."""
    searcher, asked = tools.searcher, turn.options
    with tools.stage("query"):
        encoded, types = await _encoded(turn, verdict, tools)
    if tools.waits:  # while a model elsewhere was asked, another process may have forgotten something
        taking = searcher.snapshot(turn.scope)
    if encoded is None:
        return await _skipped(turn, Reason.PLAN, verdict, tools, taking)
    with tools.stage("search"):
        snapshot = await taking
        profile = offered(await searcher.profile(turn.scope, snapshot, asked), traits=True)
        wanted = SearchRequest(turn.scope, types, asked.limit, asked.threshold, turn.at)

        async def find(wanted: SearchRequest) -> SearchResult:
            return await searcher.find(encoded, wanted, snapshot=snapshot, also_judge=profile)

        with _begun(look_up(turn, tools.shelf, verdict, encoded)) as looking:
            found, passages = await find(wanted), await looking
        if not found.ranked and types != asked.types:  # a plan narrowed the types to none that helps
            found = await find(replace(wanted, types=asked.types))
        if tools.searches_faded and (snapshot is None or snapshot.has_faded):
            least = FADED_HELPS if found.ranked else wanted.least_help
            faded = await find(replace(wanted, types=asked.types, faded=True, least_help=least))
            found = _with_faded(found, faded, asked.limit)
        if linked := await _linked(turn, tools, found):
            found = replace(found, ranked=[*found.ranked, *linked])
    if found.empty and not profile and not await _has_memories(turn.scope, tools):
        return Recalled(passages=passages, reason=Reason.NO_MEMORIES, level=found.level)
    ranked = [r for r in found.ranked if r.memory.id not in turn.shown]
    fresh = unseen(ranked, turn.messages, memory=lambda one: one.memory)
    ids = {r.memory.id for r in found.ranked}
    rest = _not_visible(turn, [memory for memory in profile if memory.id not in ids])
    reason = Reason.ALREADY_VISIBLE if found.ranked and not fresh else found.reason
    past = await _past(turn, tools, [one.memory.id for one in found.ranked])
    return Recalled(
        fresh, rest, passages, past, reason=reason, level=found.level, found=found, offered=profile
    )


def _with_faded(found: SearchResult, faded: SearchResult, limit: int) -> SearchResult:
    """Return what was found together with what helps for sure of the memories that lack of use had archived:
    archiving must not hide an answer. A current memory may also be shown if it helps a little."""
    also = [one for one in faded.ranked if faded.helps.get(one.memory.id, one.score) >= FADED_HELPS]
    if not also:
        return found
    ranked = sorted([*found.ranked, *also], key=lambda one: -one.score)[:limit]
    candidates, helps = [*found.candidates, *faded.candidates], {**found.helps, **faded.helps}
    helping = [*found.helping, *also]
    return SearchResult(ranked, None, found.level, False, candidates, helps, helping)


async def _encoded(
    turn: Turn, verdict: Verdict, tools: RecallTools
) -> tuple[EncodedQuery | None, tuple[str, ...] | None]:
    """Return the query as the models read it, and the types to search. No query: a model's plan cancels the
    search, and triage is not sure that memory is needed."""
    query, types = verdict.query, turn.options.types
    if not tools.waits:
        return await tools.searcher.encode(query, verdict.reading), types
    history = await _earlier(turn, tools, HISTORY_MESSAGES)
    spent_s = tools.clock() - turn.at
    rewriter, planner = tools.rewriter, tools.planner
    async with asyncio.TaskGroup() as models:
        rewriting = rewriter and models.create_task(rewriter.improve(turn, query, history, spent_s=spent_s))
        planning = planner and models.create_task(planner.plan(turn, history, spent_s=spent_s))
    rewritten = rewriting.result() if rewriting else query
    plan = planning.result() if planning else NO_PLAN
    if not plan.search and not verdict.is_sure:
        return None, types
    searcher, reading = tools.searcher, verdict.reading
    if rewritten.text != query.text:
        reading = await searcher.read(rewritten.text)
    return await searcher.encode(planned(rewritten, plan), reading), narrowed(types, plan)


async def _names_known(turn: Turn, tools: RecallTools) -> bool:
    """True if the message has a name that a memory has: "Where does Mara live?" is no
    question of general knowledge to a user whose sister is Mara."""
    named = [one.name for one in names(query_of(turn.query).text) if not one.unsure]
    if tools.entities is None or not named:
        return False
    return await tools.entities.knows(turn.scope, named, now=tools.clock())


async def _linked(turn: Turn, tools: RecallTools, found: SearchResult) -> list[Ranked]:
    """Return memories that name what the best memory names, too, and help with the message read together with
    it: "My sister is Mara" leads from a question about her to "Mara flies on Monday"."""
    judge, room = tools.searcher.judge, turn.options.limit - len(found.ranked)
    if tools.entities is None or not tools.follows_links or judge is None or not found.ranked or room <= 0:
        return []
    best, shown = found.ranked[0], {one.memory.id for one in found.ranked}
    try:
        near = await tools.entities.linked(turn.scope, [best.memory.id], now=tools.clock(), limit=LINKED)
        types = None if turn.options.types is None else with_children(turn.options.types)
        near = [m for m in near if m.id not in shown and not is_doubted(m) and (not types or m.type in types)]
        reading = await judge.read(f"{query_of(turn.query).text}\n{best.memory.content}") if near else None
        helps = await judge.helps(reading, [MemoryText(one.content) for one in near]) if reading else []
    except (StoreError, EmbeddingFailed):
        tools.seldom.warning("memory.links_unavailable")
        return []
    helping = [(help_, one) for help_, one in zip(helps, near, strict=True) if help_ >= HELPS]
    helping.sort(key=lambda pair: -pair[0])
    return [Ranked(one, best.score * help_, f"link {help_:.2f}") for help_, one in helping[:room]]


async def _past(turn: Turn, tools: RecallTools, ids: Sequence[str]) -> list[Memory]:
    """Return what the memories superseded and was true in the past time that the message names, if any."""
    if tools.timeline is None or not ids:
        return []
    zone = turn.timezone or DEFAULT_TIMEZONE
    at = turn.at if turn.said_at is None else turn.said_at
    # Read before the store is asked: few messages name a past time.
    if (period := past_period(turn.query[:QUESTION_CHARS], local_time(at, zone))) is None:
        return []
    try:
        earlier = await tools.timeline.earlier(turn.scope, ids)
    except StoreError:
        tools.seldom.warning("memory.past_unavailable")
        return []
    start, end = (day_start(day.year, day.month, day.day, zone) for day in period)
    found = {m.id: m for id_ in ids for m in earlier.get(id_, ())}
    return _not_visible(turn, [m for m in found.values() if m.valid_from < end and m.held_until > start])


async def look_up(
    turn: Turn, shelf: Shelf, verdict: Verdict, encoded: EncodedQuery | None
) -> Sequence[RankedPassage]:
    """Return the passages of documents to show with the turn; none for a user without documents, and if
    anything fails: memories must not wait for an index that is being loaded."""
    if turn.options.types is not None or verdict.reason in _NOT_IN_DOCUMENTS:
        return ()
    try:
        async with asyncio.timeout(shelf.deadline_s):
            if await shelf.index.holds(turn.scope):
                return await passages_for(turn, shelf, verdict, encoded)
    except (StoreError, TimeoutError) as error:
        shelf.seldom.warning("documents.left_out", error=type(error).__name__)
    return ()


def _not_visible(turn: Turn, memories: Sequence[Memory]) -> list[Memory]:
    """Return the memories that the conversation does not show yet."""
    return unseen([m for m in memories if m.id not in turn.shown], turn.messages, memory=lambda one: one)


# ---------------------------------------------------------------- the conversation
async def _noted(turn: Turn, tools: RecallTools) -> SessionNotes:
    """Return the notes of the turn's session.

    A session that the client did not name is a guess, since another conversation may begin with the same
    words. It returns only the anchors of messages that this request held and that the session's state
    replaced.
    """
    if not turn.named and not turn.left_out:
        return NO_NOTES
    try:
        with tools.stage("notes"):
            lines = LINES if turn.standalone else 0
            notes = await tools.notes.notes(turn.scope, turn.session_id, lines=lines)
    except StoreError:
        tools.seldom.warning("memory.notes_unavailable")
        return NO_NOTES
    if turn.named:
        return notes
    said = [m.words for m in turn.left_out if m.role == "user"]
    anchors = (a for a in notes.anchors if any(a.text.removesuffix("…") in words for words in said))
    return SessionNotes(anchors=tuple(anchors))


async def _before(turn: Turn, tools: RecallTools) -> str:
    """Return the user's message before this one, "" if there is none."""
    earlier = await _earlier(turn, tools, 1)
    return earlier[-1] if earlier else ""


async def _earlier(turn: Turn, tools: RecallTools, most: int) -> Sequence[str]:
    """Return the user's messages before this one, oldest first: the request's, else the session's."""
    said = [m.words for m in turn.messages if m.role == "user" and m.words.strip()][:-1]
    if said:
        return said[-most:]
    try:
        recent = await tools.sessions.recent(turn.scope, turn.session_id, most)
    except StoreError:  # a query without its topic is better than none
        tools.seldom.warning("memory.history_unavailable")
        return ()
    return [exchange.said for exchange in recent if exchange.said]


async def _has_memories(scope: Scope, tools: RecallTools) -> bool:
    where = MemoryFilter(tenant=scope.tenant, user=scope.user, now=tools.clock())
    return bool((await tools.searcher.memories.list(where, limit=1, total=False)).items)


@contextmanager
def _begun(read: Awaitable[T]) -> Iterator["asyncio.Future[T]"]:
    """Start to read, and cancel it at the end of the block if it was not awaited."""
    future = asyncio.ensure_future(read)
    try:
        yield future
    finally:
        future.cancel()  # also one that failed: asyncio then does not warn that its exception was never read


# ---------------------------------------------------------------- forgetting on request
async def _to_forget(turn: Turn, tools: RecallTools, asks: Asks | None) -> tuple[str, ...] | None:
    """Return the memories that the message asks to forget, None if it was not read. A turn that may store
    nothing changes nothing."""
    if not (tools.forgets and turn.options.write):
        return ()
    if asks is None:
        return None
    return await memories_to_forget(turn, tools.searcher) if asks.forget >= FORGET_ASKED else ()


async def memories_to_forget(turn: Turn, searcher: Searcher) -> tuple[str, ...]:
    """Return the ids of the memories that the turn's last message asks to forget, the surest first; none
    without a judge. They are hidden from the answer and then erased.

    A wrong judgement must not cost much: a memory has to reach a high score, and only a few are returned.

    Raises StoreUnavailable."""
    query, judge = query_of(turn.query), searcher.judge
    if judge is None or not query.text or not turn.said.strip():  # a step of a tool loop asks nothing new
        return ()
    reading = await searcher.read(query.text)
    if reading is None or reading.asks.forget < FORGET_ASKED:
        return ()
    snapshot = await searcher.snapshot(turn.scope)
    encoded = await searcher.encode(query, reading)
    wanted = SearchRequest(turn.scope, None, FORGET_CANDIDATES, None, turn.at)
    near = await searcher.candidates(encoded, wanted, snapshot)
    found = {c.hit.memory.id: c.hit.memory.content for c in near[:FORGET_CANDIDATES]}
    profile = await searcher.profile(turn.scope, snapshot, replace(turn.options, types=None))
    found |= {memory.id: memory.content for memory, _ in profile[:FORGET_CANDIDATES]}
    try:
        covered = await judge.covers(query.text, [*found.values()])
    except EmbeddingFailed:
        return ()
    sure = [(share, id_) for id_, share in zip(found, covered, strict=True) if share >= FORGET_COVERED]
    return tuple(id_ for _, id_ in sorted(sure, reverse=True)[:FORGET_AT_MOST])


async def forget_memories(turn: Turn, ids: Sequence[str], searcher: Searcher) -> tuple[str, ...]:
    """Erase the memories of the turn's user as DELETE /v1/memory/{id} does, each with a receipt, durable on
    return; return the ids of those that existed.

    Raises StoreUnavailable."""
    erased = []
    for id_ in ids:
        where = MemoryFilter(tenant=turn.scope.tenant, user=turn.scope.user, now=searcher.clock())
        if (await searcher.memories.forget(where, id_, by=FORGOTTEN_BY)).memories:
            erased.append(id_)
    if erased:
        log.info("memory.forgotten", by=FORGOTTEN_BY, count=len(erased))
    return tuple(erased)
