"""How one request is sent to the upstream and answered: unchanged (here) or translated (http/responses).

`Intercept` tells the story; where the two differ, it asks a `Forwarding`. What both know of the request is in
`Progress`.

A request that is forwarded as the client sent it is sent once. One that was changed and is refused for a
reason that may be its form is sent again in another form, in few steps and at last without memory; the order
is in upstream/forms.py. All of that happens before the client has a byte of the answer, and the header
`X-Memory-Retried` names each step.
"""

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Protocol
from urllib.parse import quote

from proxy.domain.core import Prepared, Reason, Status, Turn
from proxy.domain.ports import SessionStore
from proxy.http.asgi import OFF_LOOP, ASGIScope, Header, Send
from proxy.http.auth.identity import Caller
from proxy.http.exchange import RecentChains, Writing, read_answer
from proxy.http.failopen import Failed, FailOpen
from proxy.telemetry import Metrics, log
from proxy.upstream.client import Upstream
from proxy.upstream.connection import UpstreamResponse
from proxy.upstream.forms import (
    FIRST,
    MAX_ATTEMPTS,
    READ_BYTES,
    UNKNOWN,
    Attempt,
    Forms,
    Learning,
    ModelRoute,
    Refusal,
    RequestTraits,
    error_at_start,
    may_be_form,
    next_attempt,
    refusal_of,
)
from proxy.upstream.headers import request_headers
from proxy.upstream.relay import Downstream, Ending, Tap, raw_target, relay
from proxy.wire import body as json_body
from proxy.wire.body import Body
from proxy.wire.dialect import CHAT, Answer, Dialect
from proxy.wire.history import CHAT_HISTORY, RESPONSES_HISTORY, HistoryFormat, HistoryTurn, without

# What the user said is worth this wait even where recall has used up the deadline.
COMMIT_FLOOR_S = 0.05
# An answer begins after so long though the memories that its message asks to forget are not erased yet.
FORGET_S = 1.0


