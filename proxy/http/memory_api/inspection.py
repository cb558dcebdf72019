"""Endpoints for sessions, extraction jobs, quarantine, receipts, and the caller's identity."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from starlette.responses import Response

from proxy.domain.changes import TimelineEvent
from proxy.domain.core import MemoryFilter, QuarantinedCandidate, Receipt, Scope
from proxy.domain.errors import NotFound
from proxy.domain.ports import Clock, EntityStore, Quarantine, Receipts, Timeline
from proxy.domain.session import JobInfo, JobQueue, SessionStore
from proxy.http.memory_api import request_schemas as asked
from proxy.http.memory_api import response_schemas as shapes
from proxy.http.memory_api.app import ApiRequest, Operation, page_of
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
    shape: shapes.MemoryShaper

    @Operation("GET", "/v1/memory/timeline", "listEvents", shapes.TimelinePage)
    async def list_events(self, request: ApiRequest[asked.TimelineQuery, None]) -> Response:
        """List what happened to a user's memories, the latest first."""
        scope = request.scope()
        times = asked.times_of(request.query, await self.zones.of(scope, request.caller.timezone))
        where = MemoryFilter(tenant=scope.tenant, user=scope.user, project=scope.project, **times)

        def shown(found: TimelineEvent) -> shapes.Answer:
            event = shapes.filled(shapes.EventShape, found.event, **shapes.whole_seconds(found.event, "at"))
            return shapes.filled(shapes.TimelineEvent, found, **event, project_id=found.project)

        return await page_of(request, partial(self.timeline.events, where), shown)

    @Operation("GET", _ENTITIES, "listEntities", shapes.EntityPage)
    async def list_entities(self, request: ApiRequest[asked.ScopePageQuery, None]) -> Response:
        """List the people, places, projects and things that a user's memories name, the latest first."""
        ask = partial(self.entities.list, self._where(request.scope()))
        return await page_of(request, ask, partial(shapes.filled, shapes.EntityShape))

    @Operation("GET", _ENTITIES + "/{entity_id}/memories", "listMemoriesOfEntity", shapes.MemoriesOfEntity)
    async def list_memories(self, request: ApiRequest[asked.ScopePageQuery, None]) -> Response:
        """List the current memories that name an entity, newest first."""
        query, where = request.query, self._where(request.scope())
        entity_id = checked_id(request.path["entity_id"], "entity_id")
        page = await self.entities.memories(where, entity_id, limit=query.limit, after=query.after)
        return shapes.json_answer(shapes.list_of(await self.shape.all(page.items), has_more=page.has_more))

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

    @Operation("GET", _SESSIONS, "listSessions", shapes.SessionPage)
    async def list_sessions(self, request: ApiRequest[asked.ScopePageQuery, None]) -> Response:
        """List sessions, the last used first."""
        query = request.query
        found = await self.sessions.sessions(request.scope(), limit=query.limit + 1, after=query.after)
        shown = found[: query.limit]
        data = []
        for one in shown:
            about = {"project_id": one.scope.project, **shapes.whole_seconds(one, "last_at")}
            data.append(shapes.filled(shapes.SessionShape, one, **about))
        page = shapes.list_of(data, has_more=len(found) > query.limit)
        if shown:  # two projects may each have a session with this id; the cursor says which
            page |= {"first_id": shown[0].cursor, "last_id": shown[-1].cursor}
        return shapes.json_answer(page)

    @Operation(
        "POST", _SESSIONS + "/{session_id}/end", "endSession", {202: shapes.SessionEnded},
        refusals=(413,), body_optional=True,
    )  # fmt: skip
    async def end(self, request: ApiRequest[asked.ScopeQuery, asked.EndBody]) -> Response:
        """Extract now what a session holds."""
        session_id = checked_id(request.path["session_id"], "session_id")
        queued = await self.sessions.end(request.scope(), self.session_key(session_id), self.clock())
        if queued:
            self.wake_worker()
        ended = {"id": session_id, "object": "memory.session", "queued_exchanges": queued}
        return shapes.json_answer(ended, 202)

    @Operation("GET", _JOBS, "listJobs", shapes.JobPage)
    async def list_jobs(self, request: ApiRequest[asked.JobsQuery, None]) -> Response:
        """List extraction jobs, oldest first."""

        def shown(job: JobInfo) -> shapes.Answer:
            times = shapes.whole_seconds(job, "created_at", "due_at")
            return shapes.filled(shapes.JobShape, job, **shapes.owner_fields(job.scope), **times)

        tenant, user, state = request.caller.tenant, request.user_or_all(), request.query.state
        return await page_of(request, partial(self.jobs.list, tenant, user, state=state), shown)

    @Operation("POST", f"{_JOBS}/retry", "retryJobs", shapes.JobsRevived)
    async def retry_all(self, request: ApiRequest[asked.UserQuery, None]) -> Response:
        """Queue all dead jobs again."""
        return shapes.json_answer({"object": "memory.jobs", "revived": await self._revive(request, None)})

    @Operation("POST", _JOBS + "/{job_id}/retry", "retryJob", shapes.JobsRevived)
    async def retry(self, request: ApiRequest[asked.UserQuery, None]) -> Response:
        """Queue a dead job again."""
        job_id = request.path["job_id"]
        revived = await self._revive(request, job_id)
        if not revived:
            raise NotFound(f"No dead job with id '{job_id[:64]}'.", param="job_id", code="job_not_found")
        return shapes.json_answer({"object": "memory.jobs", "revived": revived})

    async def _revive(self, request: ApiRequest[asked.UserQuery, None], job_id: str | None) -> int:
        # Job ids are numbers that can be guessed: without a user it takes the right to all of them.
        revived = await self.jobs.revive(request.caller.tenant, request.user_or_all(), job_id)
        if revived:
            self.wake_worker()
        return revived


