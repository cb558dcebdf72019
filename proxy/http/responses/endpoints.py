"""What the endpoints of stored objects share: identifying the caller, pagination, and OpenAI's shapes.

Stored responses: retrieve, delete, cancel, input items, and the stream of one made in the background.

Conversations: create, retrieve, update, delete, and their items."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from proxy.domain.errors import Forbidden, InvalidRequest, NotFound, ProxyError, StoreError, TooLarge
from proxy.domain.ports import Clock
from proxy.domain.responses import Conversation, StoredResponse
from proxy.http.asgi import OFF_LOOP, ASGIScope, Receive, Send
from proxy.http.auth.identity import Caller
from proxy.http.errors import error_of
from proxy.http.responses.answer_output import KeepAlive
from proxy.http.responses.background import UNDER_WAY, BackgroundRegistry, BackgroundResponse, shown
from proxy.http.responses.owners import Owner, owner_of
from proxy.http.responses.response_store import Item, ResponseStore, absent_conversation
from proxy.upstream.relay import Downstream
from proxy.wire import body as json_body
from proxy.wire.body import BodyLimits, parse_bounded
from proxy.wire.extensions import checked_id, take_extensions
from proxy.wire.translation import as_items, encode
from proxy.wire.translation.request import check_conversation_id, check_metadata

Identify = Callable[[ASGIScope], Caller]

DEFAULT_LIMIT, MOST = 20, 100


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is asked for."""

    limit: int
    after: str | None
    ascending: bool


def asker(request: Request, identify: Identify, named: str | None = None) -> Owner:
    """Return who asks. A user is named by the body (`named`), by `user_id` in the query or by the header.

    Raises Forbidden if one of them is not the credential's, and for a web page of another origin: what is
    kept here is what users said."""
    caller = identify(request.scope)
    if caller.foreign:
        raise Forbidden(
            "Web pages of this origin, and requests under this host name, may not use what is stored here"
            " (identity.allowed_origins, identity.allowed_hosts).",
            param="origin",
            code="origin_not_allowed",
        )
    in_query = _user_in_query(request)
    if in_query is not None:
        caller.narrow(in_query)
    user = caller.narrow(in_query) if named is None else caller.narrow(named, "memory_context.user_id")
    return owner_of(caller, request.scope["headers"], user)


def _user_in_query(request: Request) -> str | None:
    given = request.query_params.getlist("user_id")
    if len(given) > 1:
        raise InvalidRequest("`user_id` is given twice.", param="user_id")
    return checked_id(given[0], "user_id") if given else None


def page_of(params: Mapping[str, str]) -> Page:
    """Return `limit`, `after` and `order`; newest first by default. Raises InvalidRequest."""
    text, order = params.get("limit", str(DEFAULT_LIMIT)), params.get("order", "desc")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST):
        raise InvalidRequest(f"`limit` must be a whole number from 1 to {MOST}.", param="limit")
    if order not in ("asc", "desc"):
        raise InvalidRequest("`order` must be asc or desc.", param="order")
    return Page(int(text), params.get("after") or None, order == "asc")


def cut(items: Sequence[Any], page: Page) -> tuple[Sequence[Any], bool]:
    """Return the page of items given oldest first, and whether there are more. Raises InvalidRequest."""
    ordered = list(items) if page.ascending else list(reversed(items))
    if page.after is not None:
        place = next((i for i, item in enumerate(ordered) if item.get("id") == page.after), None)
        if place is None:
            raise unknown_after()
        ordered = ordered[place + 1 :]
    return ordered[: page.limit], len(ordered) > page.limit


def unknown_after() -> InvalidRequest:
    """Return what a cursor that names no item of the list is refused with."""
    return InvalidRequest("`after` is no item of this list.", param="after")


def listed(items: Sequence[Any], *, has_more: bool) -> dict[str, Any]:
    """Return OpenAI's list object."""
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


def answer(value: Any, status: int = 200) -> Response:
    """Return a JSON answer."""
    return Response(json_body.dump(value), status, media_type="application/json")


async def answer_large(value: Any, size: int) -> Response:
    """Return a JSON answer of about so many bytes, written off the event loop where that takes long."""
    body = await OFF_LOOP.run(size, json_body.dump_large, value)
    return Response(body, media_type="application/json")