@dataclass(slots=True, kw_only=True)
class Progress:
    """One request under way: what is known of it so far. Times are perf_counter seconds."""

    scope: ASGIScope
    send: Send
    downstream: Downstream
    tasks: asyncio.TaskGroup  # all of its work ends with the request
    deadline_s: float  # for memory work, from `started`
    started: float = field(default_factory=perf_counter)
    caller: Caller | None = None
    user: str | None = None  # whom the request names
    reason: Reason | None = Reason.NOT_JSON  # why there is no turn
    turn: Turn | None = None
    is_json: bool = False
    body: Body = field(default_factory=dict)
    payload: bytes = b""
    plain: bytes = b""  # the payload as the client wrote it, without fields of ours
    gone: Sequence[HistoryTurn] = ()  # turns that the session's state replaces
    state: str = ""  # that state
    left_out: int = 0  # how many messages those turns are
    prepared: Prepared = field(default_factory=lambda: Prepared(status=Status.OFF))
    learning: Learning = field(default_factory=lambda: Learning(Forms(time.time)))
    model: ModelRoute = UNKNOWN
    attempt: Attempt = FIRST  # how the payload is written
    retried: list[str] = field(default_factory=list)  # what was changed for each further attempt
    forwarded: float = 0.0
    writing: Writing | None = None
    forgetting: "asyncio.Task[tuple[str, ...] | Failed] | None" = None  # what the message asks to forget
    refused: bool = False  # by the upstream, or because there was none
    promised: bool = False  # before the upstream was asked, the client was told that its words are kept
    opened: UpstreamResponse | None = None
    tap: Tap = field(default_factory=Tap)
    ending: Ending = Ending.CLIENT_LEFT

    @property
    def headers(self) -> list[Header]:
        headers: list[Header] = self.scope["headers"]
        return headers

    @property
    def left_s(self) -> float:
        """Seconds left of the deadline for memory work."""
        return self.deadline_s - (perf_counter() - self.started)

    def start(self, forwarding: "Forwarding", dialect: Dialect) -> None:
        """Choose the form in which the upstream is asked first."""
        self.plain = self.payload
        self.model = self.learning.model(dialect.model(self.body), forwarding.route)
        self.attempt = self.learning.first(self.model)

    def place(self, forwarding: "Forwarding") -> None:
        """Have the payload written with what was prepared; where that has no place, none is injected."""
        level, to_forget = self.prepared.level, self.prepared.to_forget
        if not self.attempt.memory and (self.prepared.block or self.gone):
            self.prepared = Prepared(
                status=Status.NONE, reason=Reason.REFUSED, level=level, to_forget=to_forget
            )
            self.left_out = 0
        if not self.compose(forwarding):
            self.prepared = Prepared(
                status=Status.NONE, reason=Reason.NO_PLACE, level=level, to_forget=to_forget
            )

    def compose(self, forwarding: "Forwarding") -> bool:
        """Write the payload as `attempt` has it. False if a block has no place: then it is not in it."""
        body, history = forwarding.conversation(self)
        placement, block = self.attempt.form.placement, self.prepared.block
        if not self.attempt.memory:
            forwarding.write(self, body)
            return True
        shorter = without(body, history, self.gone, self.state, placement) if self.gone else body
        placed = history.dialect.insert(shorter, block, placement) if block else shorter
        forwarding.write(self, placed)
        return placed is not shorter or not block

    @property
    def unauthorised(self) -> bool:
        """True if the upstream did not take the request's credential."""
        return self.opened is not None and self.opened.status in (401, 403)

    async def committed(self) -> bool:
        """True if the user's words are on disk, and stay there; waits for that within the deadline."""
        if self.writing is None or self.refused:
            return False
        return await self.writing.committed(max(self.left_s, COMMIT_FLOOR_S))

    async def forgotten(self) -> None:
        """Wait until what the message asks to forget is erased, so that the headers can say so."""
        if self.forgetting is not None:
            # Where nothing is known to be named, mostly nothing is.
            patience_s = FORGET_S if self.prepared.to_forget else max(0.0, self.left_s)
            await asyncio.wait({self.forgetting}, timeout=patience_s)

    @property
    def forgotten_ids(self) -> tuple[str, ...]:
        """The memories that are erased because the message asks for it."""
        if self.forgetting is None or not self.forgetting.done():
            return ()
        ids = self.forgetting.result()
        return () if isinstance(ids, Failed) else ids

    def memory_headers(self, *, queued: bool, answered: bool) -> list[Header]:
        """Return the headers that say what memory did. `queued`: the user's words are committed; `answered`:
        the upstream's status is there."""
        return memory_headers(
            self.prepared,
            session_id=self.turn.session_id if self.turn else None,
            queued=queued,
            memory_ms=(self.forwarded - self.started) * 1000,
            upstream_ms=(perf_counter() - self.forwarded) * 1000 if answered else None,
            left_out=self.left_out,
            retried=self.retried,
            forgotten=self.forgotten_ids,
        )


class Forwarding(Protocol):
    """Made anew for each request; the methods are called in this order, `conclude` in any case."""

    async def adopt(self, progress: Progress) -> None:
        """Find the turn's session, and all else that must be known before memory is asked. Raises
        ClientError for what is refused, StoreError where it cannot be known."""
        ...

    def conversation(self, progress: Progress) -> tuple[Body, HistoryFormat]:
        """Return the body that holds the turn's messages, and how it writes them."""
        ...

    @property
    def route(self) -> str:
        """The upstream's route that is asked: "chat" or "responses"."""
        ...

    def changeable(self, progress: Progress) -> RequestTraits:
        """Return what of the request may be changed where the upstream refuses it."""
        ...

    def write(self, progress: Progress, body: Body) -> None:
        """Make this body, the conversation's or a changed one, the payload, in the form of `attempt`."""
        ...

    async def acknowledge(self, progress: Progress) -> None:
        """Answer the client already now, if it does not wait for the upstream."""
        ...

    async def open(self, progress: Progress) -> UpstreamResponse:
        """Ask the upstream. Raises UpstreamError."""
        ...

    async def answer(self, progress: Progress, opened: UpstreamResponse, headers: list[Header]) -> Ending:
        """Give the client the upstream's answer, and these headers. Closes `opened` in any case."""
        ...

    async def conclude(self, progress: Progress) -> Answer:
        """The client has all that it gets: settle what is left, and return what was said."""
        ...


