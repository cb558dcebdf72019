"""Follow, pass on or refuse an upstream's redirect. A client that followed one would go past the proxy."""

from urllib.parse import urljoin, urlsplit

from proxy.domain.endpoint import DEFAULT_PORTS, Endpoint
from proxy.domain.errors import UpstreamBroken

MOST = 5  # in a row
STATUSES = frozenset((301, 302, 303, 307, 308))
_SAME_METHOD = frozenset((307, 308))
_ELSEWHERE = frozenset(
    (302, 303, 307)
)  # where a download is, for the time being: not a new address of the API
_READS = frozenset(("GET", "HEAD"))


def followed(at: Endpoint, method: str, target: bytes, status: int, location: bytes) -> bytes | None:
    """Return the target that the redirect names on the upstream's own origin; None for one to be passed on:
    a download that is elsewhere. Raises UpstreamBroken, which names the address, for all others.
    """
    base = f"{at.scheme}://{at.authority}"
    try:
        url = urljoin(base + target.decode("latin-1"), location.decode("latin-1").strip())
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UpstreamBroken("The upstream redirects to what is no address.", cause="redirect") from error
    port = port or DEFAULT_PORTS.get(parts.scheme, 0)
    is_own = (parts.hostname, port, parts.scheme) == (at.host.lower(), at.port, at.scheme)
    # Behind a balancer that ends TLS, servers name their own scheme: http.
    behind_tls = at.scheme == "https" and at.port == 443 and parts.scheme == "http" and port == 80
    if is_own or (behind_tls and parts.hostname == at.host.lower()):
        if status in _SAME_METHOD or method in _READS:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            return path.encode("latin-1")
        text = f"to {parts.path} with another method"
        raise UpstreamBroken(_refused(status, text, "is upstream.base_url right?"), cause="redirect")
    if method in _READS and status in _ELSEWHERE:
        return None
    origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    raise UpstreamBroken(_refused(status, f"to {origin}", "set upstream.base_url to it"), cause="redirect")


def _refused(status: int, where: str, remedy: str) -> str:
    return f"The upstream redirects ({status}) {where}, where the proxy does not follow: {remedy}."
