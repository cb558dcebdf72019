"""Conversations: create, retrieve, update, delete, and their items."""

from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from proxy.domain.errors import InvalidRequest, NotFound, TooLarge
from proxy.domain.stored_responses import Conversation
from proxy.http.asgi import OFF_LOOP
from proxy.http.responses.keeping import Item, Keeping, absent_conversation
from proxy.http.responses.owners import Owner
from proxy.http.responses.serving import (
    REFUSALS,
    Identify,
    answer,
    answer_large,
    asker,
    listed,
    page_of,
    unknown_after,
)
from proxy.wire import body as json_body
from proxy.wire.body import BodyLimits, parse_bounded
from proxy.wire.extensions import take_extensions
from proxy.wire.translation import as_items
from proxy.wire.translation.request import check_conversation_id, check_metadata

MOST_ITEMS = 20  # of one request, as OpenAI has it


@dataclass(frozen=True, slots=True)
class ConversationsApi:
    """The endpoints below /v1/conversations. Another's id is as absent as an unknown one."""

    keeping: Keeping
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
