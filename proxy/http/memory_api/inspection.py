"""Endpoints for sessions, extraction jobs, quarantine, receipts, and the caller's identity."""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import Response

from proxy.domain.changes import TimelineEvent
from proxy.domain.core import (
    MemoryFilter,
    QuarantinedCandidate,
    Receipt,
    Scope,
)
from proxy.domain.errors import InvalidRequest, NotFound
from proxy.domain.ports import (
    Clock,
    EntityStore,
    Quarantine,
    Receipts,
    Timeline,
)
from proxy.domain.session import JobInfo, JobQueue, SessionInfo, SessionStore
from proxy.http.memory_api import response_schemas as shapes
from proxy.http.memory_api.app import ApiRequest, Operation
from proxy.http.memory_api.request_schemas import (
    EndBody,
    JobsQuery,
    NoQuery,
    PageQuery,
    ScopePageQuery,
    ScopeQuery,
    TimelineQuery,
    UserQuery,
    times_of,
)
from proxy.http.memory_api.response_schemas import (
    BY_DEFAULT,
    MemoryShaper,
    event_shape,
    filled,
    json_answer,
    list_of,
    owner_fields,
    page_answer,
    whole_seconds,
)
from proxy.http.turns import Zones
from proxy.learn.edits import MemoryEditor
from proxy.wire.extensions import checked_id

_ENTITIES = "/v1/memory/entities"
_SESSIONS, _JOBS, _HELD = "/v1/memory/sessions", "/v1/memory/jobs", "/v1/memory/quarantine"


@dataclass(frozen=True, slots=True)
class TimelineEndpoints:
    """What happened to memories, and what they name."""

    timeline: Timeline
    entities: EntityStore
    zones: Zones
    clock: Clock
    shape: MemoryShaper = BY_DEFAULT

    @Operation("GET", "/v1/memory/timeline", "listEvents", {200: shapes.TimelinePage}, refusals=(404,))
    async def list_events(self, request: ApiRequest[TimelineQuery, None]) -> Response:
        """List what happened to a user's memories, the latest first."""
        query = request.query
        scope = request.scope(query.user_id, query.project_id)
        timezone = await self.zones.of(scope, request.caller.timezone)
        where = MemoryFilter(
            tenant=scope.tenant, user=scope.user, project=scope.project, **times_of(query, timezone)
        )
        found = await self.timeline.events(where, limit=query.limit + 1, after=query.after)
        return page_answer(found, query.limit, _timeline_event)

    @Operation("GET", _ENTITIES, "listEntities", {200: shapes.EntityPage}, refusals=(404,))
    async def list_entities(self, request: ApiRequest[ScopePageQuery, None]) -> Response:
        """List the people, places, projects and things that a user's memories name, the latest first."""
        query = request.query
        where = self._where(request.scope(query.user_id, query.project_id))
        found = await self.entities.list(where, limit=query.limit + 1, after=query.after)
        return page_answer(
            found, query.limit, lambda one: filled(shapes.EntityShape, one, object="memory.entity")
        )

    @Operation(
        "GET",
        f"{_ENTITIES}/{{entity_id}}/memories",
        "listMemoriesOfEntity",
        {200: shapes.MemoriesOfEntity},
        refusals=(404,),
    )
    async def list_memories(self, request: ApiRequest[ScopePageQuery, None]) -> Response:
        """List the current memories that name an entity, newest first."""
        query = request.query
        where = self._where(request.scope(query.user_id, query.project_id))
        entity_id = checked_id(request.path["entity_id"], "entity_id")
        page = await self.entities.memories(where, entity_id, limit=query.limit, after=query.after)
        return json_answer(list_of(await self.shape.all(page.items), has_more=page.has_more))

    def _where(self, scope: Scope) -> MemoryFilter:
        return MemoryFilter(tenant=scope.tenant, user=scope.user, project=scope.project, now=self.clock())


