"""Every operation of the memory API in one table: the routes and the OpenAPI document are made of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from proxy.http.memory_api import answers as shapes
from proxy.http.memory_api import documents, exporting, forgetting, importing, memories, quarantine, sessions
from proxy.http.memory_api.bodies import (
    AddBody,
    DocumentBody,
    DocumentQuery,
    EditBody,
    EndBody,
    ForgetQuery,
    ForgetScopeQuery,
    JobsQuery,
    ListQuery,
    MemoryLine,
    NoQuery,
    PageQuery,
    Query,
    ScopePageQuery,
    ScopeQuery,
    SearchBody,
    UserQuery,
)
from proxy.http.memory_api.wiring import Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    handler: Handler[Any, Any]
    id: str
    summary: str
    answers: Mapping[int, Any]  # by status: the shape of the body
    refusals: tuple[int, ...] = ()  # besides those that every operation may answer with
    query: type[Query] = NoQuery
    body: type[BaseModel] | None = None
    may_lack_body: bool = False
    lines: type[Any] | None = None  # the answer is NDJSON of this shape
    takes_lines: type[BaseModel] | None = None  # the body is NDJSON of this model
    template: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "template", tuple(self.path.split("/")[1:]))

    @property
    def takes_body(self) -> bool:
        """False where whatever the body says would not be read."""
        return self.body is not None or self.takes_lines is not None


_ALL, _ONE, _DOCUMENTS = "/v1/memory", "/v1/memory/{memory_id}", "/v1/memory/documents"

OPERATIONS = (
    Operation(
        method="POST", path=_ALL, id="addMemory", handler=memories.add,
        summary="Remember something; the same again confirms it, a changed value supersedes the old one",
        body=AddBody, answers={200: shapes.Added, 201: shapes.Added}, refusals=(409, 413),
    ),
    Operation(
        method="GET", path=_ALL, id="listMemories", handler=memories.list_,
        summary="List memories, newest first", query=ListQuery,
        answers={200: shapes.MemoryPage}, refusals=(404,),
    ),
    Operation(
        method="DELETE", path=_ALL, id="forgetMemories", handler=forgetting.forget_scope,
        summary="Forget a user's everything, one project's, or one type", query=ForgetScopeQuery,
        answers={200: shapes.DeletedShape},
    ),
    Operation(
        method="POST", path=f"{_ALL}/search", id="searchMemories", handler=memories.search,
        summary="Search, with scores and reasons; and whether a chat that began so would be shown any of it",
        body=SearchBody,
        answers={200: shapes.Matches}, refusals=(413,),
    ),
    Operation(
        method="GET", path=f"{_ALL}/export", id="exportMemories", handler=exporting.export,
        summary="Stream a user's memories, oldest first; with the right admin those of the whole tenant",
        query=ScopeQuery, answers={}, lines=shapes.ExportLine,
    ),
    Operation(
        method="POST", path=f"{_ALL}/import", id="importMemories", handler=importing.import_,
        summary="Import an export; sending it twice imports nothing twice", query=UserQuery,
        answers={200: shapes.Imported}, takes_lines=MemoryLine,
    ),
    Operation(
        method="GET", path=f"{_ALL}/me", id="whoAmI", handler=sessions.me,
        summary="Who the proxy takes the caller for", answers={200: shapes.Identity},
    ),
    Operation(
        method="GET", path=f"{_ALL}/sessions", id="listSessions", handler=sessions.sessions,
        summary="List sessions, the last used first", query=ScopePageQuery,
        answers={200: shapes.SessionPage}, refusals=(404,),
    ),
    Operation(
        method="POST", path=f"{_ALL}/sessions/{{session_id}}/end", id="endSession", handler=sessions.end,
        summary="Extract now what a session holds", query=ScopeQuery, body=EndBody, may_lack_body=True,
        answers={202: shapes.SessionEnded}, refusals=(413,),
    ),
    Operation(
        method="GET", path=f"{_ALL}/jobs", id="listJobs", handler=sessions.jobs,
        summary="List extraction jobs, oldest first", query=JobsQuery,
        answers={200: shapes.JobPage}, refusals=(404,),
    ),
    Operation(
        method="POST", path=f"{_ALL}/jobs/retry", id="retryJobs", handler=sessions.retry_all,
        summary="Queue all dead jobs again", query=UserQuery, answers={200: shapes.JobsRevived},
    ),
    Operation(
        method="POST", path=f"{_ALL}/jobs/{{job_id}}/retry", id="retryJob", handler=sessions.retry,
        summary="Queue a dead job again", query=UserQuery,
        answers={200: shapes.JobsRevived}, refusals=(404,),
    ),
    Operation(
        method="GET", path=f"{_ALL}/quarantine", id="listQuarantine", handler=quarantine.held,
        summary="List what was held back for review, newest first", query=ScopePageQuery,
        answers={200: shapes.HeldPage}, refusals=(404,),
    ),
    Operation(
        method="POST", path=f"{_ALL}/quarantine/{{held_id}}/release", id="releaseQuarantined",
        handler=quarantine.release, summary="Remember what was held back: it is harmless", query=UserQuery,
        answers={201: shapes.MemoryShape}, refusals=(404,),
    ),
    Operation(
        method="DELETE", path=f"{_ALL}/quarantine/{{held_id}}", id="discardQuarantined",
        handler=quarantine.discard, summary="Erase what was held back", query=UserQuery,
        answers={200: shapes.Discarded}, refusals=(404,),
    ),
    Operation(
        method="GET", path=f"{_ALL}/receipts", id="listReceipts", handler=forgetting.receipts,
        summary="List the proofs of what was forgotten, newest first", query=PageQuery,
        answers={200: shapes.ReceiptPage}, refusals=(404,),
    ),
    Operation(
        method="POST", path=_DOCUMENTS, id="postDocument", handler=documents.post,
        summary="Keep a text under a name; the same again changes nothing, another text is its next version",
        body=DocumentBody, refusals=(413,),
        answers={200: shapes.DocumentPosted, 201: shapes.DocumentPosted, 202: shapes.DocumentPosted},
    ),
    Operation(
        method="GET", path=_DOCUMENTS, id="listDocuments", handler=documents.list_,
        summary="List documents, the last written first", query=ScopePageQuery,
        answers={200: shapes.DocumentPage}, refusals=(404,),
    ),
    Operation(
        method="GET", path=f"{_DOCUMENTS}/{{document_id}}", id="getDocument", handler=documents.get,
        summary="One document with its outline, and with its text where that is asked for",
        query=DocumentQuery, answers={200: shapes.DocumentWhole}, refusals=(404,),
    ),
    Operation(
        method="DELETE", path=f"{_DOCUMENTS}/{{document_id}}", id="deleteDocument",
        handler=documents.delete, summary="Erase a document, and the answers that may repeat it",
        query=UserQuery, answers={200: shapes.DeletedShape}, refusals=(404,),
    ),
    Operation(
        method="GET", path=_ONE, id="getMemory", handler=memories.get,
        summary="One memory, also a superseded one", query=UserQuery,
        answers={200: shapes.MemoryShape}, refusals=(404,),
    ),
    Operation(
        method="PATCH", path=_ONE, id="editMemory", handler=memories.edit,
        summary="Correct a memory; it keeps its id, and its history the old content", query=UserQuery,
        body=EditBody, answers={200: shapes.MemoryShape}, refusals=(404, 409, 413),
    ),
    Operation(
        method="DELETE", path=_ONE, id="forgetMemory", handler=forgetting.forget,
        summary="Forget a memory, those that it superseded, and the exchanges they came from",
        query=ForgetQuery, answers={200: shapes.DeletedShape}, refusals=(404,),
    ),
    Operation(
        method="GET", path=f"{_ONE}/history", id="getHistory", handler=memories.history,
        summary="What happened to a memory, oldest first", query=UserQuery,
        answers={200: shapes.History}, refusals=(404,),
    ),
)  # fmt: skip
"""Literal paths come before those with places: `GET /v1/memory/search` is a wrong method, not an id."""
