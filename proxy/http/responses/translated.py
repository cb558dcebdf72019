"""A Responses request on its way through an upstream that speaks only chat completions.

The Forwarding of `Intercept` that translates: the request becomes a plan (wire/translation), memory enters
the plan's chat body, the upstream's answer becomes events, and what was made is kept for its owner.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from proxy.domain.core import Turn
from proxy.domain.errors import InvalidRequest, StoreError, StoreUnavailable, UpstreamCut, UpstreamError
from proxy.domain.ports import Clock
from proxy.http.asgi import OFF_LOOP, Header, send_bytes
from proxy.http.exchange import read_answer
from proxy.http.forwarding import Progress, is_proven, memory_in
from proxy.http.responses import background
from proxy.http.responses.answer_output import (
    AnswerParser,
    BackgroundOutlet,
    Event,
    JsonOutlet,
    Outlet,
    StreamOutlet,
    for_client,
    refusal_of,
)
from proxy.http.responses.background import UNDER_WAY, BackgroundRegistry, BackgroundResponse, with_beat
from proxy.http.responses.owners import Owner, SealKey, new_id, owner_of
from proxy.http.responses.response_store import ChainHistory, NewResponse, ResponseStore
from proxy.http.turns import bounded
from proxy.upstream.client import Upstream
from proxy.upstream.connection import UpstreamResponse
from proxy.upstream.forms import Form, RequestTraits
from proxy.upstream.headers import request_headers
from proxy.upstream.relay import Ending, log_cut, log_refused, raw_target, relay
from proxy.wire import body as json_body
from proxy.wire.answers import LIMIT_BYTES
from proxy.wire.body import Body, dump_large
from proxy.wire.dialect import CHAT, RESPONSES, Answer
from proxy.wire.history import CHAT_HISTORY, HistoryFormat
from proxy.wire.translation import (
    LIMITS,
    ChatPlan,
    Translation,
    adapted,
    conversation_of,
    has_neighbours,
    has_system,
    has_tool_media,
    items_of,
    optional_fields,
    plan,
    previous_of,
    referenced_ids,
    response_of,
    translation_of,
    with_thoughts,
)

IN_THREAD_BYTES = 256 * 1024  # a document of this size takes some 5 ms to translate
LARGE_BYTES = 4 * 1024 * 1024  # read of one answer: its end takes long
UNPROVEN_START_S = 3.0  # the same for a request with memory in a form that the model may refuse
DRAIN_S = 0.5  # for what follows [DONE], so that the connection can be used again
ERROR_BYTES = 256 * 1024  # of a refusal that are read
SAVE_TRIES = 3  # each loses to a beat or a cancellation that came between
_JSON: list[Header] = [(b"content-type", b"application/json")]


@dataclass(frozen=True, slots=True)
class TranslationPorts:
    """What all translated requests share."""

    upstream: Upstream
    keeping: ResponseStore
    lives: BackgroundRegistry
    clock: Clock
    seal_key: SealKey
    start_s: float = 0.5  # a stream begins after so long without a status; before, an error is a status
    silence_s: float = 15.0  # in a stream, after which a comment is sent
    max_answer_bytes: int = LIMIT_BYTES


@dataclass(slots=True)
class ResponseInProgress:
    """One response being made, from the moment that its request is known to make sense."""

    plan: ChatPlan
    translation: Translation
    id: str
    owner: Owner
    generation: int | None  # None: it cannot be kept
    session_id: str
    created_at: float
    asked_bytes: int = 0  # of the client's request, parts of which are echoed
    refers: tuple[str, ...] = ()  # responses whose items the input names: they are copied into this one
    live: BackgroundResponse | None = None
    beat: asyncio.Task[None] | None = None
    stream: StreamOutlet | None = None  # once it is begun
    queued: bool = False
    saved: bool = False
    why: str = "The server stopped before the response was complete."
    code: str = "server_error"

    @property
    def under_way(self) -> bool:
        """True until the terminal event."""
        return self.translation.status in UNDER_WAY

    def size(self) -> int:
        """About how many bytes the response object has."""
        return self.asked_bytes + self.translation.size

    @property
    def response(self) -> dict[str, Any]:
        """The response object as the client may see it."""
        response = self.translation.response
        return {**response, "status": "queued"} if self.queued and self.under_way else response


def in_form(planned: ChatPlan, chat: Body, form: Form) -> Body:
    """Return the plan's chat body in the form that the model takes."""
    return _adapted(with_thoughts(chat, planned.thoughts, form.thoughts), form)


