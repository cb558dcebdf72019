"""Stored responses: retrieve, delete, cancel, input items, and the stream of one made in the background."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proxy.domain.errors import InvalidRequest, NotFound, StoreError
from proxy.domain.ports import Clock
from proxy.domain.stored_responses import StoredResponse
from proxy.http.asgi import OFF_LOOP, ASGIScope, Receive, Send
from proxy.http.responses.answering import KeepAlive
from proxy.http.responses.background import UNDER_WAY, Live, Lives, shown
from proxy.http.responses.keeping import Keeping
from proxy.http.responses.owners import Owner
from proxy.http.responses.serving import REFUSALS, Identify, answer, answer_large, asker, cut, listed, page_of
from proxy.upstream.relay import Downstream
from proxy.wire import body as json_body
from proxy.wire.translation import encode

CANCEL_TRIES = 5  # each loses to a beat that came between, and beats are seconds apart
POLL_S = 1.0
LONGEST_NUMBER = 18  # digits
END_S = 5.0  # for work that was ended to be saved; the answer then says how far it came


@dataclass(frozen=True, slots=True)
class ResponsesApi:
    """The endpoints below /v1/responses/{id}. Another's id is as absent as an unknown one."""

    keeping: Keeping
    lives: Lives
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

    async def _ended(self, live: Live, owner: Owner) -> StoredResponse:
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
            return Following(live.follow(after), self.silence_s)
        if not json_body.loads(kept.response).get("background"):
            raise InvalidRequest("Only a response made in the background can be streamed.", param="stream")
        return Following(self._until_its_end(owner, kept, after), self.silence_s)

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


class Following(Response):
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
