"""Our own fields of a request: `memory_config`, `memory_context` and the X-Memory-* headers.

They are checked strictly, since the upstream never sees them and cannot report an error: every refusal names
the field in `param`. Other fields of a body are not checked here.
"""

import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from html import unescape
from typing import Any
from urllib.parse import unquote

from proxy.domain.core import KINDS
from proxy.text.dates import LAST_SECOND, SKEW_S, UnknownZone, canonical, instant
from proxy.wire.body import BOOLEAN, INTEGER, NUMBER, Body, checked, refused, type_name, wrong_type

MAX_ID_CHARS = 256
MAX_RETRIEVAL_LIMIT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Extensions:
    """What one request asks of memory; None for what it does not mention."""

    enabled: bool | None = None
    retrieve: bool | None = None  # only X-Memory-Mode can tell reading from writing
    auto_store: bool | None = None
    memory_types: tuple[str, ...] | None = None
    retrieval_limit: int | None = None
    similarity_threshold: float | None = None
    compress: bool | None = None
    user_id: str | None = None
    project_id: str | None = None
    session_id: str | None = None
    timezone: str | None = None  # canonical: see text.dates
    created_at: float | None = None  # when it was said: only the body can tell
    unfilled: bool | None = None  # the user is named by a placeholder that was never filled in

    def switches(self, *, enabled: bool, auto_store: bool) -> tuple[bool, bool]:
        """Return whether to read and whether to write, given the server's defaults."""
        on = enabled if self.enabled is None else self.enabled
        store = auto_store if self.auto_store is None else self.auto_store
        return on and self.retrieve is not False, on and store


NOTHING_ASKED = Extensions()


def take_extensions(body: Body) -> Extensions:
    """Remove `memory_config` and `memory_context` from the body and return what they say.

    null means absent, for a whole section as for a field, and so does an id that is a placeholder which
    was never filled in. Raises InvalidRequest.
    """
    if "memory_config" not in body and "memory_context" not in body:
        return NOTHING_ASKED
    config = _section("memory_config", body.pop("memory_config", None), _CONFIG)
    context = _section("memory_context", body.pop("memory_context", None), _CONTEXT)
    return Extensions(**config, **_filled(context))


def take_header_extensions(headers: Iterable[tuple[bytes, bytes]]) -> Extensions:
    """Return what the request's X-Memory-* headers say; names in any case. Unknown and empty ones are
    ignored (frontends send an empty header for a variable that is not set), and so are placeholders.

    The headers are not changed: the upstream's header rules drop them all. Raises InvalidRequest, also
    for a header given twice with different values: a request must not have two identities.
    """
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name = _HEADER_NAMES.get(raw_name.lower())
        if name is None:
            continue
        value = _decoded(raw_value.strip(b" \t"))
        if not value.strip() or (name == ZONE_HEADER and is_placeholder(value)):
            continue
        if found.setdefault(name, value) != value:
            raise refused(name, "it is given twice, with different values")
    if not found:
        return NOTHING_ASKED
    mode, timezone = found.pop(_MODE_HEADER, None), found.pop(ZONE_HEADER, None)
    said: dict[str, Any] = {} if mode is None else _mode(mode)
    if timezone is not None:
        said["timezone"] = checked_zone(timezone, ZONE_HEADER)
    ids = {_ID_HEADERS[name]: checked_id(value, name) for name, value in found.items()}
    return Extensions(**said, **_filled(ids))


def merge(body: Extensions, header: Extensions) -> Extensions:
    """Merge both; if both set a field, the body wins."""
    if body is NOTHING_ASKED or header is NOTHING_ASKED:
        return header if body is NOTHING_ASKED else body
    said = {field.name: value for field in fields(body) if (value := getattr(body, field.name)) is not None}
    return replace(header, **said)


def checked_id(value: object, param: str) -> str:
    """Return the value if it can name a user, project or session; else raise InvalidRequest for `param`."""
    if not isinstance(value, str):
        raise wrong_type(param, "a string", value)
    if not value.strip():
        raise refused(param, "it must not be empty")
    if len(value) > MAX_ID_CHARS:
        raise refused(param, f"it is longer than {MAX_ID_CHARS} characters", "string_above_max_length")
    if not is_usable_id(value):
        raise refused(param, "it must not hold control characters or broken Unicode")
    return value


