"""Serves the page at /ui and its assets, from memory. No build step, no third-party code.

The page asks the memory API for everything; this app reads no memories. Its headers keep a memory's text from
running as code even if one of the page's scripts inserted it as markup.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from proxy.domain.errors import MethodNotAllowed
from proxy.http.asgi import ASGIScope, Header, Receive, Send, send_bytes, with_headers

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script';"
    " trusted-types 'none'"
)
HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
MEDIA_TYPES = {
    "css": b"text/css; charset=utf-8",
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
_REVALIDATE, _FOREVER = b"no-cache", b"public, max-age=31536000, immutable"
_VERSION = b"{version}"  # in index.html; replaced by the version of the assets
_TEXT = b"text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent."""

    body: bytes
    media_type: bytes
    cache: bytes
    etag: bytes

    @classmethod
    def of(cls, name: str, body: bytes, cache: bytes) -> "Asset":
        """Return the asset of a file."""
        media_type = MEDIA_TYPES[name.rpartition(".")[2]]
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        return cls(body, media_type, cache, etag.encode())


@dataclass(frozen=True, slots=True)
class Ui:
    """The ASGI app for /ui and everything under it. `assets`: by path below /ui/."""

    assets: Mapping[str, Asset]

    @classmethod
    def load(cls) -> "Ui":
        """Read the assets that ship with the package. Browsers cache all but the page forever: the folder in
        their address changes with any of them, so that no page runs with scripts of another version."""
        bodies = {entry.name: entry.read_bytes() for entry in (files(__package__) / "static").iterdir()}
        digest = hashlib.sha256(b"".join(name.encode() + b"\0" + bodies[name] for name in sorted(bodies)))
        version = digest.hexdigest()[:16]
        page = bodies.pop("index.html").replace(_VERSION, version.encode())
        assets = {f"{version}/{name}": Asset.of(name, body, _FOREVER) for name, body in bodies.items()}
        return cls({"": Asset.of("index.html", page, _REVALIDATE), **assets})

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Answer GET and HEAD; the page itself at /ui/, where its relative addresses are right."""
        send = with_headers(send, lambda headers: [*headers, *HEADERS])
        asset = self.assets.get(scope["path"].removeprefix("/ui/"))
        if scope["method"] not in ("GET", "HEAD"):
            allowed = MethodNotAllowed(scope["method"], ("GET",)).headers
            await send_bytes(send, 405, b"", _TEXT, allowed)
        elif scope["path"] == "/ui":
            # Relative, so that it also works behind a front end that serves the proxy below a path.
            await send_bytes(send, 308, b"", _TEXT, [(b"location", b"ui/")])
        elif asset is None:
            await send_bytes(send, 404, b"Nothing here. The page is at /ui/.\n", _TEXT)
        else:
            await _send_asset(scope, send, asset)


async def _send_asset(scope: ASGIScope, send: Send, asset: Asset) -> None:
    headers = [(b"etag", asset.etag), (b"cache-control", asset.cache)]
    status, body = 200, asset.body
    if asset.etag in dict(scope["headers"]).get(b"if-none-match", b""):
        status, body = 304, b""
    else:
        length = b"%d" % len(body)
        headers += [(b"content-type", asset.media_type), (b"content-length", length)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
