"""Rate limits: how many requests a key or user may make, over all processes of a machine or all replicas.

The algorithm (GCRA, in proxy.domain.limits) needs one time per subject. The processes of a machine share
these times in a `Ledger`: a file of fixed size, mapped into each process. A key has one of eight slots of a
bucket, both found by a hash under a secret of the file, so the file names no user. If all eight slots are
taken, the one with the earliest time is replaced: the file never grows, and a flood of keys displaces idle
ones first.

Each update locks its bucket among processes; the threads of one process must not share a ledger. A lock is
held for microseconds and is dropped by the kernel with its process. If its holder is suspended, others wait
at most LOCK_WAIT_S, once a second, then continue without the lock: a count may be lost, a request must not
be.
"""

import fcntl
import hashlib
import math
import mmap
import os
import secrets
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from proxy import telemetry
from proxy.domain.errors import ClientError, RateLimited, StoreError
from proxy.domain.limits import Rate, RateVerdict, check_rate
from proxy.domain.ports import Clock, RateLimits
from proxy.http.asgi import ASGIApp, ASGIScope, Header, Receive, Send, with_headers
from proxy.http.auth.identity import Caller

T = TypeVar("T")


# ---------------------------------------------------------------- the limit
@dataclass(frozen=True, slots=True)
class RateLimiter:
    """Counts over the processes that share a ledger, or over all replicas if there is a `fleet`. While the
    fleet's store is unreachable, each machine counts for itself, so that no request is refused for our
    fault."""

    ledger: "Ledger"
    clock: Clock
    fleet: RateLimits | None = None

    async def ask(self, subject: str, rate: Rate) -> RateVerdict:
        """Return the verdict on a request that the subject makes now, and count it if it may pass."""
        if self.fleet is not None:
            try:
                return await self.fleet.ask(subject, rate)
            except StoreError:
                pass
        now = self.clock()
        return self.ledger.exchange(subject, lambda empty_at: check_rate(rate, now, empty_at))


@dataclass(frozen=True, slots=True)
class RateLimitMiddleware:
    """An app behind a limit. Inside authentication: `identify` reads the caller from the scope."""

    app: ASGIApp
    rate: Rate
    name: str  # apps of the same name share one budget
    limits: RateLimits
    identify: Callable[[ASGIScope], Caller]

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        subject = f"{self.name}\0{_subject(scope, self.identify)}"
        verdict = await self.limits.ask(subject, self.rate)
        ours = [
            (b"x-ratelimit-limit-requests", b"%d" % self.rate.burst),
            (b"x-ratelimit-remaining-requests", b"%d" % verdict.remaining),
            (b"x-ratelimit-reset-requests", _seconds(verdict.reset_s).encode()),
        ]
        if not verdict.passes:
            wait_s = verdict.retry_after_s
            raise RateLimited(
                f"Rate limit reached: {self.rate.per_minute} requests per minute, {self.rate.burst} at once. "
                f"Please try again in {_seconds(wait_s)}.",
                [(b"retry-after", b"%d" % math.ceil(wait_s)), *ours],
            )
        names = {name for name, _ in ours}

        def with_ours(headers: list[Header]) -> list[Header]:
            """Add our limit, unless the upstream sent its own, which concerns the client."""
            return headers if any(name.lower() in names for name, _ in headers) else [*headers, *ours]

        await self.app(scope, receive, with_headers(send, with_ours))


def _subject(scope: ASGIScope, identify: Callable[[ASGIScope], Caller]) -> str:
    """Return the owner of the budget: the key, else the user, else the peer address.

    In mode open a caller may name any user, and so choose the budget: there the limit is a courtesy among the
    users of a trusted application.
    """
    with suppress(ClientError):  # malformed: its endpoint will say so, but not for free
        caller = identify(scope)
        if caller.label.startswith("key:"):
            return caller.label
        if user := caller.user or caller.named:
            return f"user\0{caller.tenant}\0{user}"
    client = scope.get("client")
    return f"peer\0{client[0] if client else ''}"


