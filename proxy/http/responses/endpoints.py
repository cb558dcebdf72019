"""Endpoints of the Responses API that are served here, for an upstream that speaks only chat completions.

Stored responses and conversations: another's id is as absent as an unknown one. `/v1/responses/compact`: the
model writes the compaction, with the client's own key. `/v1/responses/input_tokens`: our tokenizer counts.
Neither of the last two has memory, and nothing is stored.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proxy.domain.errors import InvalidRequest, NotFound, ProxyError, StoreError, UpstreamBroken
from proxy.domain.ports import Clock, TokenCounter
from proxy.domain.responses import Conversation, StoredResponse
from proxy.http.asgi import ASGIScope, Receive, Send, answer, error_of, read_body, send_json
from proxy.http.auth.identity import Caller, caller_of
from proxy.http.forwarding import refusal_in
from proxy.http.memory_api.response_schemas import json_answer, list_of
from proxy.http.responses.answer_output import AnswerParser, KeepAlive, for_client, header_values, read_events
from proxy.http.responses.ownership import Owner, absent, new_id, owner_of, refuse_foreign_pages
from proxy.http.responses.response_store import (
    UNDER_WAY,
    BackgroundRegistry,
    BackgroundResponse,
    ChainHistory,
    Item,
    ResponseStore,
    shown,
)
from proxy.http.responses.translated import TranslationPorts, changeable_in, dropped, in_form
from proxy.http.turns import OFF_LOOP
from proxy.upstream.connection import UpstreamResponse
from proxy.upstream.forms import MAX_ATTEMPTS, Attempt, next_attempt
from proxy.upstream.relay import Downstream, relay
from proxy.wire import body as json_body
from proxy.wire.body import Body, BodyLimits, parse_bounded
from proxy.wire.extensions import checked_id, take_extensions
from proxy.wire.translation.items import as_items
from proxy.wire.translation.request import (
    ChatPlan,
    check_conversation_id,
    check_metadata,
    conversation_of,
    previous_of,
)
from proxy.wire.translation.response import compacted_response, encode, translation_of

Identify = Callable[[ASGIScope], Caller]

DEFAULT_LIMIT, MAX_LIMIT = 20, 100
CANCEL_TRIES = 5  # each loses to a heartbeat in between, and those are seconds apart
POLL_S = 1.0
MAX_DIGITS = 18
END_S = 5.0  # for cancelled work to be saved
MAX_NEW_ITEMS = 20  # of one request, as at OpenAI


@dataclass(frozen=True, slots=True)
class ListRange:
    limit: int
    after: str | None
    ascending: bool

    @classmethod
    def of(cls, params: Mapping[str, str]) -> "ListRange":
        """Read `limit`, `after` and `order`; newest first by default. Raises InvalidRequest."""
        text, order = params.get("limit", str(DEFAULT_LIMIT)), params.get("order", "desc")
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_LIMIT):
            raise InvalidRequest(f"`limit` must be a whole number from 1 to {MAX_LIMIT}.", param="limit")
        if order not in ("asc", "desc"):
            raise InvalidRequest("`order` must be asc or desc.", param="order")
        return cls(int(text), params.get("after") or None, order == "asc")

    def page(self, items: Sequence[Any]) -> tuple[Sequence[Any], bool]:
        """Return the page of items given oldest first, and whether there are more. Raises InvalidRequest."""
        ordered = list(items) if self.ascending else list(reversed(items))
        if self.after is not None:
            ids = [item.get("id") for item in ordered]
            if self.after not in ids:
                raise _unknown_after()
            ordered = ordered[ids.index(self.after) + 1 :]
        return ordered[: self.limit], len(ordered) > self.limit


def owner_in(request: Request, identify: Identify, named: str | None = None) -> Owner:
    """Return the owner that the request acts for. A user is named by the body (`named`), by `user_id` in the
    query or by the header.

    Raises Forbidden if one of them is not the credential's, and for a web page of another origin.
    """
    caller = identify(request.scope)
    refuse_foreign_pages(caller)
    given = request.query_params.getlist("user_id")
    if len(given) > 1:
        raise InvalidRequest("`user_id` is given twice.", param="user_id")
    in_query = caller.narrow(checked_id(given[0], "user_id")) if given else None
    user = caller.narrow(in_query) if named is None else caller.narrow(named, "memory_context.user_id")
    return owner_of(caller, request.scope["headers"], user)


def stored_app(responses: "ResponsesApi", conversations: "ConversationsApi") -> Starlette:
    response, conversation = "/v1/responses/{response_id}", "/v1/conversations/{conversation_id}"
    items = conversation + "/items"
    table = (
        ("GET", response, responses.retrieve),
        ("DELETE", response, responses.delete),
        ("POST", response + "/cancel", responses.cancel),
        ("GET", response + "/input_items", responses.input_items),
        ("POST", "/v1/conversations", conversations.create),
        ("GET", conversation, conversations.retrieve),
        ("POST", conversation, conversations.update),
        ("DELETE", conversation, conversations.delete),
        ("POST", items, conversations.add),
        ("GET", items, conversations.items),
        ("GET", items + "/{item_id}", conversations.item),
        ("DELETE", items + "/{item_id}", conversations.remove),
    )
    return Starlette(
        routes=[Route(path, endpoint, methods=[method]) for method, path, endpoint in table],
        exception_handlers={ProxyError: answer, HTTPException: _no_route},
    )


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    refusal = NotFound(f"No such endpoint: {request.method} {request.url.path}.", code="unknown_url")
    response = json_answer(error_of(refusal)[1], error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _answer_large(value: Any, size: int) -> Response:
    """Return a JSON answer of about so many bytes, encoded off the event loop if it is large."""
    body = await OFF_LOOP.run(size, json_body.dump_large, value)
    return Response(body, media_type="application/json")


def _unknown_after() -> InvalidRequest:
    return InvalidRequest("`after` is no item of this list.", param="after")


# ---------------------------------------------------------------- responses
@dataclass(frozen=True, slots=True)
class ResponsesApi:
    store: ResponseStore
    background: BackgroundRegistry
    identify: Identify
    clock: Clock
    silence_s: float = 15.0  # in a stream, after which a comment is sent

    async def retrieve(self, request: Request) -> Response:
        """The response as it is now, or with `stream=true` its events."""
        owner, stored = await self._find_in(request)
        if request.query_params.get("stream", "").lower() not in ("true", "1"):
            return await _answer_large(await self._current(owner, stored), len(stored.response))
        text = request.query_params.get("starting_after", "-1")
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS):
            raise InvalidRequest("`starting_after` must be a whole number.", param="starting_after")
        if (running := self.background.recent(owner, stored.id)) is not None:
            return EventFeed(running.follow(int(text)), self.silence_s)
        if not json_body.loads(stored.response).get("background"):
            raise InvalidRequest("Only a response made in the background can be streamed.", param="stream")
        return EventFeed(self._last_event(owner, stored, int(text)), self.silence_s)

    async def delete(self, request: Request) -> Response:
        owner, stored = await self._find_in(request)
        running = self.background.under_way(owner, stored.id)
        if not await self.store.delete(owner, stored.id):
            raise absent("Response", stored.id, "response_id")
        if running is not None:
            running.cancel()
        return json_answer({"id": stored.id, "object": "response", "deleted": True})

    async def cancel(self, request: Request) -> Response:
        """End the work on a background response; one that has ended stays as it is."""
        owner, stored = await self._find_in(request)
        response = await self._current(owner, stored)
        if not response.get("background"):
            why = "Only a response made with `background: true` can be cancelled."
            raise InvalidRequest(why, param="response_id")
        if response["status"] not in UNDER_WAY:
            return json_answer(response)
        if (running := self.background.under_way(owner, stored.id)) is not None:
            running.cancel()
            return json_answer(await self._current(owner, await self._ended(running, owner)))
        # Another process makes it, and sees this at its next heartbeat.
        for _ in range(CANCEL_TRIES):
            cancelled = {**response, "status": "cancelled"}
            if await self._save_again(stored, cancelled):
                return json_answer(cancelled)
            stored = await self._find(owner, stored.id)
            response, _ = shown(stored, self.clock())
            if response["status"] not in UNDER_WAY:
                break
        return json_answer(response)

    async def input_items(self, request: Request) -> Response:
        """The items of the response's own request."""
        wanted = ListRange.of(request.query_params)
        _, stored = await self._find_in(request)
        size = len(stored.input_items)
        items, more = wanted.page(await OFF_LOOP.run(size, json_body.loads, stored.input_items))
        return await _answer_large(list_of(items, has_more=more), size)

    async def _find_in(self, request: Request) -> tuple[Owner, StoredResponse]:
        owner = owner_in(request, self.identify)
        return owner, await self._find(owner, request.path_params["response_id"])

    async def _find(self, owner: Owner, response_id: str) -> StoredResponse:
        stored = await self.store.find(owner, response_id)
        if stored is None:
            raise absent("Response", response_id, "response_id")
        return stored

    async def _current(self, owner: Owner, stored: StoredResponse) -> dict[str, Any]:
        """Return the response object; one whose process died is saved as failed."""
        if running := self.background.under_way(owner, stored.id):
            if (response := running.response())["status"] in UNDER_WAY:
                return response
            # The final state is being saved: clients that see it may continue the response.
            stored = await self._ended(running, owner)
        response, died = await OFF_LOOP.run(len(stored.response), shown, stored, self.clock())
        if died:
            await self._save_again(stored, response)
        return response

    async def _ended(self, running: BackgroundResponse, owner: Owner) -> StoredResponse:
        with suppress(TimeoutError):
            await asyncio.wait_for(running.ended(), END_S)
        return await self._find(owner, running.id)

    async def _save_again(self, stored: StoredResponse, response: dict[str, Any]) -> bool:
        """Save the response over what was found. False if it has changed since, or was deleted."""
        stamp = await self.store.memories.stamp(stored.scope)
        changed = replace(stored, response=json_body.dump(response))
        return await self.store.responses.save(changed, generation=stamp.generation, over=stored.response)

    async def _last_event(self, owner: Owner, stored: StoredResponse, after: int) -> AsyncIterator[bytes]:
        """Yield the last event of a response that runs in another process, or did. It holds the whole
        response."""
        while True:
            with suppress(StoreError):  # tried again in a second
                response = await self._current(owner, stored)
                if response["status"] not in UNDER_WAY:
                    status = response["status"]
                    ended = status if status in ("completed", "incomplete") else "failed"
                    number = max(after, -1) + 1
                    yield encode(
                        {"type": f"response.{ended}", "sequence_number": number, "response": response}
                    )
                    return
            await asyncio.sleep(POLL_S)
            with suppress(StoreError):
                found = await self.store.find(owner, stored.id)
                if found is None:
                    return  # deleted
                stored = found


