"""Endpoints that add, find, read, correct and forget memories, and that change them with use and time."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.responses import Response

from proxy.domain.changes import Archive, Change, Contradiction, DerivationStore, Pin, Restore, Undo
from proxy.domain.core import Candidate, Memory, MemoryFilter, Scope
from proxy.domain.errors import Conflict, InvalidRequest, NotFound
from proxy.domain.ports import Clock, MemoryStore
from proxy.http.auth.identity import PROJECT_HEADER
from proxy.http.memory_api import request_schemas as asked
from proxy.http.memory_api import response_schemas as shapes
from proxy.http.memory_api.app import ApiRequest, Operation, absent, memory_in
from proxy.http.turns import Zones
from proxy.learn.contradictions import Contradictions
from proxy.learn.edits import MemoryEditor
from proxy.learn.evolution import Evolution
from proxy.wire.extensions import past

_ALL, _ONE, _SETTINGS = "/v1/memory", "/v1/memory/{memory_id}", "/v1/memory/settings"
_CONTRADICTIONS = "/v1/memory/contradictions"
_TAKEN_OVER = {"expires_at", "importance", "tags"}  # by a memory that the content confirms, if given
_UNDO_ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class MemoryEndpoints:
    memories: MemoryStore
    edits: MemoryEditor
    zones: Zones
    clock: Clock
    on_forgotten: Callable[[Scope], None]  # called when everything of a user was forgotten
    shape: shapes.MemoryShaper

    @Operation(
        "POST", _ALL, "addMemory", {200: shapes.AddedMemory, 201: shapes.AddedMemory}, refusals=(409, 413)
    )
    async def add(self, request: ApiRequest[asked.NoQuery, asked.AddBody]) -> Response:
        """Store something; the same again confirms it, a changed value supersedes the old one."""
        body, now, scope = request.body, self.clock(), request.scope()
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
        status = 200 if change == "confirmed" else 201
        return shapes.json_answer({**await self.shape(memory), "change": change}, status)

    @Operation("GET", _ALL, "listMemories", shapes.MemoryPage)
    async def list(self, request: ApiRequest[asked.ListQuery, None]) -> Response:
        """List memories, newest first; or as they were at a moment, or those of a time."""
        query, scope = request.query, request.scope()
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
            **asked.times_of(query, timezone),
        )
        page = await self.memories.list(where, limit=query.limit, after=query.after)
        shown = await self.shape.all(page.items)
        return shapes.json_answer(shapes.list_of(shown, has_more=page.has_more, total=page.total))

    @Operation("GET", _ONE, "getMemory", shapes.MemoryShape)
    async def get(self, request: ApiRequest[asked.UserQuery, None]) -> Response:
        """One memory, also a superseded one."""
        _, memory = await memory_in(request, self.memories, self.clock())
        return shapes.json_answer(await self.shape(memory))

    @Operation("GET", f"{_ONE}/history", "getHistory", shapes.HistoryShape)
    async def history(self, request: ApiRequest[asked.UserQuery, None]) -> Response:
        """What happened to a memory, oldest first."""
        where, memory = await memory_in(request, self.memories, self.clock())
        events = (await self.memories.history(where, [memory.id])).get(memory.id)
        if events is None:
            raise _no_memory(memory.id)
        shown = []
        # An event holds the content before it, and if it changed that, the content after it.
        for event, after in zip(events, [*(e.content for e in events[1:]), memory.content], strict=True):
            shown.append(shapes.filled(shapes.EventShape, event, **shapes.whole_seconds(event, "at")))
            if event.action in ("updated", "archived", "restored") and after != event.content:
                shown[-1]["became"] = after
        return shapes.whole_list(shown)

    @Operation("PATCH", _ONE, "editMemory", shapes.MemoryShape, refusals=(404, 409, 413))
    async def edit(self, request: ApiRequest[asked.UserQuery, asked.EditBody]) -> Response:
        """Correct a memory; it keeps its id, and its history the old content."""
        body, now = request.body, self.clock()
        if not (given := body.model_fields_set):
            why = "Say what to change: the body is empty."
            raise InvalidRequest(why, param="body", code="invalid_value")
        _future(body.expires_at, now)
        where, memory = await memory_in(request, self.memories, now)
        project = request.caller.stored_project(body.project_id)
        changed: dict[str, Any] = {name: getattr(body, name) for name in given - {"project_id", "tags"}}
        if "tags" in given:
            changed["tags"] = tuple(body.tags)

        def correct(memory: Memory) -> Memory:
            scope = memory.scope
            if "project_id" in given:
                scope = Scope(scope.tenant, scope.user, project)
            return replace(memory, scope=scope, updated_at=now, **changed)

        edited = await self.edits.edit(where, memory.id, correct)
        if edited is None:
            raise _no_memory(memory.id)
        return shapes.json_answer(await self.shape(edited))

    @Operation("DELETE", _ONE, "forgetMemory", shapes.DeletedShape)
    async def forget(self, request: ApiRequest[asked.ForgetQuery, None]) -> Response:
        """Forget a memory, those that it superseded, and the exchanges they came from."""
        dry_run = request.query.dry_run == "true"
        where, memory = await memory_in(request, self.memories, self.clock())
        counts = await self.memories.forget(where, memory.id, by=request.caller.label, dry_run=dry_run)
        if not counts.memories:
            raise _no_memory(memory.id)
        return shapes.deleted_answer(counts, id=memory.id, dry_run=dry_run)

    @Operation("DELETE", _ALL, "forgetMemories", shapes.DeletedShape)
    async def forget_scope(self, request: ApiRequest[asked.ForgetScopeQuery, None]) -> Response:
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
        scope = request.scope()
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
        return shapes.deleted_answer(counts, dry_run=dry_run)


def _future(expires_at: float | None, now: float) -> float | None:
    if expires_at is not None and expires_at <= now:
        raise InvalidRequest("`expires_at` is in the past.", param="expires_at", code="invalid_value")
    return expires_at


def _no_memory(memory_id: str) -> NotFound:
    return absent("No memory", memory_id, param="memory_id", code="memory_not_found")


# ---------------------------------------------------------------- use and time
@dataclass(frozen=True, slots=True)
class EvolutionEndpoints:
    """What changes with use and time, and what a user can say about it."""

    edits: MemoryEditor
    evolution: Evolution
    clock: Clock
    shape: shapes.MemoryShaper

    @Operation("POST", f"{_ONE}/pin", "pinMemory", shapes.MemoryShape)
    async def pin(self, request: ApiRequest[asked.UserQuery, None]) -> Response:
        """Offer a memory in every conversation; it does not fade, and lack of use does not archive it."""
        return await self._changed(request, lambda id_, now: Pin(id_, pinned=True, at=now))

    @Operation("POST", f"{_ONE}/unpin", "unpinMemory", shapes.MemoryShape)
    async def unpin(self, request: ApiRequest[asked.UserQuery, None]) -> Response:
        """Remove a memory's pin."""
        return await self._changed(request, lambda id_, now: Pin(id_, pinned=False, at=now))

    @Operation("POST", f"{_ONE}/archive", "archiveMemory", shapes.MemoryShape)
    async def archive(self, request: ApiRequest[asked.UserQuery, None]) -> Response:
        """Hide a memory from searches and lists until it is restored."""
        return await self._changed(request, lambda id_, now: Archive((id_,), now, "user"))

    @Operation("POST", f"{_ONE}/restore", "restoreMemory", shapes.MemoryShape, refusals=(404, 409))
    async def restore(self, request: ApiRequest[asked.UserQuery, None]) -> Response:
        """Make an archived memory current again, as if it had been stated now."""
        return await self._changed(request, Restore)

    async def _changed(
        self, request: ApiRequest[asked.UserQuery, None], change: Callable[[str, float], Change]
    ) -> Response:
        now = self.clock()
        where, memory = await memory_in(request, self.edits.gate.memories, now)
        changed = await self.edits.change(where, memory, change(memory.id, now))
        if changed is None:
            raise _no_memory(memory.id)
        return shapes.json_answer(await self.shape(changed))

    @Operation("GET", _SETTINGS, "getEvolutionSettings", shapes.SettingsShape)
    async def get_settings(self, request: ApiRequest[asked.UserQuery, None]) -> Response:
        """How a user's memories change over time: the user's own settings, and what they amount to."""
        scope = request.scope()
        return self._settings(scope, await self.evolution.store.own(scope))

    @Operation("PUT", _SETTINGS, "setEvolutionSettings", shapes.SettingsShape)
    async def set_settings(self, request: ApiRequest[asked.UserQuery, asked.SettingsBody]) -> Response:
        """Replace the user's own settings; what is absent or null is the server's. A part that the server
        switched off cannot be switched on."""
        scope = request.scope()
        own = request.body.model_dump(exclude_none=True, mode="json")
        await self.evolution.store.set_own(scope, own, self.clock())
        return self._settings(scope, own)

    def _settings(self, scope: Scope, own: Any) -> Response:
        policy = shapes.filled(shapes.EvolutionSettings, self.evolution.policy.with_own(own))
        answer = {"object": "memory.settings", "user_id": scope.user, "own": own, "settings": policy}
        return shapes.json_answer(answer)

    @Operation("POST", "/v1/memory/evolve", "evolveMemories", shapes.Evolved, body_optional=True)
    async def evolve(self, request: ApiRequest[asked.NoQuery, asked.EvolveBody]) -> Response:
        """Do now what the background pass would do for a user; a dry run says what, and changes nothing."""
        scope, dry_run, steps = request.scope(), request.body.dry_run, []
        for name, counts in (await self.evolution.evolve(scope, dry_run=dry_run)).items():
            ids = {action: list(found) for action, found in counts.ids.items()} if counts else {}
            steps.append(
                {
                    "step": name,
                    "outcome": "failed" if counts is None else "done",
                    "counts": {action: len(found) for action, found in ids.items()},
                    "ids": ids,
                    "more": bool(counts and counts.more),
                }
            )
        answer = {"object": "memory.evolution", "user_id": scope.user, "dry_run": dry_run, "steps": steps}
        return shapes.json_answer(answer)

    @Operation("GET", "/v1/memory/insights", "getInsights", shapes.InsightsShape)
    async def insights(self, request: ApiRequest[asked.InsightsQuery, None]) -> Response:
        """A user's memories in numbers: types, uses, changes by day, and what fades next."""
        scope = request.scope()
        found = await self.evolution.store.insights(scope, self.clock(), request.query.days)
        fading = await self.shape.all(found.fading)
        fading.sort(key=lambda memory: memory["fades_at"] or 0)
        by_day = [shapes.filled(shapes.DayShape, day) for day in found.by_day]
        shown = shapes.filled(shapes.InsightsShape, found, by_day=by_day, fading=fading, user_id=scope.user)
        return shapes.json_answer(shown)


