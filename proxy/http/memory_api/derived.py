"""Endpoints for what background steps made of memories: undo a consolidation, decide contradictions."""

from dataclasses import dataclass

from starlette.responses import Response

from proxy.domain.core import MemoryFilter, Scope, Undo
from proxy.domain.derivation import Contradiction, DerivationStore
from proxy.domain.errors import Conflict, NotFound
from proxy.domain.ports import Clock, MemoryStore
from proxy.http.memory_api import response_schemas as shapes
from proxy.http.memory_api.app import ApiRequest, Operation, absent
from proxy.http.memory_api.request_schemas import DecideBody, ScopePageQuery, UserQuery
from proxy.http.memory_api.response_schemas import filled, json_answer, memory_shape, page_answer
from proxy.learn.contradictions import Contradictions

_CONTRADICTIONS = "/v1/memory/contradictions"
_ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class DerivedEndpoints:
    """Consolidated memories and contradictions."""

    memories: MemoryStore
    derivation: DerivationStore
    contradictions: Contradictions
    clock: Clock

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
        return page_answer(found, query.limit, _shape)

    @Operation(
        "POST",
        f"{_CONTRADICTIONS}/{{contradiction_id}}",
        "decideContradiction",
        {200: shapes.ContradictionShape},
        refusals=(404, 413),
    )
    async def decide(self, request: ApiRequest[UserQuery, DecideBody]) -> Response:
        """Keep the newer memory, the older one, or both; the other one stays in the history."""
        scope = request.scope(request.query.user_id)
        id_ = request.path["contradiction_id"]
        try:
            found = await self.contradictions.decide(scope, id_, request.body.keep, self.clock())
        except NotFound:
            raise absent("No contradiction", id_, param="id", code="contradiction_not_found") from None
        return json_answer(_shape(found))


def _shape(found: Contradiction) -> shapes.ContradictionShape:
    return filled(
        shapes.ContradictionShape,
        found,
        object="memory.contradiction",
        older=memory_shape(found.older),
        newer=memory_shape(found.newer),
        found_at=int(found.found_at),
    )
