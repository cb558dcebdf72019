"""Convert domain values to the API's JSON. An embedding is never shown."""

from collections.abc import Sequence
from typing import Any, TypeVar

import orjson
from starlette.responses import Response

from proxy.domain.core import Event, Forgotten, Memory, QuarantinedCandidate, Receipt
from proxy.domain.session import JobInfo, SessionInfo
from proxy.http.memory_api.answers import (
    DeletedShape,
    EventShape,
    ExportLine,
    HeldShape,
    HistoryEvent,
    JobShape,
    MemoryShape,
    Page,
    ReceiptShape,
    SessionShape,
)

T = TypeVar("T")


def answer(value: object, status: int = 200) -> Response:
    """Return a JSON answer."""
    return Response(orjson.dumps(value), status, media_type="application/json")


def page_of(data: list[Any], *, has_more: bool, **more: Any) -> Any:
    """Return one page of a list, in OpenAI's envelope."""
    envelope: Page = {
        "object": "list",
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }
    return {**envelope, "data": data, **more}


def memory(one: Memory) -> MemoryShape:
    """Return a memory with times in whole seconds."""
    shown = exact(one)
    shown["created_at"] = int(one.created_at)
    shown["updated_at"] = int(one.updated_at)
    shown["valid_from"] = int(one.valid_from)
    shown["valid_to"] = _whole(one.valid_to)
    shown["expires_at"] = _whole(one.expires_at)
    shown["last_accessed"] = _whole(one.last_accessed)
    return shown


def exact(one: Memory) -> MemoryShape:
    """Return a memory with the times that it has: nothing that orders memories is lost."""
    return {
        "id": one.id,
        "object": "memory",
        "type": one.type,
        "content": one.content,
        "user_id": one.scope.user,
        "project_id": one.scope.project,
        "source": one.source,
        "created_at": one.created_at,
        "updated_at": one.updated_at,
        "valid_from": one.valid_from,
        "valid_to": one.valid_to,
        "superseded_by": one.superseded_by,
        "expires_at": one.expires_at,
        "archived": one.archived,
        "importance": one.importance,
        "weight": one.weight,
        "confidence": one.confidence,
        "tags": list(one.tags),
        "access_count": one.access_count,
        "last_accessed": one.last_accessed,
        "evidence": [
            {"session_id": e.session_id, "exchange_id": e.exchange_id, "span": e.span} for e in one.evidence
        ],
    }


def line(one: Memory, events: list[EventShape]) -> ExportLine:
    """Return a line of an export."""
    return {**exact(one), "history": events}


def event(one: Event, *, whole: bool = True) -> EventShape:
    """Return one line of a memory's history."""
    return {
        "object": "memory.event",
        "at": int(one.at) if whole else one.at,
        "action": one.action,
        "by": one.by,
        "content": one.content,
    }


def history(events: Sequence[Event], content: str) -> list[HistoryEvent]:
    """Return a memory's history. Its lines hold the words as they were; one that changed them says what they
    became, too: the words of the next line, at last those of the memory itself (`content`)."""
    shown = list[HistoryEvent]()
    for one, after in zip(events, [*(e.content for e in events[1:]), content], strict=True):
        line: HistoryEvent = {**event(one)}  # type: ignore[typeddict-item]  # mypy would have `became` in it
        if one.action in ("updated", "archived") and after != one.content:
            line["became"] = after
        shown.append(line)
    return shown


def deleted(counts: Forgotten, *, memory_id: str | None = None, dry_run: bool = False) -> DeletedShape:
    """Return what went, or what would."""
    shown: DeletedShape = {
        "object": "memory.deleted",
        "deleted": not dry_run,
        "deleted_count": counts.memories,
        "deleted_exchanges": counts.exchanges,
        "deleted_sessions": counts.sessions,
        "deleted_jobs": counts.jobs,
        "deleted_responses": counts.responses,
        "deleted_quarantined": counts.quarantined,
        "deleted_documents": counts.documents,
        "deleted_conversations": counts.conversations,
        "receipt": counts.receipt,
    }
    if memory_id is not None:
        shown["id"] = memory_id
    if dry_run:
        shown["dry_run"] = True
    return shown


def held(one: QuarantinedCandidate) -> HeldShape:
    """Return a candidate in quarantine."""
    candidate = one.candidate
    return {
        "object": "memory.quarantined",
        "id": one.id,
        "content": candidate.content,
        "type": candidate.type,
        "user_id": one.scope.user,
        "project_id": one.scope.project,
        "reason": one.reason,
        "source": candidate.source,
        "confidence": candidate.confidence,
        "tags": list(candidate.tags),
        "created_at": int(one.at),
        "evidence": candidate.evidence,
    }


def session(one: SessionInfo) -> SessionShape:
    """Return a session: never what was said in it."""
    return {
        "object": "memory.session",
        "id": one.id,
        "project_id": one.scope.project,
        "last_at": int(one.last_at),
        "exchanges": one.exchanges,
        "pending": one.pending,
    }


def job(one: JobInfo) -> JobShape:
    """Return an extraction job."""
    return {
        "object": "memory.job",
        "id": one.id,
        "user_id": one.scope.user,
        "project_id": one.scope.project,
        "session_id": one.session_id,
        "state": one.state,
        "lane": one.lane,
        "attempts": one.attempts,
        "exchanges": one.exchanges,
        "created_at": int(one.created_at),
        "due_at": int(one.due_at),
        "reason": one.reason,
    }


def receipt(one: Receipt) -> ReceiptShape:
    """Return the proof of a forget."""
    return {
        "object": "memory.receipt",
        "id": one.id,
        "created_at": int(one.at),
        "user_id": one.user,
        "project_id": one.project,
        "type": one.type,
        "memory_id": one.memory_id,
        "by": one.by,
        "counts": {
            "memories": one.counts.memories,
            "exchanges": one.counts.exchanges,
            "sessions": one.counts.sessions,
            "jobs": one.counts.jobs,
            "responses": one.counts.responses,
            "quarantined": one.counts.quarantined,
            "documents": one.counts.documents,
            "conversations": one.counts.conversations,
        },
    }


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)
