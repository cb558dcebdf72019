"""The two intercepted routes: a request with memory, from its first byte to its last.

    read the body → understand it → recall ‖ commit the user's words → forward → answer → commit the answer

Memory may fail at every step and the request still goes through: all its work runs in FailOpen, within
one deadline that starts with the request. The user's words are on disk before the client sees a byte of
the answer (then `X-Memory-Store: queued`), so that what was acknowledged survives a kill. How a request is
forwarded and answered is for its Forwarding to say: relayed (forwarding.py) or translated (responses/).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from time import perf_counter

from proxy import telemetry
from proxy.domain.core import Level, Prepared, Reason, Scope, Status, Turn
from proxy.domain.errors import ClientError, StoreError, UpstreamError
from proxy.domain.ports import Clock, Recorder
from proxy.domain.session import NoteStore, Outcome
from proxy.http.asgi import OFF_LOOP, ASGIScope, Header, Receive, Send, request_id
from proxy.http.auth.identity import Caller
from proxy.http.errors import send_error
from proxy.http.exchange import RecentChains, Settling, Writing
from proxy.http.failopen import Failed, FailOpen, Places
from proxy.http.forwarding import Forwarding, Progress, ask
from proxy.http.turns import Asked, Defaults, Incoming, Zones, parsed, understand
from proxy.recall.history import CompressionRules, answers_so_far, replaceable_turns, state_block
from proxy.upstream.forms import Forms, Learning
from proxy.upstream.relay import Downstream, Ending
from proxy.wire import body as json_body
from proxy.wire.body import Body, BodyLimits
from proxy.wire.dialect import Answer, Dialect
from proxy.wire.history import kept, turns_of, without

FORGET_WORK_S = 60.0  # a large user's store takes its time; the answer does not wait for it


@dataclass(frozen=True, slots=True)
class Interception:
    """What both intercepted routes need."""

    recall: Callable[[Turn], Awaitable[Prepared]]
    recorder: Recorder
    touched: Callable[[Scope, Sequence[str]], None]  # which memories an answer that is not stored was given
    forget: Callable[[Turn, Sequence[str] | None], Awaitable[tuple[str, ...]]]  # None: what the turn names
    keep_credential: Callable[[Scope, list[Header]], None]
    identify: Callable[[ASGIScope], Caller]
    session_key: Callable[[str], str]  # what a client's name of a session is kept under
    fail_open: FailOpen
    defaults: Defaults
    deadline_s: float
    max_body_bytes: int
    clock: Clock
    metrics: telemetry.Metrics
    notes: NoteStore
    zones: Zones
    rules: CompressionRules = CompressionRules()  # noqa: RUF009 frozen
    learning: Learning = field(default_factory=lambda: Learning(Forms(time.time)))
    bounds: BodyLimits = BodyLimits()  # noqa: RUF009 frozen
    settling: Settling = field(default_factory=Settling)
    places: Places | None = field(default_factory=Places)  # None: a turn waits for no other


@dataclass(frozen=True, slots=True)
class Intercept:
    """An ASGI app for one intercepted route, in its dialect."""

    parts: Interception
    dialect: Dialect
    chains: RecentChains
    forwarding: Callable[[], Forwarding]

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        with ExitStack() as settling:
            await self._serve(scope, receive, send, settling)

    async def _serve(self, scope: ASGIScope, receive: Receive, send: Send, settling: ExitStack) -> None:
        forwarding = self.forwarding()
        async with asyncio.TaskGroup() as tasks:
            # A client that leaves ends the inner block where it stands. What it said still counts.
            async with Downstream(receive) as downstream:
                progress = Progress(
                    scope=scope,
                    send=send,
                    downstream=downstream,
                    tasks=tasks,
                    deadline_s=self.parts.deadline_s,
                    learning=self.parts.learning,
                )
                try:
                    await self._understand(progress, forwarding)
                    await self._recall(progress, forwarding)
                    await self._forward(progress, forwarding)
                    if progress.turn is not None:
                        settling.enter_context(self.parts.settling.answered(progress.turn))
                except (ClientError, StoreError) as error:
                    progress.refused = True
                    await send_error(progress.send, error)
                except UpstreamError as error:
                    progress.refused = True
                    headers = progress.memory_headers(queued=False, answered=False)
                    await send_error(progress.send, error, headers)
            await self._write_down(progress, await forwarding.conclude(progress))

    # ------------------------------------------------------------ understand
    async def _understand(self, progress: Progress, forwarding: Forwarding) -> None:
        """Read the body and what it asks of memory. Raises ClientError for what is ours to refuse."""
        progress.payload = await progress.downstream.read(self.parts.max_body_bytes)
        progress.started = perf_counter()  # the upload's time is the client's
        progress.caller = self.parts.identify(progress.scope)
        id_ = request_id(progress.scope)
        incoming = Incoming(id_, self.parts.clock(), progress.caller, progress.headers)
        read = await OFF_LOOP.run(len(progress.payload), self._read, progress.payload, incoming)
        if read is not None:
            progress.is_json = True
            asked, progress.body, progress.payload = read
            progress.user, progress.reason = asked.user, asked.reason
            progress.turn = asked.turn
            if asked.turn is not None and asked.turn.named:
                named = self.parts.session_key(asked.turn.session_id)
                progress.turn = replace(asked.turn, session_id=named)
        await forwarding.adopt(progress)
        progress.start(forwarding, self.dialect)

    def _read(self, payload: bytes, incoming: Incoming) -> tuple[Asked, Body, bytes] | None:
        """Return what the body asks of memory, the body, and its bytes without fields of ours; None for what
        is no JSON object. Raises ClientError."""
        body = parsed(incoming.headers, payload, self.parts.bounds, self.dialect.conversation_field)
        if body is None:
            return None
        asked = understand(body, incoming, self.dialect, self.parts.defaults)
        return asked, body, json_body.dump(body) if asked.stripped else payload

    # ------------------------------------------------------------ remember
    async def _recall(self, progress: Progress, forwarding: Forwarding) -> None:
        """Inject what memory knows, while the user's words are being committed."""
        turn, parts = progress.turn, self.parts
        if turn is not None and turn.options.write and (turn.said.strip() or turn.resumes):
            progress.writing = Writing(turn, parts.recorder, parts.fail_open, progress.tasks)
        if turn is None:
            progress.prepared = Prepared(status=Status.OFF, reason=progress.reason)
        elif not turn.options.read:
            progress.prepared = Prepared(status=Status.OFF, reason=Reason.READ_OFF, to_forget=None)
        else:
            await parts.settling.settled(turn, progress.left_s)
            turn = await self._placed_in_time(turn, progress)
            shown = await self._compressed(turn, progress, forwarding) if turn.options.compress else turn
            recalled = await parts.fail_open.attempt(
                "recall", lambda: parts.recall(shown), progress.left_s, parts.places
            )
            if isinstance(recalled, Failed):
                recalled = Prepared(
                    status=Status.DEGRADED, reason=recalled.reason, level=Level.NONE, to_forget=None
                )
            progress.prepared = recalled
        await OFF_LOOP.run(len(progress.payload), progress.place, forwarding)

    async def _placed_in_time(self, turn: Turn, progress: Progress) -> Turn:
        """Return the turn with the time zone in which its dates are read and shown."""
        zones = self.parts.zones
        zone = await self.parts.fail_open.attempt(
            "timezone", lambda: zones.of(turn.scope, turn.timezone), progress.left_s
        )
        return replace(turn, timezone=turn.timezone or zones.default if isinstance(zone, Failed) else zone)

    async def _compressed(self, turn: Turn, progress: Progress, forwarding: Forwarding) -> Turn:
        """Let the session's state take the place of old turns; return the turn as the model is shown it."""
        shown = await self.parts.fail_open.attempt(
            "compress", lambda: self._compress(turn, progress, forwarding), progress.left_s
        )
        return turn if isinstance(shown, Failed) else shown

    async def _compress(self, turn: Turn, progress: Progress, forwarding: Forwarding) -> Turn:
        parts = self.parts
        found = await parts.notes.standing(turn.scope, turn.session_id)
        if found is None:
            return turn
        body, history = forwarding.conversation(progress)
        turns = turns_of(body, history, turn.messages)
        block = state_block(found.state)
        places = replaceable_turns(turns, turn.messages, turn.session_id, block, found.covered, parts.rules)
        gone = [turns[place] for place in places]
        if without(body, history, gone, block, progress.attempt.form.placement) is body:
            return turn
        progress.gone, progress.state = gone, block
        messages = kept(turn.messages, gone)
        progress.left_out = len(turn.messages) - len(messages)
        dropped = tuple(m for t in gone for m in turn.messages[t.start : t.end])
        return replace(turn, messages=messages, left_out=dropped)

    # ------------------------------------------------------------ forward
    async def _forward(self, progress: Progress, forwarding: Forwarding) -> None:
        """Ask the upstream and give the client its answer. Raises UpstreamError if there is none."""
        progress.forwarded = perf_counter()
        model = self.dialect.model(progress.body)
        with telemetry.span(f"chat {model}".rstrip(), "client") as span:
            span.tell(
                gen_ai__operation__name="chat",
                gen_ai__request__model=model or None,
                gen_ai__output__type="text",
            )
            await forwarding.acknowledge(progress)
            opened = await ask(progress, forwarding, self.parts.metrics)
            progress.opened = opened
            progress.refused = opened.status >= 400
            span.tell(http__response__status_code=opened.status)
            if not progress.refused:
                self._forget(progress)
            with opened:
                await progress.forgotten()
                queued = await progress.committed()
                headers = progress.memory_headers(queued=queued, answered=True)
                progress.ending = await forwarding.answer(progress, opened, headers)

    def _forget(self, progress: Progress) -> None:
        """Begin to erase what the message asks to forget: the upstream has taken the request, and the client
        has not seen its answer yet."""
        turn, ids, parts = progress.turn, progress.prepared.to_forget, self.parts
        if progress.forgetting is not None or turn is None or not turn.options.write or ids == ():
            return

        async def forget() -> tuple[str, ...] | Failed:
            return await parts.fail_open.attempt("forget", lambda: parts.forget(turn, ids), FORGET_WORK_S)

        progress.forgetting = progress.tasks.create_task(forget())

    # ------------------------------------------------------------ write down
    async def _write_down(self, progress: Progress, answer: Answer) -> None:
        """Commit what became of the exchange, after the client has its answer."""
        turn, writing, parts = progress.turn, progress.writing, self.parts
        if turn is None:
            return
        if not progress.refused:
            self._forget(progress)  # of a client that left before the upstream's answer
        self._count(turn, progress, answer.usage)
        if answer.response_id is not None:
            # Instructions are not handed on along a chain; input items are.
            in_instructions = progress.attempt.form.placement == "merge_system"
            given = () if in_instructions else progress.prepared.memory_ids
            self.chains.note(turn, answer.response_id, given)
        if writing is not None and progress.refused and not progress.promised:
            await writing.abandon()
            return
        if writing is not None:
            # The credential first: the commit may start an extraction that needs it.
            if not progress.unauthorised:
                parts.keep_credential(turn.scope, progress.headers)
            if await writing.finish(self._outcome(turn, progress, answer)):
                return
        if ids := progress.prepared.memory_ids:
            parts.touched(turn.scope, ids)

    def _outcome(self, turn: Turn, progress: Progress, answer: Answer) -> Outcome:
        """Return the answer as far as it came; nothing where the client left before there was one."""
        whole = answer.whole and not answer.calls and progress.ending is Ending.COMPLETE
        before = answers_so_far(turn.messages) if turn.resumes else []
        text = "\n".join(text for text in (*before, answer.text) if text)
        # A call that the client demanded is an answer in a form of its own: mostly nothing comes after it.
        calls = answer.calls and answer.whole and not turn.tool_forced
        return Outcome(text, whole, answer.response_id, progress.prepared.memory_ids, calls)

    def _count(self, turn: Turn, progress: Progress, usage: tuple[int, int] | None) -> None:
        if not progress.forwarded:
            return  # refused before the upstream was asked: nothing was recalled
        prepared, memory_s = progress.prepared, progress.forwarded - progress.started
        metrics = self.parts.metrics
        metrics.memory_seconds.observe(memory_s)
        metrics.recalls.labels(prepared.status.value).inc()
        metrics.injected.inc(len(prepared.memory_ids))
        metrics.injected_tokens.inc(prepared.tokens)
        read, written = usage or (None, None)
        metrics.model_tokens.labels("read").inc(read or 0)
        metrics.model_tokens.labels("written").inc(written or 0)
        telemetry.under_way().tell(
            memory__status=prepared.status.value,
            memory__reason=prepared.reason and prepared.reason.value,
            memory__count=len(prepared.memory_ids),
            memory__tokens=prepared.tokens,
            gen_ai__usage__input_tokens=read,
            gen_ai__usage__output_tokens=written,
        )
        telemetry.log.debug(
            "memory.recalled",
            status=prepared.status.value,
            reason=prepared.reason.value if prepared.reason else "",
            count=len(prepared.memory_ids),
            tokens=prepared.tokens,
            ms=round(memory_s * 1000, 2),
        )