def memory_in(progress: Progress, conversation: tuple[Body, HistoryFormat]) -> RequestTraits:
    """Return what of memory a request holds, and where else it could stand."""
    body, history = conversation
    return RequestTraits(
        memory=bool(progress.prepared.block or progress.gone),
        movable=progress.learning.is_auto,
        same_shape=history.dialect.same_shape(body),
        written=frozenset(body) - {history.field},
    )


def is_proven(progress: Progress) -> bool:
    """True if the request holds no memory, or the model has taken memory in this form."""
    has_memory = progress.attempt.memory and bool(progress.prepared.block or progress.gone)
    return not has_memory or progress.learning.forms.is_proven(progress.model, progress.attempt)


@dataclass(frozen=True, slots=True)
class Relayed:
    """The request as it came, the answer byte for byte."""

    upstream: Upstream
    dialect: Dialect
    sessions: SessionStore
    chains: RecentChains
    fail_open: FailOpen
    patience_s: float = 0.0  # with a store that other machines write to

    async def adopt(self, progress: Progress) -> None:
        """Give the turn its session: one that continues a response belongs to that response's."""
        turn, response_id = progress.turn, self.dialect.previous_response_id(progress.body)
        if turn is None or response_id is None:
            return
        progress.turn = turn = replace(turn, shown=self.chains.shown(turn, response_id))
        if turn.named:
            return
        found = self.chains.session_of(turn, response_id) or await self.fail_open.attempt(
            "session", lambda: self._stored(turn, response_id), progress.left_s
        )
        if found is not None and not isinstance(found, Failed):
            progress.turn = replace(turn, session_id=found)

    async def _stored(self, turn: Turn, response_id: str) -> str | None:
        """Return the session that the store has the response in. The client may have it from another replica
        that is just about to write it down."""
        found = await self.sessions.session_of(turn.scope, response_id)
        if found is None and self.patience_s:
            await asyncio.sleep(self.patience_s)
            found = await self.sessions.session_of(turn.scope, response_id)
        return found

    def conversation(self, progress: Progress) -> tuple[Body, HistoryFormat]:
        """Return the client's own body."""
        return progress.body, CHAT_HISTORY if self.dialect is CHAT else RESPONSES_HISTORY

    @property
    def route(self) -> str:
        """The route that the client asked."""
        return "chat" if self.dialect is CHAT else "responses"

    def changeable(self, progress: Progress) -> RequestTraits:
        """Return where memory may stand: nothing that the client wrote is changed."""
        return memory_in(progress, self.conversation(progress))

    def write(self, progress: Progress, body: Body) -> None:
        """Forward this body; the client's own to the byte."""
        progress.payload = progress.plain if body is progress.body else json_body.dump(body)

    async def acknowledge(self, progress: Progress) -> None:
        """Nothing: the upstream's answer is the first that the client gets."""

    async def open(self, progress: Progress) -> UpstreamResponse:
        """Ask for what the client asked for."""
        return await self.upstream.open(
            "POST",
            raw_target(progress.scope),
            request_headers(progress.headers, identity=True),
            progress.payload,
        )

    async def answer(self, progress: Progress, opened: UpstreamResponse, headers: list[Header]) -> Ending:
        """Relay the answer as it comes, and keep a copy where it is to be read."""
        tap = progress.tap if self._is_read(progress) else None
        return await relay(opened, progress.downstream, progress.send, extra_headers=headers, tap=tap)

    async def conclude(self, progress: Progress) -> Answer:
        """Read what was said out of the copy, as far as it came."""
        if progress.opened is None or not self._is_read(progress):
            return Answer()
        tap = progress.tap
        return await read_answer(progress.opened.headers, tap.chunks, self.dialect, cut=tap.truncated)

    def _is_read(self, progress: Progress) -> bool:
        """True if the answer is written down, or if a chain may go on from it that was given memories."""
        turn = progress.turn
        if turn is None or progress.refused:
            return False
        is_given = bool(turn.shown or progress.prepared.memory_ids)
        return progress.writing is not None or (is_given and self.dialect is not CHAT)