@dataclass(frozen=True, slots=True)
class SessionEndpoints:
    """Sessions, and the jobs that extract memories from them."""

    sessions: SessionStore
    jobs: JobQueue
    wake_worker: Callable[[], None]
    clock: Clock
    session_key: Callable[[str], str] = str  # the id under which the recorder stores a session

    @Operation("GET", _SESSIONS, "listSessions", {200: shapes.SessionPage}, refusals=(404,))
    async def list_sessions(self, request: ApiRequest[ScopePageQuery, None]) -> Response:
        """List sessions, the last used first."""
        query = request.query
        scope = request.scope(query.user_id, query.project_id)
        found = await self.sessions.sessions(scope, limit=query.limit + 1, after=query.after)
        shown = found[: query.limit]
        page = list_of([_session_shape(one) for one in shown], has_more=len(found) > query.limit)
        if shown:  # two projects may each have a session with this id; the cursor says which
            page |= {"first_id": shown[0].cursor, "last_id": shown[-1].cursor}
        return json_answer(page)

    @Operation(
        "POST",
        f"{_SESSIONS}/{{session_id}}/end",
        "endSession",
        {202: shapes.SessionEnded},
        refusals=(413,),
        body_optional=True,
    )
    async def end(self, request: ApiRequest[ScopeQuery, EndBody]) -> Response:
        """Extract now what a session holds."""
        session_id = checked_id(request.path["session_id"], "session_id")
        query, body = request.query, request.body
        user = _either(query.user_id, body.user_id, "user_id")
        scope = request.scope(user, _either(query.project_id, body.project_id, "project_id"))
        queued = await self.sessions.end(scope, self.session_key(session_id), self.clock())
        if queued:
            self.wake_worker()
        return json_answer({"id": session_id, "object": "memory.session", "queued_exchanges": queued}, 202)

    @Operation("GET", _JOBS, "listJobs", {200: shapes.JobPage}, refusals=(404,))
    async def list_jobs(self, request: ApiRequest[JobsQuery, None]) -> Response:
        """List extraction jobs, oldest first."""
        query, tenant = request.query, request.caller.tenant
        user = request.user_or_all(query.user_id)
        found = await self.jobs.list(
            tenant, user, state=query.state, limit=query.limit + 1, after=query.after
        )
        return page_answer(found, query.limit, _job_shape)

    @Operation("POST", f"{_JOBS}/retry", "retryJobs", {200: shapes.JobsRevived})
    async def retry_all(self, request: ApiRequest[UserQuery, None]) -> Response:
        """Queue all dead jobs again."""
        return json_answer({"object": "memory.jobs", "revived": await self._revive(request, None)})

    @Operation("POST", f"{_JOBS}/{{job_id}}/retry", "retryJob", {200: shapes.JobsRevived}, refusals=(404,))
    async def retry(self, request: ApiRequest[UserQuery, None]) -> Response:
        """Queue a dead job again."""
        job_id = request.path["job_id"]
        revived = await self._revive(request, job_id)
        if not revived:
            raise NotFound(f"No dead job with id '{job_id[:64]}'.", param="job_id", code="job_not_found")
        return json_answer({"object": "memory.jobs", "revived": revived})

    async def _revive(self, request: ApiRequest[UserQuery, None], job_id: str | None) -> int:
        # Job ids are numbers that can be guessed: without a user it takes the right to all of them.
        user = request.user_or_all(request.query.user_id)
        revived = await self.jobs.revive(request.caller.tenant, user, job_id)
        if revived:
            self.wake_worker()
        return revived


