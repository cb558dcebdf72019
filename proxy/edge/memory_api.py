"""The memory API under /v1/memory: add, search, list, get, history, forget. OpenAI's conventions.

Reads and writes stay inside the caller's scope. A parameter that we do not know is refused rather than
ignored: `DELETE /v1/memory?user_id=u&project=x` must not delete more than was meant.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from proxy.domain import KINDS, Candidate, Event, Forgotten, Memory, MemoryFilter, Ranked, Scope
from proxy.edge.identity import Caller
from proxy.edge.reply import error_of
from proxy.errors import InvalidRequest, NotFound, ProxyError
from proxy.ports import Clock, MemoryStore
from proxy.wire.extensions import checked_id

MAX_BODY_BYTES = 1_000_000
MAX_CONTENT_CHARS = 4_000


class Recall(Protocol):
    """Searches memories as the read path would."""

    async def __call__(
        self, scope: Scope, query: str, *, types: tuple[str, ...] | None, limit: int, threshold: float | None
    ) -> Sequence[Ranked]: ...


Remember = Callable[[Scope, Candidate], Awaitable[tuple[Memory, str]]]
"""Admits a candidate through the write gate; returns the memory that now states it, and "created",
"superseded" or "confirmed". Raises InvalidRequest for what the gate refuses."""


class AddBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    content: str = Field(min_length=1, max_length=MAX_CONTENT_CHARS)
    type: str = "semantic"
    user_id: str | None = None
    project_id: str | None = None
    tags: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(default=[], max_length=20)
    importance: float = Field(0.5, ge=0, le=1)


class SearchBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    query: str = Field(min_length=1, max_length=20_000)
    user_id: str | None = None
    project_id: str | None = None
    memory_types: list[str] | None = None
    limit: int = Field(10, ge=1, le=100)
    similarity_threshold: float | None = Field(None, ge=0, le=1)


Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class MemoryApi:
    """The endpoints, over ports."""

    memories: MemoryStore
    recall: Recall
    remember: Remember
    identify: Callable[[Request], Caller]
    clock: Clock

    def app(self) -> Starlette:
        """Return the ASGI app that answers everything under /v1/memory."""
        item = "/v1/memory/{memory_id}"
        app = Starlette(
            routes=[
                Route("/v1/memory", self.add, methods=["POST"]),
                Route("/v1/memory", self.list, methods=["GET"]),
                Route("/v1/memory", self.forget_scope, methods=["DELETE"]),
                Route("/v1/memory/search", self.search, methods=["POST"]),
                Route(item, self.get, methods=["GET"]),
                Route(item, self.forget, methods=["DELETE"]),
                Route(item + "/history", self.history, methods=["GET"]),
            ],
            exception_handlers={ProxyError: _refuse, HTTPException: _http_error},
        )
        # DELETE /v1/memory/{id} with an empty id must not become DELETE /v1/memory.
        app.router.redirect_slashes = False
        return app

    async def add(self, request: Request) -> Response:
        """201 with the new memory, 200 with the one that the content updated or confirmed."""
        body = await _body(request, AddBody)
        _known_type(body.type, "type")
        scope = self._scope(request, body.user_id, body.project_id)
        candidate = Candidate(
            type=body.type,
            content=body.content.strip(),
            confidence=1.0,
            tags=tuple(body.tags),
            importance=body.importance,
            source="api",
            observed_at=self.clock(),
        )
        if not candidate.content:
            raise InvalidRequest("`content` must not be blank.", param="content")
        memory, change = await self.remember(scope, candidate)
        return _json({**present(memory), "change": change}, 200 if change == "confirmed" else 201)

    async def search(self, request: Request) -> Response:
        """What the read path would find for the query, with scores and reasons."""
        body = await _body(request, SearchBody)
        for type_ in body.memory_types or ():
            _known_type(type_, "memory_types")
        ranked = await self.recall(
            self._scope(request, body.user_id, body.project_id),
            body.query,
            types=tuple(body.memory_types) if body.memory_types else None,
            limit=body.limit,
            threshold=body.similarity_threshold,
        )
        data = [
            {
                "object": "memory.match",
                "memory": present(r.memory),
                "score": round(r.score, 4),
                "why": r.why,
            }
            for r in ranked
        ]
        return _json({"object": "list", "data": data, "has_more": False})

    async def list(self, request: Request) -> Response:
        """One page, newest first."""
        params = _params(request, "user_id", "project_id", "type", "q", "include", "limit", "after")
        scope = self._scope(request, params.get("user_id"), params.get("project_id"))
        if params.get("include", "inactive") not in ("inactive", "archived"):
            raise InvalidRequest("`include` must be inactive.", param="include")
        if "type" in params:
            _known_type(params["type"], "type")
        page = await self.memories.list(
            MemoryFilter(
                tenant=scope.tenant,
                user=scope.user,
                project=scope.project,
                type=params.get("type"),
                text=params.get("q"),
                include_inactive="include" in params,
                now=self.clock(),
            ),
            limit=_limit(params),
            after=params.get("after"),
        )
        data = [present(m) for m in page.items]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
        return _json({"object": "list", "data": data, **ends, "has_more": page.has_more, "total": page.total})

    async def get(self, request: Request) -> Response:
        """One memory, also a superseded one."""
        memory_id = request.path_params["memory_id"]
        found = await self.memories.get(self._one(request), memory_id)
        if found is None:
            raise _absent(memory_id)
        return _json(present(found))

    async def history(self, request: Request) -> Response:
        """What happened to one memory, oldest first."""
        memory_id = request.path_params["memory_id"]
        where = self._one(request)
        if await self.memories.get(where, memory_id) is None:
            raise _absent(memory_id)
        events = await self.memories.history(where, memory_id)
        return _json({"object": "list", "data": [_present_event(e) for e in events], "has_more": False})

    async def forget(self, request: Request) -> Response:
        """Forget one memory, what it superseded, and the exchanges that it came from."""
        memory_id = request.path_params["memory_id"]
        forgotten = await self.memories.forget(self._one(request), memory_id)
        if not forgotten.memories:
            raise _absent(memory_id)
        return _json({"id": memory_id, **_present_forgotten(forgotten)})

    async def forget_scope(self, request: Request) -> Response:
        """Forget a user's everything, or one project's, or one type."""
        params = _params(request, "user_id", "project_id", "type")
        if "user_id" not in params and self.identify(request).user is None:
            raise InvalidRequest("Say whose memories to forget: `user_id` is required.", param="user_id")
        scope = self._scope(request, params.get("user_id"), params.get("project_id"))
        if "type" in params:
            _known_type(params["type"], "type")
        forgotten = await self.memories.forget(
            MemoryFilter(
                tenant=scope.tenant,
                user=scope.user,
                project=scope.project,
                type=params.get("type"),
                include_inactive=True,
                now=self.clock(),
            )
        )
        return _json(_present_forgotten(forgotten))

    def _scope(self, request: Request, user_id: str | None, project_id: str | None) -> Scope:
        return self.identify(request).scope(user_id, project_id)

    def _one(self, request: Request) -> MemoryFilter:
        """Return where one memory may be looked up: in open mode any user's, unless one is named."""
        params = _params(request, "user_id")
        caller = self.identify(request)
        return MemoryFilter(
            tenant=caller.tenant,
            user=caller.narrow(params.get("user_id")),
            include_inactive=True,
            now=self.clock(),
        )


