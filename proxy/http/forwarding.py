"""How one request is sent to the upstream and answered: unchanged (here) or translated (http/responses).

`Intercept` is the sequence of steps; a `Forwarding` does those in which the two differ. What flows is frozen:
the parsed request, what memory adds to it (`Recalled`), and the request as the upstream is asked (`Draft`).

A request that is forwarded as the client sent it is sent once. One that was changed and is refused for a
reason that may be its form is sent again in another form, in few steps and at last without memory; the order
is in upstream/forms.py. All of that happens before the client has a byte of the answer, and the header
`X-Memory-Retried` names each step.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Protocol
from urllib.parse import quote

from proxy.domain.core import Prepared, Reason, Scope, Status
from proxy.domain.session import SessionStore
from proxy.http.asgi import Header, Send
from proxy.http.memory_work import ExchangeCommit, Failed, FailOpen, RecentResponses, read_answer
from proxy.http.turns import OFF_LOOP, ParsedRequest
from proxy.telemetry import Metrics, log
from proxy.upstream.client import Upstream
from proxy.upstream.connection import UpstreamResponse
from proxy.upstream.forms import (
    MAX_ATTEMPTS,
    READ_BYTES,
    Attempt,
    Form,
    Learning,
    ModelRoute,
    Refusal,
    RequestTraits,
    error_at_start,
    may_be_form,
    next_attempt,
    refusal_of,
)
from proxy.upstream.relay import Ending, Tap, raw_target, relay
from proxy.wire import body as json_body
from proxy.wire.body import Body
from proxy.wire.dialect import CHAT, Answer, Dialect
from proxy.wire.history import CHAT_HISTORY, RESPONSES_HISTORY, HistoryFormat, HistoryTurn, without
from proxy.wire.http import request_headers

COMMIT_FLOOR_S = 0.05  # the wait for the user's words to be committed, even if recall used up the deadline
REFUSAL_S = 10.0  # for a refusal to arrive; one that takes longer is passed on as it comes
ERROR_S = 2.0  # for an error inside an answer that has begun as a success; mostly it comes at once
HEAD_BYTES = 8 * 1024  # of such an answer
_STEP_SAFE = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_HEADER_SAFE = " !#$&'()*+,/:;<=>?@[]^`{|}~\""


# ---------------------------------------------------------------- the stages of a request
@dataclass(frozen=True, slots=True)
class Shortened:
    """Old turns of the history, and the session's state that replaces them."""

    turns: Sequence[HistoryTurn]
    state: str
    messages: int  # how many messages those turns are


@dataclass(frozen=True, slots=True)
class Recalled:
    """A request, and what memory adds to it."""

    request: ParsedRequest
    prepared: Prepared
    commit: ExchangeCommit | None = None  # of the user's words
    shortened: Shortened | None = None

    @property
    def has_memory(self) -> bool:
        """True if memory changes what the upstream is asked."""
        return bool(self.prepared.block or self.shortened)

    def without_memory(self, reason: Reason) -> "Recalled":
        """Return the request with nothing of memory in it."""
        before = self.prepared
        prepared = Prepared(status=Status.NONE, reason=reason, level=before.level, to_forget=before.to_forget)
        return replace(self, prepared=prepared, shortened=None)


@dataclass(frozen=True, slots=True)
class Draft:
    """A request as the upstream is asked."""

    recalled: Recalled
    model: ModelRoute
    attempt: Attempt  # the form of the payload
    payload: bytes
    retried: tuple[str, ...] = ()  # what was changed for each further attempt
    forwarded_at: float = field(default_factory=perf_counter)

    @property
    def request(self) -> ParsedRequest:
        """The client's request."""
        return self.recalled.request

    @property
    def prepared(self) -> Prepared:
        """What of memory is in the request."""
        return self.recalled.prepared

    async def committed(self) -> bool:
        """True if the user's words are on disk, and stay there; waits for that within the deadline."""
        commit = self.recalled.commit
        return commit is not None and await commit.committed(max(self.request.left_s, COMMIT_FLOOR_S))

    def memory_headers(self, *, queued: bool, answered: bool, forgotten: Sequence[str] = ()) -> list[Header]:
        """Return the X-Memory-* headers and Server-Timing. `queued`: the user's words are committed;
        `answered`: the upstream's status has arrived; `forgotten`: ids of erased memories."""
        request, shortened = self.request, self.recalled.shortened
        timing = f"memory;dur={(self.forwarded_at - request.started) * 1000:.1f}"
        if answered:
            timing += f", upstream;dur={(perf_counter() - self.forwarded_at) * 1000:.1f}"
        headers = _headers_of(self.prepared)
        if forgotten:
            headers.append(("x-memory-forgotten", ",".join(forgotten)))
        if shortened:
            headers.append(("x-memory-compressed", str(shortened.messages)))
        if self.retried:
            headers.append(("x-memory-retried", ", ".join(self.retried)))
        if request.turn is not None:
            # A client may name its session in any script; a header holds ASCII.
            headers.append(("x-memory-session-id", quote(request.turn.session_id, safe=_HEADER_SAFE)))
        headers += [("x-memory-store", "queued" if queued else "off"), ("server-timing", timing)]
        return [(name.encode(), value.encode("latin-1")) for name, value in headers]


