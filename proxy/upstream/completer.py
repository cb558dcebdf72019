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
from itertools import chain
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
from proxy.wire.chat_answer import ChatReader, PieceKind, TextPiece
from proxy.wire.http import Headers

if TYPE_CHECKING:
    import httpx

_MAX_ANSWER_BYTES = 4 * 1024 * 1024
_FORM_REFUSED = (400, 422, 500, 501)  # how servers refuse an option, a role, or a call that is not streamed
_CREDENTIAL_NEEDED = (401, 403)
_REFUSED = (400, 422)  # 404: a model that is not loaded yet may be there later
_TOO_MANY = 429
_MAX_STARTS = 100  # of a JSON object in a text: each is tried
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


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Headers
    body: bytes


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
        call = self._addressed(request)
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
                answer = await self._ask(call)
        except TimeoutError as error:
            raise CompletionFailed(f"no answer within {call.role.timeout_s:g} s") from error
        except (UpstreamUnreachable, UpstreamTimeout) as error:
            raise CompletionFailed(_why(error), retry_after_s=self._rest(call, None)) from error
        except UpstreamError as error:
            raise CompletionFailed(_why(error)) from error
        telemetry.log.debug(
            "completion.answered", role=call.request.role, status=answer.status, bytes=len(answer.body)
        )
        if answer.status in _BUSY:
            raise self._turned_away(call, answer)
        self._breakers.pop(call.key)
        content, usage = await asyncio.to_thread(_content, answer)
        if usage is not None:
            self._on_usage(call.request.role, *usage)
        if not content.strip():
            raise CompletionFailed("the answer holds no text")  # some have thoughts only
        return content

    def _addressed(self, request: CompletionRequest) -> _AddressedCall:
        role = self._roles.get(request.role, self._own)
        headers: Headers = []
        if role.api_key:
            headers = credential(self._asked(role).endpoint, role.api_key)
        elif role.endpoint is None:
            headers = self._credentials.get(request.scope)
        own = bool(headers) and not role.api_key
        return _AddressedCall(role, request, headers, shared=not own, began=self._clock())

    def _asked(self, role: RoleModel) -> Upstream:
        return self._upstream if role.endpoint is None else self._endpoints[role.endpoint]

    def _turned_away(self, call: _AddressedCall, answer: _Answer) -> CompletionFailed:
        """Begin the pause that the answer asks for, and return what it means for the call."""
        left_s = self._rest(call, retry_after(answer.headers, time.time()))
        reason = f"status {answer.status}"
        if answer.status == _TOO_MANY:
            return CompletionPostponed(reason, retry_after_s=left_s, shared=call.shared)
        return CompletionFailed(reason, retry_after_s=left_s)

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
        answer, blind = _Answer(0, [], b""), False
        while True:
            given = own_options(form, call.request, max_tokens=role.max_tokens, temperature=role.temperature)
            refused = given in tried
            if not refused:
                tried.append(given)
                answer = await self._post(call, given)
                if form.own_limit in given and _thought_to_the_limit(answer):
                    form = replace(form, own_limit="")
                    continue
                refused = answer.status in _FORM_REFUSED
            refusal = refusal_of(answer.status, answer.body) if refused else None
            following = easier(form, refusal) if refusal is not None else None
            if refusal is None or following is None:
                break
            blind = blind or (answer.status >= 500 and easier_by_name(form, refusal) is None)
            form = following
        if answer.status < 300 and form != known and self._is_sure(model, blind=blind):
            forms.learn(model, known, form)
        return answer

    def _is_sure(self, model: ModelRoute, *, blind: bool) -> bool:
        """False for the first server error that was over with less options: it may have been any other."""
        if not blind or model in self._doubted:
            self._doubted.pop(model)
            return True
        self._doubted.put(model, True)
        return False

    async def _post(self, call: _AddressedCall, given: dict[str, Any]) -> _Answer:
        await load_httpx()
        from proxy.upstream.httpx_transport import UpstreamTransport, exchange

        upstream = self._asked(call.role)
        answer = await exchange(
            self._transport or UpstreamTransport(upstream),
            "POST",
            f"{upstream.endpoint.scheme}://{upstream.endpoint.authority}/v1/chat/completions",
            _about(call.request) + call.headers,
            orjson.dumps({"model": call.model} | given),
            max_bytes=_MAX_ANSWER_BYTES,
        )
        return _Answer(*answer)


async def load_httpx() -> None:
    """Import httpx in a thread. It takes 40 ms: too long for every start, and for the event loop."""
    await asyncio.to_thread(import_module, "proxy.upstream.httpx_transport")


def _why(error: UpstreamError) -> str:
    """Return what happened, with the system's name for it: upstream_unreachable (ECONNREFUSED)."""
    name = errno.errorcode.get(getattr(error.__cause__, "errno", None) or 0)
    return f"{error.code} ({name})" if name else error.code


def _about(request: CompletionRequest) -> Headers:
    return [
        (b"user-agent", f"memory-proxy/{__version__} ({request.role})".encode("ascii")),
        (b"content-type", b"application/json"),
        (b"accept", b"application/json"),
        (b"accept-encoding", b"identity"),
    ]


def _thought_to_the_limit(answer: _Answer) -> bool:
    """True if the limit of tokens was reached before the first word of the answer."""
    if not 200 <= answer.status < 300 or b'"length"' not in answer.body:
        return False
    try:
        choice = orjson.loads(answer.body)["choices"][0]
        return choice["finish_reason"] == "length" and not choice["message"].get("content")
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
        return False


def _content(answer: _Answer) -> tuple[str, tuple[int, int] | None]:
    """Return what the message says, else the arguments of its first tool call, else the JSON object in its
    thoughts; and the tokens read and written. Some servers stream, or compress, whatever they are asked
    for."""
    if answer.status in _CREDENTIAL_NEEDED:
        raise CredentialNeeded(f"status {answer.status}")
    if answer.status in _REFUSED:
        raise CompletionRefused(f"status {answer.status}")
    if not 200 <= answer.status < 300:
        raise CompletionFailed(f"status {answer.status}")
    headers = {name.lower(): value.decode("latin-1") for name, value in answer.headers}
    values = Values(headers.get(b"content-type", ""), headers.get(b"content-encoding", ""))
    reader, texts = ChatReader(), dict.fromkeys(PieceKind, "")
    for pieces in chain(map(reader.take, objects(values, [answer.body])), [reader.flush()]):
        for piece in pieces:
            if isinstance(piece, TextPiece):
                texts[piece.kind] += piece.text
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
