"""Endpoints that add, find, read, correct and forget memories."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response

from proxy.domain.changes import Contradiction, DerivationStore, Event, Undo
from proxy.domain.core import (
    Candidate,
    Memory,
    MemoryFilter,
    Scope,
)
from proxy.domain.errors import Conflict, InvalidRequest, NotFound
from proxy.domain.ports import Clock, MemoryStore
from proxy.http.auth.identity import PROJECT_HEADER
from proxy.http.memory_api import response_schemas as shapes
from proxy.http.memory_api.app import ApiRequest, Operation, absent
from proxy.http.memory_api.request_schemas import (
    AddBody,
    DecideBody,
    EditBody,
    ForgetQuery,
    ForgetScopeQuery,
    ListQuery,
    NoQuery,
    ScopePageQuery,
    UserQuery,
    times_of,
)
from proxy.http.memory_api.response_schemas import (
    BY_DEFAULT,
    MemoryShaper,
    deleted_answer,
    event_shape,
    filled,
    json_answer,
    list_of,
    whole_seconds,
)
from proxy.http.turns import Zones
from proxy.learn.contradictions import Contradictions
from proxy.learn.edits import MemoryEditor
from proxy.wire.extensions import past

_ALL, _ONE = "/v1/memory", "/v1/memory/{memory_id}"
_TAKEN_OVER = {"expires_at", "importance", "tags"}  # by a memory that the content confirms, if given


@dataclass(frozen=True, slots=True)
class MemoryEndpoints:
    """Everything about single memories."""

    memories: MemoryStore
    edits: MemoryEditor
    zones: Zones
    clock: Clock
    on_forgotten: Callable[[Scope], None]  # called when everything of a user was forgotten
    shape: MemoryShaper = BY_DEFAULT

    @Operation(
        "POST", _ALL, "addMemory", {200: shapes.AddedMemory, 201: shapes.AddedMemory}, refusals=(409, 413)
    )
    async def add(self, request: ApiRequest[NoQuery, AddBody]) -> Response:
        """MemoryEditor something; the same again confirms it, a changed value supersedes the old one."""
        body, now = request.body, self.clock()
        scope = request.scope(body.user_id, body.project_id)
        said_at = past(body.created_at, now, "created_at")
        timezone = await self.zones.of(scope, body.timezone or request.caller.timezone)
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
        given = {name for name in _TAKEN_OVER & body.model_fields_set if getattr(body, name) is not None}
        memory, change = await self.edits.add(scope, candidate, given)
        return json_answer(
            {**await self.shape(memory), "change": change}, 200 if change == "confirmed" else 201
        )

    @Operation("GET", _ALL, "listMemories", {200: shapes.MemoryPage}, refusals=(404,))
    async def list(self, request: ApiRequest[ListQuery, None]) -> Response:
        """List memories, newest first; or as they were at a moment, or those of a time."""
        query = request.query
        scope = request.scope(query.user_id, query.project_id)
        if query.as_of is not None and query.include == "inactive":
            why = "`include=inactive` contradicts `as_of`, which lists what was current."
            raise InvalidRequest(why, param="include", code="invalid_value")
        timezone = await self.zones.of(scope, request.caller.timezone)
        where = MemoryFilter(
            tenant=scope.tenant,
            user=scope.user,
            project=scope.project,
            type=query.type,
            text=query.q,
            include_inactive=query.include == "inactive",
            include_archived=query.include == "archived",
            only_archived=query.archived == "true",
            now=self.clock(),
            **times_of(query, timezone),
        )
        page = await self.memories.list(where, limit=query.limit, after=query.after)
        shown: list[Any] = [*await self.shape.all(page.items)]
        return json_answer(list_of(shown, has_more=page.has_more, total=page.total))

    @Operation("GET", _ONE, "getMemory", {200: shapes.MemoryShape}, refusals=(404,))
    async def get(self, request: ApiRequest[UserQuery, None]) -> Response:
        """One memory, also a superseded one."""
        memory_id = request.path["memory_id"]
        memory = await self.memories.get(await self._where(request, request.query.user_id), memory_id)
        if memory is None:
            raise _no_memory(memory_id)
        return json_answer(await self.shape(memory))

    @Operation("GET", f"{_ONE}/history", "getHistory", {200: shapes.HistoryShape}, refusals=(404,))
    async def history(self, request: ApiRequest[UserQuery, None]) -> Response:
        """What happened to a memory, oldest first."""
        memory_id = request.path["memory_id"]
        where = await self._where(request, request.query.user_id)
        events = (await self.memories.history(where, [memory_id])).get(memory_id)
        memory = await self.memories.get(where, memory_id)
        if events is None or memory is None:
            raise _no_memory(memory_id)
        following = [*(event.content for event in events[1:]), memory.content]
        data = [_history_event(*pair) for pair in zip(events, following, strict=True)]
        return json_answer({"object": "list", "data": data, "has_more": False})

    @Operation("PATCH", _ONE, "editMemory", {200: shapes.MemoryShape}, refusals=(404, 409, 413))
    async def edit(self, request: ApiRequest[UserQuery, EditBody]) -> Response:
        """Correct a memory; it keeps its id, and its history the old content."""
        memory_id, body = request.path["memory_id"], request.body
        if not body.model_fields_set:
            why = "Say what to change: the body is empty."
            raise InvalidRequest(why, param="body", code="invalid_value")
        now = self.clock()
        _future(body.expires_at, now)
        where = await self._where(request, request.query.user_id)
        project = request.caller.stored_project(body.project_id)
        edited = await self.edits.edit(where, memory_id, _correction(body, now, project))
        if edited is None:
            raise _no_memory(memory_id)
        return json_answer(await self.shape(edited))

    @Operation("DELETE", _ONE, "forgetMemory", {200: shapes.DeletedShape}, refusals=(404,))
    async def forget(self, request: ApiRequest[ForgetQuery, None]) -> Response:
        """Forget a memory, those that it superseded, and the exchanges they came from."""
        memory_id, dry_run = request.path["memory_id"], request.query.dry_run == "true"
        where = await self._where(request, request.query.user_id)
        counts = await self.memories.forget(where, memory_id, by=request.caller.label, dry_run=dry_run)
        if not counts.memories:
            raise _no_memory(memory_id)
        return deleted_answer(counts, id=memory_id, dry_run=dry_run)

    @Operation("DELETE", _ALL, "forgetMemories", {200: shapes.DeletedShape})
    async def forget_scope(self, request: ApiRequest[ForgetScopeQuery, None]) -> Response:
        """Forget a user's everything, one project's, or one type.

        A user named only in a header does not count: a client that lost the query's parameters has not asked
        for this. A project does: it narrows.
        """
        query, caller, dry_run = request.query, request.caller, request.query.dry_run == "true"
        if query.user_id is None and caller.user is None:
            why = "Say whose memories to forget: `user_id` is required."
            raise InvalidRequest(why, param="user_id", code="missing_required_parameter")
        if caller.project is None and PROJECT_HEADER in request.http.headers:
            why = f"{PROJECT_HEADER} is empty or a placeholder, so that it narrows nothing: leave it out."
            raise InvalidRequest(why, param=PROJECT_HEADER, code="invalid_value")
        scope = request.scope(query.user_id, query.project_id)
        where = MemoryFilter(
            tenant=scope.tenant,
            user=scope.user,
            project=scope.project,
            type=query.type,
            include_inactive=True,
            now=self.clock(),
        )
        counts = await self.memories.forget(where, by=caller.label, dry_run=dry_run)
        if not (dry_run or scope.project or query.type):
            self.on_forgotten(scope)
        return deleted_answer(counts, dry_run=dry_run)

    async def _where(self, request: ApiRequest[Any, Any], user_id: str | None) -> MemoryFilter:
        """Return where the path's memory may be looked up: in all of the tenant, unless a user is fixed or
        named. Raises NotFound for one of another project than the request's header names."""
        caller, memory_id = request.caller, request.path["memory_id"]
        where = MemoryFilter(
            tenant=caller.tenant, user=caller.narrow(user_id), include_inactive=True, now=self.clock()
        )
        if caller.project is not None:
            found = await self.memories.get(where, memory_id)
            if found is None or not caller.sees(found.scope.project):
                raise _no_memory(memory_id)
        return where


