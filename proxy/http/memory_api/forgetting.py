"""Forgetting, and the receipts that prove it."""

from starlette.responses import Response

from proxy.domain.core import MemoryFilter
from proxy.domain.errors import InvalidRequest
from proxy.http.auth.identity import PROJECT_HEADER
from proxy.http.memory_api import present
from proxy.http.memory_api.bodies import ForgetQuery, ForgetScopeQuery, PageQuery
from proxy.http.memory_api.memories import absent, one_of
from proxy.http.memory_api.wiring import Asked, Tools


async def forget(tools: Tools, asked: Asked[ForgetQuery, None]) -> Response:
    """Forget one memory, what it superseded, and the exchanges that it came from."""
    memory_id, dry_run = asked.path["memory_id"], asked.query.dry_run
    where = await one_of(tools, asked, asked.query.user_id)
    counts = await tools.memories.forget(where, memory_id, by=asked.caller.label, dry_run=dry_run)
    if not counts.memories:
        raise absent(memory_id)
    return present.answer(present.deleted(counts, memory_id=memory_id, dry_run=dry_run))


async def forget_scope(tools: Tools, asked: Asked[ForgetScopeQuery, None]) -> Response:
    """Forget a user's everything, or one project's, or one type.

    A user named only in a header does not count: who lost the query's parameters has not asked for this. A
    project does: it narrows.
    """
    query = asked.query
    if query.user_id is None and asked.caller.user is None:
        why = "Say whose memories to forget: `user_id` is required."
        raise InvalidRequest(why, param="user_id", code="missing_required_parameter")
    if asked.caller.project is None and PROJECT_HEADER in asked.request.headers:
        why = f"{PROJECT_HEADER} is empty or a placeholder, so that it narrows nothing: leave it out."
        raise InvalidRequest(why, param=PROJECT_HEADER, code="invalid_value")
    scope = asked.scope(query.user_id, query.project_id)
    where = MemoryFilter(
        tenant=scope.tenant,
        user=scope.user,
        project=scope.project,
        type=query.type,
        include_inactive=True,
        now=tools.clock(),
    )
    counts = await tools.memories.forget(where, by=asked.caller.label, dry_run=query.dry_run)
    if not (query.dry_run or scope.project or query.type):
        tools.forgotten(scope)
    return present.answer(present.deleted(counts, dry_run=query.dry_run))


async def receipts(tools: Tools, asked: Asked[PageQuery, None]) -> Response:
    """What was forgotten, newest first; of the whole tenant for who may see that."""
    query = asked.query
    user = asked.user_or_all(query.user_id)
    found = await tools.receipts.list(asked.caller.tenant, user, limit=query.limit + 1, after=query.after)
    data = [present.receipt(one) for one in found[: query.limit]]
    return present.answer(present.page_of(data, has_more=len(found) > query.limit))