@dataclass(frozen=True, slots=True)
class QuarantineEndpoints:
    """Candidates that looked planted, for their owner to release or discard."""

    quarantine: Quarantine
    edits: MemoryEditor
    shape: MemoryShaper = BY_DEFAULT

    @Operation("GET", _HELD, "listQuarantine", {200: shapes.HeldPage}, refusals=(404,))
    async def list(self, request: ApiRequest[ScopePageQuery, None]) -> Response:
        """List what was held back for review, newest first."""
        query = request.query
        scope = request.scope(query.user_id, query.project_id)
        found = await self.quarantine.held(scope, limit=query.limit + 1, after=query.after)
        return page_answer(found, query.limit, _held_shape)

    @Operation(
        "POST",
        f"{_HELD}/{{held_id}}/release",
        "releaseQuarantined",
        {201: shapes.MemoryShape},
        refusals=(404,),
    )
    async def release(self, request: ApiRequest[UserQuery, None]) -> Response:
        """MemoryEditor what was held back: it is harmless."""
        held_id = request.path["held_id"]
        memory = await self.edits.release(request.scope(request.query.user_id), held_id)
        if memory is None:
            raise _not_held(held_id)
        return json_answer(await self.shape(memory), 201)

    @Operation(
        "DELETE", f"{_HELD}/{{held_id}}", "discardQuarantined", {200: shapes.Discarded}, refusals=(404,)
    )
    async def discard(self, request: ApiRequest[UserQuery, None]) -> Response:
        """Erase what was held back."""
        held_id = request.path["held_id"]
        if not await self.edits.discard(request.scope(request.query.user_id), held_id):
            raise _not_held(held_id)
        return json_answer({"id": held_id, "object": "memory.quarantined.deleted", "deleted": True})


@dataclass(frozen=True, slots=True)
class ReceiptEndpoints:
    """Proofs of what was forgotten."""

    receipts: Receipts

    @Operation("GET", "/v1/memory/receipts", "listReceipts", {200: shapes.ReceiptPage}, refusals=(404,))
    async def list(self, request: ApiRequest[PageQuery, None]) -> Response:
        """List the proofs of what was forgotten, newest first."""
        query, tenant = request.query, request.caller.tenant
        user = request.user_or_all(query.user_id)
        found = await self.receipts.list(tenant, user, limit=query.limit + 1, after=query.after)
        return page_answer(found, query.limit, _receipt_shape)


@dataclass(frozen=True, slots=True)
class CallerEndpoints:
    """What a client may ask about itself."""

    mode: str  # how callers are identified: "open" | "keys" | "jwt" | "header"
    version: str

    @Operation("GET", "/v1/memory/me", "whoAmI", {200: shapes.Identity})
    async def me(self, request: ApiRequest[NoQuery, None]) -> Response:
        """Who the proxy takes the caller for."""
        caller = request.caller
        identity = {
            "object": "memory.identity",
            "mode": self.mode,
            "tenant": caller.tenant,
            "user_id": caller.user,
            "rights": sorted(caller.rights),
            "needs_credential": self.mode in ("keys", "jwt"),
            "version": self.version,
        }
        return json_answer(identity)


def _either(in_query: str | None, in_body: str | None, param: str) -> str | None:
    """Return what either says. Raises InvalidRequest if they differ."""
    if None not in (in_query, in_body) and in_query != in_body:
        raise InvalidRequest(f"Query and body name two `{param}`.", param=param, code="invalid_value")
    return in_body if in_query is None else in_query


def _not_held(held_id: str) -> NotFound:
    why = f"Nothing in quarantine with id '{held_id[:64]}'."
    return NotFound(why, param="id", code="quarantined_not_found")


def _timeline_event(found: TimelineEvent) -> shapes.TimelineEvent:
    event = {**event_shape(found.event), **whole_seconds(found.event, "at")}
    return filled(shapes.TimelineEvent, found, **event, project_id=found.project)


def _session_shape(session: SessionInfo) -> shapes.SessionShape:
    times = whole_seconds(session, "last_at")
    return filled(
        shapes.SessionShape, session, object="memory.session", project_id=session.scope.project, **times
    )


def _job_shape(job: JobInfo) -> shapes.JobShape:
    times = whole_seconds(job, "created_at", "due_at")
    return filled(shapes.JobShape, job, object="memory.job", **owner_fields(job.scope), **times)


def _held_shape(held: QuarantinedCandidate) -> shapes.HeldShape:
    return filled(
        shapes.HeldShape,
        held.candidate,
        object="memory.quarantined",
        **owner_fields(held.scope),
        id=held.id,
        reason=held.reason,
        created_at=int(held.at),
    )


def _receipt_shape(receipt: Receipt) -> shapes.ReceiptShape:
    return filled(
        shapes.ReceiptShape,
        receipt,
        object="memory.receipt",
        created_at=int(receipt.at),
        user_id=receipt.user,
        project_id=receipt.project,
        counts=filled(shapes.Counts, receipt.counts),
    )
