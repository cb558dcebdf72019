"""Every error the parts raise, as a tree.

ProxyError
├── ClientError                what the client sent is refused: OpenAI's error shape
│   ├── InvalidRequest         400, `param` names the field
│   ├── Forbidden              403
│   ├── NotFound               404, also for what belongs to somebody else
│   └── TooLarge               413
├── UpstreamError              the upstream gave no answer we could pass on
│   ├── UpstreamUnreachable    502, nothing was sent
│   ├── UpstreamTimeout        504
│   ├── UpstreamBroken         502, it closed or spoke nonsense before a status
│   └── UpstreamCut            mid-body: the client's answer ends uncleanly, as the upstream's did
├── StoreError                 memory cannot be reached; requests go on without
│   ├── StoreUnavailable
│   ├── Conflict               the stamp is outdated: read again, decide again
│   └── WrongModel             the collection was made with another embedding model or dimension
├── EmbeddingFailed
├── CompletionFailed           one of our own LLM calls failed; worth another try
│   ├── CredentialNeeded       401 or 403: wait for the user's next request
│   └── CompletionRefused      400-like: asking again will not help
└── ConfigError                a setting is wrong; the message says which and what to do
"""

from typing import Any


class ProxyError(Exception):
    """Base of all."""


class ClientError(ProxyError):
    """Answered with `status` and OpenAI's error object."""

    status = 400
    type = "invalid_request_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message, self.param, self.code = message, param, code


class InvalidRequest(ClientError):
    """The request is malformed; `param` names the offending field."""


class Forbidden(ClientError):
    status = 403
    type = "permission_error"


class NotFound(ClientError):
    status = 404
    type = "not_found_error"


class TooLarge(ClientError):
    status = 413


class UpstreamError(ProxyError):
    """`message` is safe to show: it holds no prompt, key or upstream text."""

    status = 502
    code = "upstream_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


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


class Conflict(StoreError):
    pass


class WrongModel(StoreError):
    pass


class EmbeddingFailed(ProxyError):
    pass


class CompletionFailed(ProxyError):
    pass


class CredentialNeeded(CompletionFailed):
    pass


class CompletionRefused(CompletionFailed):
    pass


class ConfigError(ProxyError):
    pass


def error_body(message: str, type_: str, param: str | None, code: str | None) -> dict[str, Any]:
    """Return OpenAI's error object."""
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}