async def refuse(request: Request, error: Exception) -> Response:
    """Answer one of our errors."""
    assert isinstance(error, ProxyError)
    status, body = error_of(error)
    return answer(body, status)


async def no_route(request: Request, error: Exception) -> Response:
    """Answer a path or method that there is not."""
    assert isinstance(error, HTTPException)
    _, body = error_of(
        NotFound(f"No such endpoint: {request.method} {request.url.path}.", code="unknown_url")
    )
    return Response(
        json_body.dump(body), error.status_code, headers=error.headers, media_type="application/json"
    )


REFUSALS = {ProxyError: refuse, StoreError: refuse, HTTPException: no_route}


CANCEL_TRIES = 5  # each loses to a beat that came between, and beats are seconds apart
POLL_S = 1.0
LONGEST_NUMBER = 18  # digits
END_S = 5.0  # for work that was ended to be saved; the answer then says how far it came


@dataclass(frozen=True, slots=True)
class ResponsesApi:
    """The endpoints below /v1/responses/{id}. Another's id is as absent as an unknown one."""

    keeping: ResponseStore
    lives: BackgroundRegistry
    identify: Identify
    clock: Clock
    silence_s: float = 15.0  # in a stream, after which a comment is sent

    def app(self) -> Starlette:
        """Return the ASGI app."""
        item = "/v1/responses/{response_id}"
        return Starlette(
            routes=[
                Route(item, self.retrieve, methods=["GET"]),
                Route(item, self.delete, methods=["DELETE"]),
                Route(item + "/cancel", self.cancel, methods=["POST"]),
                Route(item + "/input_items", self.input_items, methods=["GET"]),
            ],
            exception_handlers=REFUSALS,
        )

    async def retrieve(self, request: Request) -> Response:
        """The response as it stands, or with `stream=true` its events."""
        owner, response_id = asker(request, self.identify), _id(request)
        kept = await self._find(owner, response_id)
        if request.query_params.get("stream", "").lower() in ("true", "1"):
            return self._stream(request, owner, kept)
        return await answer_large(await self._stands(owner, kept), len(kept.response))

    async def delete(self, request: Request) -> Response:
        """Delete the response, and end the work on it."""
        owner, response_id = asker(request, self.identify), _id(request)
        await self._find(owner, response_id)
        live = self.lives.under_way(owner, response_id)
        if not await self.keeping.delete(owner, response_id):
            raise _absent(response_id)
        if live is not None:
            live.cancel()
        return answer({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, request: Request) -> Response:
        """End the work on a background response; one that has ended stays as it is."""
        owner, response_id = asker(request, self.identify), _id(request)
        kept = await self._find(owner, response_id)
        response = await self._stands(owner, kept)
        if not response.get("background"):
            raise InvalidRequest(
                "Only a response made with `background: true` can be cancelled.", param="response_id"
            )
        if response["status"] not in UNDER_WAY:
            return answer(response)
        if (live := self.lives.under_way(owner, response_id)) is not None:
            live.cancel()
            return answer(await self._stands(owner, await self._ended(live, owner)))
        return answer(await self._cancel_elsewhere(owner, kept, response))

    async def input_items(self, request: Request) -> Response:
        """The items of the response's own request."""
        owner, page = asker(request, self.identify), page_of(request.query_params)
        kept = await self._find(owner, _id(request))
        size = len(kept.input_items)
        items, more = cut(await OFF_LOOP.run(size, json_body.loads, kept.input_items), page)
        return await answer_large(listed(items, has_more=more), size)

    # ------------------------------------------------------------ helpers
    async def _find(self, owner: Owner, response_id: str) -> StoredResponse:
        kept = await self.keeping.find(owner, response_id)
        if kept is None:
            raise _absent(response_id)
        return kept

    async def _stands(self, owner: Owner, kept: StoredResponse) -> dict[str, Any]:
        """Return the response object; one whose process died is saved as failed."""
        if live := self.lives.under_way(owner, kept.id):
            if (response := live.response)["status"] in UNDER_WAY:
                return response
            # It is being saved: whoever sees the final state may build on it.
            kept = await self._ended(live, owner)
        found = await OFF_LOOP.run(len(kept.response), shown, kept, self.clock())
        if found.died:
            await self._save_again(kept, found.response)
        return found.response

    async def _ended(self, live: BackgroundResponse, owner: Owner) -> StoredResponse:
        with suppress(TimeoutError):
            await asyncio.wait_for(live.ended(), END_S)
        return await self._find(owner, live.id)

    async def _save_again(self, kept: StoredResponse, response: dict[str, Any]) -> bool:
        """Save the response over what was found. False if it has changed since, or is gone."""
        stamp = await self.keeping.memories.stamp(kept.scope)
        changed = replace(kept, response=json_body.dump(response))
        return await self.keeping.responses.save(changed, generation=stamp.generation, over=kept.response)

    async def _cancel_elsewhere(
        self, owner: Owner, kept: StoredResponse, response: dict[str, Any]
    ) -> dict[str, Any]:
        """Cancel what another process makes: it sees this at its next beat. What has ended stays."""
        for _ in range(CANCEL_TRIES):
            cancelled = {**response, "status": "cancelled"}
            if await self._save_again(kept, cancelled):
                return cancelled
            kept = await self._find(owner, kept.id)
            response = shown(kept, self.clock()).response
            if response["status"] not in UNDER_WAY:
                break
        return response

    def _stream(self, request: Request, owner: Owner, kept: StoredResponse) -> Response:
        after = _starting_after(request)
        if (live := self.lives.recent(owner, kept.id)) is not None:
            return EventFeed(live.follow(after), self.silence_s)
        if not json_body.loads(kept.response).get("background"):
            raise InvalidRequest("Only a response made in the background can be streamed.", param="stream")
        return EventFeed(self._until_its_end(owner, kept, after), self.silence_s)

    async def _until_its_end(self, owner: Owner, kept: StoredResponse, after: int) -> AsyncIterator[bytes]:
        """Yield the last event of a response whose events are in another process, or in none any more. It
        holds all that the events before it have told."""
        while True:
            with suppress(StoreError):  # it may be back at the next look
                response = await self._stands(owner, kept)
                if response["status"] not in UNDER_WAY:
                    yield encode(last_event(response, max(after, -1) + 1))
                    return
            await asyncio.sleep(POLL_S)
            with suppress(StoreError):
                found = await self.keeping.find(owner, kept.id)
                if found is None:
                    return  # deleted
                kept = found


class EventFeed(Response):
    """Server-sent events as they come. Starlette's own would not notice that the client left."""

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


def last_event(response: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the event that tells the end of a response."""
    ended = response["status"] if response["status"] in ("completed", "incomplete") else "failed"
    return {"type": f"response.{ended}", "sequence_number": number, "response": response}


def _starting_after(request: Request) -> int:
    text = request.query_params.get("starting_after", "-1")
    digits = text.removeprefix("-")
    # "²" is a digit to Python, too, and no number; nor are thousands of nines.
    if not (digits.isascii() and digits.isdigit() and len(digits) <= LONGEST_NUMBER):
        raise InvalidRequest("`starting_after` must be a whole number.", param="starting_after")
    return int(text)


def _id(request: Request) -> str:
    return str(request.path_params["response_id"])


def _absent(response_id: str) -> NotFound:
    return NotFound(f"Response with id '{response_id[:80]}' not found.", param="response_id")


MOST_ITEMS = 20  # of one request, as OpenAI has it


@dataclass(frozen=True, slots=True)
class ConversationsApi:
    """The endpoints below /v1/conversations. Another's id is as absent as an unknown one."""

    keeping: ResponseStore
    identify: Identify
    max_body_bytes: int

    def app(self) -> Starlette:
        """Return the ASGI app."""
        one = "/v1/conversations/{conversation_id}"
        return Starlette(
            routes=[
                Route("/v1/conversations", self.create, methods=["POST"]),
                Route(one, self.retrieve, methods=["GET"]),
                Route(one, self.update, methods=["POST"]),
                Route(one, self.delete, methods=["DELETE"]),
                Route(one + "/items", self.add, methods=["POST"]),
                Route(one + "/items", self.items, methods=["GET"]),
                Route(one + "/items/{item_id}", self.item, methods=["GET"]),
                Route(one + "/items/{item_id}", self.remove, methods=["DELETE"]),
            ],
            exception_handlers=REFUSALS,
        )

    async def create(self, request: Request) -> Response:
        """A new conversation, with its first items."""
        body, user = await self._body(request, "items", "metadata")
        items, metadata = _items(body.get("items") or []), check_metadata(body.get("metadata"))
        return answer(
            _shown(await self.keeping.converse(asker(request, self.identify, user), items, metadata))
        )

    async def retrieve(self, request: Request) -> Response:
        """The conversation, without its items."""
        return answer(_shown((await self._find(request))[1]))

    async def update(self, request: Request) -> Response:
        """Replace the metadata."""
        body, user = await self._body(request, "metadata")
        owner, found = await self._find(request, user)
        if "metadata" not in body:
            raise InvalidRequest("`metadata` is required.", param="metadata")
        metadata = check_metadata(body["metadata"])
        await self.keeping.describe(owner, found, metadata)
        return answer({**_shown(found), "metadata": metadata})

    async def delete(self, request: Request) -> Response:
        """Delete the conversation and its items."""
        owner, found = await self._find(request)
        await self.keeping.drop_conversation(owner, found)
        return answer({"id": found.id, "object": "conversation.deleted", "deleted": True})

    # ------------------------------------------------------------ items
    async def add(self, request: Request) -> Response:
        """Append items; returns them with their ids."""
        body, user = await self._body(request, "items")
        owner, found = await self._find(request, user)
        items = _items(body.get("items"))
        await self.keeping.append(owner, found, items)
        return answer(listed(items, has_more=False))

    async def items(self, request: Request) -> Response:
        """A page of the items, newest first by default."""
        _, found = await self._find(request)
        asked = page_of(request.query_params)
        page = await self.keeping.conversations.items(
            found.scope, found.id, limit=asked.limit, after=asked.after, ascending=asked.ascending
        )
        if page is None:
            raise unknown_after()
        size = sum(map(len, page.items))
        read = await OFF_LOOP.run(size, lambda: [json_body.loads(item) for item in page.items])
        return await answer_large(listed(read, has_more=page.has_more), size)

    async def item(self, request: Request) -> Response:
        """One item."""
        _, found = await self._find(request)
        item_id = request.path_params["item_id"]
        item = await self.keeping.conversations.item(found.scope, found.id, item_id)
        if item is None:
            raise _no_item(item_id)
        return answer(json_body.loads(item))

    async def remove(self, request: Request) -> Response:
        """Delete one item; returns the conversation."""
        _, found = await self._find(request)
        item_id = request.path_params["item_id"]
        if not await self.keeping.conversations.remove(found.scope, found.id, item_id):
            raise _no_item(item_id)
        return answer(_shown(found))

    # ------------------------------------------------------------ helpers
    async def _find(self, request: Request, user: str | None = None) -> tuple[Owner, Conversation]:
        owner, id_ = asker(request, self.identify, user), request.path_params["conversation_id"]
        check_conversation_id(id_, "conversation_id")
        found = await self.keeping.conversation(owner, id_)
        if found is None:
            raise absent_conversation(id_)
        return owner, found

    async def _body(self, request: Request, *known: str) -> tuple[dict[str, Any], str | None]:
        """Return the body, and the user that its `memory_context` names. Raises ClientError."""
        raw = bytearray()
        try:
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > self.max_body_bytes:
                    raise TooLarge(f"The request body is larger than {self.max_body_bytes} bytes.")
        except ClientDisconnect:
            raise InvalidRequest("The client left before the body was complete.", param="body") from None
        given = bytes(raw)
        body = (
            await OFF_LOOP.run(len(raw), parse_bounded, given, BodyLimits(), "items") if raw.strip() else {}
        )
        user = take_extensions(body).user_id
        for name in body:
            if name not in known:
                raise InvalidRequest(
                    f"Unknown parameter: '{name[:64]}'.", param=name[:64], code="unknown_parameter"
                )
        return body, user


def _shown(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at),
        "metadata": json_body.loads(conversation.metadata),
    }


def _items(given: object) -> list[Item]:
    if not isinstance(given, list):
        raise InvalidRequest("`items` must be an array.", param="items", code="invalid_type")
    if len(given) > MOST_ITEMS:
        raise InvalidRequest(
            f"`items` holds {len(given)} items; the most at once is {MOST_ITEMS}.",
            param="items",
            code="array_above_max_length",
        )
    return list(as_items(given, param="items", only_known=True))


def _no_item(item_id: str) -> NotFound:
    return NotFound(f"Item with id '{item_id[:80]}' not found.", param="item_id")