class EventFeed(Response):
    """Server-sent events as they come. Starlette's own response would not notice that the client left."""

    def __init__(self, events: AsyncIterator[bytes], silence_s: float) -> None:
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-cache"})
        self._events, self._silence_s = events, silence_s

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        headers = [header for header in self.raw_headers if header[0] != b"content-length"]
        send = KeepAlive(send, self._silence_s)
        async with asyncio.TaskGroup() as tasks, Downstream(receive) as downstream:
            await downstream.read(0)
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            send.start(tasks)
            try:
                async for piece in self._events:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            finally:
                send.stop()
            downstream.settle()
            await send({"type": "http.response.body", "body": b""})


# ---------------------------------------------------------------- conversations
@dataclass(frozen=True, slots=True)
class ConversationsApi:
    store: ResponseStore
    identify: Identify
    max_body_bytes: int

    async def create(self, request: Request) -> Response:
        body, user = await self._body(request, "items", "metadata")
        items, metadata = _new_items(body.get("items") or []), check_metadata(body.get("metadata"))
        owner = owner_in(request, self.identify, user)
        return json_answer(_shown(await self.store.converse(owner, items, metadata)))

    async def retrieve(self, request: Request) -> Response:
        return json_answer(_shown((await self._find(request))[1]))

    async def update(self, request: Request) -> Response:
        body, user = await self._body(request, "metadata")
        owner, found = await self._find(request, user)
        if "metadata" not in body:
            raise InvalidRequest("`metadata` is required.", param="metadata")
        metadata = check_metadata(body["metadata"])
        await self.store.describe(owner, found, metadata)
        return json_answer({**_shown(found), "metadata": metadata})

    async def delete(self, request: Request) -> Response:
        owner, found = await self._find(request)
        await self.store.drop_conversation(owner, found)
        return json_answer({"id": found.id, "object": "conversation.deleted", "deleted": True})

    async def add(self, request: Request) -> Response:
        """Append items; returns them with their ids."""
        body, user = await self._body(request, "items")
        owner, found = await self._find(request, user)
        items = _new_items(body.get("items"))
        await self.store.append(owner, found, items)
        return json_answer(list_of(items, has_more=False))

    async def items(self, request: Request) -> Response:
        _, found = await self._find(request)
        wanted = ListRange.of(request.query_params)
        page = await self.store.conversations.items(
            found.scope, found.id, limit=wanted.limit, after=wanted.after, ascending=wanted.ascending
        )
        if page is None:
            raise _unknown_after()
        size = sum(map(len, page.items))
        items = await OFF_LOOP.run(size, lambda: [json_body.loads(item) for item in page.items])
        return await _answer_large(list_of(items, has_more=page.has_more), size)

    async def item(self, request: Request) -> Response:
        _, found = await self._find(request)
        item_id = request.path_params["item_id"]
        item = await self.store.conversations.item(found.scope, found.id, item_id)
        if item is None:
            raise absent("Item", item_id, "item_id")
        return json_answer(json_body.loads(item))

    async def remove(self, request: Request) -> Response:
        """Delete one item; returns the conversation."""
        _, found = await self._find(request)
        item_id = request.path_params["item_id"]
        if not await self.store.conversations.remove(found.scope, found.id, item_id):
            raise absent("Item", item_id, "item_id")
        return json_answer(_shown(found))

    async def _find(self, request: Request, user: str | None = None) -> tuple[Owner, Conversation]:
        owner, id_ = owner_in(request, self.identify, user), request.path_params["conversation_id"]
        check_conversation_id(id_, "conversation_id")
        found = await self.store.conversation(owner, id_)
        if found is None:
            raise absent("Conversation", id_, "conversation_id")
        return owner, found

    async def _body(self, request: Request, *known: str) -> tuple[dict[str, Any], str | None]:
        """Return the body, and the user that its `memory_context` names. Raises ClientError."""
        raw = await read_body(request.receive, self.max_body_bytes)
        if raw is None:
            raise InvalidRequest("The client left before the body was complete.", param="body")
        body: dict[str, Any] = {}
        if raw.strip():
            body = await OFF_LOOP.run(len(raw), parse_bounded, raw, BodyLimits(), "items")
        user = take_extensions(body).user_id
        for name in body:
            if name not in known:
                why = f"Unknown parameter: '{name[:64]}'."
                raise InvalidRequest(why, param=name[:64], code="unknown_parameter")
        return body, user


