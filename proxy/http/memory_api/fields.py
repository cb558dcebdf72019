"""The kinds of values that queries and bodies hold, each with its check and its JSON schema."""

import unicodedata
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema

from proxy.domain.core import KINDS
from proxy.domain.errors import InvalidRequest
from proxy.domain.timezones import LAST_SECOND, instant
from proxy.wire.extensions import MAX_ID_CHARS, checked_id, checked_zone

MAX_CONTENT_CHARS = 4_000
_NO_LINE = ("Cc", "Zl", "Zp")  # controls, separators of lines
_UNSEEN = ("Cf", "Mn", "Zs")  # nothing that a reader sees by itself
_REORDERS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # shown in another order


def _id(value: str, info: ValidationInfo) -> str:
    return checked_id(value, info.field_name or "id")


def _zone(value: str, info: ValidationInfo) -> str:
    return checked_zone(value, info.field_name or "timezone")


def _kind(value: str, info: ValidationInfo) -> str:
    if value not in KINDS:
        known = ", ".join(sorted(KINDS))
        why = f"Unknown memory type. Known: {known}."
        raise InvalidRequest(why, param=info.field_name, code="invalid_value")
    return value


def _whole(value: object) -> object:
    if isinstance(value, str) and not (value.isascii() and value.isdigit() and len(value) < 10):
        raise ValueError("it must be a whole number")
    return value


def _seconds(value: object) -> object:
    """Return Unix seconds where a text names a time."""
    if not isinstance(value, str):
        return value
    at = instant(value)
    if at is None:
        raise ValueError("it must be Unix seconds or ISO 8601 with a time zone, like 2027-01-31T09:00:00Z")
    return at


def _flag(value: object) -> object:
    if value not in ("true", "false"):
        raise ValueError("it must be true or false")
    return value == "true"


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("it must not be blank")
    return value.strip()


def _one_line(value: str) -> str:
    kinds = {unicodedata.category(c) for c in value}
    if kinds.intersection(_NO_LINE) or _REORDERS.intersection(value):
        raise ValueError("it must be one line, without control characters")
    return _not_blank("" if kinds.issubset(_UNSEEN) else value)


Id = Annotated[
    str,
    AfterValidator(_id),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS}),
]
Zone = Annotated[
    str,
    AfterValidator(_zone),
    Field(max_length=64),
    WithJsonSchema({
        "type": "string", "maxLength": 64, "description": "IANA name (Asia/Tokyo), or an offset (+02:00)",
    }),
]  # fmt: skip
Kind = Annotated[
    str,
    AfterValidator(_kind),
    WithJsonSchema({"type": "string", "enum": sorted(KINDS), "title": "Memory type"}),
]
Content = Annotated[str, Field(min_length=1, max_length=MAX_CONTENT_CHARS), AfterValidator(_not_blank)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_one_line)]
Tags = Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=20)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=LAST_SECOND, allow_inf_nan=False, description="Unix seconds")]
Moment = Annotated[
    float, Field(ge=0, le=LAST_SECOND, allow_inf_nan=False), BeforeValidator(_seconds),
    WithJsonSchema({
        "anyOf": [
            {"type": "number", "minimum": 0, "maximum": LAST_SECOND},
            {"type": "string", "format": "date-time"},
        ],
        "description": "Unix seconds, or ISO 8601 with its time zone: 2027-01-31T09:00:00Z",
    }),
]  # fmt: skip
"""A time that somebody writes by hand."""

# Of a query: text that must mean what it says.
Limit = Annotated[int, Field(ge=1, le=100), BeforeValidator(_whole)]
Flag = Annotated[bool, BeforeValidator(_flag), WithJsonSchema({"type": "string", "enum": ["true", "false"]})]
Cursor = Annotated[
    str, AfterValidator(_id), Field(description="the id of the last item of the page before"),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS}),
]  # fmt: skip
