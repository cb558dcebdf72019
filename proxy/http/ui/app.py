"""Serves the page at /ui and its assets, from memory. No build step, no third-party code.

The page asks the memory API for everything; this app knows no memory. It answers with headers under which
a memory's text could not run even if the page's scripts were to put it in the wrong place.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType

from proxy.http.asgi import ASGIScope, Header, Receive, Send, send_bytes

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
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
MEDIA_TYPES = MappingProxyType(
    {
        "css": b"text/css; charset=utf-8",
        "html": b"text/html; charset=utf-8",
        "js": b"text/javascript; charset=utf-8",
        "svg": b"image/svg+xml",
    }
)
_ASK_AGAIN = b"no-cache"
_FOR_GOOD = b"public, max-age=31536000, immutable"
_VERSION = b"{version}"  # in index.html; replaced by the version of the assets
_TEXT = b"text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it goes over the wire."""

    body: bytes
    media_type: bytes
    cache: bytes
    etag: bytes


@dataclass(frozen=True, slots=True)
class Ui:
    """The ASGI app for /ui and everything under it. `assets` are by their path below /ui/."""

    assets: MappingProxyType[str, Asset]

    @classmethod
    def load(cls) -> "Ui":
        """Read the assets that ship with the package."""
        folder = files(__package__) / "static"
        return cls.of({entry.name: entry.read_bytes() for entry in folder.iterdir()})

    @classmethod
    def of(cls, bodies: dict[str, bytes]) -> "Ui":
        """Return the app of these files. All but the page are kept by browsers for good: the folder in their
        address changes with any of them, so that no page ever runs with the scripts of another version."""
        version = _digest(name.encode() + b"\0" + body for name, body in sorted(bodies.items()))[:16]
        page = bodies["index.html"].replace(_VERSION, version.encode())
        assets = {"": Asset(page, MEDIA_TYPES["html"], _ASK_AGAIN, _etag(page))}
        for name, body in bodies.items():
            if name != "index.html":
                media_type = MEDIA_TYPES[name.rpartition(".")[2]]
                assets[f"{version}/{name}"] = Asset(body, media_type, _FOR_GOOD, _etag(body))
        return cls(MappingProxyType(assets))

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Answer GET and HEAD; the page itself at /ui/, where its relative addresses are right."""
        if scope["method"] not in ("GET", "HEAD"):
            await send_bytes(send, 405, b"", _TEXT, ((b"allow", b"GET, HEAD"), *HEADERS))
        elif scope["path"] == "/ui":
            # Relative, so that it holds behind a front end that puts the proxy below a path of its own.
            await send_bytes(send, 308, b"", _TEXT, ((b"location", b"ui/"), *HEADERS))
        elif asset := self.assets.get(scope["path"].removeprefix("/ui/")):
            await _send_asset(scope, send, asset)
        else:
            await send_bytes(send, 404, b"Nothing here. The page is at /ui/.\n", _TEXT, HEADERS)


async def _send_asset(scope: ASGIScope, send: Send, asset: Asset) -> None:
    headers = ((b"etag", asset.etag), (b"cache-control", asset.cache), *HEADERS)
    if asset.etag in dict(scope["headers"]).get(b"if-none-match", b""):
        await send({"type": "http.response.start", "status": 304, "headers": list(headers)})
        await send({"type": "http.response.body", "body": b""})
        return
    body = b"" if scope["method"] == "HEAD" else asset.body
    length = (b"content-length", str(len(asset.body)).encode())
    start = [(b"content-type", asset.media_type), length, *headers]
    await send({"type": "http.response.start", "status": 200, "headers": start})
    await send({"type": "http.response.body", "body": body})


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _etag(body: bytes) -> bytes:
    return f'"{_digest([body])[:32]}"'.encode()