def _correction(body: EditBody, now: float, project: str | None) -> Callable[[Memory], Memory]:
    """Return the function that makes the changes of the body. `project`: as the body's project is stored."""
    given = body.model_fields_set
    changed: dict[str, Any] = {name: getattr(body, name) for name in given - {"project_id", "tags"}}
    if "tags" in given:
        changed["tags"] = tuple(body.tags)

    def correct(memory: Memory) -> Memory:
        scope = memory.scope
        if "project_id" in given:
            scope = Scope(scope.tenant, scope.user, project)
        return replace(memory, scope=scope, updated_at=now, **changed)

    return correct


def _history_event(event: Event, content_after: str) -> shapes.HistoryEvent:
    """Return one event; it holds the content before it, and where it changed that, the content after it."""
    shown: Any = {**event_shape(event), **whole_seconds(event, "at")}
    if event.action in ("updated", "archived", "restored") and content_after != event.content:
        shown["became"] = content_after
    return shown  # type: ignore[no-any-return]


def _future(expires_at: float | None, now: float) -> float | None:
    if expires_at is not None and expires_at <= now:
        raise InvalidRequest("`expires_at` is in the past.", param="expires_at", code="invalid_value")
    return expires_at


def _no_memory(memory_id: str) -> NotFound:
    return absent("No memory", memory_id, param="memory_id", code="memory_not_found")