def present(memory: Memory) -> dict[str, Any]:
    """Return a memory as the API shows it: the embedding is never serialised."""
    return {
        "id": memory.id,
        "object": "memory",
        "type": memory.type,
        "content": memory.content,
        "user_id": memory.scope.user,
        "project_id": memory.scope.project,
        "source": memory.source,
        "created_at": int(memory.created_at),
        "updated_at": int(memory.updated_at),
        "valid_from": int(memory.valid_from),
        "valid_to": _whole(memory.valid_to),
        "superseded_by": memory.superseded_by,
        "expires_at": _whole(memory.expires_at),
        "archived": memory.archived,
        "importance": memory.importance,
        "weight": memory.weight,
        "confidence": memory.confidence,
        "tags": list(memory.tags),
        "access_count": memory.access_count,
        "last_accessed": _whole(memory.last_accessed),
        "evidence": [
            {"session_id": e.session_id, "exchange_id": e.exchange_id, "span": e.span}
            for e in memory.evidence
        ],
    }


def _present_event(event: Event) -> dict[str, Any]:
    return {
        "object": "memory.event",
        "at": int(event.at),
        "action": event.action,
        "by": event.by,
        "content": event.content,
    }


def _present_forgotten(forgotten: Forgotten) -> dict[str, Any]:
    return {
        "object": "memory.deleted",
        "deleted": True,
        "deleted_count": forgotten.memories,
        "deleted_exchanges": forgotten.exchanges,
        "deleted_sessions": forgotten.sessions,
        "deleted_jobs": forgotten.jobs,
        "deleted_responses": forgotten.responses,
    }


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


async def _body(request: Request, model: type[Body]) -> Body:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        # Also what keeps a web page from writing to a proxy on the visitor's own machine: a browser
        # asks before it sends JSON to another origin, and we never agree.
        raise InvalidRequest("Send JSON, with Content-Type: application/json.", param="content-type")
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            chunks.append(chunk)
            if (size := size + len(chunk)) > MAX_BODY_BYTES:
                raise InvalidRequest(f"The body is larger than {MAX_BODY_BYTES} bytes.", param="body")
    except ClientDisconnect:
        raise InvalidRequest("The client left before the body was complete.", param="body") from None
    try:
        return model.model_validate(orjson.loads(b"".join(chunks)))
    except orjson.JSONDecodeError:
        raise InvalidRequest("The body is not valid JSON.", param="body") from None
    except ValidationError as e:
        problem = e.errors(include_input=False, include_url=False)[0]
        param = ".".join(str(part) for part in problem["loc"]) or "body"
        raise InvalidRequest(f"`{param}`: {problem['msg']}.", param=param) from None


def _params(request: Request, *known: str) -> Mapping[str, str]:
    """Return the query's parameters; unknown, empty or repeated ones are refused."""
    params: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            allowed = ", ".join(known)
            raise InvalidRequest(f"Unknown parameter `{name[:64]}`. Known: {allowed}.", param=name[:64])
        if name in params:
            raise InvalidRequest(f"`{name}` is given twice.", param=name)
        if not value.strip():
            raise InvalidRequest(f"`{name}` is empty.", param=name)
        params[name] = checked_id(value, name) if name.endswith("_id") else value
    return params


def _limit(params: Mapping[str, str]) -> int:
    text = params.get("limit", "20")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= 100):
        raise InvalidRequest("`limit` must be a whole number from 1 to 100.", param="limit")
    return int(text)


def _known_type(name: str, param: str) -> None:
    if name not in KINDS:
        raise InvalidRequest(f"Unknown memory type. Known: {', '.join(sorted(KINDS))}.", param=param)


def _absent(memory_id: str) -> NotFound:
    return NotFound(f"No memory with id '{memory_id[:64]}'.", param="memory_id", code="memory_not_found")


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProxyError)
    status, body = error_of(error)
    return _json(body, status)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    refused = NotFound(str(error.detail))
    _, body = error_of(refused)
    return Response(
        orjson.dumps(body), error.status_code, headers=error.headers, media_type="application/json"
    )