def _shown(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at),
        "metadata": json_body.loads(conversation.metadata),
    }


def _new_items(given: object) -> list[Item]:
    if not isinstance(given, list):
        raise InvalidRequest("`items` must be an array.", param="items", code="invalid_type")
    if len(given) > MAX_NEW_ITEMS:
        why = f"`items` holds {len(given)} items; the most at once is {MAX_NEW_ITEMS}."
        raise InvalidRequest(why, param="items", code="array_above_max_length")
    return list(as_items(given, param="items", only_known=True))


# ---------------------------------------------------------------- compactions and counts
IN_THREAD_CHARS = 32 * 1024
TOKENS_OF_A_MESSAGE = 4  # its role and its borders
TOKENS_OF_AN_IMAGE = {"low": 85, "high": 765}
_TRIGGER = {"type": "compaction_trigger"}
# What a compaction is asked with: the rest shapes an answer that the client does not get.
_ASKED = frozenset("model input instructions previous_response_id conversation tools service_tier".split())


@dataclass(frozen=True, slots=True)
class CompactApi:
    """An ASGI app for both endpoints."""

    shared: TranslationPorts
    tokens: TokenCounter
    max_body_bytes: int

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        async with Downstream(receive) as downstream:
            raw = await downstream.read(self.max_body_bytes)
            body = await OFF_LOOP.run(len(raw), parse_bounded, raw, BodyLimits(), "input")
            if scope["path"].endswith("/input_tokens"):
                await self._count(scope, body, len(raw), send)
            else:
                await self._compact(scope, body, len(raw), downstream, send)

    async def _plan(
        self, scope: ASGIScope, body: Body, size: int, *, compacts: bool
    ) -> tuple[ChatPlan, ChainHistory]:
        user = take_extensions(body).user_id
        caller = caller_of(scope)
        refuse_foreign_pages(caller)
        owner = owner_of(caller, scope["headers"], caller.narrow(user))
        earlier = await self.shared.store.earlier(owner, previous_of(body), conversation_of(body))
        if compacts:
            given = body.get("input")
            said = [{"role": "user", "content": given}] if isinstance(given, str) else given
            if not said and not earlier.items:
                raise InvalidRequest(
                    "Missing required parameter: 'input'.", param="input", code="missing_required_parameter"
                )
            asked = {name: value for name, value in body.items() if name in _ASKED}
            body = {**asked, "input": [*said, _TRIGGER] if isinstance(said, list) else said or [_TRIGGER]}
        return await self.shared.plan(body, owner, earlier, size), earlier

    # ------------------------------------------------------------ a compaction
    async def _compact(
        self, scope: ASGIScope, body: Body, size: int, downstream: Downstream, send: Send
    ) -> None:
        planned, earlier = await self._plan(scope, body, size, compacts=True)
        opened = await self._ask(scope, planned, size + earlier.size)
        if not 200 <= opened.status < 300:
            await relay(opened, downstream, send)
            return
        id_, now = new_id("resp"), int(self.shared.clock())
        most = self.shared.max_answer_bytes
        with opened:
            translation = translation_of(planned, response_id=id_, created_at=now, limit_bytes=most)
            translation.start()
            parser = AnswerParser(translation, *header_values(opened.headers), most)
            async for _ in read_events(opened, parser):
                pass
        response = translation.response
        if response["status"] == "failed":
            raise UpstreamBroken(response["error"]["message"])
        headers = for_client(opened.headers, dropped(planned))
        made = compacted_response(response, [*earlier.items, *planned.input_items])
        downstream.settle()
        await send_json(send, 200, made, [h for h in headers if h[0] != b"cache-control"])

    async def _ask(self, scope: ASGIScope, planned: ChatPlan, size: int) -> UpstreamResponse:
        """Ask for a compaction, again in another form where the model refuses this one."""
        model = self.shared.learning.model(str(planned.chat["model"]), "chat")
        first = attempt = Attempt(self.shared.learning.forms.of(model), memory=False)
        request, left = changeable_in(planned), MAX_ATTEMPTS
        while True:
            chat = in_form(planned, planned.chat, attempt.form)
            payload = await OFF_LOOP.run(size, json_body.dump, chat)
            opened, left = await self.shared.ask(scope, payload), left - 1
            if opened.status < 400:
                self.shared.learning.forms.learn(model, first.form, attempt.form)
            refusal = await refusal_in(opened) if opened.status >= 400 and left else None
            following = next_attempt(attempt, request, refusal) if refusal else None
            if following is None:
                return opened
            opened.close()
            attempt = following

    # ------------------------------------------------------------ a count
    async def _count(self, scope: ASGIScope, body: Body, size: int, send: Send) -> None:
        planned, _ = await self._plan(scope, {"model": "", **body}, size, compacts=False)
        texts, model = list(_texts(planned.chat)), str(planned.chat["model"])

        def count() -> int:
            return sum(self.tokens.count(text, model) for text in texts)

        heavy = sum(map(len, texts)) > IN_THREAD_CHARS
        tokens = (await asyncio.to_thread(count) if heavy else count()) + _borders(planned.chat)
        counted = {"object": "response.input_tokens", "input_tokens": tokens}
        await send_json(send, 200, counted, dropped(planned))


def _texts(chat: Body) -> Iterable[str]:
    """Yield all that a model reads of a chat body as text."""
    for message in chat["messages"]:
        content = message.get("content")
        parts: list[Any] = content if isinstance(content, list) else [{"text": content}]
        yield from (text for part in parts if isinstance(text := part.get("text"), str))
        if calls := message.get("tool_calls"):
            yield json.dumps([call["function"] for call in calls], ensure_ascii=False)
    if tools := chat.get("tools"):
        yield json.dumps(tools, ensure_ascii=False)


def _borders(chat: Body) -> int:
    """Return the tokens of the messages' borders, and of images."""
    images = [
        part["image_url"].get("detail", "high")
        for message in chat["messages"]
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if part.get("type") == "image_url"
    ]
    each = sum(TOKENS_OF_AN_IMAGE.get(detail, TOKENS_OF_AN_IMAGE["high"]) for detail in images)
    return TOKENS_OF_A_MESSAGE * len(chat["messages"]) + each