# ---------------------------------------------------------------- what was made from memories
@dataclass(frozen=True, slots=True)
class DerivedEndpoints:
    memories: MemoryStore
    derivation: DerivationStore
    contradictions: Contradictions
    clock: Clock
    shape: shapes.MemoryShaper

    @Operation("POST", f"{_ONE}/undo", "undoConsolidation", shapes.Undone)
    async def undo(self, request: ApiRequest[asked.UserQuery, None]) -> Response:
        """Delete a consolidated memory, and make the memories it was made of current again."""
        now, missing = self.clock(), "No consolidated memory"
        for _ in range(_UNDO_ATTEMPTS):
            where, memory = await memory_in(request, self.memories, now, missing)
            if not memory.sources:
                break
            scope = Scope(memory.scope.tenant, memory.scope.user)
            stamp = await self.memories.stamp(scope)
            try:
                await self.memories.apply(scope, [Undo(memory.id, now)], expect=stamp)
            except Conflict:
                continue
            except NotFound:
                break
            sources = [await self.memories.get(where, source) for source in memory.sources]
            restored = [found.id for found in sources if found is not None and found.is_current(now)]
            return shapes.json_answer({"object": "memory.undo", "id": memory.id, "restored": restored})
        raise absent(missing, request.path["memory_id"], param="memory_id", code="memory_not_found")

    @Operation("GET", _CONTRADICTIONS, "listContradictions", shapes.ContradictionPage)
    async def list(self, request: ApiRequest[asked.ScopePageQuery, None]) -> Response:
        """List pairs of current memories that cannot both hold, newest first."""
        query, ask = request.query, partial(self.derivation.contradictions, request.scope())
        found = await ask(limit=query.limit + 1, after=query.after)
        shown = [await self._shown(one) for one in found[: query.limit]]
        return shapes.json_answer(shapes.list_of(shown, has_more=len(found) > query.limit))

    @Operation(
        "POST", _CONTRADICTIONS + "/{contradiction_id}", "decideContradiction", shapes.ContradictionShape
    )
    async def decide(self, request: ApiRequest[asked.UserQuery, asked.DecideBody]) -> Response:
        """Keep the newer memory, the older one, or both; the other one stays in the history."""
        scope, id_ = request.scope(), request.path["contradiction_id"]
        try:
            found = await self.contradictions.decide(scope, id_, request.body.keep, self.clock())
        except NotFound:
            raise absent("No contradiction", id_, param="id", code="contradiction_not_found") from None
        return shapes.json_answer(await self._shown(found))

    async def _shown(self, found: Contradiction) -> shapes.Answer:
        older, newer = await self.shape.all([found.older, found.newer])
        times = shapes.whole_seconds(found, "found_at")
        return shapes.filled(shapes.ContradictionShape, found, older=older, newer=newer, **times)
