"""The credential that a request carries, and the headers without it."""

import re
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

from proxy.domain.errors import Unauthorized
from proxy.http.reply import ASGIScope, Header
from proxy.upstream.headers import CREDENTIALS

MAX_CHARS = 16_384  # a token with many claims has some 4,000

_SCHEME = b"bearer"
_TOKEN = re.compile(rb"[\x21-\x7e]+")  # printable ASCII without a blank: two of them joined are not one
_NEEDED = "Send your key as `Authorization: Bearer …`: it is what an OpenAI client calls `api_key`."


def presented(headers: Iterable[Header]) -> str:
    """Return the one credential of the request: a Bearer token, or the value of `api-key` or `x-api-key`.

    Raises Unauthorized without one, and for two that differ: a request must not have two identities.
    """
    found: set[bytes] = set()
    for name, value in headers:
        if name == b"authorization":
            found.add(_bearer(value))
        elif name in CREDENTIALS:
            found.add(value.strip(b" \t"))
    if not found:
        raise Unauthorized(f"No credential. {_NEEDED}")
    if len(found) > 1:
        raise Unauthorized("The request carries two different credentials.")
    credential = found.pop()
    if len(credential) > MAX_CHARS or not _TOKEN.fullmatch(credential):
        raise Unauthorized(f"The credential is malformed. {_NEEDED}")
    return credential.decode("ascii")


def keep_out_of_target(credential: str, scope: ASGIScope) -> None:
    """Raise Unauthorized if the credential stands in the request's path or query as well: from there it would
    go to the upstream, and into the logs of whatever is on the way."""
    target = scope["path"] + unquote(scope.get("query_string", b"").decode("latin-1"))
    if credential in target:
        raise Unauthorized("The credential stands in the URL. Send it as a header only, and replace it.")


def replaced(headers: Sequence[Header], ours: str, upstream_key: str | None) -> list[Header]:
    """Return the headers as the upstream may see them: our credential in none of them, wherever the client
    has put it, and the upstream key in its place, if there is one."""
    secret = ours.encode("ascii")
    kept = [header for header in headers if secret not in header[1]]
    if upstream_key is not None:
        kept.append((b"authorization", b"Bearer " + upstream_key.encode("ascii")))
    return kept


def is_sendable(key: str) -> bool:
    """True for a key that can go into an Authorization header."""
    return len(key) <= MAX_CHARS and key.isascii() and _TOKEN.fullmatch(key.encode("ascii")) is not None


def _bearer(value: bytes) -> bytes:
    scheme, _, token = value.strip(b" \t").partition(b" ")
    if scheme.lower() != _SCHEME:
        raise Unauthorized(f"The Authorization is no Bearer token. {_NEEDED}")
    return token.strip(b" \t")
