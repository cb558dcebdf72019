"""Adding, finding, reading and correcting memories."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from proxy.domain.core import Candidate, Memory, MemoryFilter, Scope
from proxy.domain.errors import InvalidRequest, NotFound
from proxy.http.memory_api import present
from proxy.http.memory_api.answers import Added, History, Matches, PassageShape
from proxy.http.memory_api.bodies import AddBody, EditBody, ListQuery, NoQuery, SearchBody, UserQuery
from proxy.http.memory_api.documents import passage
from proxy.http.memory_api.wiring import Asked, Tools
from proxy.wire.extensions import MAX_ID_CHARS, past

_OF_ITSELF = {"expires_at", "importance", "tags"}  # what a body may say of a memory that is there already


async def add(tools: Tools, asked: Asked[NoQuery, AddBody]) -> Response:
    """201 with the new memory, 200 with the one that the content confirmed, and what else the body says."""
    body, now = asked.body, tools.clock()
    scope = asked.scope(body.user_id, body.project_id)
    said_at = past(body.created_at, now, "created_at")
    timezone = await tools.zones.of(scope, body.timezone or asked.caller.timezone)
    candidate = Candidate(
        type=body.type,
        content=body.content,
        confidence=1.0,
        tags=tuple(body.tags),
        importance=body.importance,
        source="api",
        observed_at=now if said_at is None else said_at,
        timezone=timezone,
        expires_at=_future(body.expires_at, now),
    )
    said = {name for name in _OF_ITSELF & body.model_fields_set if getattr(body, name) is not None}
    memory, change = await tools.by_hand.add(scope, candidate, said)
    shown: Added = {**present.memory(memory), "change": change}  # type: ignore[typeddict-item]
    return present.answer(shown, 200 if change == "confirmed" else 201)


async def search(tools: Tools, asked: Asked[NoQuery, SearchBody]) -> Response:
    """What is near the query, with scores and reasons, and whether a chat would be shown any of it."""
    body = asked.body
    scope = asked.scope(body.user_id, body.project_id)
    found = await tools.recall(
        scope,
        body.query,
        types=tuple(body.memory_types) if body.memory_types else None,
        limit=body.limit or tools.retrieval_limit,
        threshold=body.similarity_threshold,
        timezone=await tools.zones.of(scope, body.timezone or asked.caller.timezone),
    )
    matches: Matches = {
        "object": "list",
        "data": [
            {
                "object": "memory.match",
                "memory": present.memory(one.memory),
                "score": round(one.score, 4),
                "why": one.why,
            }
            for one in found.ranked
        ],
        "has_more": False,
        "would_inject": found.unshown is None,
        "reason": found.unshown and found.unshown.value,
    }
    if "documents" in body.include:
        matches["documents"] = await _passages(tools, asked)
    return present.answer(matches)


async def _passages(tools: Tools, asked: Asked[NoQuery, SearchBody]) -> list[PassageShape]:
    """Return the passages of documents that the query means."""
    body = asked.body
    found = await tools.documents.search(
        asked.scope(body.user_id, body.project_id),
        body.query,
        limit=body.limit or tools.retrieval_limit,
        threshold=body.similarity_threshold,
    )
    return [passage(one) for one in found]


async def list_(tools: Tools, asked: Asked[ListQuery, None]) -> Response:
    """One page, newest first."""
    query = asked.query
    scope = asked.scope(query.user_id, query.project_id)
    page = await tools.memories.list(
        MemoryFilter(
            tenant=scope.tenant,
            user=scope.user,
            project=scope.project,
            type=query.type,
            text=query.q,
            include_inactive=query.include == "inactive",
            include_archived=query.include == "archived",
            now=tools.clock(),
        ),
        limit=query.limit,
        after=query.after,
    )
    data = [present.memory(m) for m in page.items]
    return present.answer(present.page_of(data, has_more=page.has_more, total=page.total))


async def get(tools: Tools, asked: Asked[UserQuery, None]) -> Response:
    """One memory, also a superseded one."""
    memory_id = asked.path["memory_id"]
    memory = await tools.memories.get(await one_of(tools, asked, asked.query.user_id), memory_id)
    if memory is None:
        raise absent(memory_id)
    return present.answer(present.memory(memory))


async def history(tools: Tools, asked: Asked[UserQuery, None]) -> Response:
    """What happened to one memory, oldest first."""
    memory_id, where = asked.path["memory_id"], await one_of(tools, asked, asked.query.user_id)
    events = (await tools.memories.history(where, [memory_id])).get(memory_id)
    memory = await tools.memories.get(where, memory_id)
    if events is None or memory is None:
        raise absent(memory_id)
    data = present.history(events, memory.content)
    shown: History = {"object": "list", "data": data, "has_more": False}
    return present.answer(shown)


async def edit(tools: Tools, asked: Asked[UserQuery, EditBody]) -> Response:
    """The memory as corrected, under its own id."""
    memory_id, body = asked.path["memory_id"], asked.body
    if not body.model_fields_set:
        raise InvalidRequest("Say what to change: the body is empty.", param="body", code="invalid_value")
    now = tools.clock()
    _future(body.expires_at, now)
    where = await one_of(tools, asked, asked.query.user_id)
    edited = await tools.by_hand.edit(
        where, memory_id, correction(body, now, asked.caller.stored_project(body.project_id))
    )
    if edited is None:
        raise absent(memory_id)
    return present.answer(present.memory(edited))


def correction(body: EditBody, now: float, project: str | None) -> Callable[[Memory], Memory]:
    """Return the function from a memory as it is to the one that the body makes of it. `project`: what the
    body's project is stored under."""
    given = body.model_fields_set
    changed: dict[str, Any] = {
        name: getattr(body, name)
        for name in ("content", "type", "importance", "expires_at", "archived")
        if name in given
    }
    if "tags" in given:
        changed["tags"] = tuple(body.tags)

    def correct(memory: Memory) -> Memory:
        scope = memory.scope
        if "project_id" in given:
            scope = Scope(scope.tenant, scope.user, project)
        return replace(memory, scope=scope, updated_at=now, **changed)

    return correct


async def one_of(tools: Tools, asked: Asked[Any, Any], user_id: str | None) -> MemoryFilter:
    """Return where the memory of the path may be looked up: in all of the tenant, unless a user is fixed or
    named. Raises NotFound for one of another project than the request's header names."""
    where = MemoryFilter(
        tenant=asked.caller.tenant,
        user=asked.caller.narrow(user_id),
        include_inactive=True,
        now=tools.clock(),
    )
    if asked.caller.project is not None:
        found = await tools.memories.get(where, asked.path["memory_id"])
        if found is None or not asked.caller.sees(found.scope.project):
            raise absent(asked.path["memory_id"])
    return where


def absent(memory_id: str) -> NotFound:
    """Return the refusal for an id that names no memory here; somebody else's is as absent as none."""
    shown = memory_id if len(memory_id) <= MAX_ID_CHARS else memory_id[:64] + "…"
    return NotFound(f"No memory with id '{shown}'.", param="memory_id", code="memory_not_found")


def _future(expires_at: float | None, now: float) -> float | None:
    if expires_at is not None and expires_at <= now:
        raise InvalidRequest("`expires_at` is in the past.", param="expires_at", code="invalid_value")
    return expires_at
