"""The base URL of an OpenAI-compatible API, parsed and checked once.

Every form that providers document is accepted: any path or none, a query (`?api-version=…`), IPv6 literals,
and a Unix socket (`unix:/run/model.sock`, `unix:/run/model.sock:/base/path`). `/v1/X` of ours is `<base>/X`.
"""

from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
_OF_ONE_ROUTE = (
    "/chat/completions",
    "/completions",
    "/responses",
    "/embeddings",
    "/messages",
    "/v1/models",
    "/realtime",
)
_NEVER_WITHOUT_V1 = frozenset({"api.openai.com"})
_SHOWN_QUERY = frozenset({"api-version"})  # any other value may be a key


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """One base URL, in parts. `path` has no trailing slash; `query` is sent with every request."""

    scheme: str
    host: str  # without brackets, IDNA; "localhost" for a Unix socket
    port: int
    path: bytes = b""
    query: bytes = b""
    socket: str | None = None  # the file of a Unix socket

    @property
    def authority(self) -> str:
        """The value of the Host header: without the scheme's own port."""
        return self.host_and_port if self.port != DEFAULT_PORTS[self.scheme] else self._bracketed

    @property
    def host_and_port(self) -> str:
        """The target of CONNECT."""
        return f"{self._bracketed}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port, or the socket: safe to show."""
        return f"unix:{self.socket}" if self.socket else f"{self.scheme}://{self.authority}"

    @property
    def shown(self) -> str:
        """The base URL, with query values that may be secret left out."""
        colon = ":" if self.socket and self.path else ""
        pairs = parse_qsl(self.query.decode(), keep_blank_values=True)
        query = "&".join(f"{name}={value if name in _SHOWN_QUERY else '…'}" for name, value in pairs)
        return f"{self.origin}{colon}{self.path.decode()}" + (f"?{query}" if query else "")

    @property
    def _bracketed(self) -> str:
        host = self.host.partition("%")[0]  # without the zone, which only this machine knows
        return f"[{host}]" if ":" in host else host

    def target(self, ours: bytes) -> bytes:
        """Return the upstream's target for one of ours: the path after /v1 appended to the base path, the
        queries joined. If both queries have a name, the client's value is used."""
        rest = ours.removeprefix(b"/v1")
        if not self.path and not rest.startswith(b"/"):
            rest = b"/" + rest
        if not self.query:
            return self.path + rest
        rest, mark, fragment = rest.partition(b"#")
        path, _, asked = rest.partition(b"?")
        given = {part.partition(b"=")[0] for part in asked.split(b"&")}
        own = [part for part in self.query.split(b"&") if part.partition(b"=")[0] not in given]
        query = b"&".join(([asked] if asked else []) + own)
        return self.path + path + (b"?" + query if query else b"") + mark + fragment


def parse_base_url(url: str) -> BaseUrl:
    """Return the parts of a base URL. Raises ValueError; its message names the mistake and holds no
    secret."""
    url = url.strip()
    if any(character.isspace() or not character.isprintable() for character in url):
        raise ValueError("holds a space or a character that cannot be seen")
    if url.startswith(("unix:", "http+unix:")):
        return _of_socket(url)
    parts = _parts(url)
    host = unquote(parts.hostname or "")
    if not host:
        raise ValueError("names no host that can be reached")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            raise ValueError("names a host that DNS cannot have") from None
    if parts.port == 0:
        raise ValueError("port 0 cannot be reached")
    if host in _NEVER_WITHOUT_V1 and not parts.path.strip("/"):
        raise ValueError(f"{host} has its API under /v1: try {parts.scheme}://{host}/v1")
    return BaseUrl(
        parts.scheme, host, parts.port or DEFAULT_PORTS[parts.scheme], _path(parts.path), _ascii(parts.query)
    )


def _parts(url: str) -> SplitResult:
    scheme, there, rest = url.partition("://")
    if not there:
        is_public = "." in url and ":" not in url
        known = f": try http{'s' if is_public else ''}://{url.partition('?')[0][:80]}"
        raise ValueError("must start with http:// or https://" + (known if "@" not in url else ""))
    if scheme.lower() in ("ws", "wss"):
        raise ValueError(f"must start with http:// or https://, not {scheme}:// (WebSockets go there, too)")
    if scheme.lower() not in DEFAULT_PORTS:
        raise ValueError(f"must start with http:// or https:// (or unix:/), not {scheme[:20]!r}")
    try:
        parts = urlsplit(f"{scheme.lower()}://{rest}")
        _ = parts.port
    except ValueError as error:
        raise ValueError("names no host and port that can be read") from error
    if "@" in parts.netloc:
        raise ValueError("must hold no credentials: set the API key by its own setting")
    if "#" in url:
        raise ValueError("must hold no fragment (#)")
    return parts


def _path(path: str) -> bytes:
    path = path.rstrip("/")
    for route in _OF_ONE_ROUTE:
        if path.endswith(route):
            base = path.removesuffix(route.removeprefix("/v1"))
            raise ValueError(f"is the address of one route: leave out {path.removeprefix(base)}")
    if path.endswith("/v1/v1"):
        raise ValueError("ends in /v1 twice")
    return _ascii(path)


def _ascii(text: str) -> bytes:
    if not text.isascii():
        raise ValueError("holds a character that must be percent-encoded")
    return text.encode("ascii")


def _of_socket(url: str) -> BaseUrl:
    """Parse `unix:/file[:/base]`; the default base path is /v1, as with every server that offers a socket."""
    if url.startswith("http+unix:"):  # http+unix://%2Frun%2Fmodel.sock/v1, as requests-unixsocket has it
        encoded, slash, base = url.removeprefix("http+unix://").partition("/")
        file, base = unquote(encoded), slash + base
    else:
        file, colon, base = url.removeprefix("unix:").partition(":")
        file, base = "/" + file.lstrip("/") if file.startswith("/") else file, base if colon else "/v1"
    base, _, query = base.partition("?")
    if not file.startswith("/") or file.endswith("/"):
        raise ValueError("must name the file of a Unix socket, as unix:/run/model.sock does")
    if base and not base.startswith("/"):
        raise ValueError("must have a base path that starts with /, as unix:/run/model.sock:/v1 does")
    return BaseUrl("http", "localhost", 80, _path(base), _ascii(query), socket=file)
