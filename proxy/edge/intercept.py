"""The two intercepted routes: a request with memory, from its first byte to its last.

    read the body → understand it → recall ‖ commit the user's words → forward → relay → commit the answer

Memory may fail at every step and the request still goes through: all its work runs in FailOpen, within
one deadline that starts with the request. The user's words are on disk before the client sees a byte of
the answer (then `X-Memory-Store: queued`), so that what was acknowledged survives a kill.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from uuid import uuid4

from proxy import observe
from proxy.domain import Level, Outcome, Prepared, Status, Turn
from proxy.edge.chains import RecentChains
from proxy.edge.failopen import Failed, FailOpen
from proxy.edge.headers import memory_headers
from proxy.edge.identity import Caller
from proxy.edge.reply import ASGIScope, Header, Receive, Send, send_error
from proxy.edge.turns import Defaults, is_readable, understand
from proxy.edge.writing import COMMIT_S, Writing, read_answer
from proxy.errors import ClientError, UpstreamError
from proxy.ports import Clock, MemoryStore, Recorder, SessionStore
from proxy.upstream.client import Upstream
from proxy.upstream.downstream import Downstream
from proxy.upstream.headers import request_headers
from proxy.upstream.opened import Opened
from proxy.upstream.relay import Ending, Tap, raw_target, relay
from proxy.wire import body as json_body
from proxy.wire.body import Body
from proxy.wire.dialect import Dialect


@dataclass(frozen=True, slots=True)
class Interception:
    """What both intercepted routes need."""

    upstream: Upstream
    recall: Callable[[Turn], Awaitable[Prepared]]
    recorder: Recorder
    sessions: SessionStore
    chains: RecentChains
    memories: MemoryStore
    keep_credential: Callable[[Turn, list[Header]], Awaitable[None]]
    identify: Callable[[list[Header]], Caller]
    fail_open: FailOpen
    defaults: Defaults
    deadline_s: float
    placement: str
    max_body_bytes: int
    clock: Clock
    metrics: observe.Metrics


@dataclass(slots=True)
class Progress:
    """One request under way: what is known of it so far. Times are perf_counter seconds."""

    scope: ASGIScope
    started: float
    reason: str = "not_json"  # why there is no turn
    turn: Turn | None = None
    body: Body = field(default_factory=dict)
    payload: bytes = b""
    prepared: Prepared = field(default_factory=lambda: Prepared(status=Status.OFF))
    forwarded: float = 0.0
    writing: Writing | None = None
    refused: bool = False  # by the upstream, or because there was none
    opened: Opened | None = None
    tap: Tap = field(default_factory=Tap)
    ending: Ending = Ending.CLIENT_LEFT

    @property
    def headers(self) -> list[Header]:
        headers: list[Header] = self.scope["headers"]
        return headers


@dataclass(frozen=True, slots=True)
class Intercept:
    """An ASGI app for one intercepted route, in its dialect."""

    parts: Interception
    dialect: Dialect

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        progress = Progress(scope, perf_counter())
        async with asyncio.TaskGroup() as tasks:
            # A client that leaves ends the inner block where it stands. What it said still counts.
            async with Downstream(receive) as downstream:
                try:
                    await self._understand(progress, downstream)
                    await self._recall(progress, tasks)
                    await self._forward(progress, downstream, send)
                except ClientError as error:
                    await send_error(send, error)
                except UpstreamError as error:
                    progress.refused = True
                    await send_error(send, error, self._headers(progress, queued=False, answered=False))
            await self._write_down(progress)

    # ------------------------------------------------------------ understand
    async def _understand(self, progress: Progress, downstream: Downstream) -> None:
        """Read the body and what it asks of memory. Raises ClientError for what is ours to refuse."""
        progress.payload = await downstream.read(self.parts.max_body_bytes)
        if not is_readable(progress.headers):
            return
        progress.body = json_body.parse(progress.payload)
        asked = understand(
            progress.body,
            progress.headers,
            self.parts.identify(progress.headers),
            self.dialect,
            self.parts.defaults,
            request_id=f"req_{uuid4().hex}",
            at=self.parts.clock(),
        )
        if asked.stripped:
            progress.payload = json_body.dump(progress.body)
        progress.reason = asked.reason
        progress.turn = asked.turn if asked.named_session else await self._chained(asked.turn, progress)

    async def _chained(self, turn: Turn | None, progress: Progress) -> Turn | None:
        """Return the turn; one that continues a stored response belongs to that response's session."""
        response_id = self.dialect.previous_response_id(progress.body)
        if turn is None or response_id is None:
            return turn
        found = self.parts.chains.session_of(turn, response_id) or await self.parts.fail_open.attempt(
            "session",
            lambda: self.parts.sessions.session_of(turn.scope, response_id),
            self._left(progress),
        )
        return turn if found is None or isinstance(found, Failed) else replace(turn, session_id=found)

    # ------------------------------------------------------------ remember
    async def _recall(self, progress: Progress, tasks: asyncio.TaskGroup) -> None:
        """Inject what memory knows, while the user's words are being committed."""
        turn, parts = progress.turn, self.parts
        if turn is not None and turn.options.write and turn.said.strip():
            progress.writing = Writing(turn, parts.recorder, parts.fail_open, tasks)
        if turn is None:
            progress.prepared = Prepared(status=Status.OFF, reason=progress.reason)
        elif not turn.options.read:
            progress.prepared = Prepared(status=Status.OFF, reason="read_off")
        else:
            recalled = await parts.fail_open.attempt(
                "recall", lambda: parts.recall(turn), self._left(progress)
            )
            if isinstance(recalled, Failed):
                recalled = Prepared(status=Status.DEGRADED, reason=recalled.reason, level=Level.NONE)
            progress.prepared = recalled
        if block := progress.prepared.block:
            progress.payload = json_body.dump(self.dialect.insert(progress.body, block, parts.placement))

    # ------------------------------------------------------------ forward
    async def _forward(self, progress: Progress, downstream: Downstream, send: Send) -> None:
        """Ask the upstream and relay its answer. Raises UpstreamError if there is none."""
        progress.forwarded = perf_counter()
        opened = await self.parts.upstream.open(
            "POST",
            raw_target(progress.scope),
            request_headers(progress.headers, identity=True),
            progress.payload,
        )
        progress.opened = opened
        progress.refused = opened.status >= 400
        with opened:
            writing = None if progress.refused else progress.writing
            queued = writing is not None and await writing.committed(self._left(progress))
            progress.ending = await relay(
                opened,
                downstream,
                send,
                extra_headers=self._headers(progress, queued=queued, answered=True),
                tap=progress.tap if writing else None,
            )

    def _headers(self, progress: Progress, *, queued: bool, answered: bool) -> list[Header]:
        return memory_headers(
            progress.prepared,
            session_id=progress.turn.session_id if progress.turn else None,
            queued=queued,
            memory_ms=(progress.forwarded - progress.started) * 1000,
            upstream_ms=(perf_counter() - progress.forwarded) * 1000 if answered else None,
        )

    def _left(self, progress: Progress) -> float:
        """Return the seconds left of the deadline for memory work."""
        return self.parts.deadline_s - (perf_counter() - progress.started)

    # ------------------------------------------------------------ write down
    async def _write_down(self, progress: Progress) -> None:
        """Commit what became of the exchange, after the client has its answer."""
        turn, writing, parts = progress.turn, progress.writing, self.parts
        if turn is None:
            return
        self._count(turn, progress)
        if writing is not None and progress.refused:
            await writing.abandon()
        elif writing is not None:
            outcome = await self._outcome(turn, progress)
            # The credential first: the commit may start an extraction that needs it.
            await self._attempt("credential", lambda: parts.keep_credential(turn, progress.headers))
            await writing.finish(outcome)
        if ids := progress.prepared.memory_ids:
            await self._attempt("touch", lambda: parts.memories.touch(turn.scope, ids, parts.clock()))

    async def _outcome(self, turn: Turn, progress: Progress) -> Outcome:
        """Return the answer as far as it came; nothing where the client left before there was one."""
        recalled = progress.prepared.memory_ids
        if progress.opened is None:
            return Outcome("", whole=False, recalled=recalled)
        answer = await read_answer(progress.opened.headers, progress.tap.chunks, self.dialect)
        if answer.response_id is not None:
            self.parts.chains.note(turn, answer.response_id)
        whole = answer.whole and progress.ending is Ending.COMPLETE
        return Outcome(answer.text, whole, answer.response_id, recalled)

    async def _attempt(self, operation: str, work: Callable[[], Awaitable[None]]) -> None:
        await self.parts.fail_open.attempt(operation, work, COMMIT_S)

    def _count(self, turn: Turn, progress: Progress) -> None:
        prepared, memory_s = progress.prepared, progress.forwarded - progress.started
        metrics = self.parts.metrics
        metrics.memory_seconds.observe(memory_s)
        metrics.recalls.labels(prepared.status.value).inc()
        metrics.injected.inc(len(prepared.memory_ids))
        metrics.injected_tokens.inc(prepared.tokens)
        observe.log.debug(
            "memory.recalled",
            request_id=turn.request_id,
            status=prepared.status.value,
            reason=prepared.reason,
            count=len(prepared.memory_ids),
            tokens=prepared.tokens,
            ms=round(memory_s * 1000, 2),
        )