def checked_zone(value: object, param: str) -> str:
    """Return the canonical name of a time zone; else raise InvalidRequest for `param`."""
    if not isinstance(value, str):
        raise wrong_type(param, "a string", value)
    try:
        return canonical(value)
    except UnknownZone as e:
        raise refused(param, str(e)) from None


def checked_moment(value: object, param: str) -> float:
    """Return Unix seconds, given so or as ISO 8601 with its zone; else raise InvalidRequest for `param`."""
    if isinstance(value, str):
        at = instant(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        at = float(min(value, LAST_SECOND + 1))  # a larger integer may be no float
    else:
        raise wrong_type(param, "Unix seconds or ISO 8601", value)
    if at is None or not 0 <= at <= LAST_SECOND:  # false for NaN too
        why = "it must be Unix seconds or ISO 8601 with a time zone, like 2023-05-14T09:00:00Z"
        raise refused(param, why)
    return at


def past(at: float | None, now: float, param: str) -> float | None:
    """Return the moment, None for none; raise InvalidRequest for `param` if it is still to come."""
    if at is not None and at > now + SKEW_S:
        raise refused(param, "it is in the future")
    return at


def is_usable_id(value: str) -> bool:
    """True for a text that stays one line in a log and one key in a store.

    U+FFFD is what decoders put in place of bytes that they cannot read, of a `%FF` in a query for example:
    two different ids would become one, so an id that holds it is refused.
    """
    if not value.strip() or len(value) > MAX_ID_CHARS or _UNREADABLE in value:
        return False
    return value.isprintable() or all(unicodedata.category(c) not in _UNFIT for c in value)


# ---------------------------------------------------------------- placeholders
_UNFILLED_WORDS = frozenset(
    ("null", "undefined", "none", "nil", "nan", "true", "false", "(null)", "(none)", "(undefined)", "n/a")
)
# Of template languages: {{x}} ${x} $(x) <%x%> {%x%} #{x} %(x)s [[x]] anywhere; {x} <x> [X] :x $X %X% __X__ %s
# and "your-user-id" as the whole value. `{` and a GUID is a value: so Windows writes it.
_TEMPLATE = re.compile(
    r"\{\{.*\}\}|\{\{|\$\{|\$\([^)]*\)|<%|\{%|#\{|%\([\w.]+\)s|\[\[.*\]\]|\[object \w+\]|%!\w?\(.*\)"
)
_WHOLE = re.compile(
    r"\{(?:[a-z_][\w.]*|[a-z_][a-z_.\- ]*|\d?)\}|<[^<>@]*>|\[[a-z_\- ]+\]|:[a-z_]+|\$(?:env:)?[a-z_]\w*"
    r"|%\w+%|__\w+__|%[sdv]|@[a-z_]+@|change[-_ ]?me"
    r"|(?:your|my|the|insert|enter)[-_ ](?:\w+[-_ ])?(?:user|username|login|email)?[-_ ]?(?:id|name)"
)
_UNFILLED_PART = re.compile(r"(?:^|[:/|_\-])undefined(?:$|[:/|_\-])|(?:^|[:/|])null(?:$|[:/|])")


@lru_cache(maxsize=1024)
def is_placeholder(value: str) -> bool:
    """True for an id that a client's template or variable was never filled in for, such as `{{USER_ID}}`,
    `${USER}`, `null` or `[object Object]`: all people who send it would share one memory."""
    text = value.strip().lower()
    if text.isalnum():
        return text in _UNFILLED_WORDS
    for _ in range(2):  # sent through a URL, perhaps twice, or through HTML
        text = unescape(unquote(text))
    text = text.strip(" \t\"'`").lower()
    if not text or text in _UNFILLED_WORDS:
        return True
    return bool(_TEMPLATE.search(text) or _WHOLE.fullmatch(text) or _UNFILLED_PART.search(text))


_IDS = ("user_id", "project_id", "session_id")


def _filled(ids: dict[str, Any]) -> dict[str, Any]:
    """Return the ids without placeholders; `unfilled` is set if the user is one."""
    filled = {name: v for name, v in ids.items() if name not in _IDS or not is_placeholder(v)}
    return filled if "user_id" in filled or "user_id" not in ids else {**filled, "unfilled": True}


# ---------------------------------------------------------------- the body's fields
Check = Callable[[object, str], Any]

_UNREADABLE = "\ufffd"
_UNFIT = frozenset(("Cc", "Cs", "Zl", "Zp"))  # controls, lone surrogates, line and paragraph separators


def _section(section: str, value: object, checks: Mapping[str, Check]) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong_type(section, "an object", value)
    for name in value:
        if name not in checks:
            param = f"{section}.{_shown(name)}"
            raise refused(param, f"there is no such field{nearest(name, checks)}", "unknown_parameter")
    given = {name: item for name, item in value.items() if item is not None}
    return {name: checks[name](item, f"{section}.{name}") for name, item in given.items()}


def _boolean(value: object, param: str) -> bool:
    return bool(checked(value, BOOLEAN, param))


def _limit(value: object, param: str) -> int:
    limit: int = checked(value, INTEGER, param)
    if not 1 <= limit <= MAX_RETRIEVAL_LIMIT:
        raise refused(param, f"it must be from 1 to {MAX_RETRIEVAL_LIMIT}")
    return limit


def _threshold(value: object, param: str) -> float:
    threshold = checked(value, NUMBER, param)
    if not 0 <= threshold <= 1:  # false for NaN too
        raise refused(param, "it must be from 0 to 1")
    return float(threshold)


def _types(value: object, param: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise wrong_type(param, "an array of strings", value)
    if not value:
        raise refused(param, "it is empty; leave it out to search all types")
    for item in value:
        if not isinstance(item, str):
            raise refused(param, f"expected only strings in it, got {type_name(item)}", "invalid_type")
        if item not in KINDS:
            why = f"there is no memory type '{_shown(item)}'{nearest(item, KINDS)}"
            raise refused(param, why)
    return tuple(dict.fromkeys(value))


_CONFIG: Mapping[str, Check] = {
    "enabled": _boolean,
    "memory_types": _types,
    "retrieval_limit": _limit,
    "similarity_threshold": _threshold,
    "auto_store": _boolean,
    "compress": _boolean,
}
_CONTEXT: Mapping[str, Check] = {
    "user_id": checked_id,
    "project_id": checked_id,
    "session_id": checked_id,
    "timezone": checked_zone,
    "created_at": checked_moment,
}


# ---------------------------------------------------------------- the headers
_MODE_HEADER = "X-Memory-Mode"
ZONE_HEADER = "X-Memory-Timezone"
_ID_HEADERS = {
    "X-Memory-User-Id": "user_id",
    "X-Memory-Project-Id": "project_id",
    "X-Memory-Session-Id": "session_id",
}
_HEADER_NAMES = {name.lower().encode(): name for name in (*_ID_HEADERS, _MODE_HEADER, ZONE_HEADER)}
_MODES: Mapping[str, dict[str, bool]] = {
    "on": {"enabled": True, "retrieve": True, "auto_store": True},
    "read": {"enabled": True, "retrieve": True, "auto_store": False},
    "write": {"enabled": True, "retrieve": False, "auto_store": True},
    "off": {"enabled": False},
}


def _mode(value: str) -> dict[str, bool]:
    try:
        return _MODES[value.lower()]
    except KeyError:
        why = f"'{_shown(value)}' is not one of {', '.join(_MODES)}"
        raise refused(_MODE_HEADER, why) from None


def _decoded(value: bytes) -> str:
    # HTTP says Latin-1 for what is not ASCII, clients send UTF-8; the two are hardly ever confused.
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return what a refusal says in brackets: the valid name that was probably meant, else all of them."""
    close = difflib.get_close_matches(name[:MAX_ID_CHARS].lower(), tuple(valid), n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else f" (there are {', '.join(valid)})"


def _shown(text: str) -> str:
    """Return a client's text as an error message may hold it: short, and always valid UTF-8."""
    return text[:64].encode("utf-8", "replace").decode()