@dataclass(frozen=True, slots=True)
class QuarantineEndpoints:
    """Candidates that looked planted, for their owner to release or discard."""

    quarantine: Quarantine
    edits: MemoryEditor
    shape: shapes.MemoryShaper

    @Operation("GET", _HELD, "listQuarantine", shapes.HeldPage)
    async def list(self, request: ApiRequest[asked.ScopePageQuery, None]) -> Response:
        """List what was held back for review, newest first."""

        def shown(held: QuarantinedCandidate) -> shapes.Answer:
            about = {"id": held.id, "reason": held.reason, "created_at": int(held.at)}
            return shapes.filled(shapes.HeldShape, held.candidate, **shapes.owner_fields(held.scope), **about)

        return await page_of(request, partial(self.quarantine.held, request.scope()), shown)

    @Operation("POST", _HELD + "/{held_id}/release", "releaseQuarantined", {201: shapes.MemoryShape})
    async def release(self, request: ApiRequest[asked.UserQuery, None]) -> Response:
        """Store what was held back: it is harmless."""
        memory = await self.edits.release(request.scope(), request.path["held_id"])
        if memory is None:
            raise _not_held(request.path["held_id"])
        return shapes.json_answer(await self.shape(memory), 201)

    @Operation("DELETE", _HELD + "/{held_id}", "discardQuarantined", shapes.Discarded)
    async def discard(self, request: ApiRequest[asked.UserQuery, None]) -> Response:
        """Erase what was held back."""
        held_id = request.path["held_id"]
        if not await self.edits.discard(request.scope(), held_id):
            raise _not_held(held_id)
        return shapes.json_answer({"id": held_id, "object": "memory.quarantined.deleted", "deleted": True})


@dataclass(frozen=True, slots=True)
class ReceiptEndpoints:
    """Proofs of what was forgotten."""

    receipts: Receipts

    @Operation("GET", "/v1/memory/receipts", "listReceipts", shapes.ReceiptPage)
    async def list(self, request: ApiRequest[asked.PageQuery, None]) -> Response:
        """List the proofs of what was forgotten, newest first."""

        def shown(one: Receipt) -> shapes.Answer:
            owner = {"user_id": one.user, "project_id": one.project}
            counts = shapes.filled(shapes.Counts, one.counts)
            return shapes.filled(shapes.ReceiptShape, one, created_at=int(one.at), counts=counts, **owner)

        ask = partial(self.receipts.list, request.caller.tenant, request.user_or_all())
        return await page_of(request, ask, shown)


@dataclass(frozen=True, slots=True)
class CallerEndpoints:
    """What a client may ask about itself."""

    mode: str  # how callers are identified: "open" | "keys" | "jwt" | "header"
    version: str

    @Operation("GET", "/v1/memory/me", "whoAmI", shapes.Identity)
    async def me(self, request: ApiRequest[asked.NoQuery, None]) -> Response:
        """Who the proxy takes the caller for."""
        caller = request.caller
        return shapes.json_answer(
            {
                "object": "memory.identity",
                "mode": self.mode,
                "tenant": caller.tenant,
                "user_id": caller.user,
                "rights": sorted(caller.rights),
                "needs_credential": self.mode in ("keys", "jwt"),
                "version": self.version,
            }
        )


def _not_held(held_id: str) -> NotFound:
    why = f"Nothing in quarantine with id '{held_id[:64]}'."
    return NotFound(why, param="id", code="quarantined_not_found")