def _headers_of(prepared: Prepared) -> list[tuple[str, str]]:
    headers = [("x-memory-status", prepared.status.value)]
    if prepared.reason:
        headers.append(("x-memory-reason", prepared.reason.value))
    if prepared.status is not Status.OFF:
        headers.append(("x-memory-count", str(len(prepared.memory_ids))))
        headers.append(("x-memory-tokens", str(prepared.tokens)))
        headers.append(("x-memory-level", prepared.level.value))
    if prepared.memory_ids:
        headers.append(("x-memory-ids", ",".join(prepared.memory_ids)))
    return headers


# ---------------------------------------------------------------- forwarding
class Forwarding(Protocol):
    """Made for each request; the methods are called in this order, `conclude` in any case."""

    @property
    def route(self) -> str:
        """The upstream's route that is asked: "chat" or "responses"."""
        ...

    @property
    def draft(self) -> Draft | None:
        """What the upstream was asked last; None if it was not asked yet."""
        ...

    @property
    def answered(self) -> bool:
        """True if the client has the beginning of its answer: errors can no longer be sent."""
        ...

    @property
    def promised(self) -> bool:
        """True if the client got `queued` before the upstream answered."""
        ...

    async def adopt(self, request: ParsedRequest) -> ParsedRequest:
        """Return the request with its turn in the right session. Raises ClientError for what is refused,
        StoreError if that cannot be known."""
        ...

    def conversation(self, form: Form) -> tuple[Body, HistoryFormat]:
        """Return the body that holds the turn's messages, and how it writes them."""
        ...

    def changeable(self, traits: RequestTraits) -> RequestTraits:
        """Return what of the request may be changed if the upstream refuses it. `traits`: of its memory."""
        ...

    def write(self, body: Body, form: Form) -> bytes:
        """Return the payload for this body, the conversation's or a changed one."""
        ...

    async def acknowledge(self, draft: Draft) -> None:
        """Answer the client already now, if it does not wait for the upstream."""
        ...

    async def open(self, draft: Draft) -> tuple[Draft, UpstreamResponse]:
        """Ask the upstream; return what it was asked as well. Raises UpstreamError."""
        ...

    async def answer(
        self, draft: Draft, opened: UpstreamResponse, send: Send, headers: list[Header]
    ) -> Ending:
        """Give the client the upstream's answer, and these headers. Closes `opened` in any case."""
        ...

    async def conclude(self, *, refused: bool) -> Answer:
        """The client has all that it gets: finish what is left, and return what was said. `refused`: by the
        upstream, or there was no answer."""
        ...


def first_draft(recalled: Recalled, forwarding: Forwarding, learning: Learning) -> Draft:
    """Write the request in the form in which its model is asked first; without memory if that has no
    place."""
    model = learning.model(recalled.request.model, forwarding.route)
    attempt = learning.first(model)
    if not attempt.memory and recalled.has_memory:
        recalled = recalled.without_memory(Reason.REFUSED)
    payload, is_placed = _written(recalled, attempt, forwarding)
    if not is_placed:
        nothing = recalled.without_memory(Reason.NO_PLACE).prepared
        recalled = replace(recalled, prepared=nothing)
    return Draft(recalled, model, attempt, payload)


def _written(recalled: Recalled, attempt: Attempt, forwarding: Forwarding) -> tuple[bytes, bool]:
    """Return the payload, and whether memory's block is in it, if there is one."""
    body, history = forwarding.conversation(attempt.form)
    if not attempt.memory:
        return forwarding.write(body, attempt.form), True
    placement, block, shortened = attempt.form.placement, recalled.prepared.block, recalled.shortened
    shorter = without(body, history, shortened.turns, shortened.state, placement) if shortened else body
    placed = history.dialect.insert(shorter, block, placement) if block else shorter
    return forwarding.write(placed, attempt.form), placed is not shorter or not block


