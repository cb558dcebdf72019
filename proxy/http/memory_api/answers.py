"""Types of the memory API's answers. mypy holds the handlers to them, and the OpenAPI document is made from
them.
"""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from proxy.domain.core import Source
from proxy.domain.session import JobState


class EvidenceShape(TypedDict):
    session_id: str
    exchange_id: str
    span: str


class MemoryShape(TypedDict):
    id: str
    object: Literal["memory"]
    type: str
    content: str
    user_id: str
    project_id: str | None
    source: Source
    created_at: float
    updated_at: float
    valid_from: float
    valid_to: float | None
    superseded_by: str | None
    expires_at: float | None
    archived: bool
    importance: float
    weight: float
    confidence: float
    tags: list[str]
    access_count: int
    last_accessed: float | None
    evidence: list[EvidenceShape]


class Added(MemoryShape):
    change: Literal["created", "superseded", "confirmed"]


class EventShape(TypedDict):
    object: Literal["memory.event"]
    at: float
    action: str
    by: str
    content: str


class HistoryEvent(EventShape):
    became: NotRequired[str]


class ExportLine(MemoryShape):
    history: list[EventShape]


class Match(TypedDict):
    object: Literal["memory.match"]
    memory: MemoryShape
    score: float
    why: str


class DocumentShape(TypedDict):
    id: str
    object: Literal["memory.document"]
    name: str
    version: int
    status: Literal["ready", "indexing"]
    user_id: str
    project_id: str | None
    characters: int
    sections: int
    passages: int
    created_at: int
    updated_at: int


class DocumentPosted(DocumentShape):
    change: Literal["created", "updated", "unchanged"]
    redacted: list[str]


class SectionShape(TypedDict):
    headings: list[str]
    start: int
    end: int
    passages: int
    redacted: bool


class DocumentWhole(DocumentShape):
    outline: list[SectionShape]
    content: NotRequired[str]


class PassageShape(TypedDict):
    object: Literal["memory.passage"]
    document_id: str
    name: str
    version: int
    project_id: str | None
    headings: list[str]
    text: str
    start: int
    end: int
    score: float


class HeldShape(TypedDict):
    object: Literal["memory.quarantined"]
    id: str
    content: str
    type: str
    user_id: str
    project_id: str | None
    reason: str
    source: Source
    confidence: float
    tags: list[str]
    created_at: float
    evidence: str


class SessionShape(TypedDict):
    object: Literal["memory.session"]
    id: str
    project_id: str | None
    last_at: float
    exchanges: int
    pending: int


class JobShape(TypedDict):
    object: Literal["memory.job"]
    id: str
    user_id: str
    project_id: str | None
    session_id: str
    state: JobState
    lane: int
    attempts: int
    exchanges: int
    created_at: float
    due_at: float
    reason: str


class Counts(TypedDict):
    memories: int
    exchanges: int
    sessions: int
    jobs: int
    responses: int
    quarantined: int
    documents: int
    conversations: int


class ReceiptShape(TypedDict):
    object: Literal["memory.receipt"]
    id: str
    created_at: float
    user_id: str
    project_id: str | None
    type: str | None
    memory_id: str | None
    by: str
    counts: Counts


# ---------------------------------------------------------------- lists
class Page(TypedDict):
    object: Literal["list"]
    first_id: str | None
    last_id: str | None
    has_more: bool


class MemoryPage(Page):
    data: list[MemoryShape]
    total: int | None


class SessionPage(Page):
    data: list[SessionShape]


class JobPage(Page):
    data: list[JobShape]


class HeldPage(Page):
    data: list[HeldShape]


class DocumentPage(Page):
    data: list[DocumentShape]


class ReceiptPage(Page):
    data: list[ReceiptShape]


class Matches(TypedDict):
    object: Literal["list"]
    data: list[Match]
    has_more: Literal[False]
    would_inject: bool
    reason: str | None
    documents: NotRequired[list[PassageShape]]


class History(TypedDict):
    object: Literal["list"]
    data: list[HistoryEvent]
    has_more: Literal[False]


# ---------------------------------------------------------------- deeds
class DeletedShape(TypedDict):
    id: NotRequired[str]
    object: Literal["memory.deleted"]
    deleted: bool
    dry_run: NotRequired[bool]
    deleted_count: int
    deleted_exchanges: int
    deleted_sessions: int
    deleted_jobs: int
    deleted_responses: int
    deleted_quarantined: int
    deleted_documents: int
    deleted_conversations: int
    receipt: str | None


class SessionEnded(TypedDict):
    id: str
    object: Literal["memory.session"]
    queued_exchanges: int


class JobsRevived(TypedDict):
    object: Literal["memory.jobs"]
    revived: int


class Discarded(TypedDict):
    id: str
    object: Literal["memory.quarantined.deleted"]
    deleted: Literal[True]


class LineRefused(TypedDict):
    line: int
    message: str


class Imported(TypedDict):
    object: Literal["memory.import"]
    imported: int
    skipped: int
    refused: int
    errors: list[LineRefused]


class Identity(TypedDict):
    object: Literal["memory.identity"]
    mode: Literal["open", "keys", "jwt", "header"]
    tenant: str
    user_id: str | None
    rights: list[str]
    needs_credential: bool
    version: str


# ---------------------------------------------------------------- refusals
class ErrorShape(TypedDict):
    message: str
    type: str
    param: str | None
    code: str | None


class Refusal(TypedDict):
    error: ErrorShape
