"""Our own LLM calls: one chat completion, not streamed, to whatever endpoint the role has."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from proxy import __version__, observe
from proxy.errors import CompletionFailed, CompletionRefused, CredentialNeeded, UpstreamError
from proxy.ports import CompletionRequest
from proxy.upstream.client import Upstream
from proxy.upstream.credentials import Credentials
from proxy.upstream.headers import Headers

_TARGET = b"/v1/chat/completions"
_MAX_ANSWER_BYTES = 4 * 1024 * 1024
_OPTIONS_UNKNOWN = (400, 422)  # how servers refuse response_format, max_tokens or temperature
_CREDENTIAL_NEEDED = (401, 403)
_REFUSED = (400, 422)  # 404: a model that is not loaded yet may be there later


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


class UpstreamCompleter:
    """Completer over HTTP. A client's credential is never sent to an endpoint of the operator's."""

    def __init__(
        self,
        upstream: Upstream,
        credentials: Credentials,
        roles: Mapping[str, RoleModel],
        endpoints: Mapping[str, Upstream] | None = None,
    ) -> None:
        """`endpoints` has an Upstream for every endpoint that `roles` name; they belong to the caller."""
        self._upstream = upstream
        self._credentials = credentials
        self._roles = dict(roles)
        self._endpoints = dict(endpoints or {})
        self._plain: set[tuple[str | None, str]] = set()  # (endpoint, model) that refuse our options

    async def complete(self, request: CompletionRequest) -> str:
        """Return the answer's text. Raises CredentialNeeded, CompletionRefused or CompletionFailed."""
        role = self._roles.get(request.role, RoleModel())
        try:
            async with asyncio.timeout(role.timeout_s):
                status, answer = await self._ask(role, request)
        except TimeoutError as error:
            raise CompletionFailed(f"no answer within {role.timeout_s:g} s") from error
        except UpstreamError as error:
            raise CompletionFailed(error.code) from error
        observe.log.debug("completion.answered", role=request.role, status=status, bytes=len(answer))
        return _text(status, answer)

    async def _ask(self, role: RoleModel, request: CompletionRequest) -> tuple[int, bytes]:
        """Ask with our options, then, of a model that does not know them, without; remember which."""
        asked = (role.endpoint, role.model or request.model)
        if asked not in self._plain:
            status, answer = await self._post(role, request, _with_options(role, request))
            if status not in _OPTIONS_UNKNOWN:
                return status, answer
        status, answer = await self._post(role, request, _question(role, request))
        if status < 300:
            self._plain.add(asked)
        return status, answer

    async def _post(
        self, role: RoleModel, request: CompletionRequest, body: dict[str, Any]
    ) -> tuple[int, bytes]:
        upstream = self._upstream if role.endpoint is None else self._endpoints[role.endpoint]
        headers = self._headers(role, request)
        with await upstream.open("POST", _TARGET, headers, orjson.dumps(body)) as opened:
            answer = bytearray()
            while chunk := await opened.read():
                answer += chunk
                if len(answer) > _MAX_ANSWER_BYTES:
                    raise CompletionFailed("the answer is absurdly long")
            return opened.status, bytes(answer)

    def _headers(self, role: RoleModel, request: CompletionRequest) -> Headers:
        headers = [
            (b"user-agent", f"memory-proxy/{__version__} ({request.role})".encode("ascii")),
            (b"content-type", b"application/json"),
            (b"accept", b"application/json"),
            (b"accept-encoding", b"identity"),
        ]
        if role.api_key:
            headers.append((b"authorization", b"Bearer " + role.api_key.strip().encode()))
        elif role.endpoint is None:
            headers += self._credentials.get(request.scope)
        return headers


def _question(role: RoleModel, request: CompletionRequest) -> dict[str, Any]:
    messages = [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}]
    return {"model": role.model or request.model, "messages": messages}


def _with_options(role: RoleModel, request: CompletionRequest) -> dict[str, Any]:
    options: dict[str, Any] = {"response_format": {"type": "json_object"}}
    if role.max_tokens is not None:
        options["max_tokens"] = role.max_tokens
    if role.temperature is not None:
        options["temperature"] = role.temperature
    return _question(role, request) | options


def _text(status: int, answer: bytes) -> str:
    if status in _CREDENTIAL_NEEDED:
        raise CredentialNeeded(f"status {status}")
    if status in _REFUSED:
        raise CompletionRefused(f"status {status}")
    if not 200 <= status < 300:
        raise CompletionFailed(f"status {status}")
    try:
        content = orjson.loads(answer)["choices"][0]["message"]["content"]
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content if part.get("type") == "text")
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError) as error:
        raise CompletionFailed("the answer is no chat completion") from error
    if not isinstance(content, str):
        raise CompletionFailed("the answer holds no text")
    return content
