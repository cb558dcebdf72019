"""The quarantine endpoints: candidates that looked planted, for their owner to release or discard."""

from starlette.responses import Response

from proxy.domain.errors import NotFound
from proxy.http.memory_api import present
from proxy.http.memory_api.answers import Discarded
from proxy.http.memory_api.bodies import ScopePageQuery, UserQuery
from proxy.http.memory_api.wiring import Asked, Tools


async def held(tools: Tools, asked: Asked[ScopePageQuery, None]) -> Response:
    """What is held, newest first."""
    query = asked.query
    scope = asked.scope(query.user_id, query.project_id)
    found = await tools.quarantine.held(scope, limit=query.limit + 1, after=query.after)
    data = [present.held(one) for one in found[: query.limit]]
    return present.answer(present.page_of(data, has_more=len(found) > query.limit))


async def release(tools: Tools, asked: Asked[UserQuery, None]) -> Response:
    """201 with the memory that the candidate has become."""
    held_id = asked.path["held_id"]
    memory = await tools.by_hand.release(asked.scope(asked.query.user_id), held_id)
    if memory is None:
        raise _absent(held_id)
    return present.answer(present.memory(memory), 201)


async def discard(tools: Tools, asked: Asked[UserQuery, None]) -> Response:
    """Erase the candidate."""
    held_id = asked.path["held_id"]
    if not await tools.by_hand.discard(asked.scope(asked.query.user_id), held_id):
        raise _absent(held_id)
    gone: Discarded = {"id": held_id, "object": "memory.quarantined.deleted", "deleted": True}
    return present.answer(gone)


def _absent(held_id: str) -> NotFound:
    shown = held_id[:64]
    return NotFound(f"Nothing in quarantine with id '{shown}'.", param="id", code="quarantined_not_found")