def _adapted(chat: Body, form: Form) -> Body:
    return adapted(
        chat,
        omit=form.omit,
        limit=form.limit,
        tool_media=form.tool_media,
        joined=form.joined,
        system=form.system,
        streams_only=form.streams_only,
    )


def changeable_in(planned: ChatPlan, found: RequestTraits = RequestTraits()) -> RequestTraits:  # noqa: B008 frozen
    """Return what the translation may leave out or write otherwise. `found`: what may change of memory."""
    chat = planned.chat
    optional = optional_fields(chat)
    return replace(
        found,
        written=found.written - optional - set(LIMITS),
        optional=optional,
        limit=next((name for name in LIMITS if name in chat), ""),
        thoughts=bool(planned.thoughts),
        tool_media=has_tool_media(chat),
        neighbours=has_neighbours(chat),
        system=has_system(chat),
        whole=not chat.get("stream"),
    )


class TranslatedForwarding:
    """See Forwarding for when the methods are called."""

    def __init__(self, shared: TranslationPorts) -> None:
        self._shared, self._keeping = shared, shared.keeping
        self._made: ResponseInProgress | None = None

    @property
    def _making(self) -> ResponseInProgress:
        assert self._made is not None, "adopt comes first"
        return self._made

    # ------------------------------------------------------------ the request
    async def adopt(self, progress: Progress) -> None:
        """Make the plan, with what the request continues. Raises ClientError, StoreError."""
        if not progress.is_json:
            raise InvalidRequest("The request body must be JSON.", code="invalid_json")
        assert progress.caller is not None
        turn, body = progress.turn, progress.body
        project = turn.scope.project if turn else None
        owner = owner_of(progress.caller, progress.headers, progress.user, project)
        generation = await self._keeping.generation(owner)
        earlier = await self._keeping.earlier(owner, previous_of(body), conversation_of(body))
        size = len(progress.payload) + earlier.size
        planned = await self._plan(body, owner, earlier, size)
        if turn is not None and not progress.forwarded:
            progress.turn = turn = await OFF_LOOP.run(size, _continuing, turn, planned, earlier)
        created_at, id_ = self._shared.clock(), new_id("resp")
        self._made = ResponseInProgress(
            plan=planned,
            translation=translation_of(
                planned,
                response_id=id_,
                created_at=int(created_at),
                limit_bytes=self._shared.max_answer_bytes,
            ),
            id=id_,
            owner=owner,
            generation=generation,
            session_id=turn.session_id if turn else earlier.session_id,
            created_at=created_at,
            asked_bytes=len(progress.payload),
            refers=tuple(dict.fromkeys(filter(None, map(response_of, referenced_ids(body.get("input")))))),
        )

    async def _plan(self, body: Body, owner: Owner, earlier: ChainHistory, size: int) -> ChatPlan:
        ids = referenced_ids(body.get("input"))
        referenced = await self._keeping.referenced(owner, ids) if ids else {}
        seals = await self._shared.seal_key.seals(owner)
        return await OFF_LOOP.run(size, plan, body, earlier.items, referenced, seals)

    def conversation(self, progress: Progress) -> tuple[Body, HistoryFormat]:
        """Return the chat body, with all that the request continues."""
        planned = self._making.plan
        return with_thoughts(planned.chat, planned.thoughts, progress.attempt.form.thoughts), CHAT_HISTORY

    @property
    def route(self) -> str:
        """Chat completions."""
        return "chat"

    def changeable(self, progress: Progress) -> RequestTraits:
        """Return where memory may stand, and what the translation may leave out or write otherwise."""
        planned = self._making.plan
        return changeable_in(planned, memory_in(progress, (planned.chat, CHAT_HISTORY)))

    def write(self, progress: Progress, body: Body) -> None:
        """Ask with this chat body, in the form that the model takes. The stored request does not change."""
        progress.payload = json_body.dump(_adapted(body, progress.attempt.form))

    async def acknowledge(self, progress: Progress) -> None:
        """Answer a request for the background: from here on, the work is its own."""
        making = self._making
        if not making.plan.background:
            return
        making.queued = True
        live = BackgroundResponse(making.id, making.owner, lambda: making.response)
        if not await self._keep(making, progress, with_beat(making.response, self._shared.clock())):
            raise StoreUnavailable("a background response cannot be kept")
        queued = progress.promised = await progress.committed()
        headers = [*progress.memory_headers(queued=queued, answered=False), *dropped(making.plan)]
        if making.plan.stream:
            await self._stream(making, progress).start(headers)
        else:
            await send_bytes(
                progress.send, 200, json_body.dump(making.response), b"application/json", headers
            )
        making.live, progress.send = live, _nowhere
        live.stoppable(progress.downstream.hold())
        self._shared.lives.begin(live)
        making.beat = progress.tasks.create_task(self._beat(making, live, progress))
        await self._outlet(making, progress).emit(making.translation.start())

    async def open(self, progress: Progress) -> UpstreamResponse:
        """Ask for a chat completion."""
        _, mark, query = raw_target(progress.scope).partition(b"?")
        target = b"/v1/chat/completions" + mark + query
        headers = request_headers(progress.headers, identity=True)
        answered, starting = asyncio.Event(), None
        if self._making.plan.stream and self._making.stream is None:
            starting = progress.tasks.create_task(self._start_early(progress, answered))
        try:
            return await self._shared.upstream.open("POST", target, headers, progress.payload)
        except UpstreamError as error:
            self._making.why = error.message
            raise
        finally:
            answered.set()
            if starting is not None:
                await starting  # it may be writing the head

    async def _start_early(self, progress: Progress, answered: asyncio.Event) -> None:
        """Begin the client's stream while the upstream still thinks: response.created comes at once.

        An upstream that refuses a request mostly does so quickly. So there is a short wait, in which its
        status can still be the client's; later, the response fails. Where the model was not seen to take
        memory in this form, the wait is longer: the headers say in which form the request was taken.
        """
        start_s = self._shared.start_s
        if not is_proven(progress):
            start_s = max(start_s, UNPROVEN_START_S)
        try:
            await asyncio.wait_for(answered.wait(), start_s)
        except TimeoutError:
            making = self._making
            queued = progress.promised = await progress.committed()
            headers = progress.memory_headers(queued=queued, answered=False)
            stream = self._stream(making, progress)
            await stream.start(for_client((), [*headers, *dropped(making.plan)]))
            await stream.emit(making.translation.start())
            progress.send = _nowhere

    # ------------------------------------------------------------ the answer
    async def answer(self, progress: Progress, opened: UpstreamResponse, headers: list[Header]) -> Ending:
        """Translate the answer as it comes. A refusal passes unchanged if it has OpenAI's shape."""
        making = self._making
        if not 200 <= opened.status < 300:
            return await self._refuse(progress, opened, [*headers, *dropped(making.plan)])
        making.queued = False
        if progress.learning.forms.of(progress.model).begins_in_thoughts:
            making.translation.expect_thoughts()
        outlet = self._outlet(making, progress)
        with opened:
            try:
                await outlet.start(for_client(opened.headers, [*headers, *dropped(making.plan)]))
                if making.live is None and (events := making.translation.start()):
                    await outlet.emit(events)
                return await self._pass_on(progress, opened, outlet)
            except asyncio.CancelledError:
                if not progress.downstream.absorb():
                    raise
        return Ending.CLIENT_LEFT

    async def _pass_on(self, progress: Progress, opened: UpstreamResponse, outlet: Outlet) -> Ending:
        making, cut, size = self._making, False, 0
        limit_bytes = self._shared.max_answer_bytes
        listener = AnswerParser(making.translation, *content_of(opened.headers), limit_bytes)
        while not listener.ended and not opened.at_end:
            try:
                chunk = await opened.read()
            except UpstreamCut:
                log_cut()
                cut = True
                break
            size += len(chunk)
            feed = partial(listener.feed, chunk)
            if events := await _in_thread(feed) if listener.is_heavy or size > LARGE_BYTES else feed():
                await outlet.emit(events)
        in_thread = size > IN_THREAD_BYTES and not listener.ended
        finish = partial(listener.end, cut=cut)
        end = await _in_thread(finish) if in_thread else finish()
        if end:
            await outlet.emit(end)
        if making.live is None:
            progress.downstream.settle()
        self._learn_thoughts(progress)
        await outlet.finish(listener)
        if not listener.broken:
            await _drain(opened)
        return Ending.UPSTREAM_CUT if cut else Ending.COMPLETE

    def _learn_thoughts(self, progress: Progress) -> None:
        """Remember whether the model begins an answer in its thoughts: the next one is then parted."""
        begins, forms = self._making.translation.begins_in_thoughts(), progress.learning.forms
        if begins is not None:
            known = forms.of(progress.model)
            forms.learn(progress.model, known, replace(known, begins_in_thoughts=begins))

    async def _refuse(self, progress: Progress, opened: UpstreamResponse, headers: list[Header]) -> Ending:
        """Pass the upstream's refusal on, in OpenAI's shape; where the client has its stream, end that."""
        making, body = self._making, await opened.peek(ERROR_BYTES)
        refusal = refusal_of(opened.status, opened.headers, body)
        making.why, making.code = refusal.problem.message, refusal.code
        answered = making.live is not None or making.stream is not None
        if refusal.body is None and not answered:
            return await relay(opened, progress.downstream, progress.send, extra_headers=headers)
        log_refused(opened.status, opened.headers)
        if making.stream is not None:
            await making.stream.start(headers)
        with opened:
            if not answered and refusal.body is not None:
                progress.downstream.settle()
                told = for_client(opened.headers, headers)
                await send_bytes(progress.send, refusal.status, refusal.body, b"application/json", told)
        return Ending.COMPLETE

    def _stream(self, making: ResponseInProgress, progress: Progress) -> StreamOutlet:
        if making.stream is None:
            save = partial(self._save, making, progress)
            silence_s = self._shared.silence_s
            making.stream = StreamOutlet(progress.send, save, making.size, progress.tasks, silence_s)
        return making.stream

    def _outlet(self, making: ResponseInProgress, progress: Progress) -> Outlet:
        save = partial(self._save, making, progress)
        if making.live is not None:
            return BackgroundOutlet(making.live, save, making.size, making.stream)
        if making.plan.stream:
            return self._stream(making, progress)
        return JsonOutlet(progress.send, save, making.size, making.translation)

    # ------------------------------------------------------------ what is left
    async def conclude(self, progress: Progress) -> Answer:
        """Bring what broke off to its final state, and return what was said."""
        making = self._made
        if making is None:
            return Answer()
        if making.live is not None:
            await self._end_background(making, making.live, progress)
        elif making.stream is not None:
            await self._end_stream(making, making.stream, progress)
        if progress.writing is None or progress.refused:
            return Answer()
        said = await OFF_LOOP.run(making.size(), dump_large, making.translation.response)
        return await read_answer(_JSON, [said], RESPONSES)

    async def _end_stream(self, making: ResponseInProgress, stream: StreamOutlet, progress: Progress) -> None:
        """End the stream. The client has the id: a stream that it left ends as cancelled, one that the
        upstream refused after its beginning as failed."""
        left = making.under_way
        events = making.translation.fail(making.why, making.code) if left else []
        await self._save(making, progress, cancelled=left and not progress.refused)
        if events and stream.started:
            await stream.emit(events)
            await stream.close()
        stream.stop()

    async def _end_background(
        self, making: ResponseInProgress, live: BackgroundResponse, progress: Progress
    ) -> None:
        left, stream = making.under_way, making.stream
        if making.beat is not None:
            making.beat.cancel()
        events = making.translation.fail(making.why, making.code) if left else []
        await self._save(making, progress, cancelled=left and live.cancelled)
        if events:
            await self._outlet(making, progress).emit(events)
        if stream is not None:
            await stream.close()
        self._shared.lives.end(live)

    async def _save(self, making: ResponseInProgress, progress: Progress, *, cancelled: bool = False) -> None:
        """Keep the response in its final state, and what was said in its conversation; once, both or none."""
        if making.saved:
            return
        response = making.translation.response
        if cancelled:
            response = {**response, "status": "cancelled", "error": None}
        is_whole = response["status"] in ("completed", "incomplete")
        output = items_of(response) if making.plan.conversation and is_whole else None
        ended = await OFF_LOOP.run(making.size(), dump_large, response)
        for _ in range(SAVE_TRIES):
            seen = await self._seen(making)
            # At another process, and who did it was told so: it stays.
            if _is_cancelled(seen) or await self._keep(making, progress, ended, over=seen, output=output):
                break
            if seen is None:
                break
        if output is not None and not making.plan.store:
            await self._keeping.add(self._kept(making, progress, b""), output)
        making.saved = True

    async def _seen(self, making: ResponseInProgress) -> bytes | None:
        """Return what stands in the store, where another process may have changed it."""
        return await self._keeping.seen(making.owner, making.id) if making.live is not None else None

    async def _keep(
        self,
        making: ResponseInProgress,
        progress: Progress,
        response: bytes,
        *,
        over: bytes | None = None,
        output: Sequence[dict[str, Any]] | None = None,
    ) -> bool:
        if not making.plan.store or making.generation is None:
            return False
        return await self._keeping.keep(self._kept(making, progress, response), over=over, output=output)

    def _kept(self, making: ResponseInProgress, progress: Progress, response: bytes) -> NewResponse:
        return NewResponse(
            id=making.id,
            owner=making.owner,
            generation=making.generation,
            session_id=making.session_id,
            previous_id=making.plan.previous_response_id,
            conversation_id=making.plan.conversation,
            response=response,
            input_items=making.plan.input_items,
            created_at=making.created_at,
            size=len(progress.payload),
            recalled=(*progress.prepared.memory_ids, *making.refers),
            exchange=progress.writing.begun if progress.writing is not None else None,
        )

    async def _beat(self, making: ResponseInProgress, live: BackgroundResponse, progress: Progress) -> None:
        """Show, while the response is under way, that it is; end it where its owner asked another process."""
        while True:
            await asyncio.sleep(background.BEAT_S)
            with suppress(StoreError):
                kept = await self._keeping.find(making.owner, making.id)
                if kept is None or json_body.loads(kept.response)["status"] not in UNDER_WAY:
                    live.cancel()
                elif making.under_way and not making.saved:
                    # Over what it has seen: a cancellation that came meanwhile, or the end, stays.
                    beat = with_beat(making.response, self._shared.clock())
                    await self._keep(making, progress, beat, over=kept.response)


