"""Types of the memory API's requests: a model for each query and each body. What is not named here is
refused.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from proxy.domain.core import Source
from proxy.domain.session import JobState
from proxy.http.memory_api.fields import (
    Content,
    Cursor,
    Flag,
    Id,
    Kind,
    Limit,
    Moment,
    Name,
    Seconds,
    Share,
    Tags,
    Zone,
)


class Query(BaseModel):
    """The parameters of one operation; text, as it came."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Body(BaseModel):
    """A JSON object. Strict: "5" is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


# ---------------------------------------------------------------- queries
class NoQuery(Query):
    pass


class UserQuery(Query):
    user_id: Id | None = None


class ScopeQuery(UserQuery):
    project_id: Id | None = None


class ListQuery(ScopeQuery):
    type: Kind | None = None
    q: Annotated[str, Field(min_length=1, max_length=1_000)] | None = None
    include: Literal["archived", "inactive"] | None = None  # inactive: superseded and expired ones, too
    limit: Limit = 20
    after: Cursor | None = None


class ForgetQuery(UserQuery):
    dry_run: Flag = False


class ForgetScopeQuery(ScopeQuery):
    type: Kind | None = None
    dry_run: Flag = False


class PageQuery(UserQuery):
    limit: Limit = 20
    after: Cursor | None = None


class ScopePageQuery(PageQuery):
    project_id: Id | None = None


class DocumentQuery(UserQuery):
    include: Literal["content"] | None = None


class JobsQuery(PageQuery):
    state: JobState | None = None


# ---------------------------------------------------------------- bodies
class AddBody(Body):
    content: Content
    type: Kind = "semantic"
    user_id: Id | None = None
    project_id: Id | None = None
    tags: Tags = []
    importance: Share = 0.5
    created_at: Moment | None = None  # when it was said: "yesterday" in it is the day before
    timezone: Zone | None = None  # of the days in it
    expires_at: Moment | None = None


class SearchBody(Body):
    query: Annotated[str, Field(min_length=1, max_length=20_000)]
    user_id: Id | None = None
    project_id: Id | None = None
    memory_types: list[Kind] | None = None
    limit: Annotated[int, Field(ge=1, le=100)] | None = None
    similarity_threshold: Share | None = None
    include: Annotated[list[Literal["documents"]], Field(max_length=1)] = []
    timezone: Zone | None = None  # of "yesterday" in the query


class EndBody(Body):
    user_id: Id | None = None
    project_id: Id | None = None


class DocumentBody(Body):
    name: Name
    content: Annotated[str, Field(min_length=1, max_length=1_000_000)]
    format: Literal["markdown", "text"] = "markdown"
    user_id: Id | None = None
    project_id: Id | None = None


def _partial(schema: dict[str, Any]) -> None:
    """Say that what is left out stays as it is: no defaults, and at least one field."""
    for field in schema["properties"].values():
        field.pop("default", None)
    schema["minProperties"] = 1


class EditBody(Body):
    """Only what is given changes. null means: never expires, of no project."""

    # The defaults are never read: `model_fields_set` tells what was given.
    model_config = ConfigDict(json_schema_extra=_partial)

    content: Content = ""
    type: Kind = ""
    tags: Tags = []
    importance: Share = 0
    expires_at: Moment | None = None
    project_id: Id | None = None
    archived: bool = False


class EvidenceLine(Body):
    session_id: Annotated[str, Field(max_length=256)]
    exchange_id: Annotated[str, Field(max_length=256)]
    span: Annotated[str, Field(max_length=20_000)] = ""


class EventLine(Body):
    object: Literal["memory.event"] = "memory.event"
    at: Seconds
    action: Literal["created", "confirmed", "superseded", "updated", "archived", "imported"]
    by: Annotated[str, Field(max_length=256)] = ""
    content: Annotated[str, Field(max_length=20_000)] = ""


MemoryId = Annotated[str, Field(pattern=r"^mem_[0-9A-Za-z_-]{1,64}$")]


class MemoryLine(Body):
    """One line of an import: what an export writes; all but `content` may be missing."""

    id: MemoryId | None = None
    object: Literal["memory"] = "memory"
    content: Content
    type: Kind = "semantic"
    user_id: Id | None = None
    project_id: Id | None = None
    source: Source = "api"
    created_at: Moment | None = None
    updated_at: Seconds | None = None
    valid_from: Moment | None = None
    valid_to: Seconds | None = None
    superseded_by: MemoryId | None = None
    expires_at: Seconds | None = None
    archived: bool = False
    importance: Share = 0.5
    weight: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 1.0
    confidence: Share = 1.0
    tags: Tags = []
    access_count: Annotated[int, Field(ge=0, le=2**53)] = 0
    last_accessed: Seconds | None = None
    evidence: Annotated[list[EvidenceLine], Field(max_length=10_000)] = []
    history: Annotated[list[EventLine], Field(max_length=10_000)] = []
