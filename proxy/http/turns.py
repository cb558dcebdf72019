"""Parse a request's body and headers into a Turn: what is asked of memory, by whom, in which session."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy.domain.core import MemoryOptions, Message, Reason, Scope, Turn
from proxy.domain.errors import InvalidRequest
from proxy.domain.limits import TTLCache
from proxy.domain.ports import Clock, SessionStore
from proxy.http.asgi import Header
from proxy.http.auth.identity import USER_HEADER, Caller
from proxy.recall.history import fingerprint
from proxy.recall.triage import is_housekeeping
from proxy.wire.body import Body, BodyLimits, check_length, parse_bounded
from proxy.wire.dialect import Dialect, asks_to_compact
from proxy.wire.extensions import Extensions, merge, past, take_extensions, take_header_extensions

MOST_CHARS = 64 * 1024  # of one message, as memory sees it; it stores less (background/record.py)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the server does where a request says nothing, and what it never does."""

    enabled: bool
    auto_store: bool
    may_store: bool  # False: nothing is stored, whatever a request asks for
    retrieval_limit: int
    accept_openai_user: bool
    compress: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks of memory. No turn: no identity or nothing wanted, and `reason` says which."""

    turn: Turn | None
    reason: Reason | None
    stripped: bool  # the body held fields of ours, now removed
    user: str | None = None  # whom the request names, also where memory is off


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came in, its body aside."""

    request_id: str
    at: float
    caller: Caller
    headers: Sequence[Header]


ZONE_TTL_S = 30.0
_MOST_ZONES = 10_000


class Zones:
    """The users' last known time zones. One that another process has learnt is used after ZONE_TTL_S."""

    def __init__(self, sessions: SessionStore, default: str, clock: Clock) -> None:
        self._sessions, self.default = sessions, default
        self._known = TTLCache[tuple[str, str], str](_MOST_ZONES, ttl_s=ZONE_TTL_S, clock=clock)

    async def of(self, scope: Scope, named: str | None) -> str:
        """Return the zone that the request names, else the user's last known one, else the server's. Raises
        StoreUnavailable."""
        user = (scope.tenant, scope.user)
        if named is None and (known := self._known.get(user)) is not None:
            return known
        zone = named or await self._sessions.timezone(scope)
        if zone is None:
            return self.default
        self._known.put(user, zone)
        return zone


def understand(body: Body, incoming: Incoming, dialect: Dialect, defaults: Defaults) -> Asked:
    """Take our fields out of the body and return what they ask. Raises InvalidRequest or Forbidden."""
    stripped = "memory_config" in body or "memory_context" in body
    in_body, in_header = take_extensions(body), take_header_extensions(incoming.headers)
    asked, caller = merge(in_body, in_header), incoming.caller
    if caller.foreign:
        return Asked(None, Reason.FOREIGN_ORIGIN, stripped)
    user = caller.narrow(*_named(in_body, in_header, _openai_user(body, dialect, defaults)))
    read, store = asked.switches(enabled=defaults.enabled, auto_store=defaults.auto_store)
    write = store and defaults.may_store
    if not (read or write):
        return Asked(None, Reason.DISABLED, stripped, user=user)
    if user is None:
        unfilled = asked.unfilled or (defaults.accept_openai_user and dialect.is_unfilled(body))
        return Asked(None, Reason.UNFILLED_USER if unfilled else Reason.NO_USER, stripped)
    if asks_to_compact(body):
        return Asked(None, Reason.COMPACTION, stripped, user=user)
    messages = bounded(dialect.messages(body))
    if asked.enabled is not True and is_housekeeping(messages):
        return Asked(None, Reason.HOUSEKEEPING, stripped, user=user)
    scope = Scope(caller.tenant, user, caller.stored_project(asked.project_id))
    turn = Turn(
        request_id=incoming.request_id,
        scope=scope,
        session_id=asked.session_id or fingerprint(scope, dialect.conversation_key(body)),
        model=dialect.model(body),
        messages=messages,
        options=_options(asked, read, write, defaults),
        at=incoming.at,
        timezone=asked.timezone,
        said_at=past(asked.created_at, incoming.at, "memory_context.created_at"),
        tool_forced=dialect.tool_forced(body),
        may_loop=_may_loop(body, messages),
        named=asked.session_id is not None,
        standalone=asked.session_id is not None and _is_alone(body, messages),
        continues=dialect.previous_response_id(body),
    )
    return Asked(turn, None, stripped, user=user)