def is_proven(draft: Draft, learning: Learning) -> bool:
    """True if the request holds no memory, or the model has taken memory in this form."""
    has_memory = draft.attempt.memory and draft.recalled.has_memory
    return not has_memory or learning.forms.is_proven(draft.model, draft.attempt)


@dataclass(slots=True)
class Relayed:
    """The request as it came, the answer byte for byte."""

    upstream: Upstream
    dialect: Dialect
    sessions: SessionStore
    recent: RecentResponses
    fail_open: FailOpen
    patience_s: float = 0.0  # for a response of another machine that uses the same store
    draft: Draft | None = None
    answered: bool = False
    promised: bool = False
    _request: ParsedRequest | None = None
    _opened: UpstreamResponse | None = None
    _tap: Tap | None = None

    @property
    def route(self) -> str:
        """The route that the client asked."""
        return "chat" if self.dialect is CHAT else "responses"

    async def adopt(self, request: ParsedRequest) -> ParsedRequest:
        """Give the turn its session: one that continues a response belongs to that response's."""
        self._request = request
        turn, response_id = request.turn, self.dialect.previous_response_id(request.body)
        if turn is None or response_id is None:
            return request
        session_id, shown = self.recent.find(turn, response_id)
        turn = replace(turn, shown=shown)
        if not turn.named and session_id is None:
            stored = await self.fail_open.attempt(
                "session", partial(self._stored_session, turn.scope, response_id), request.left_s
            )
            session_id = None if isinstance(stored, Failed) else stored
        if not turn.named and session_id is not None:
            turn = replace(turn, session_id=session_id)
        return replace(request, turn=turn)

    async def _stored_session(self, scope: Scope, response_id: str) -> str | None:
        """Return the session that the store has the response in. The client may have it from another replica
        that is just about to store it."""
        found = await self.sessions.session_of(scope, response_id)
        if found is None and self.patience_s:
            await asyncio.sleep(self.patience_s)
            found = await self.sessions.session_of(scope, response_id)
        return found

    def conversation(self, form: Form) -> tuple[Body, HistoryFormat]:
        """Return the client's own body."""
        assert self._request is not None, "adopt comes first"
        return self._request.body, CHAT_HISTORY if self.dialect is CHAT else RESPONSES_HISTORY

    def changeable(self, traits: RequestTraits) -> RequestTraits:
        """Return the traits of memory: nothing that the client wrote is changed."""
        return traits

    def write(self, body: Body, form: Form) -> bytes:
        """Return this body; the client's own to the byte."""
        assert self._request is not None, "adopt comes first"
        return self._request.payload if body is self._request.body else json_body.dump(body)

    async def acknowledge(self, draft: Draft) -> None:
        """Nothing: the upstream's answer is the first that the client gets."""

    async def open(self, draft: Draft) -> tuple[Draft, UpstreamResponse]:
        """Ask for what the client asked for."""
        self.draft, client = draft, draft.request.client
        headers = request_headers(client.headers, identity=True)
        return draft, await self.upstream.open("POST", raw_target(client.scope), headers, draft.payload)

    async def answer(
        self, draft: Draft, opened: UpstreamResponse, send: Send, headers: list[Header]
    ) -> Ending:
        """Relay the answer as it comes, and keep a copy if it is to be read."""
        self.answered, self._opened = True, opened
        if opened.status < 400 and self._is_read(draft):
            self._tap = Tap()
        return await relay(
            opened, draft.request.client.downstream, send, extra_headers=headers, tap=self._tap
        )

    def _is_read(self, draft: Draft) -> bool:
        """True if the answer is stored, or if a chain may continue it that was given memories."""
        turn = draft.request.turn
        if turn is None:
            return False
        is_given = bool(turn.shown or draft.prepared.memory_ids)
        return draft.recalled.commit is not None or (is_given and self.dialect is not CHAT)

    async def conclude(self, *, refused: bool) -> Answer:
        """Read what was said from the copy, up to where it ends."""
        if self._opened is None or self._tap is None:
            return Answer()
        tap = self._tap
        return await read_answer(self._opened.headers, tap.chunks, self.dialect, cut=tap.truncated)