def _seconds(value: float) -> str:
    """Return "1.2s", rounded up."""
    return f"{math.ceil(value * 10 - 1e-6) / 10:g}s"


# ---------------------------------------------------------------- times shared by processes
LOCK_WAIT_S = 0.1
BUCKETS = 8192
SLOTS = 8

_PAUSE_S = 2e-5
_IMPATIENT_S = 1.0
_NO_FILE = -1
_MAGIC = b"memory-proxy times 1\0\0\0\0"
_SECRET_BYTES = 32
_HEADER_BYTES = 4096
_BUCKET = struct.Struct("<" + "Qd" * SLOTS)  # tag, 0 for a free slot; and the time
_SLOT = struct.Struct("<Qd")
_FILE_BYTES = _HEADER_BYTES + BUCKETS * _BUCKET.size
_PLACE = struct.Struct("<QQ")


class Ledger:
    """A time for each of the keys seen last, 0.0 for others."""

    def __init__(self, path: Path) -> None:
        """Map the file, created if need be. If that fails, the times are this process's own."""
        try:
            self._fd = _opened(path)
            self._map = mmap.mmap(self._fd, _FILE_BYTES)
        except OSError as error:
            telemetry.log.warning("limits.unshared", error=error.strerror)
            self._fd = _NO_FILE
            self._map = mmap.mmap(_NO_FILE, _FILE_BYTES)
            header = _header()
            self._map[: len(header)] = header
        self._patient_from = 0.0  # time.monotonic
        self._secret = self._map[len(_MAGIC) : len(_MAGIC) + _SECRET_BYTES]

    def exchange(self, key: str, step: Callable[[float], tuple[float, T]]) -> T:
        """Pass the key's time to `step`, store the time that it returns, and return the rest; atomic among
        processes."""
        digest = hashlib.blake2b(
            key.encode("utf-8", "surrogatepass"), digest_size=16, key=self._secret
        ).digest()
        tag, place = _PLACE.unpack(digest)
        tag = tag or 1
        bucket = _HEADER_BYTES + (place % BUCKETS) * _BUCKET.size
        locked = self._fd != _NO_FILE and self._lock(bucket)
        try:
            slots = _BUCKET.unpack_from(self._map, bucket)
            tags, times = slots[::2], slots[1::2]
            known = tag in tags
            slot = tags.index(tag) if known else times.index(min(times))
            moment, result = step(times[slot] if known else 0.0)
            _SLOT.pack_into(self._map, bucket + slot * _SLOT.size, tag, moment)
        finally:
            if locked:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, bucket)
        return result

    def close(self) -> None:
        """Close the file, which stays for the other processes."""
        self._map.close()
        if self._fd != _NO_FILE:
            os.close(self._fd)

    def _lock(self, bucket: int) -> bool:
        """Lock the bucket; False if another process holds it for too long."""
        deadline = 0.0
        while True:  # once, as a rule
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, bucket)
                return True
            except (BlockingIOError, PermissionError):  # systems differ in the error
                pass
            except OSError:  # a file system without locks
                return False
            now = time.monotonic()
            deadline = deadline or now + LOCK_WAIT_S
            if now < self._patient_from:
                return False
            if now >= deadline:
                self._patient_from = now + _IMPATIENT_S
                return False
            time.sleep(_PAUSE_S)  # the holder may be waiting for this processor


def _opened(path: Path) -> int:
    """Open the file; create it if it is absent or not ours, complete before it is at its path."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)  # processes that start together must share one file
        is_ours = False
        with suppress(FileNotFoundError), path.open("rb") as file:
            is_ours = file.read(len(_MAGIC)) == _MAGIC and path.stat().st_size == _FILE_BYTES
        if is_ours:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # readable by its owner only
        # Every byte is written now: a full disk is an error here, and would kill the process later.
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(_header().ljust(_FILE_BYTES, b"\0"))
            Path(name).replace(path)
        except OSError:
            Path(name).unlink()
            raise
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(directory)


def _header() -> bytes:
    return _MAGIC + secrets.token_bytes(_SECRET_BYTES)
