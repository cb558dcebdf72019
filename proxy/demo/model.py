"""A small OpenAI-compatible model that answers by rules: for the demo, for a first `curl`, for tests.

It calls itself `scripted-demo`. Asked by the proxy (`User-Agent: … (memory_extraction)`) it extracts facts
by the rules of `rules.py`, sums a session up and keeps its state (`sessions.py`). It keeps the last
responses, so that `previous_response_id` works.
"""

import asyncio
import base64
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from proxy.demo.answers import MODEL, Said, answer
from proxy.demo.chat import Chat
from proxy.demo.extraction import extract
from proxy.demo.requests import CHAT_FIELDS, EMBEDDINGS_FIELDS, RESPONSES_FIELDS, check_messages, parse
from proxy.demo.responses import Answered
from proxy.demo.said import estimated_tokens, said_in
from proxy.demo.sessions import keep_state, sum_up
from proxy.domain.errors import ClientError, InvalidRequest, NotFound, error_body
from proxy.text.terms import terms

KEPT_RESPONSES = 1_000
DIMENSIONS = 384


def scripted_model(*, chunk_delay_s: float = 0.02) -> Starlette:
    """Return the model as an ASGI app. `chunk_delay_s` passes before each event of a stream."""
    model = _Model(chunk_delay_s)
    one = "/v1/responses/{response_id}"
    return Starlette(
        routes=[
            Route("/v1/models", model.models, methods=["GET"]),
            Route("/v1/models/{name}", model.one_model, methods=["GET"]),
            Route("/v1/chat/completions", model.chat, methods=["POST"]),
            Route("/v1/responses", model.respond, methods=["POST"]),
            Route(one, model.response, methods=["GET"]),
            Route(one, model.delete_response, methods=["DELETE"]),
            Route("/v1/embeddings", model.embed, methods=["POST"]),
        ],
        exception_handlers={ClientError: _refuse, HTTPException: _unknown_url},
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """A stored response, and the conversation up to and including it."""

    shown: dict[str, Any]
    conversation: list[Said]


@dataclass(frozen=True, slots=True)
class _Model:
    """The endpoints."""

    chunk_delay_s: float
    kept: OrderedDict[str, _Kept] = field(default_factory=OrderedDict)

    async def models(self, request: Request) -> Response:
        return _json({"object": "list", "data": [_MODEL_CARD]})

    async def one_model(self, request: Request) -> Response:
        if request.path_params["name"] != MODEL:
            raise NotFound("The model does not exist.", param="model", code="model_not_found")
        return _json(_MODEL_CARD)

    async def chat(self, request: Request) -> Response:
        body = parse(await request.body(), CHAT_FIELDS)
        check_messages(body.get("messages"), "messages")
        asked = said_in(body["messages"])
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        reply = Chat(asked, _in_role(request, asked), limit)
        if not body.get("stream"):
            return _json(reply.whole())
        options = body.get("stream_options")
        include_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        return self._stream(reply.events(include_usage=include_usage))

    async def respond(self, request: Request) -> Response:
        body = parse(await request.body(), RESPONSES_FIELDS)
        if not isinstance(body.get("input"), str):
            check_messages(body.get("input"), "input")
        conversation = self._before(body.get("previous_response_id")) + said_in(body["input"])
        # Instructions hold for this response only: a later one of the chain does not inherit them.
        instructions = (
            [Said("system", body["instructions"])] if isinstance(body.get("instructions"), str) else []
        )
        asked = instructions + conversation
        reply = Answered(body, asked, answer(asked))
        whole = reply.whole()
        if body.get("store") is not False:
            self._keep(_Kept(whole, [*conversation, Said("assistant", reply.shown())]))
        return self._stream(reply.events()) if body.get("stream") else _json(whole)

    async def response(self, request: Request) -> Response:
        return _json(self._found(request).shown)

    async def delete_response(self, request: Request) -> Response:
        response_id = self._found(request).shown["id"]
        del self.kept[response_id]
        return _json({"id": response_id, "object": "response", "deleted": True})

    async def embed(self, request: Request) -> Response:
        body = parse(await request.body(), EMBEDDINGS_FIELDS)
        texts = [body["input"]] if isinstance(body.get("input"), str) else body.get("input")
        if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
            raise InvalidRequest("'input' must be a string or an array of strings.", param="input")
        vectors = [_embedding(text, body.get("dimensions") or DIMENSIONS) for text in texts]
        packed = body.get("encoding_format") == "base64"
        data = [
            {
                "object": "embedding",
                "index": i,
                "embedding": base64.b64encode(v.tobytes()).decode() if packed else v.tolist(),
            }
            for i, v in enumerate(vectors)
        ]
        tokens = sum(map(estimated_tokens, texts))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return _json({"object": "list", "data": data, "model": MODEL, "usage": usage})

    def _before(self, previous_id: Any) -> list[Said]:
        if previous_id is None:
            return []
        if previous_id not in self.kept:
            raise InvalidRequest(
                f"Previous response with id '{previous_id}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return self.kept[previous_id].conversation

    def _keep(self, kept: _Kept) -> None:
        self.kept[kept.shown["id"]] = kept
        if len(self.kept) > KEPT_RESPONSES:
            self.kept.popitem(last=False)

    def _found(self, request: Request) -> _Kept:
        response_id = request.path_params["response_id"]
        if response_id not in self.kept:
            raise NotFound(f"Response with id '{response_id}' not found.")
        return self.kept[response_id]

    def _stream(self, events: Iterable[bytes]) -> Response:
        async def paced() -> AsyncIterator[bytes]:
            for event in events:
                await asyncio.sleep(self.chunk_delay_s)
                yield event

        return StreamingResponse(
            paced(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
        )


_MODEL_CARD = {"id": MODEL, "object": "model", "created": 1767225600, "owned_by": "memory-proxy"}


def _in_role(request: Request, asked: list[Said]) -> str:
    """Return what the model says in the role in which it is asked."""
    user_agent = request.headers.get("user-agent", "")
    for role, play in _ROLES.items():
        if f"({role})" in user_agent:
            return play([m.text for m in asked if m.role == "user"])
    if user_agent.startswith("memory-proxy/") and "(memory_" in user_agent:
        raise InvalidRequest(f"The scripted model plays no other memory role than {', '.join(_ROLES)}.")
    return answer(asked)


_ROLES = {"memory_extraction": extract, "memory_summary": sum_up, "memory_state": keep_state}


def _embedding(text: str, dimensions: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the text's hashed terms as a unit vector: equal texts are equal, shared words are near."""
    vector = np.zeros(dimensions, dtype=np.float32)
    for term in terms(text) or ("",):
        digest = hashlib.blake2b(term.encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "big")
        vector[number % dimensions] += 1 if number >> 63 else -1
    length = float(np.linalg.norm(vector))
    if not length:  # opposite terms met in one place
        vector[0], length = 1, 1.0
    return vector / np.float32(length)


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, ClientError)
    return _json(error_body(error.message, error.type, error.param, error.code), error.status)


async def _unknown_url(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"Invalid URL ({request.method} {request.url.path}): {error.detail}."
    return _json(error_body(message, "invalid_request_error", None, None), error.status_code)
