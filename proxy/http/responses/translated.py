"""A Responses request on its way through an upstream that speaks only chat completions.

The Forwarding of `Intercept` that translates: the request becomes a plan (wire/translation), memory enters
the plan's chat body, the upstream's answer becomes events, and what was made is kept for its owner.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from proxy.domain.errors import InvalidRequest, StoreError, StoreUnavailable, UpstreamCut, UpstreamError
from proxy.domain.ports import Clock
from proxy.http.asgi import ASGIScope, Header, Send, send_bytes
from proxy.http.forwarding import Draft, is_proven
from proxy.http.memory_work import read_answer
from proxy.http.responses import response_store
from proxy.http.responses.answer_output import (
    AnswerParser,
    BackgroundOutlet,
    JsonOutlet,
    Outlet,
    StreamOutlet,
    for_client,
    header_values,
    read_events,
    refusal_of,
)
from proxy.http.responses.ownership import Owner, SealKey, new_id, owner_of
from proxy.http.responses.response_store import (
    UNDER_WAY,
    BackgroundRegistry,
    BackgroundResponse,
    ChainHistory,
    NewResponse,
    ResponseStore,
    with_beat,
)
from proxy.http.turns import OFF_LOOP, ParsedRequest, bounded
from proxy.upstream.client import Upstream
from proxy.upstream.connection import UpstreamResponse
from proxy.upstream.forms import Form, Learning, RequestTraits
from proxy.upstream.relay import Ending, log_refused, raw_target, relay
from proxy.wire import body as json_body
from proxy.wire.answers import LIMIT_BYTES
from proxy.wire.body import Body, dump_large
from proxy.wire.dialect import CHAT, RESPONSES, Answer
from proxy.wire.history import CHAT_HISTORY, HistoryFormat
from proxy.wire.http import request_headers
from proxy.wire.translation.items import referenced_ids, response_of
from proxy.wire.translation.request import (
    LIMITS,
    ChatPlan,
    adapted,
    conversation_of,
    has_neighbours,
    has_system,
    has_tool_media,
    optional_fields,
    plan,
    previous_of,
    with_thoughts,
)
from proxy.wire.translation.response import Translation, items_of, translation_of

UNPROVEN_START_S = 3.0  # as `start_s`, for a request with memory in a form that the model may refuse
DRAIN_S = 0.5  # for what follows [DONE], so that the connection can be used again
ERROR_BYTES = 256 * 1024  # of a refusal that are read
SAVE_TRIES = 3  # each loses to a heartbeat or a cancellation in between
_JSON: list[Header] = [(b"content-type", b"application/json")]


@dataclass(frozen=True, slots=True)
class TranslationPorts:
    upstream: Upstream
    store: ResponseStore
    background: BackgroundRegistry
    clock: Clock
    seal_key: SealKey
    learning: Learning
    start_s: float = 0.5  # a stream begins after this time without a status; an earlier error is a status
    silence_s: float = 15.0  # in a stream, after which a comment is sent
    max_answer_bytes: int = LIMIT_BYTES

    async def plan(self, body: Body, owner: Owner, earlier: ChainHistory, size: int) -> ChatPlan:
        """Return the chat request that answers the body. `size`: about how many bytes it reads."""
        ids = referenced_ids(body.get("input"))
        referenced = await self.store.referenced(owner, ids) if ids else {}
        seals = await self.seal_key.seals(owner)
        return await OFF_LOOP.run(size, plan, body, earlier.items, referenced, seals)

    async def ask(self, scope: ASGIScope, payload: bytes) -> UpstreamResponse:
        """Ask for a chat completion, with the request's headers and query."""
        _, mark, query = raw_target(scope).partition(b"?")
        headers = request_headers(scope["headers"], identity=True)
        return await self.upstream.open("POST", b"/v1/chat/completions" + mark + query, headers, payload)


