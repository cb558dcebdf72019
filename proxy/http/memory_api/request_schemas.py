"""Pydantic models of the memory API's queries and bodies. Fields that they do not name are refused."""

import unicodedata
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
)

from proxy.domain.core import DEFAULT_TIMEZONE, KINDS, Source
from proxy.domain.errors import InvalidRequest
from proxy.domain.session import JobState
from proxy.text.dates import LAST_SECOND, instant, period
from proxy.wire.extensions import MAX_ID_CHARS, checked_id, checked_zone

MAX_CONTENT_CHARS = 4_000
_LINE_BREAKS = ("Cc", "Zl", "Zp")  # control characters and line separators
_INVISIBLE = ("Cf", "Mn", "Zs")
_REORDERS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # bidirectional controls


# ---------------------------------------------------------------- field types
def _checked(check: Callable[[str, str], str]) -> AfterValidator:
    return AfterValidator(lambda value, info: check(value, info.field_name or "id"))


def _kind(value: str, info: ValidationInfo) -> str:
    if value not in KINDS:
        known = ", ".join(sorted(KINDS))
        why = f"Unknown memory type. Known: {known}."
        raise InvalidRequest(why, param=info.field_name, code="invalid_value")
    return value


def _digits(value: object) -> object:
    """Accept "20" only: pydantic would also take "2_0" and "+20"."""
    if isinstance(value, str) and not (value.isascii() and value.isdigit() and len(value) < 10):
        raise ValueError("it must be a whole number")
    return value


def _seconds(value: object) -> object:
    """Return Unix seconds for a time in ISO 8601."""
    if not isinstance(value, str):
        return value
    at = instant(value)
    if at is None:
        raise ValueError("it must be Unix seconds or ISO 8601 with a time zone, like 2027-01-31T09:00:00Z")
    return at


def _when(value: str) -> str:
    if moment(value, DEFAULT_TIMEZONE) is None:
        raise ValueError(
            "it must be Unix seconds, a day (2027-01-31), a month (2027-01) or ISO 8601 with a zone"
        )
    return value


def moment(text: str, timezone: str, *, end: bool = False) -> float | None:
    """Return the Unix seconds of a `When`. A day or month is the user's, and means its beginning, or its
    `end`."""
    if (found := period(text, timezone)) is not None:
        return found[end]
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return at if (at := float(text)) <= LAST_SECOND else None
    return instant(text)


def times_of(query: "ListQuery | TimelineQuery", timezone: str) -> dict[str, Any]:
    """Return the moments that the query names, by their names in MemoryFilter."""
    given = ((name, getattr(query, name, None)) for name in ("as_of", "since", "until"))
    found = ((name, moment(text, timezone, end=name != "since")) for name, text in given if text is not None)
    return {name: at for name, at in found if at is not None}


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("it must not be blank")
    return value.strip()


def _one_line(value: str) -> str:
    categories = {unicodedata.category(c) for c in value}
    if categories.intersection(_LINE_BREAKS) or _REORDERS.intersection(value):
        raise ValueError("it must be one line, without control characters")
    return _not_blank("" if categories.issubset(_INVISIBLE) else value)


_ID_SCHEMA = {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS}
_TEXT = {"type": "string", "maxLength": 64}
_ZONE_SCHEMA = _TEXT | {"description": "IANA name (Asia/Tokyo), or an offset (+02:00)"}
_MOMENT_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": 0, "maximum": LAST_SECOND},
        {"type": "string", "format": "date-time"},
    ],
    "description": "Unix seconds, or ISO 8601 with its time zone: 2027-01-31T09:00:00Z",
}
_WHEN_SCHEMA = _TEXT | {
    "description": "Unix seconds, a day or month in the user's time zone (2027-01-31, 2027-01), or ISO 8601"
}
_KIND_SCHEMA = {"type": "string", "enum": sorted(KINDS), "title": "Memory type"}

Id = Annotated[str, _checked(checked_id), WithJsonSchema(_ID_SCHEMA)]
Zone = Annotated[str, _checked(checked_zone), Field(max_length=64), WithJsonSchema(_ZONE_SCHEMA)]
Kind = Annotated[str, AfterValidator(_kind), WithJsonSchema(_KIND_SCHEMA)]
Content = Annotated[str, Field(min_length=1, max_length=MAX_CONTENT_CHARS), AfterValidator(_not_blank)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_one_line)]
Tags = Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=20)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=LAST_SECOND, allow_inf_nan=False, description="Unix seconds")]
Moment = Annotated[
    float,
    Field(ge=0, le=LAST_SECOND, allow_inf_nan=False),
    BeforeValidator(_seconds),
    WithJsonSchema(_MOMENT_SCHEMA),
]
MemoryId = Annotated[str, Field(pattern=r"^mem_[0-9A-Za-z_-]{1,64}$")]
Label = Annotated[str, Field(max_length=256)]
Quote = Annotated[str, Field(max_length=20_000)]

# Of a query, where everything is text.
Limit = Annotated[int, Field(ge=1, le=100), BeforeValidator(_digits)]
Flag = Literal["true", "false"]
When = Annotated[str, AfterValidator(_when), WithJsonSchema(_WHEN_SCHEMA)]  # resolved by `moment`
Cursor = Annotated[Id, Field(description="the id of the last item of the page before")]