# ---------------------------------------------------------------- response headers
def memory_headers(
    prepared: Prepared,
    *,
    session_id: str | None,
    queued: bool,
    memory_ms: float,
    upstream_ms: float | None,
    left_out: int = 0,
    retried: Sequence[str] = (),
    forgotten: Sequence[str] = (),
) -> list[Header]:
    """Return the X-Memory-* headers and Server-Timing (milliseconds) of one intercepted request."""
    headers = [("x-memory-status", prepared.status.value)]
    if prepared.reason:
        headers.append(("x-memory-reason", prepared.reason.value))
    if prepared.status is not Status.OFF:
        headers.append(("x-memory-count", str(len(prepared.memory_ids))))
        headers.append(("x-memory-tokens", str(prepared.tokens)))
        headers.append(("x-memory-level", prepared.level.value))
    if prepared.memory_ids:
        headers.append(("x-memory-ids", ",".join(prepared.memory_ids)))
    if forgotten:
        headers.append(("x-memory-forgotten", ",".join(forgotten)))
    if left_out:
        headers.append(("x-memory-compressed", str(left_out)))  # messages
    if retried:
        headers.append(("x-memory-retried", ", ".join(retried)))
    if session_id is not None:
        # A client may name its session in any script; a header holds ASCII.
        headers.append(("x-memory-session-id", quote(session_id, safe=_HEADER_SAFE)))
    headers.append(("x-memory-store", "queued" if queued else "off"))
    timing = f"memory;dur={memory_ms:.1f}"
    if upstream_ms is not None:
        timing += f", upstream;dur={upstream_ms:.1f}"
    headers.append(("server-timing", timing))
    return [(name.encode(), value.encode("latin-1")) for name, value in headers]


_HEADER_SAFE = " !#$&'()*+,/:;<=>?@[]^`{|}~\""


# ---------------------------------------------------------------- retry in another form
REFUSAL_S = 10.0  # for a refusal to arrive; one that takes longer is passed on as it comes
ERROR_S = 2.0  # for an error inside an answer that has begun as a success; mostly it comes at once
HEAD_BYTES = 8 * 1024  # of such an answer
_STEP_SAFE = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


async def ask(progress: Progress, forwarding: Forwarding, metrics: Metrics) -> UpstreamResponse:
    """Ask the upstream, again in another form where it refuses this one. Raises UpstreamError."""
    opened = await forwarding.open(progress)
    if opened.status < 400:
        if is_proven(progress):
            return opened
    elif not may_be_form(opened.status):
        return opened
    request = forwarding.changeable(progress)
    if not (request.memory or request.translated):
        return opened
    if request.same_shape in progress.learning.forms.suspected(progress.model):
        request = replace(request, same_shape="")
    return await _Asking(progress, forwarding, metrics, request).until_taken(opened)