def bounded(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages as memory reads them."""
    return tuple(map(_bounded, messages))


def _bounded(message: Message) -> Message:
    """Return the message without the middle of a text that is far longer than anything memory reads of it."""
    if len(message.text) <= MOST_CHARS:
        return message
    typed = None if message.typed is None else _ends_of(message.typed)
    return replace(message, text=_ends_of(message.text), typed=typed)


def _ends_of(text: str) -> str:
    half = MOST_CHARS // 2
    return text if len(text) <= MOST_CHARS else f"{text[:half]}\n{text[-half:]}"


def _may_loop(body: Body, messages: Sequence[Message]) -> bool:
    """True if the answer may take several requests: tools are offered, described in the text, or were used.

    Some clients send no `tools` with the steps of a loop, or leave them to the upstream."""
    if body.get("tools") or body.get("functions"):
        return True
    if any(m.role == "tool" or m.typed is not None for m in messages):
        return True
    entries = body.get("messages")
    return isinstance(entries, list) and any(
        isinstance(entry, dict) and bool(entry.get("tool_calls") or entry.get("function_call"))
        for entry in entries
    )


def _is_alone(body: Body, messages: Sequence[Message]) -> bool:
    """True if the request brings nothing of its conversation, and the upstream holds nothing of it."""
    elsewhere = body.get("previous_response_id") or body.get("conversation")
    return not elsewhere and sum(m.role in ("user", "assistant") for m in messages) == 1


def _named(
    in_body: Extensions, in_header: Extensions, by_openai: tuple[str | None, str]
) -> tuple[str | None, str]:
    """Return the user that the request names, and where it does."""
    if in_body.user_id is not None:
        return in_body.user_id, "memory_context.user_id"
    return by_openai if in_header.user_id is None else (in_header.user_id, USER_HEADER)


def _openai_user(body: Body, dialect: Dialect, defaults: Defaults) -> tuple[str | None, str]:
    """Return the user that OpenAI's own fields name, and which of them does."""
    user = dialect.openai_user(body) if defaults.accept_openai_user else None
    return user, "safety_identifier" if body.get("safety_identifier") == user else "user"


def _options(asked: Extensions, read: bool, write: bool, defaults: Defaults) -> MemoryOptions:
    return MemoryOptions(
        read=read,
        write=write,
        types=asked.memory_types,
        limit=asked.retrieval_limit or defaults.retrieval_limit,
        threshold=asked.similarity_threshold,
        compress=read and (defaults.compress if asked.compress is None else asked.compress),
    )


def is_readable(headers: Sequence[Header]) -> bool:
    """True if the body says that it is plain JSON, or nothing: other kinds are not ours to judge."""
    media_type = _header(headers, b"content-type").partition(b";")[0].strip().lower()
    return media_type in (b"", b"application/json") and _is_plain(headers)


def parsed(headers: Sequence[Header], payload: bytes, bounds: BodyLimits, param: str) -> Body | None:
    """Return the JSON object that the body is, None if it is none and does not say so. Raises InvalidRequest
    for malformed JSON, and for more than the bounds allow. `param`: the field that holds the conversation.

    Whatever the body calls itself: `curl -d` calls all a form, and servers that do not look at the name
    (Ollama, llama.cpp) would be sent our fields."""
    says_so = is_readable(headers)
    if not says_so and not (_is_plain(headers) and payload[:64].lstrip()[:1] == b"{"):
        return None
    try:
        body = parse_bounded(payload, bounds, param)
    except InvalidRequest as error:
        if says_so or error.code != "invalid_json":
            raise
        return None
    check_length(body, bounds, param)
    return body


def _is_plain(headers: Sequence[Header]) -> bool:
    return _header(headers, b"content-encoding").strip().lower() in (b"", b"identity")


def _header(headers: Sequence[Header], name: bytes) -> bytes:
    """Return the first value of the header, b"" without one. ASGI's names are lower case."""
    return next((value for key, value in headers if key == name), b"")
