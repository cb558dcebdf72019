"""The error tree.

ProxyError
├── ClientError                the request is refused, in OpenAI's error shape
│   ├── InvalidRequest         400, `param` names the field
│   ├── Unauthorized           401
│   ├── Forbidden              403
│   │   └── QuotaExceeded          the user's memory or documents are full
│   ├── NotFound               404, also for what belongs to another user
│   ├── MethodNotAllowed       405, the headers name the methods of the path
│   ├── Duplicate              409, another memory has this content
│   ├── TooLarge               413
│   ├── UpgradeRefused         426
│   ├── UnsupportedMedia       415, an unsupported content type or encoding
│   ├── IdentityUnavailable    503, the credential cannot be checked now
│   ├── Stopping               503, the process is shutting down
│   └── RateLimited            429, the headers say when to retry
├── UpstreamError              the upstream gave no answer to pass on
│   ├── UpstreamUnreachable    502, nothing was sent
│   ├── UpstreamTimeout        504
│   ├── UpstreamBroken         502, it closed the connection, or sent no valid response head
│   └── UpstreamCut            mid-body: the client's response ends uncleanly, too
├── StoreError                 a store failed; requests continue without memory
│   ├── StoreUnavailable
│   │   ├── UnfitStore             the database's setup would lose data: refused at start-up
│   │   └── DamagedRow             one row cannot be read; others are fine
│   ├── Conflict               the stamp is outdated: read and decide again
│   │   └── LeaseLost              another worker holds the job, or it was deleted
│   └── WrongModel             the store holds vectors of another embedding model or dimension
├── EmbeddingFailed
├── RerankFailed
├── CompletionFailed           one of our own LLM calls failed and may be retried
│   ├── CredentialNeeded       401 or 403: wait for the user's next request
│   ├── CompletionPostponed    rate limited, or our own quota is used up: `retry_after_s` says when
│   └── CompletionRefused      400-like: a retry will not help
└── ConfigError                a setting is wrong; the message says which and what to do
"""

from collections.abc import Collection, Sequence
from typing import Any


class ProxyError(Exception):
    """Base of all."""


class ClientError(ProxyError):
    """Answered with `status`, OpenAI's error object, and `headers`."""

    status = 400
    type = "invalid_request_error"
    code: str | None = None
    headers: Sequence[tuple[bytes, bytes]] = ()

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message, self.param, self.code = message, param, code or self.code


class InvalidRequest(ClientError):
    """The request is malformed; `param` names the offending field."""


class Unauthorized(ClientError):
    status = 401
    code = "invalid_api_key"
    headers = ((b"www-authenticate", b"Bearer"),)


class Forbidden(ClientError):
    status = 403
    type = "permission_error"


class QuotaExceeded(Forbidden):
    code = "memory_quota_exceeded"


class NotFound(ClientError):
    status = 404


class MethodNotAllowed(ClientError):
    """The path has other methods, which `allow` names; HEAD goes with GET."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, method: str, allowed: Collection[str]) -> None:
        super().__init__(f"{method[:16]} is not allowed here.")
        names = {*allowed, "HEAD"} if "GET" in allowed else {*allowed}
        self.headers = [(b"allow", ", ".join(sorted(names)).encode("ascii"))]


class Duplicate(ClientError):
    """Another current memory of the same user, project and type has this content."""

    status = 409


class UpgradeRefused(ClientError):
    """A WebSocket upgrade on a route that does not support it."""

    status = 426
    code = "upgrade_refused"
    headers = ((b"upgrade", b"HTTP/1.1"),)


class TooLarge(ClientError):
    status = 413


class UnsupportedMedia(ClientError):
    status = 415


class IdentityUnavailable(ClientError):
    """The caller is neither accepted nor rejected, but asked to retry."""

    status = 503
    type = "server_error"
    code = "identity_unavailable"
    headers = ((b"retry-after", b"1"),)

    def __init__(self) -> None:
        super().__init__("Credentials cannot be checked at the moment: try again.")


class Stopping(ClientError):
    """`server.shutdown_seconds` have passed; another process can answer."""

    status = 503
    type = "server_error"
    code = "stopping"
    headers = ((b"retry-after", b"1"),)

    def __init__(self) -> None:
        super().__init__("The proxy is stopping; try again.")


class RateLimited(ClientError):
    status = 429
    type = "requests"
    code = "rate_limit_exceeded"

    def __init__(self, message: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
        super().__init__(message)
        self.headers = headers


class UpstreamError(ProxyError):
    """`message` is safe to show: no prompt, key or upstream text. `cause`: one word for the log."""

    status = 502
    code = "upstream_error"

    def __init__(self, message: str, *, cause: str = "") -> None:
        super().__init__(message)
        self.message, self.cause = message, cause


class UpstreamUnreachable(UpstreamError):
    code = "upstream_unreachable"


class UpstreamTimeout(UpstreamError):
    status = 504
    code = "upstream_timeout"


class UpstreamBroken(UpstreamError):
    code = "upstream_invalid_response"


class UpstreamCut(UpstreamError):
    code = "upstream_cut"


class StoreError(ProxyError):
    """Base of the stores' errors; never holds content."""


class StoreUnavailable(StoreError):
    pass


class UnfitStore(StoreUnavailable):
    """The message says what to change."""


class DamagedRow(StoreUnavailable):
    pass


class Conflict(StoreError):
    pass


class LeaseLost(Conflict):
    pass


class WrongModel(StoreError):
    pass


class EmbeddingFailed(ProxyError):
    pass


class RerankFailed(ProxyError):
    """The reranker failed; the order stays as it was."""


class CompletionFailed(ProxyError):
    """The message says why and is logged: no prompt, key or upstream text. `retry_after_s`: as the upstream
    demands."""

    def __init__(self, message: str = "", *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class CredentialNeeded(CompletionFailed):
    pass


class CompletionPostponed(CompletionFailed):
    """The call itself was valid. `shared`: calls for other users would be postponed, too."""

    def __init__(self, message: str, *, retry_after_s: float, shared: bool) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.shared = shared


class CompletionRefused(CompletionFailed):
    pass


class ConfigError(ProxyError):
    pass


def error_body(message: str, type_: str, param: str | None, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}