@dataclass(slots=True)
class _Asking:
    """One request of which it is not known that its form is taken, and what was tried with it."""

    progress: Progress
    forwarding: Forwarding
    metrics: Metrics
    request: RequestTraits
    attempts: int = 1
    placements: tuple[str, ...] = ()  # in which memory was refused
    of_content: bool = False  # a refusal was not about form

    async def until_taken(self, opened: UpstreamResponse) -> UpstreamResponse:
        """Ask until the request is taken, or nothing is left to change."""
        progress, first = self.progress, self.progress.attempt
        refusal = await refusal_in(opened)
        while refusal is not None:
            last, following = progress.attempt, next_attempt(progress.attempt, self.request, refusal)
            if following is None or self.attempts == MAX_ATTEMPTS:
                return opened
            opened.close()
            self.attempts += 1
            self.of_content = self.of_content or refusal.is_of_content
            if last.memory and self.request.memory:
                self.placements = (*self.placements, last.form.placement)
            await OFF_LOOP.run(len(progress.payload), self._write, last, following)
            opened = await self.forwarding.open(progress)
            refusal = await refusal_in(opened)
        if opened.status < 400:
            self._learn(first, progress.attempt)
        return opened

    def _write(self, last: Attempt, following: Attempt) -> None:
        """Write the request as this attempt has it; without memory where it has no place for that."""
        progress = self.progress
        progress.attempt = following
        if not progress.compose(self.forwarding):
            progress.attempt = following = replace(following, memory=False)
            progress.compose(self.forwarding)
        if last.memory and not following.memory:
            before = progress.prepared
            progress.prepared = Prepared(
                status=Status.NONE, reason=Reason.REFUSED, level=before.level, to_forget=before.to_forget
            )
            progress.left_out = 0
        steps = _steps(last, following)
        log.info("form.retried", changed=", ".join(step for step, _ in steps), attempt=self.attempts)
        for step, shown in steps:
            progress.retried.append(shown)
            self.metrics.form_retries.labels(step).inc()

    def _learn(self, before: Attempt, taken: Attempt) -> None:
        """Remember what the model took. Memory given up for what it says teaches nothing about its form."""
        learning, model = self.progress.learning, self.progress.model
        if taken.memory:
            learning.took(model, before, taken)
            return
        learning.forms.learn(model, before.form, replace(taken.form, placement=before.form.placement))
        if learning.is_auto and not self.of_content:
            learning.forms.suspect(model, self.placements)


async def refusal_in(opened: UpstreamResponse) -> Refusal | None:
    """Return what the upstream says against the request's form; None where it takes it, or fails otherwise.

    The answer can be relayed afterwards from its first byte."""
    if opened.status >= 400 and not may_be_form(opened.status):
        return None
    try:
        async with asyncio.timeout(REFUSAL_S if opened.status >= 400 else ERROR_S):
            if opened.status < 400:
                return await _error_inside(opened)
            body = await opened.peek(READ_BYTES)
    except TimeoutError:
        return None
    except BaseException:
        opened.close()
        raise
    coding = ",".join(
        value.decode("latin-1") for name, value in opened.headers if name == b"content-encoding"
    )
    return refusal_of(opened.status, body, coding)


async def _error_inside(opened: UpstreamResponse) -> Refusal | None:
    """Return the error with which a successful answer begins: routers answer before their provider refuses. A
    stream may begin with comments."""
    wanted, head = 1, await opened.peek(1)
    while (found := error_at_start(head)) is None and wanted <= len(head) < HEAD_BYTES:
        wanted = len(head) + 1
        head = await opened.peek(wanted)
    if found == "document":
        found = error_at_start(await opened.peek(READ_BYTES), whole=True)
    return found if isinstance(found, Refusal) else None


def _steps(last: Attempt, following: Attempt) -> list[tuple[str, str]]:
    """Return what changed between two attempts, and how the header shows it."""
    found: list[tuple[str, str]] = []
    before, after = last.form, following.form
    if last.memory and not following.memory:
        found.append(("memory", "without memory"))
    elif before.placement != after.placement:
        found.append(("placement", after.placement))
    names = sorted(set(after.omit) - set(before.omit))
    found += [("field", f"without {name if _STEP_SAFE.fullmatch(name) else 'a field'}") for name in names]
    if before.limit != after.limit:
        found.append(("limit", after.limit))
    if before.thoughts != after.thoughts:
        found.append(("thoughts", f"reasoning_content={after.thoughts}"))
    if before.tool_media != after.tool_media:
        found.append(("tool_media", "tool media as user message"))
    if before.streams_only != after.streams_only:
        found.append(("stream", "streamed"))
    if before.joined != after.joined:
        found.append(("joined", "messages joined"))
    if before.system != after.system:
        found.append(("system", "system as user message"))
    return found