# ---------------------------------------------------------------- retry in another form
async def ask(
    draft: Draft, forwarding: Forwarding, learning: Learning, metrics: Metrics
) -> tuple[Draft, UpstreamResponse]:
    """Ask the upstream, again in another form if it refuses this one; return what it was asked at last.
    Raises UpstreamError."""
    draft, opened = await forwarding.open(draft)
    if opened.status < 400:
        if is_proven(draft, learning):
            return draft, opened
    elif not may_be_form(opened.status):
        return draft, opened
    body, history = forwarding.conversation(draft.attempt.form)
    traits = forwarding.changeable(
        RequestTraits(
            memory=draft.recalled.has_memory,
            movable=learning.is_auto,
            same_shape=history.dialect.same_shape(body),
            written=frozenset(body) - {history.field},
        )
    )
    if not (traits.memory or traits.translated):
        return draft, opened
    if traits.same_shape in learning.forms.suspected(draft.model):
        traits = replace(traits, same_shape="")
    return await _Retries(forwarding, learning, metrics, traits).until_taken(draft, opened)


@dataclass(slots=True)
class _Retries:
    """The attempts of one request whose form the upstream may refuse."""

    forwarding: Forwarding
    learning: Learning
    metrics: Metrics
    traits: RequestTraits
    attempts: int = 1
    placements: tuple[str, ...] = ()  # in which memory was refused
    of_content: bool = False  # a refusal was not about form

    async def until_taken(self, draft: Draft, opened: UpstreamResponse) -> tuple[Draft, UpstreamResponse]:
        """Ask until the request is taken, or nothing is left to change."""
        first, refusal = draft.attempt, await refusal_in(opened)
        while refusal is not None:
            following = next_attempt(draft.attempt, self.traits, refusal)
            if following is None or self.attempts == MAX_ATTEMPTS:
                return draft, opened
            opened.close()
            self.attempts += 1
            self.of_content = self.of_content or refusal.is_of_content
            if draft.attempt.memory and self.traits.memory:
                self.placements = (*self.placements, draft.attempt.form.placement)
            draft = await OFF_LOOP.run(len(draft.payload), self._rewritten, draft, following)
            draft, opened = await self.forwarding.open(draft)
            refusal = await refusal_in(opened)
        if opened.status < 400:
            self._learn(draft.model, first, draft.attempt)
        return draft, opened

    def _rewritten(self, draft: Draft, following: Attempt) -> Draft:
        """Return the request as this attempt has it; without memory if that has no place in it."""
        recalled, last = draft.recalled, draft.attempt
        payload, is_placed = _written(recalled, following, self.forwarding)
        if not is_placed:
            following = replace(following, memory=False)
            payload, _ = _written(recalled, following, self.forwarding)
        if last.memory and not following.memory:
            recalled = recalled.without_memory(Reason.REFUSED)
        steps = _steps(last, following)
        log.info("form.retried", changed=", ".join(step for step, _ in steps), attempt=self.attempts)
        for step, _ in steps:
            self.metrics.form_retries.labels(step).inc()
        retried = (*draft.retried, *(shown for _, shown in steps))
        return replace(draft, recalled=recalled, attempt=following, payload=payload, retried=retried)

    def _learn(self, model: ModelRoute, before: Attempt, taken: Attempt) -> None:
        """Remember what the model took. Memory that was dropped for its content teaches nothing about
        form."""
        learning = self.learning
        if taken.memory:
            learning.took(model, before, taken)
            return
        learning.forms.learn(model, before.form, replace(taken.form, placement=before.form.placement))
        if learning.is_auto and not self.of_content:
            learning.forms.suspect(model, self.placements)


async def refusal_in(opened: UpstreamResponse) -> Refusal | None:
    """Return how the upstream refuses the request's form; None if it accepts it, or fails for another reason.

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


_CHANGES = (
    ("limit", "limit", "{}"),
    ("thoughts", "thoughts", "reasoning_content={}"),
    ("tool_media", "tool_media", "tool media as user message"),
    ("streams_only", "stream", "streamed"),
    ("joined", "joined", "messages joined"),
    ("system", "system", "system as user message"),
)
"""For each field of a form: its name in the metric, and in the header."""


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
    for field_name, step, shown in _CHANGES:
        value = getattr(after, field_name)
        if value != getattr(before, field_name):
            found.append((step, shown.format(value)))
    return found
