"""Endpoints for operators: /health (alive, how degraded), /ready (takes traffic), /metrics; and the page /ui.

The page and its assets are served from memory: no build step, no third-party code. It asks the memory API for
everything; this module reads no memories. Its headers keep a memory's text from running as code even if one
of the page's scripts inserted it as markup.
"""

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files

from proxy import COMMIT, __version__, telemetry
from proxy.domain.core import Level
from proxy.domain.errors import MethodNotAllowed, StoreError
from proxy.domain.ports import Clock
from proxy.domain.session import QueueCounts
from proxy.http.asgi import ASGIScope, Header, Receive, Send, send_bytes, send_json, with_headers

LOOK_S = 0.9  # for the store: probes mostly wait a second, and take a late answer for a dead process
_PATH_OR_URL = re.compile(r"(?:[a-z]+:/)?/[^\s,;()`]*")
_ACCOUNT = re.compile(r"[\w.-]+ \((uid \d+)\)")


@dataclass(frozen=True, slots=True)
class Vitals:
    level: Level
    reason: str  # "" while all of it works; at level full: nothing new can be stored now
    cause: str = ""  # details for an operator
    ready: bool = True
    texts: int = 0  # stored by this process
    unread: int = 0  # of these, in a language that the embedding model does not read: found by words only


@dataclass(frozen=True, slots=True)
class Operations:
    vitals: Callable[[], Vitals]
    counts: Callable[[], Awaitable[QueueCounts]]
    metrics: telemetry.Metrics
    clock: Clock = time.time
    commit: str | None = COMMIT
    free_bytes: Callable[[], int] | None = None  # of the data's disk; None if the data are elsewhere
    _started_at: float = field(init=False)
    # A disk that does not answer blocks only this thread.
    _disk: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "free-bytes"))

    def __post_init__(self) -> None:
        object.__setattr__(self, "_started_at", self.clock())

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/metrics":
                await self._refresh()
                content_type = b"text/plain; version=0.0.4; charset=utf-8"
                await send_bytes(send, 200, self.metrics.render(), content_type)
            case "/health":
                looked, jobs = await self._look()
                found = self.vitals()
                languages = {"texts": found.texts, "unread_texts": found.unread} if found.unread else {}
                health = {
                    "status": "degraded" if looked.reason else "ok",
                    "version": __version__,
                    "commit": self.commit,
                    "uptime_seconds": round(max(0.0, self.clock() - self._started_at)),
                    "memory": {"level": looked.level.value, **_reason_of(looked), **languages},
                    "jobs": None if jobs is None else _by_state(jobs),
                }
                await send_json(send, 200, health)
            case "/ready":
                # A degraded proxy is ready, since requests pass without memory too. One that has never opened
                # its own directory is misconfigured.
                vitals = self.vitals()
                not_ready = {"status": "not_ready", **_reason_of(vitals)}
                status, body = (200, {"status": "ready"}) if vitals.ready else (503, not_ready)
                await send_json(send, status, body)
            case _:
                about = {"service": "memory-proxy", "version": __version__, "base_url": "/v1"}
                await send_json(send, 200, about)

    async def _refresh(self) -> None:
        """Set the gauges; those of a store or disk that does not answer stay as they are."""
        vitals, jobs = await self._look()
        self.metrics.degraded.set(list(Level).index(vitals.level))
        if self.free_bytes is not None:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    free = await asyncio.get_running_loop().run_in_executor(self._disk, self.free_bytes)
                self.metrics.disk_free.labels("data").set(free)
        if jobs is not None:
            for state, count in _by_state(jobs).items():
                self.metrics.jobs.labels(state).set(count)
            for lane, count in enumerate(jobs.queued_by_lane, 1):
                self.metrics.queued.labels(str(lane)).set(count)
            age_s = 0.0 if jobs.oldest_at is None else max(0.0, self.clock() - jobs.oldest_at)
            self.metrics.oldest_job.set(age_s)

    async def _look(self) -> tuple[Vitals, QueueCounts | None]:
        """Return the state of memory and the number of jobs, asked of the store itself."""
        try:
            async with asyncio.timeout(LOOK_S):
                jobs = await self.counts()
        except TimeoutError:
            return Vitals(Level.NONE, self.vitals().reason or "deadline"), None
        except StoreError as error:
            vitals = self.vitals()
            cause = vitals.cause or str(error)
            return Vitals(Level.NONE, vitals.reason or "store_unavailable", cause, ready=vitals.ready), None
        return self.vitals(), jobs


def _reason_of(vitals: Vitals) -> dict[str, str | None]:
    """Return the reason, and the cause if it is known, without paths, addresses and accounts: the endpoint is
    public."""
    cause = _ACCOUNT.sub(r"\1", _PATH_OR_URL.sub("…", vitals.cause))
    return {"reason": vitals.reason or None} | ({"cause": cause} if cause else {})


def _by_state(jobs: QueueCounts) -> dict[str, int]:
    return {
        "queued": jobs.queued,
        "running": jobs.running,
        "waiting_for_credential": jobs.waiting,
        "dead": jobs.dead,
    }


# ---------------------------------------------------------------- the page at /ui
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
# In index.html; replaced by the version of the assets, and by links that load all modules at once.
_VERSION, _MODULES = b"{version}", b"{modules}"
_MODULE = '<link rel="modulepreload" href="{version}/%s">'
_OTHER_SCRIPTS = ("app.js", "theme.js")  # index.html names them itself
_TEXT = b"text/plain; charset=utf-8"


class Asset:
    def __init__(self, name: str, body: bytes, cache: bytes) -> None:
        self.body, self.cache = body, cache
        self.media_type = MEDIA_TYPES[name.rpartition(".")[2]]
        self.etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode()


@dataclass(frozen=True, slots=True)
class Ui:
    """The ASGI app for /ui and everything under it. `assets`: by path below /ui/."""

    assets: Mapping[str, Asset]

    @classmethod
    def load(cls) -> "Ui":
        """Read the assets that ship with the package. Browsers cache all but the page forever: the folder in
        their address changes with any of them, so that no page runs with scripts of another version."""
        bodies = {entry.name: entry.read_bytes() for entry in (files(__package__) / "ui/static").iterdir()}
        digest = hashlib.sha256(b"".join(name.encode() + b"\0" + bodies[name] for name in sorted(bodies)))
        version = digest.hexdigest()[:16]
        modules = [name for name in sorted(bodies) if name.endswith(".js") and name not in _OTHER_SCRIPTS]
        links = "\n  ".join(_MODULE % name for name in modules).encode()
        page = bodies.pop("index.html").replace(_MODULES, links).replace(_VERSION, version.encode())
        assets = {f"{version}/{name}": Asset(name, body, _FOREVER) for name, body in bodies.items()}
        return cls({"": Asset("index.html", page, _REVALIDATE), **assets})

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
            headers = [(b"etag", asset.etag), (b"cache-control", asset.cache)]
            status, body = 200, asset.body
            if asset.etag in dict(scope["headers"]).get(b"if-none-match", b""):
                status, body = 304, b""
            else:
                length = b"%d" % len(body)
                headers += [(b"content-type", asset.media_type), (b"content-length", length)]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
