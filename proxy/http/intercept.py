"""The two intercepted routes: a request with memory, from its first byte to its last.

    parse the request → recall ‖ commit the user's words → forward → answer → commit the answer

Memory may fail at every step and the request still goes through: all its work runs in FailOpen, within one
deadline that starts with the request. The user's words are on disk before the client sees a byte of the
answer (then `X-Memory-Store: queued`), so that what was acknowledged survives a kill. A Forwarding decides
how a request is sent and answered: relayed (forwarding.py) or translated (responses/).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from proxy import telemetry
from proxy.domain.core import Level, Prepared, Reason, Scope, Stamp, Status, Turn
from proxy.domain.errors import ClientError, StoreError, UpstreamError
from proxy.domain.limits import TTLCache, TurnPriority
from proxy.domain.ports import MemoryStore
from proxy.domain.session import NoteStore, Outcome
from proxy.http.asgi import ASGIScope, Header, Receive, Send, send_error
from proxy.http.forwarding import Draft, Forwarding, Recalled, Shortened, ask, first_draft
from proxy.http.memory_work import (
    Erasure,
    ExchangeCommit,
    Failed,
    FailOpen,
    Forget,
    PendingCommits,
    RecallLimiter,
    RecentResponses,
)
from proxy.http.turns import (
    OFF_LOOP,
    Client,
    CompressionRules,
    ParsedRequest,
    RequestParser,
    Zones,
    answers_so_far,
    exchange_key,
    opening,
    replaceable_turns,
    state_block,
)
from proxy.learn.recorder import ExchangeRecorder
from proxy.upstream.connection import UpstreamResponse
from proxy.upstream.forms import Learning
from proxy.upstream.relay import CLIENT_CONNECTION, Downstream, Ending
from proxy.wire.dialect import Answer
from proxy.wire.history import remaining, turns_of, without

FORGET_S = 1.0  # an answer begins after so long, even if the memories to forget are not erased yet


# ---------------------------------------------------------------- recall
@dataclass(frozen=True, slots=True)
class Recaller:
    """Adds to a request what memory knows, within its deadline. Never raises."""

    recall: Callable[[Turn], Awaitable[Prepared]]
    loops: "ToolLoops"
    priority: TurnPriority
    fail_open: FailOpen
    notes: NoteStore
    zones: Zones
    learning: Learning
    rules: CompressionRules
    limiter: RecallLimiter | None  # None: a turn waits for no other
    pending: PendingCommits = field(default_factory=PendingCommits)

    async def __call__(
        self, request: ParsedRequest, commit: ExchangeCommit | None, forwarding: Forwarding
    ) -> Recalled:
        """Return the request with what is to be injected."""
        turn, attempt = request.turn, self.fail_open.attempt
        if turn is None:
            return Recalled(request, Prepared(status=Status.OFF, reason=request.reason))
        if not turn.options.read:
            off = Prepared(status=Status.OFF, reason=Reason.READ_OFF, to_forget=None)
            return Recalled(request, off, commit)
        await self.pending.wait(turn, request.left_s)
        zone = await attempt("timezone", lambda: self.zones.of(turn.scope, turn.timezone), request.left_s)
        zone = turn.timezone or self.zones.default if isinstance(zone, Failed) else zone
        seen, shortened = replace(turn, timezone=zone), None
        if turn.options.compress:
            found = await attempt(
                "compress", lambda: self._shortened(seen, request, forwarding), request.left_s
            )
            if found is not None and not isinstance(found, Failed):
                seen, shortened = found
        prepared = await attempt("recall", lambda: self._prepared(seen), request.left_s, self.limiter)
        if isinstance(prepared, Failed):
            prepared = Prepared(
                status=Status.DEGRADED, reason=prepared.reason, level=Level.NONE, to_forget=None
            )
        return Recalled(request, prepared, commit, shortened)

    async def _prepared(self, turn: Turn) -> Prepared:
        with self.priority.turn():
            return await self.loops.prepared(turn, lambda: self.recall(turn))

    async def _shortened(
        self, turn: Turn, request: ParsedRequest, forwarding: Forwarding
    ) -> tuple[Turn, Shortened] | None:
        """Replace old turns by the session's state; return the turn as the model is shown it."""
        found = await self.notes.standing(turn.scope, turn.session_id)
        if found is None:
            return None
        form = self.learning.first(self.learning.model(request.model, forwarding.route)).form
        body, history = forwarding.conversation(form)
        turns = turns_of(body, history, turn.messages)
        state = state_block(found.state)
        positions = replaceable_turns(turns, turn.messages, turn.session_id, state, found.covered, self.rules)
        old = [turns[position] for position in positions]
        if without(body, history, old, state, form.placement) is body:
            return None
        messages = remaining(turn.messages, old)
        dropped = tuple(m for t in old for m in turn.messages[t.start : t.end])
        shortened = Shortened(old, state, len(turn.messages) - len(messages))
        return replace(turn, messages=messages, left_out=dropped), shortened