def _continuing(turn: Turn, planned: ChatPlan, earlier: ChainHistory) -> Turn:
    """Return the turn with its whole conversation, in the session of the chain's first response."""
    turn = replace(turn, messages=bounded(CHAT.messages(planned.chat)))
    return turn if turn.named or not earlier.session_id else replace(turn, session_id=earlier.session_id)


def _is_cancelled(seen: bytes | None) -> bool:
    return seen is not None and json_body.loads(seen)["status"] == "cancelled"


def dropped(planned: ChatPlan) -> list[Header]:
    """Return the headers that name what is left out of the upstream's request."""
    named = {b"x-memory-dropped-tools": planned.dropped, b"x-memory-dropped-items": planned.left_out}
    return [(name, ",".join(types).encode("ascii")) for name, types in named.items() if types]


def content_of(headers: Sequence[Header]) -> tuple[str, str]:
    """Return content type and content encoding, "" where there is none."""
    told = {name: value.decode("latin-1") for name, value in headers}
    return told.get(b"content-type", ""), told.get(b"content-encoding", "")


async def _in_thread(work: Callable[[], list[Event]]) -> list[Event]:
    """Return the work's result; if the client leaves during it, wait until it has ended."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


async def _drain(opened: UpstreamResponse) -> None:
    """Read what little follows the answer, so that the connection serves others too."""
    with suppress(TimeoutError, UpstreamCut):
        async with asyncio.timeout(DRAIN_S):
            while not opened.at_end and await opened.read():
                pass


async def _nowhere(message: object) -> None:
    """Stand for the client of a request that has been answered."""