# ---------------------------------------------------------------- what was made from memories
_CONTRADICTIONS = "/v1/memory/contradictions"
_ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class DerivedEndpoints:
    """Consolidated memories and contradictions."""

    memories: MemoryStore
    derivation: DerivationStore
    contradictions: Contradictions
    clock: Clock
    shape: MemoryShaper = BY_DEFAULT

    @Operation(
        "POST", "/v1/memory/{memory_id}/undo", "undoConsolidation", {200: shapes.Undone}, refusals=(404,)
    )
    async def undo(self, request: ApiRequest[UserQuery, None]) -> Response:
        """Delete a consolidated memory, and make the memories it was made of current again."""
        memory_id, caller, now = request.path["memory_id"], request.caller, self.clock()
        where = MemoryFilter(
            tenant=caller.tenant, user=caller.narrow(request.query.user_id), include_inactive=True, now=now
        )
        for _ in range(_ATTEMPTS):
            memory = await self.memories.get(where, memory_id)
            if memory is None or not caller.sees(memory.scope.project) or not memory.sources:
                break
            scope = Scope(memory.scope.tenant, memory.scope.user)
            stamp = await self.memories.stamp(scope)
            try:
                await self.memories.apply(scope, [Undo(memory_id, now)], expect=stamp)
            except Conflict:
                continue
            except NotFound:
                break
            restored = [
                found.id
                for source in memory.sources
                if (found := await self.memories.get(where, source)) is not None and found.is_current(now)
            ]
            return json_answer({"object": "memory.undo", "id": memory_id, "restored": restored})
        raise absent("No consolidated memory", memory_id, param="memory_id", code="memory_not_found")

    @Operation("GET", _CONTRADICTIONS, "listContradictions", {200: shapes.ContradictionPage}, refusals=(404,))
    async def list(self, request: ApiRequest[ScopePageQuery, None]) -> Response:
        """List pairs of current memories that cannot both hold, newest first."""
        query = request.query
        scope = request.scope(query.user_id, query.project_id)
        found = await self.derivation.contradictions(scope, limit=query.limit + 1, after=query.after)
        shown = [await self._shown(one) for one in found[: query.limit]]
        return json_answer(list_of(shown, has_more=len(found) > query.limit))

    @Operation(
        "POST",
        f"{_CONTRADICTIONS}/{{contradiction_id}}",
        "decideContradiction",
        {200: shapes.ContradictionShape},
        refusals=(404, 413),
    )
    async def decide(self, request: ApiRequest[UserQuery, DecideBody]) -> Response:
        """Keep the newer memory, the older one, or both; the other one stays in the history."""
        named = {request.query.user_id, request.body.user_id} - {None}
        if len(named) > 1:
            why = "Query and body name two `user_id`."
            raise InvalidRequest(why, param="user_id", code="invalid_value")
        scope, id_ = request.scope(next(iter(named), None)), request.path["contradiction_id"]
        try:
            found = await self.contradictions.decide(scope, id_, request.body.keep, self.clock())
        except NotFound:
            raise absent("No contradiction", id_, param="id", code="contradiction_not_found") from None
        return json_answer(await self._shown(found))

    async def _shown(self, found: Contradiction) -> shapes.ContradictionShape:
        older, newer = await self.shape.all([found.older, found.newer])
        return filled(
            shapes.ContradictionShape,
            found,
            object="memory.contradiction",
            older=older,
            newer=newer,
            found_at=int(found.found_at),
        )