@dataclass(slots=True)
class ResponseInProgress:
    """One response being made, once its request is known to be valid."""

    plan: ChatPlan
    translation: Translation
    made: NewResponse  # as it is stored, without what the answer adds
    asked_bytes: int  # of the client's request, parts of which are echoed
    live: BackgroundResponse | None = None
    beat: asyncio.Task[None] | None = None
    stream: StreamOutlet | None = None  # once it is begun
    queued: bool = False
    saved: bool = False
    why: str = "The server stopped before the response was complete."
    code: str = "server_error"

    @property
    def under_way(self) -> bool:
        return self.translation.status in UNDER_WAY

    def size(self) -> int:
        """About how many bytes the response object has."""
        return self.asked_bytes + self.translation.size

    @property
    def response(self) -> dict[str, Any]:
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
        self._shared, self._store = shared, shared.store
        self.promised = False
        self._in_progress: ResponseInProgress | None = None
        self.draft: Draft | None = None

    @property
    def _current(self) -> ResponseInProgress:
        assert self._in_progress is not None, "adopt comes first"
        return self._in_progress

    @property
    def _draft(self) -> Draft:
        assert self.draft is not None, "acknowledge comes first"
        return self.draft

    @property
    def route(self) -> str:
        return "chat"

    @property
    def answered(self) -> bool:
        """True if the client has its background response or the beginning of its stream."""
        made = self._in_progress
        if made is None or made.stream is None:
            return made is not None and made.live is not None
        return made.stream.started

    # ------------------------------------------------------------ the request
    async def adopt(self, request: ParsedRequest) -> ParsedRequest:
        """Make the plan, with what the request continues. Raises ClientError, StoreError."""
        if not request.is_json:
            raise InvalidRequest("The request body must be JSON.", code="invalid_json")
        turn, body = request.turn, request.body
        project = turn.scope.project if turn else None
        owner = owner_of(request.caller, request.client.headers, request.user, project)
        generation = await self._store.generation(owner)
        earlier = await self._store.earlier(owner, previous_of(body), conversation_of(body))
        size = len(request.payload) + earlier.size
        planned = await self._shared.plan(body, owner, earlier, size)
        if turn is not None:
            # The whole conversation, in the session of the chain's first response.
            messages = await OFF_LOOP.run(size, lambda: bounded(CHAT.messages(planned.chat)))
            session = turn.session_id if turn.named else earlier.session_id or turn.session_id
            turn = replace(turn, messages=messages, session_id=session)
        made = NewResponse(
            id=new_id("resp"),
            owner=owner,
            generation=generation,
            session_id=turn.session_id if turn else earlier.session_id,
            previous_id=planned.previous_response_id,
            conversation_id=planned.conversation,
            response=b"",
            input_items=planned.input_items,
            created_at=self._shared.clock(),
            # Responses with items that the input names: they are copied into this one.
            recalled=tuple(dict.fromkeys(filter(None, map(response_of, referenced_ids(body.get("input")))))),
        )
        most, at = self._shared.max_answer_bytes, int(made.created_at)
        translation = translation_of(planned, response_id=made.id, created_at=at, limit_bytes=most)
        self._in_progress = ResponseInProgress(planned, translation, made, len(request.payload))
        return replace(request, turn=turn)

    def conversation(self, form: Form) -> tuple[Body, HistoryFormat]:
        planned = self._current.plan
        return with_thoughts(planned.chat, planned.thoughts, form.thoughts), CHAT_HISTORY

    def changeable(self, traits: RequestTraits) -> RequestTraits:
        return changeable_in(self._current.plan, traits)

    def write(self, body: Body, form: Form) -> bytes:
        return json_body.dump(_adapted(body, form))

    async def acknowledge(self, draft: Draft) -> None:
        """Answer a background request; its work continues in this task."""
        current, client, self.draft = self._current, draft.request.client, draft
        if not current.plan.background:
            return
        current.queued = True
        live = BackgroundResponse(current.made.id, current.made.owner, lambda: current.response)
        if not await self._keep(with_beat(current.response, self._shared.clock())):
            raise StoreUnavailable("a background response cannot be stored")
        self.promised = await draft.committed()
        headers = [*draft.memory_headers(queued=self.promised, answered=False), *dropped(current.plan)]
        if current.plan.stream:
            await self._stream().start(headers)
        else:
            await send_bytes(client.send, 200, json_body.dump(current.response), b"application/json", headers)
        current.live = live
        live.stop = client.downstream.hold()
        self._shared.background.begin(live)
        current.beat = client.tasks.create_task(self._beat(live))
        await self._outlet().emit(current.translation.start())

    async def open(self, draft: Draft) -> tuple[Draft, UpstreamResponse]:
        client, self.draft = draft.request.client, draft
        answered, starting = asyncio.Event(), None
        if self._current.plan.stream and self._current.stream is None:
            starting = client.tasks.create_task(self._start_early(draft, answered))
        try:
            return draft, await self._shared.ask(client.scope, draft.payload)
        except UpstreamError as error:
            self._current.why = error.message
            raise
        finally:
            answered.set()
            if starting is not None:
                await starting  # it may be writing the head

    async def _start_early(self, draft: Draft, answered: asyncio.Event) -> None:
        """Begin the client's stream with response.created while the upstream is still silent.

        An upstream that refuses a request mostly does so quickly. So there is a short wait, in which its
        status can still be the client's; later, the response fails. Where the model was not seen to take
        memory in this form, the wait is longer: the headers say in which form the request was taken.
        """
        start_s = self._shared.start_s
        if not is_proven(draft, self._shared.learning):
            start_s = max(start_s, UNPROVEN_START_S)
        try:
            await asyncio.wait_for(answered.wait(), start_s)
        except TimeoutError:
            self.promised = await draft.committed()
            headers = draft.memory_headers(queued=self.promised, answered=False)
            stream = self._stream()
            await stream.start(for_client((), [*headers, *dropped(self._current.plan)]))
            await stream.emit(self._current.translation.start())

    # ------------------------------------------------------------ the answer
    async def answer(
        self, draft: Draft, opened: UpstreamResponse, send: Send, headers: list[Header]
    ) -> Ending:
        """Translate the answer as it comes. A refusal passes unchanged if it has OpenAI's shape."""
        current, self.draft = self._current, draft
        if not 200 <= opened.status < 300:
            return await self._refuse(opened, [*headers, *dropped(current.plan)])
        current.queued = False
        forms, outlet = self._shared.learning.forms, self._outlet()
        if (known := forms.of(draft.model)).begins_in_thoughts:
            current.translation.expect_thoughts()
        with opened:
            try:
                await outlet.start(for_client(opened.headers, [*headers, *dropped(current.plan)]))
                if current.live is None and (events := current.translation.start()):
                    await outlet.emit(events)
                parser = AnswerParser(
                    current.translation, *header_values(opened.headers), self._shared.max_answer_bytes
                )
                async for events in read_events(opened, parser):
                    await outlet.emit(events)
                if current.live is None:
                    draft.request.client.downstream.settle()
                begins = current.translation.begins_in_thoughts()
                if begins is not None:  # the model's next answer is then split
                    forms.learn(draft.model, known, replace(known, begins_in_thoughts=begins))
                await outlet.finish(parser)
                if not parser.broken:
                    await _drain(opened)
                return Ending.UPSTREAM_CUT if parser.cut else Ending.COMPLETE
            except asyncio.CancelledError:
                if not draft.request.client.downstream.absorb():
                    raise
        return Ending.CLIENT_LEFT

    async def _refuse(self, opened: UpstreamResponse, headers: list[Header]) -> Ending:
        """Pass on the upstream's refusal in OpenAI's shape; a stream that has begun is ended."""
        current, body = self._current, await opened.peek(ERROR_BYTES)
        refusal = refusal_of(opened.status, opened.headers, body)
        current.why, current.code = refusal.problem.message, refusal.code
        answered, client = current.live is not None or current.stream is not None, self._draft.request.client
        if refusal.body is None and not answered:
            return await relay(opened, client.downstream, client.send, extra_headers=headers)
        log_refused(opened.status, opened.headers)
        if current.stream is not None:
            await current.stream.start(headers)
        with opened:
            if not answered and refusal.body is not None:
                client.downstream.settle()
                own = for_client(opened.headers, headers)
                await send_bytes(client.send, refusal.status, refusal.body, b"application/json", own)
        return Ending.COMPLETE

    def _stream(self) -> StreamOutlet:
        current, client, silence_s = self._current, self._draft.request.client, self._shared.silence_s
        if current.stream is None:
            current.stream = StreamOutlet(client.send, self._save, current.size, client.tasks, silence_s)
        return current.stream

    def _outlet(self) -> Outlet:
        current = self._current
        if current.live is not None:
            return BackgroundOutlet(current.live, self._save, current.size, current.stream)
        if current.plan.stream:
            return self._stream()
        return JsonOutlet(self._draft.request.client.send, self._save, current.size, current.translation)

    # ------------------------------------------------------------ what is left
    async def conclude(self, *, refused: bool) -> Answer:
        """Bring an interrupted response to its final state, and return the answer."""
        current = self._in_progress
        if current is None:
            return Answer()
        if current.live is not None or current.stream is not None:
            await self._end(current, refused=refused)
        if refused or self.draft is None or self.draft.recalled.commit is None:
            return Answer()
        said = await OFF_LOOP.run(current.size(), dump_large, current.translation.response)
        return await read_answer(_JSON, [said], RESPONSES)

    async def _end(self, current: ResponseInProgress, *, refused: bool) -> None:
        """End the background response or the stream. The client has the id: a stream that it left ends as
        cancelled, one that the upstream refused after its beginning as failed."""
        live, stream, left = current.live, current.stream, current.under_way
        if current.beat is not None:
            current.beat.cancel()
        events = current.translation.fail(current.why, current.code) if left else []
        cancelled = left and (not refused if live is None else live.cancelled)
        await self._save(cancelled=cancelled)
        tells = live is not None or (stream is not None and stream.started)
        if events and tells:
            await self._outlet().emit(events)
        if stream is not None and (live is not None or (events and tells)):
            await stream.close()
        elif stream is not None:
            stream.stop()
        if live is not None:
            self._shared.background.end(live)

    async def _save(self, *, cancelled: bool = False) -> None:
        """Save the final response, and append to its conversation; once, both or none."""
        current, made = self._current, self._current.made
        if current.saved:
            return
        response = current.translation.response
        if cancelled:
            response = {**response, "status": "cancelled", "error": None}
        is_whole = response["status"] in ("completed", "incomplete")
        output = items_of(response) if current.plan.conversation and is_whole else None
        ended = await OFF_LOOP.run(current.size(), dump_large, response)
        for _ in range(SAVE_TRIES):
            # Another process may have changed it: what it has reported as cancelled stays cancelled.
            seen = await self._store.seen(made.owner, made.id) if current.live is not None else None
            if seen is not None and json_body.loads(seen)["status"] == "cancelled":
                break
            if await self._keep(ended, over=seen, output=output) or seen is None:
                break
        if output is not None and not current.plan.store:
            await self._store.add(self._to_store(b""), output)
        current.saved = True

    async def _keep(
        self, response: bytes, *, over: bytes | None = None, output: Sequence[dict[str, Any]] | None = None
    ) -> bool:
        if not self._current.plan.store or self._current.made.generation is None:
            return False
        return await self._store.keep(self._to_store(response), over=over, output=output)

    def _to_store(self, response: bytes) -> NewResponse:
        draft, made = self._draft, self._current.made
        commit, recalled = draft.recalled.commit, (*draft.prepared.memory_ids, *made.recalled)
        exchange = commit.begun if commit is not None else None
        return replace(made, response=response, size=len(draft.payload), recalled=recalled, exchange=exchange)

    async def _beat(self, live: BackgroundResponse) -> None:
        """Save a heartbeat while the response is made; end it if it was cancelled in another process."""
        current, made = self._current, self._current.made
        while True:
            await asyncio.sleep(response_store.BEAT_S)
            with suppress(StoreError):
                stored = await self._store.find(made.owner, made.id)
                if stored is None or json_body.loads(stored.response)["status"] not in UNDER_WAY:
                    live.cancel()
                elif current.under_way and not current.saved:
                    # Over what was read: a cancellation or the end, if saved since, is not overwritten.
                    beat = with_beat(current.response, self._shared.clock())
                    await self._keep(beat, over=stored.response)


async def _drain(opened: UpstreamResponse) -> None:
    """Read the rest after the answer, so that the connection can be used again."""
    with suppress(TimeoutError, UpstreamCut):
        async with asyncio.timeout(DRAIN_S):
            while not opened.at_end and await opened.read():
                pass


def dropped(planned: ChatPlan) -> list[Header]:
    named = {b"x-memory-dropped-tools": planned.dropped, b"x-memory-dropped-items": planned.left_out}
    return [(name, ",".join(types).encode("ascii")) for name, types in named.items() if types]