# ---------------------------------------------------------------- tool loops
# A tool loop is injected the same block at each step: a provider reuses its cached prompt only up to the
# first byte that differs. The block stays until the user speaks again; a forget ends it at once.
LOOP_TTL_S = 3600.0  # after the last step
LOOP_CACHE_SIZE = 512


class ToolLoops:
    """Blocks prepared in this process for questions whose answer may take several requests."""

    def __init__(self, memories: MemoryStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._memories = memories
        self._prepared = TTLCache[bytes, Prepared](LOOP_CACHE_SIZE, ttl_s=LOOP_TTL_S, clock=clock)
        self._generations = TTLCache[bytes, int](LOOP_CACHE_SIZE, ttl_s=LOOP_TTL_S, clock=clock)  # by user

    async def prepared(self, turn: Turn, prepare: Callable[[], Awaitable[Prepared]]) -> Prepared:
        """Return the block prepared when the question was asked, if the turn continues its answer and
        nothing was forgotten since; else the result of `prepare`."""
        begins = opening(turn.messages) if turn.may_loop else ()
        stamp = await self._stamp(turn) if begins else None
        if stamp is None:
            return await prepare()
        owner = _hash(turn.scope.tenant, turn.scope.user)
        self._see(owner, stamp.generation)
        key = owner + _loop_key(turn, exchange_key(turn.session_id, begins))
        continues = len(turn.messages) > len(begins)
        prepared = (self._prepared.get(key) if continues else None) or await prepare()
        if self._generations.get(owner) == stamp.generation:
            self._prepared.put(key, prepared)
        return prepared

    async def _stamp(self, turn: Turn) -> Stamp | None:
        try:
            return await self._memories.stamp(turn.scope)
        except StoreError:
            return None

    def _see(self, owner: bytes, generation: int) -> None:
        """Delete the user's blocks if the user forgot something since."""
        if self._generations.get(owner) != generation:
            for key in self._prepared:
                if key.startswith(owner):
                    self._prepared.pop(key)
        self._generations.put(owner, generation)


def _loop_key(turn: Turn, conversation: str) -> bytes:
    asked = turn.options
    return _hash(
        turn.scope.project, asked.types, asked.limit, asked.threshold, turn.tool_forced, conversation
    )


def _hash(*parts: object) -> bytes:
    return blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


# ---------------------------------------------------------------- the exchange
@dataclass(frozen=True, slots=True)
class WritePath:
    """Where exchanges are stored, and what else a request with memory leaves behind."""

    recorder: ExchangeRecorder
    touched: Callable[[Scope, Sequence[str]], None]  # records accesses for exchanges that are not stored
    forget: Forget
    remember_credential: Callable[[Scope, list[Header]], None]


@dataclass(slots=True)
class Stages:
    """The values that a request has passed so far: a client that leaves ends it between any two."""

    request: ParsedRequest | None = None
    commit: ExchangeCommit | None = None
    status: int | None = None  # of the upstream's answer
    refused: bool = False  # by the upstream, or because there was no answer
    ending: Ending = Ending.CLIENT_LEFT


@dataclass(frozen=True, slots=True)
class Intercept:
    """An ASGI app for one intercepted route."""

    parser: RequestParser
    recaller: Recaller
    write_path: WritePath
    recent: RecentResponses
    metrics: telemetry.Metrics
    forwarding: Callable[[], Forwarding]

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        with ExitStack() as pending:
            await self._serve(scope, receive, send, pending)

    async def _serve(self, scope: ASGIScope, receive: Receive, send: Send, pending: ExitStack) -> None:
        forwarding, stages = self.forwarding(), Stages()
        async with asyncio.TaskGroup() as tasks:
            erasure = Erasure(self.write_path.forget, self.recaller.fail_open, tasks)
            # A client that leaves ends the inner block at any point. What it said still counts.
            async with Downstream(receive, scope.get(CLIENT_CONNECTION)) as downstream:
                try:
                    client = Client(scope, send, downstream, tasks)
                    await self._exchange(client, forwarding, erasure, stages)
                    if stages.request is not None and stages.request.turn is not None:
                        pending.enter_context(self.recaller.pending.answered(stages.request.turn))
                except (ClientError, StoreError, UpstreamError) as error:
                    stages.refused = True
                    if not forwarding.answered:
                        await send_error(send, error, _memory_headers(error, forwarding.draft))
            answer = await forwarding.conclude(refused=stages.refused)
            await self._store(stages, forwarding, answer, erasure)

    async def _exchange(
        self, client: Client, forwarding: Forwarding, erasure: Erasure, stages: Stages
    ) -> None:
        """Ask the upstream with memory, and give the client its answer. Raises ClientError, StoreError,
        UpstreamError."""
        learning = self.recaller.learning
        stages.request = request = await forwarding.adopt(await self.parser.parse(client))
        stages.commit = commit = self._commit(request)
        recalled = await self.recaller(request, commit, forwarding)
        size = len(request.payload)
        draft = await OFF_LOOP.run(size, first_draft, recalled, forwarding, learning)
        with telemetry.span(f"chat {request.model}".rstrip(), "client") as span:
            span.set(
                gen_ai__operation__name="chat",
                gen_ai__request__model=request.model or None,
                gen_ai__output__type="text",
            )
            await forwarding.acknowledge(draft)
            draft, opened = await ask(draft, forwarding, learning, self.metrics)
            span.set(http__response__status_code=opened.status)
            stages.status, stages.refused = opened.status, opened.status >= 400
            stages.ending = await self._answer(draft, opened, forwarding, erasure)

    def _commit(self, request: ParsedRequest) -> ExchangeCommit | None:
        """Begin to commit what the user said, if it is to be stored."""
        turn = request.turn
        if turn is None or not turn.options.write or not (turn.said.strip() or turn.resumes):
            return None
        tasks = request.client.tasks
        return ExchangeCommit(turn, self.write_path.recorder, self.recaller.fail_open, tasks)

    async def _answer(
        self, draft: Draft, opened: UpstreamResponse, forwarding: Forwarding, erasure: Erasure
    ) -> Ending:
        """Give the client the upstream's answer, once the headers can say what memory did."""
        refused, request, to_forget = opened.status >= 400, draft.request, draft.prepared.to_forget
        if not refused:
            erasure.begin(request.turn, draft.prepared)
        with opened:
            # If no memory is known to be named, mostly there is none.
            forgotten = await erasure.wait(FORGET_S if to_forget else request.left_s)
            queued = not refused and await draft.committed()
            headers = draft.memory_headers(queued=queued, answered=True, forgotten=forgotten)
            return await forwarding.answer(draft, opened, request.client.send, headers)

    # ------------------------------------------------------------ after the answer
    async def _store(self, stages: Stages, forwarding: Forwarding, answer: Answer, erasure: Erasure) -> None:
        """Commit how the exchange ended."""
        request, draft, commit = stages.request, forwarding.draft, stages.commit
        if request is None or request.turn is None:
            return
        turn, memory_ids = request.turn, draft.prepared.memory_ids if draft is not None else ()
        if draft is not None:
            if not stages.refused:  # of a client that left before the upstream's answer
                erasure.begin(turn, draft.prepared)
            self._count(draft, answer)
            if answer.response_id is not None:
                # Instructions are not handed on along a chain; input items are.
                in_instructions = draft.attempt.form.placement == "merge_system"
                self.recent.note(turn, answer.response_id, () if in_instructions else memory_ids)
        if commit is not None and stages.refused and not forwarding.promised:
            await commit.abandon()
            return
        if commit is not None:
            # The credential first: the commit may start an extraction that needs it.
            if stages.status not in (401, 403):
                self.write_path.remember_credential(turn.scope, request.client.headers)
            if await commit.finish(_outcome(turn, memory_ids, stages.ending, answer)):
                return
        if memory_ids:
            self.write_path.touched(turn.scope, memory_ids)

    def _count(self, draft: Draft, answer: Answer) -> None:
        prepared, memory_s = draft.prepared, draft.forwarded_at - draft.request.started
        metrics, (read, written) = self.metrics, answer.usage or (None, None)
        metrics.memory_seconds.observe(memory_s)
        metrics.recalls.labels(prepared.status.value).inc()
        metrics.injected.inc(len(prepared.memory_ids))
        metrics.injected_tokens.inc(prepared.tokens)
        metrics.model_tokens.labels("read").inc(read or 0)
        metrics.model_tokens.labels("written").inc(written or 0)
        reason = prepared.reason.value if prepared.reason else None
        telemetry.current_span().set(
            memory__status=prepared.status.value,
            memory__reason=reason,
            memory__count=len(prepared.memory_ids),
            memory__tokens=prepared.tokens,
            gen_ai__usage__input_tokens=read,
            gen_ai__usage__output_tokens=written,
        )
        telemetry.log.debug(
            "memory.recalled",
            status=prepared.status.value,
            reason=reason or "",
            count=len(prepared.memory_ids),
            tokens=prepared.tokens,
            ms=round(memory_s * 1000, 2),
        )


def _memory_headers(error: Exception, draft: Draft | None) -> list[Header]:
    """Return the headers of an error of the upstream: the request had its memory."""
    if draft is None or not isinstance(error, UpstreamError):
        return []
    return draft.memory_headers(queued=False, answered=False)


def _outcome(turn: Turn, memory_ids: tuple[str, ...], ending: Ending, answer: Answer) -> Outcome:
    """Return the part of the answer that arrived; nothing if the client left before."""
    whole = answer.whole and not answer.calls and ending is Ending.COMPLETE
    before = answers_so_far(turn.messages) if turn.resumes else []
    text = "\n".join(text for text in (*before, answer.text) if text)
    # A call that the client demanded is an answer in a form of its own: mostly nothing comes after it.
    calls = answer.calls and answer.whole and not turn.tool_forced
    return Outcome(text, whole, answer.response_id, memory_ids, calls)
