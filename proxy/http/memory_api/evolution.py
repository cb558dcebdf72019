"""Endpoints for how memories change over time: pin, archive, a user's settings, a pass now, insights."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from proxy.domain.changes import (
    Archive,
    Change,
    Pin,
    Restore,
    StepCounts,
)
from proxy.domain.core import MemoryFilter, Scope
from proxy.domain.ports import Clock
from proxy.http.memory_api import response_schemas as shapes
from proxy.http.memory_api.app import ApiRequest, Operation, absent
from proxy.http.memory_api.request_schemas import (
    EvolveBody,
    InsightsQuery,
    NoQuery,
    SettingsBody,
    UserQuery,
)
from proxy.http.memory_api.response_schemas import MemoryShaper, filled, json_answer
from proxy.learn.edits import MemoryEditor
from proxy.learn.evolution import Evolution

_ONE, _SETTINGS = "/v1/memory/{memory_id}", "/v1/memory/settings"
_MEMORY, _EVOLVED = {200: shapes.MemoryShape}, {200: shapes.Evolved}
_REFUSED = (404,)


@dataclass(frozen=True, slots=True)
class EvolutionEndpoints:
    """What changes with use and time, and what a user can say about it."""

    edits: MemoryEditor
    evolution: Evolution
    clock: Clock
    shape: MemoryShaper

    @Operation("POST", f"{_ONE}/pin", "pinMemory", _MEMORY, refusals=_REFUSED)
    async def pin(self, request: ApiRequest[UserQuery, None]) -> Response:
        """Offer a memory in every conversation; it does not fade, and lack of use does not archive it."""
        return await self._changed(request, lambda id_, now: Pin(id_, pinned=True, at=now))

    @Operation("POST", f"{_ONE}/unpin", "unpinMemory", _MEMORY, refusals=_REFUSED)
    async def unpin(self, request: ApiRequest[UserQuery, None]) -> Response:
        """Remove a memory's pin."""
        return await self._changed(request, lambda id_, now: Pin(id_, pinned=False, at=now))

    @Operation("POST", f"{_ONE}/archive", "archiveMemory", _MEMORY, refusals=_REFUSED)
    async def archive(self, request: ApiRequest[UserQuery, None]) -> Response:
        """Hide a memory from searches and lists until it is restored."""
        return await self._changed(request, lambda id_, now: Archive((id_,), now, "user"))

    @Operation("POST", f"{_ONE}/restore", "restoreMemory", _MEMORY, refusals=(404, 409))
    async def restore(self, request: ApiRequest[UserQuery, None]) -> Response:
        """Make an archived memory current again, as if it had been stated now."""
        return await self._changed(request, lambda id_, now: Restore(id_, now))

    async def _changed(
        self, request: ApiRequest[UserQuery, None], change: Callable[[str, float], Change]
    ) -> Response:
        caller, memory_id, now = request.caller, request.path["memory_id"], self.clock()
        user = caller.narrow(request.query.user_id)
        where = MemoryFilter(tenant=caller.tenant, user=user, include_inactive=True, now=now)
        memory = await self.edits.gate.memories.get(where, memory_id)
        if memory is not None and caller.sees(memory.scope.project):
            memory = await self.edits.change(where, memory, change(memory_id, now))
            if memory is not None:
                return json_answer(await self.shape(memory))
        raise absent("No memory", memory_id, param="memory_id", code="memory_not_found")

    @Operation("GET", _SETTINGS, "getEvolutionSettings", {200: shapes.SettingsShape})
    async def get_settings(self, request: ApiRequest[UserQuery, None]) -> Response:
        """How a user's memories change over time: the user's own settings, and what they amount to."""
        scope = request.scope(request.query.user_id)
        return json_answer(self._settings(scope, await self.evolution.store.own(scope)))

    @Operation("PUT", _SETTINGS, "setEvolutionSettings", {200: shapes.SettingsShape}, refusals=(413,))
    async def set_settings(self, request: ApiRequest[UserQuery, SettingsBody]) -> Response:
        """Replace the user's own settings; what is absent or null is the server's. A part that the server
        switched off cannot be switched on."""
        scope = request.scope(request.query.user_id)
        own = request.body.model_dump(exclude_none=True, mode="json")
        await self.evolution.store.set_own(scope, own, self.clock())
        return json_answer(self._settings(scope, own))

    def _settings(self, scope: Scope, own: Any) -> dict[str, Any]:
        policy = filled(shapes.EvolutionSettings, self.evolution.policy.with_own(own))
        return {"object": "memory.settings", "user_id": scope.user, "own": own, "settings": policy}

    @Operation(
        "POST",
        "/v1/memory/evolve",
        "evolveMemories",
        {200: shapes.Evolved},
        refusals=(413,),
        body_optional=True,
    )
    async def evolve(self, request: ApiRequest[NoQuery, EvolveBody]) -> Response:
        """Do now what the background pass would do for a user; a dry run says what, and changes nothing."""
        body = request.body
        scope = request.scope(body.user_id)
        done = await self.evolution.evolve(scope, dry_run=body.dry_run)
        steps = [_step_shape(name, counts) for name, counts in done.items()]
        answer = {"object": "memory.evolution", "user_id": scope.user, "dry_run": body.dry_run}
        return json_answer({**answer, "steps": steps})

    @Operation("GET", "/v1/memory/insights", "getInsights", {200: shapes.InsightsShape})
    async def insights(self, request: ApiRequest[InsightsQuery, None]) -> Response:
        """A user's memories in numbers: types, uses, changes by day, and what fades next."""
        query, now = request.query, self.clock()
        scope = request.scope(query.user_id, query.project_id)
        found = await self.evolution.store.insights(scope, now, query.days)
        fading = await self.shape.all(found.fading)
        fading.sort(key=lambda memory: memory["fades_at"] or 0)
        by_day = [filled(shapes.DayShape, day) for day in found.by_day]
        owner = {"object": "memory.insights", "user_id": scope.user}
        return json_answer(filled(shapes.InsightsShape, found, by_day=by_day, fading=fading, **owner))


def _step_shape(name: str, counts: StepCounts | None) -> shapes.StepShape:
    ids = {action: list(found) for action, found in counts.ids.items()} if counts else {}
    numbers = {action: len(found) for action, found in ids.items()}
    outcome: Any = "failed" if counts is None else "done"
    return {
        "step": name,
        "outcome": outcome,
        "counts": numbers,
        "ids": ids,
        "more": bool(counts and counts.more),
    }
