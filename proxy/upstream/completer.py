"""Our own LLM calls: one chat completion each, not streamed, to the endpoint configured for the role."""

import asyncio
import errno
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from importlib import import_module
from typing import TYPE_CHECKING, Any

import orjson

from proxy import __version__, telemetry
from proxy.domain.errors import (
    CompletionFailed,
    CompletionPostponed,
    CompletionRefused,
    CredentialNeeded,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.domain.limits import CircuitBreaker, TTLCache
from proxy.domain.ports import CompletionRequest
from proxy.upstream.client import Credentials, Upstream, credential
from proxy.upstream.forms import (
    MAX_LEARNT,
    Forms,
    Learning,
    ModelRoute,
    easier,
    easier_by_name,
    own_options,
    refusal_of,
)
from proxy.wire.answers import Values, objects, tokens_of
from proxy.wire.chat_answer import ChatReader, PieceKind
from proxy.wire.http import Headers

if TYPE_CHECKING:
    import httpx

_MAX_ANSWER_BYTES = 4 * 1024 * 1024
_FORM_REFUSED = (400, 422, 500, 501)  # how servers refuse an option, a role, or a call that is not streamed
_MAX_STARTS = 100  # of a JSON object in a text: each is tried
_TOO_MANY = 429
_BUSY = (_TOO_MANY, 503, 529)


# ---------------------------------------------------------------- back-off
FIRST_PAUSE_S, MAX_PAUSE_S = 2.0, 300.0  # if the endpoint names no time
MAX_WANTED_S = 3_600.0  # however long the endpoint asks for: an account may be topped up any time
PROBE_S = 5.0  # after a pause one call is made, and the next this much later or when it has succeeded
_MAX_PAUSES = 1_000  # clients choose their credentials

EndpointKey = tuple[str | None, bytes]
"""Endpoint (None: the conversation's upstream) and a digest of the credential."""


def retry_after(headers: Headers, now: float) -> float | None:
    """Return the seconds that the answer asks to wait: Retry-After in seconds or as a date, or
    retry-after-ms. `now`: Unix time. None if it asks for nothing that can be read."""
    given = {name.lower(): value.decode("latin-1").strip() for name, value in headers}
    if (milliseconds := _number(given.get(b"retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = given.get(b"retry-after")
    seconds = _number(value)
    if seconds is None and value:
        try:
            seconds = max(0.0, parsedate_to_datetime(value).timestamp() - now)
        except (ValueError, OverflowError):
            return None
    return seconds


def _number(value: str | None) -> float | None:
    """Return a plain number, None for anything else; "nan" and "inf" are not numbers of seconds."""
    if value is None or not value.replace(".", "", 1).isdecimal() or not value.isascii():
        return None
    return float(value)


# ---------------------------------------------------------------- calls
@dataclass(frozen=True, slots=True)
class RoleModel:
    """Where one role's calls go. Without an endpoint: the conversation's upstream, with the client's
    credential unless there is an `api_key`; without a model: the conversation's."""

    endpoint: str | None = None
    model: str | None = None
    api_key: str | None = None
    timeout_s: float = 30.0
    max_tokens: int | None = 1024
    temperature: float | None = 0.0


@dataclass(frozen=True, slots=True)
class _AddressedCall:
    """One request and its destination."""

    role: RoleModel
    request: CompletionRequest
    headers: Headers  # the credential
    shared: bool  # other users' calls carry the same credential
    began: float

    @property
    def model(self) -> str:
        return self.role.model or self.request.model

    @property
    def key(self) -> EndpointKey:
        digest = blake2b(repr(self.headers).encode(), digest_size=16).digest()
        return self.role.endpoint, digest


_Answer = tuple[int, Headers, bytes]  # status, headers, body


class UpstreamCompleter:
    """Completer over HTTP. A client's credential is never sent to an endpoint of the operator's, and only
    with calls for that client. An endpoint that answers 429 or 503, or cannot be reached, is not called for a
    while with the same credential."""

    def __init__(
        self,
        upstream: Upstream,
        credentials: Credentials,
        roles: Mapping[str, RoleModel],
        endpoints: Mapping[str, Upstream] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        learning: Learning | None = None,
        own: RoleModel = RoleModel(),
        on_usage: Callable[[str, int, int], None] = lambda role, read, written: None,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        """`endpoints` has an Upstream for every endpoint that `roles` name; they belong to the caller. `own`:
        for roles that are not named, which ask the conversation's own model. `on_usage`: called with the
        role and the tokens read and written that an answer reports. `transport`: answers every call
        in place of the upstream and the endpoints."""
        self._upstream = upstream
        self._credentials = credentials
        self._roles = dict(roles)
        self._endpoints = dict(endpoints or {})
        self._clock, self._jitter = clock, jitter
        self._breakers = TTLCache[EndpointKey, CircuitBreaker](_MAX_PAUSES)
        self._learning, self._own = learning or Learning(Forms(clock)), own
        self._on_usage, self._transport = on_usage, transport
        self._doubted = TTLCache[ModelRoute, bool](MAX_LEARNT)  # a server error was over with less options

    async def complete(self, request: CompletionRequest) -> str:
        """Return the answer's text. Raises CredentialNeeded, CompletionRefused, CompletionPostponed or
        CompletionFailed."""
        role = self._roles.get(request.role, self._own)
        headers: Headers = []
        if role.api_key:
            headers = credential(self._asked(role).endpoint, role.api_key)
        elif role.endpoint is None:
            headers = self._credentials.get(request.scope)
        shared = not headers or bool(role.api_key)
        call = _AddressedCall(role, request, headers, shared, self._clock())
        with telemetry.span(f"chat {call.model}", "client") as span:
            span.set(
                gen_ai__operation__name="chat", gen_ai__request__model=call.model, memory__role=request.role
            )
            return await self._completed(call)

    async def _completed(self, call: _AddressedCall) -> str:
        breaker = self._breakers.get(call.key)
        if breaker is not None and (left_s := breaker.acquire()):
            raise CompletionPostponed("the endpoint rests", retry_after_s=left_s, shared=call.shared)
        try:
            async with asyncio.timeout(call.role.timeout_s):
                status, headers, body = await self._ask(call)
        except TimeoutError as error:
            raise CompletionFailed(f"no answer within {call.role.timeout_s:g} s") from error
        except UpstreamError as error:
            # With the system's name for it: upstream_unreachable (ECONNREFUSED).
            name = errno.errorcode.get(getattr(error.__cause__, "errno", None) or 0)
            is_down = isinstance(error, UpstreamUnreachable | UpstreamTimeout)
            left = self._rest(call, None) if is_down else None
            why = f"{error.code} ({name})" if name else error.code
            raise CompletionFailed(why, retry_after_s=left) from error
        telemetry.log.debug("completion.answered", role=call.request.role, status=status, bytes=len(body))
        if status in _BUSY:
            left_s = self._rest(call, retry_after(headers, time.time()))
            if status == _TOO_MANY:
                raise CompletionPostponed(f"status {status}", retry_after_s=left_s, shared=call.shared)
            raise CompletionFailed(f"status {status}", retry_after_s=left_s)
        self._breakers.pop(call.key)
        if status in (401, 403):
            raise CredentialNeeded(f"status {status}")
        if status in (400, 422):  # 404: a model that is not loaded yet may be there later
            raise CompletionRefused(f"status {status}")
        if not 200 <= status < 300:
            raise CompletionFailed(f"status {status}")
        content, usage = await asyncio.to_thread(_content, headers, body)
        if usage is not None:
            self._on_usage(call.request.role, *usage)
        if not content.strip():
            raise CompletionFailed("the answer holds no text")  # some have thoughts only
        return content

    def _asked(self, role: RoleModel) -> Upstream:
        return self._upstream if role.endpoint is None else self._endpoints[role.endpoint]

    def _rest(self, call: _AddressedCall, wanted_s: float | None) -> float:
        """Leave the endpoint alone for a while, and return for how long."""
        breaker = self._breakers.get(call.key)
        if breaker is None:
            breaker = CircuitBreaker(
                FIRST_PAUSE_S, max_open_s=MAX_PAUSE_S, probe_s=PROBE_S, clock=self._clock, jitter=self._jitter
            )
            self._breakers.put(call.key, breaker)
        wanted_s = None if wanted_s is None else min(wanted_s, MAX_WANTED_S)
        left_s = breaker.failed(began_at=call.began, wanted_s=wanted_s)
        telemetry.log.warning("completion.endpoint_rests", role=call.request.role, seconds=round(left_s, 1))
        return left_s

    async def _ask(self, call: _AddressedCall) -> _Answer:
        """Ask in the form that the model is known to take; if it refuses that, in a simpler one.
        Remember what it took."""
        forms, role, tried = self._learning.forms, call.role, list[dict[str, Any]]()
        model = self._learning.model(call.model, "chat", role.endpoint)
        known = form = forms.of(model)
        status, headers, body, blind = 0, Headers(), b"", False
        while True:
            given = own_options(form, call.request, max_tokens=role.max_tokens, temperature=role.temperature)
            refused = given in tried
            if not refused:
                tried.append(given)
                status, headers, body = await self._post(call, given)
                if form.own_limit in given and 200 <= status < 300 and _thought_to_the_limit(body):
                    form = replace(form, own_limit="")
                    continue
                refused = status in _FORM_REFUSED
            refusal = refusal_of(status, body) if refused else None
            following = easier(form, refusal) if refusal is not None else None
            if refusal is None or following is None:
                break
            blind = blind or (status >= 500 and easier_by_name(form, refusal) is None)
            form = following
        if status < 300 and form != known:
            # The first server error that was over with less options may have been any other.
            if blind and model not in self._doubted:
                self._doubted.put(model, True)
            else:
                self._doubted.pop(model)
                forms.learn(model, known, form)
        return status, headers, body

    async def _post(self, call: _AddressedCall, given: dict[str, Any]) -> _Answer:
        await load_httpx()
        from proxy.upstream.httpx_transport import UpstreamTransport, exchange

        upstream = self._asked(call.role)
        about = [
            (b"user-agent", f"memory-proxy/{__version__} ({call.request.role})".encode("ascii")),
            (b"content-type", b"application/json"),
            (b"accept", b"application/json"),
            (b"accept-encoding", b"identity"),
        ]
        return await exchange(
            self._transport or UpstreamTransport(upstream),
            "POST",
            f"{upstream.endpoint.scheme}://{upstream.endpoint.authority}/v1/chat/completions",
            about + call.headers,
            orjson.dumps({"model": call.model} | given),
            max_bytes=_MAX_ANSWER_BYTES,
        )


async def load_httpx() -> None:
    """Import httpx in a thread. It takes 40 ms: too long for every start, and for the event loop."""
    await asyncio.to_thread(import_module, "proxy.upstream.httpx_transport")


def _thought_to_the_limit(body: bytes) -> bool:
    """True if the limit of tokens was reached before the first word of the answer."""
    if b'"length"' not in body:
        return False
    try:
        choice = orjson.loads(body)["choices"][0]
        return choice["finish_reason"] == "length" and not choice["message"].get("content")
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
        return False


def _content(headers: Headers, body: bytes) -> tuple[str, tuple[int, int] | None]:
    """Return what the message says, else the arguments of its first tool call, else the JSON object in its
    thoughts; and the tokens read and written. Some servers stream, or compress, whatever they are asked
    for."""
    named = {name.lower(): value.decode("latin-1") for name, value in headers}
    values = Values(named.get(b"content-type", ""), named.get(b"content-encoding", ""))
    reader = ChatReader()
    texts = reader.texts(objects(values, [body]))
    if texts[PieceKind.TEXT].strip():
        return texts[PieceKind.TEXT], tokens_of(reader.usage)
    arguments = "".join(reader.calls.named[0].arguments) if reader.calls.named else ""
    return arguments or _json_in(texts[PieceKind.THOUGHT]), tokens_of(reader.usage)


def _json_in(thoughts: str) -> str:
    """Return the text from the last line that begins an object which can be read, "" without one."""
    end = thoughts.rfind("}") + 1
    starts = [match.start() for match in re.finditer(r"(?m)^\s*\{|\{", thoughts[:end])][:_MAX_STARTS]
    for start in starts:
        try:
            if isinstance(orjson.loads(thoughts[start:end]), dict):
                return thoughts[start:end]
        except orjson.JSONDecodeError:
            continue
    return ""
