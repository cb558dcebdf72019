"""Endpoints that show what is being remembered: sessions, the jobs that read them, and who is asking."""

from typing import Any, cast

from starlette.responses import Response

from proxy.domain.errors import InvalidRequest, NotFound
from proxy.http.memory_api import present
from proxy.http.memory_api.answers import Identity, JobsRevived, SessionEnded
from proxy.http.memory_api.bodies import EndBody, JobsQuery, NoQuery, ScopePageQuery, ScopeQuery, UserQuery
from proxy.http.memory_api.wiring import Asked, Tools
from proxy.wire.extensions import checked_id


async def end(tools: Tools, asked: Asked[ScopeQuery, EndBody]) -> Response:
    """202: what the session holds is extracted soon. A session that holds nothing, or is none, queues 0."""
    session_id = checked_id(asked.path["session_id"], "session_id")
    query, body = asked.query, asked.body
    scope = asked.scope(
        _one(query.user_id, body.user_id, "user_id"), _one(query.project_id, body.project_id, "project_id")
    )
    queued = await tools.sessions.end(scope, tools.session_key(session_id), tools.clock())
    if queued:
        tools.wake()
    ended: SessionEnded = {"id": session_id, "object": "memory.session", "queued_exchanges": queued}
    return present.answer(ended, 202)


async def sessions(tools: Tools, asked: Asked[ScopePageQuery, None]) -> Response:
    """The user's sessions, the last used first."""
    query = asked.query
    scope = asked.scope(query.user_id, query.project_id)
    found = await tools.sessions.sessions(scope, limit=query.limit + 1, after=query.after)
    shown = found[: query.limit]
    page = present.page_of([present.session(one) for one in shown], has_more=len(found) > query.limit)
    if shown:  # two projects may each have a session of this id: `last_id` says which
        page |= {"first_id": shown[0].cursor, "last_id": shown[-1].cursor}
    return present.answer(page)


async def jobs(tools: Tools, asked: Asked[JobsQuery, None]) -> Response:
    """The extraction jobs, oldest first; of the whole tenant for who may see that."""
    query = asked.query
    user = asked.user_or_all(query.user_id)
    found = await tools.jobs.list(
        asked.caller.tenant, user, state=query.state, limit=query.limit + 1, after=query.after
    )
    data = [present.job(one) for one in found[: query.limit]]
    return present.answer(present.page_of(data, has_more=len(found) > query.limit))


async def retry_all(tools: Tools, asked: Asked[UserQuery, None]) -> Response:
    """Queue all dead letters again."""
    return _revived(tools, await _revive(tools, asked, None))


async def retry(tools: Tools, asked: Asked[UserQuery, None]) -> Response:
    """Queue one dead letter again."""
    job_id = asked.path["job_id"]
    revived = await _revive(tools, asked, job_id)
    if not revived:
        raise NotFound(f"No dead job with id '{job_id[:64]}'.", param="job_id", code="job_not_found")
    return _revived(tools, revived)


async def me(tools: Tools, asked: Asked[NoQuery, None]) -> Response:
    """Who the proxy takes the caller for."""
    caller = asked.caller
    identity: Identity = {
        "object": "memory.identity",
        "mode": cast(Any, tools.mode),
        "tenant": caller.tenant,
        "user_id": caller.user,
        "rights": sorted(caller.rights),
        "needs_credential": tools.mode in ("keys", "jwt"),
        "version": tools.version,
    }
    return present.answer(identity)


def _one(in_query: str | None, in_body: str | None, param: str) -> str | None:
    """Return what either says. Raises InvalidRequest where they differ."""
    if None not in (in_query, in_body) and in_query != in_body:
        raise InvalidRequest(f"Query and body name two `{param}`.", param=param, code="invalid_value")
    return in_body if in_query is None else in_query


async def _revive(tools: Tools, asked: Asked[UserQuery, None], job_id: str | None) -> int:
    # A job's id is a number that can be guessed: without a user it takes the right to all of them.
    user = asked.user_or_all(asked.query.user_id)
    return await tools.jobs.revive(asked.caller.tenant, user, job_id)


def _revived(tools: Tools, count: int) -> Response:
    if count:
        tools.wake()
    revived: JobsRevived = {"object": "memory.jobs", "revived": count}
    return present.answer(revived)