# ---------------------------------------------------------------- queries
class Query(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


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
    archived: Flag = "false"  # true: only those
    as_of: When | None = None
    since: When | None = None
    until: When | None = None
    limit: Limit = 20
    after: Cursor | None = None


class ForgetQuery(UserQuery):
    dry_run: Flag = "false"


class ForgetScopeQuery(ScopeQuery):
    type: Kind | None = None
    dry_run: Flag = "false"


class PageQuery(UserQuery):
    limit: Limit = 20
    after: Cursor | None = None


class ScopePageQuery(PageQuery):
    project_id: Id | None = None


class TimelineQuery(ScopePageQuery):
    since: When | None = None
    until: When | None = None


class InsightsQuery(ScopeQuery):
    days: Annotated[int, Field(ge=1, le=366), BeforeValidator(_digits)] = 30


class DocumentQuery(UserQuery):
    include: Literal["content"] | None = None


class JobsQuery(PageQuery):
    state: JobState | None = None


# ---------------------------------------------------------------- bodies
class Body(BaseModel):
    """A JSON object. Strict: "5" is not a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ScopeBody(Body):
    user_id: Id | None = None
    project_id: Id | None = None


class AddBody(ScopeBody):
    content: Content
    type: Kind = "semantic"
    tags: Tags = []
    importance: Share = 0.5
    created_at: Moment | None = None  # when it was said: "yesterday" in it is the day before
    timezone: Zone | None = None  # of the days in it
    expires_at: Moment | None = None


class SearchBody(ScopeBody):
    query: Annotated[str, Field(min_length=1, max_length=20_000)]
    memory_types: list[Kind] | None = None
    limit: Annotated[int, Field(ge=1, le=100)] | None = None
    similarity_threshold: Share | None = None
    include: Annotated[list[Literal["documents"]], Field(max_length=1)] = []
    timezone: Zone | None = None  # of "yesterday" in the query


class MessageBody(Body):
    """A message of a chat request; other fields, such as `tool_calls`, are read as in a chat."""

    model_config = ConfigDict(extra="allow")

    role: Label
    content: str | list[dict[str, Any]] | None = None


class ExplainBody(ScopeBody):
    messages: Annotated[list[MessageBody], Field(min_length=1, max_length=1_000)]
    session_id: Id | None = None
    model: Label = ""
    timezone: Zone | None = None


class EndBody(ScopeBody):
    pass


class DecideBody(Body):
    keep: Literal["newer", "older", "both"]
    user_id: Id | None = None


class EvolveBody(Body):
    user_id: Id | None = None
    dry_run: bool = False


Days = Annotated[float, Field(ge=0, le=36_500, allow_inf_nan=False)]


class SettingsBody(Body):
    """A user's own settings; what is absent or null is the server's."""

    enabled: bool | None = None
    use: bool | None = None
    decay: bool | None = None
    consolidate: bool | None = None
    reflect: bool | None = None
    contradictions: bool | None = None
    links: bool | None = None
    consolidate_from: Annotated[int, Field(ge=2, le=8)] | None = None
    use_gain: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None = None
    unused_loss: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None = None
    archive_below: Share | None = None
    core_above: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] | None = None
    half_life_days: Days | None = None
    half_life_days_by_type: dict[Kind, Days] | None = None
    grace_days: Days | None = None
    forget_below: Share | None = None
    exempt_types: Annotated[list[Kind], Field(max_length=16)] | None = None


class DocumentBody(ScopeBody):
    name: Name
    content: Annotated[str, Field(min_length=1, max_length=1_000_000)]
    format: Literal["markdown", "text"] = "markdown"


def _partial(schema: dict[str, Any]) -> None:
    """Describe a body in which absent fields stay unchanged: no defaults, at least one field."""
    for field in schema["properties"].values():
        field.pop("default", None)
    schema["minProperties"] = 1


class EditBody(Body):
    """Only what is given changes. null means: never expires, of no project."""

    # The defaults are never read: `model_fields_set` has the fields that were given.
    model_config = ConfigDict(json_schema_extra=_partial)

    content: Content = ""
    type: Kind = ""
    tags: Tags = []
    importance: Share = 0
    expires_at: Moment | None = None
    project_id: Id | None = None
    archived: bool = False


class EvidenceLine(Body):
    session_id: Label
    exchange_id: Label
    span: Quote = ""


EventAction = Literal[
    "created", "confirmed", "superseded", "updated", "archived", "restored", "pinned", "unpinned", "imported"
]


class EventLine(Body):
    object: Literal["memory.event"] = "memory.event"
    at: Seconds
    action: Literal[
        "created",
        "confirmed",
        "superseded",
        "updated",
        "archived",
        "restored",
        "pinned",
        "unpinned",
        "imported",
    ]
    by: Label = ""
    content: Quote = ""


class MemoryLine(Body):
    """One line of an import: what an export writes; only `content` is required."""

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
    pinned: bool = False
    uses: Annotated[int, Field(ge=0, le=2**53)] = 0
    last_used_at: Seconds | None = None
    archived_by: Annotated[str, Field(max_length=32)] | None = None
    sources: Annotated[list[MemoryId], Field(max_length=100)] = []
    evidence: Annotated[list[EvidenceLine], Field(max_length=10_000)] = []
    history: Annotated[list[EventLine], Field(max_length=10_000)] = []
