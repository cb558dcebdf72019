"""What the log says of an upstream that refuses a request, does not answer it, or breaks off: one line,
without a word of what either side said.
"""

from proxy import telemetry
from proxy.domain.errors import UpstreamError
from proxy.upstream.headers import Headers, request_id_in


def refused(status: int, headers: Headers) -> None:
    """Note an answer of 400 or more, with the id that its provider asks for. What is mostly the client's own
    fault is no warning."""
    grave = status == 429 or status >= 500
    given = request_id_in(headers)
    facts = {"upstream_request_id": given} if given else {}
    (telemetry.log.warning if grave else telemetry.log.info)("upstream.refused", status=status, **facts)


def failed(error: UpstreamError) -> None:
    """Note that there was no answer."""
    below = type(error.__cause__).__name__ if error.__cause__ else "answer"
    cause = error.cause or below
    telemetry.log.warning("upstream.failed", error=error.code, cause=cause)


def cut() -> None:
    """Note that the answer has no end."""
    telemetry.log.warning("upstream.cut")
