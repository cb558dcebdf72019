"""Bounds (a cache, a circuit breaker, rate limits, the quota of model calls), the priority of turns, and
requests to the operating system."""

import asyncio
import ctypes
import os
import socket
import sys
import threading
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

# ---------------------------------------------------------------- cache
K = TypeVar("K")
V = TypeVar("V")


class TTLCache(Generic[K, V]):
    """Values for at most `ttl_s` each, and of at most `max_size` together. Safe to use from threads.

    A value counts as one, or as what `size_of` says; one that is larger than `max_size` is not stored.
    """

    def __init__(
        self,
        max_size: int,
        *,
        ttl_s: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
        size_of: Callable[[V], int] = lambda _: 1,
    ) -> None:
        self._max_size, self._ttl_s, self._clock, self._size_of = max_size, ttl_s, clock, size_of
        self._entries: OrderedDict[K, tuple[V, float, int]] = OrderedDict()  # value, expiry, size
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the value, which is the most recently used from now on; None if it is absent or expired."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or self._clock() >= entry[1]:
                self._remove(key)
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V) -> None:
        """Store the value, and evict the least recently used ones beyond `max_size`."""
        size = self._size_of(value)
        with self._lock:
            self._remove(key)
            if size > self._max_size:
                return
            self._entries[key] = (value, self._clock() + self._ttl_s, size)
            self._size += size
            while self._size > self._max_size:
                self._remove(next(iter(self._entries)))

    def pop(self, key: K) -> None:
        with self._lock:
            self._remove(key)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._size = 0

    @property
    def filled(self) -> float:
        return self._size / self._max_size

    def __iter__(self) -> Iterator[K]:
        """Iterate over a copy of the keys, those of expired values too."""
        with self._lock:
            return iter(list(self._entries))

    def __contains__(self, key: K) -> bool:
        entry = self._entries.get(key)
        return entry is not None and self._clock() < entry[1]

    def __len__(self) -> int:
        return len(self._entries)

    def _remove(self, key: K) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self._size -= entry[2]


# ---------------------------------------------------------------- circuit breaker
_NEVER = float("-inf")


class CircuitBreaker:
    """Opens for `open_s` after `trip_after` failures in a row, then lets calls through again. A success
    closes it; a failure opens it for twice as long, up to `max_open_s`."""

    def __init__(
        self,
        open_s: float,
        *,
        max_open_s: float | None = None,
        trip_after: int = 1,
        quiet_s: float = 0.0,
        probe_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """`quiet_s`: a success within this time keeps it closed, since a short overload is not an outage.
        `probe_s`: after it was open, one call is let through per this time, so that a recovering endpoint
        is not overloaded. `jitter`: up to 1; half of the time is multiplied by it."""
        self._open_s, self._max_open_s = open_s, max_open_s or open_s
        self._trip_after, self._quiet_s, self._probe_s = trip_after, quiet_s, probe_s
        self._clock, self._jitter = clock, jitter
        self._failures = self._openings = 0  # both since the last success
        self._opened_at = self._open_until = self._succeeded_at = _NEVER

    @property
    def is_open(self) -> bool:
        """True while no call should be made."""
        return self._clock() < self._open_until

    def acquire(self) -> float:
        """Return 0 if a call may be made, whose outcome must be reported; else the seconds to wait."""
        now = self._clock()
        if now < self._open_until:
            return self._open_until - now
        if self._openings:
            self._open_until = now + self._probe_s
        return 0.0

    def succeeded(self) -> None:
        self._failures = self._openings = 0
        self._open_until, self._succeeded_at = _NEVER, self._clock()

    def failed(self, *, began_at: float | None = None, wanted_s: float | None = None) -> float:
        """Count a failure; return for how many seconds the breaker is open, 0 while it is closed.

        `began_at`: when the call began; concurrent calls count as one failure. `wanted_s`: Retry-After.
        """
        now = self._clock()
        if began_at is not None and began_at < self._opened_at:
            self._open_until = max(self._open_until, now + (wanted_s or 0.0))
            return self._open_until - now
        self._failures += 1
        tripped = self._failures >= self._trip_after and now - self._succeeded_at >= self._quiet_s
        if not tripped and not self._openings:
            return 0.0
        self._openings += 1
        if wanted_s is None:
            full_s = min(self._max_open_s, self._open_s * 2.0 ** min(self._openings - 1, 30))
            length_s = full_s * (0.5 + 0.5 * self._jitter())
        else:
            length_s = wanted_s + 0.5 * self._open_s * self._jitter()
        self._opened_at, self._open_until = now, now + length_s
        return length_s


# ---------------------------------------------------------------- rate limits
# The generic cell rate algorithm (ITU-T I.371) stores one time per subject: when it would be idle if it
# made no further request. Each request moves it by `interval_s`; one that would move it further than a burst
# ahead of now is refused, and moves nothing.
# Tolerance for rounding: the sum of n intervals is not exactly n times one.
TOLERANCE = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Rate:
    """`per_minute` requests over time, `burst` at once."""

    per_minute: int
    burst: int

    @classmethod
    def of(cls, per_minute: int, burst: int) -> "Rate | None":
        """Return the rate as configured: no limit for 0, and a burst of a minute's worth for burst 0."""
        return cls(per_minute, burst or per_minute) if per_minute else None

    @property
    def interval_s(self) -> float:
        return 60 / self.per_minute

    @property
    def most_s(self) -> float:
        """The length of a burst."""
        return self.interval_s * self.burst


@dataclass(frozen=True, slots=True)
class RateVerdict:
    """Whether the request may pass, how many more could follow at once, when a whole burst could, and when a
    refused one may be retried."""

    passes: bool
    remaining: int
    reset_s: float
    retry_after_s: float = 0.0


def check_rate(rate: Rate, now: float, empty_at: float) -> tuple[float, RateVerdict]:
    """Return when the subject will be idle, and the verdict on a request made now.

    `empty_at` is what the last call returned, 0.0 at first. If it is further ahead than a burst, it was
    computed under another rate, or before the clock was set back: it counts as a full burst.
    """
    ahead = min(max(empty_at - now, 0.0), rate.most_s)
    passes = ahead + rate.interval_s <= rate.most_s * TOLERANCE
    if passes:
        ahead += rate.interval_s
    return now + ahead, rate_verdict(rate, passes=passes, ahead_s=ahead)


def rate_verdict(rate: Rate, *, passes: bool, ahead_s: float) -> RateVerdict:
    """Return the verdict on a request after which, or at whose refusal, the subject is `ahead_s` from
    idle."""
    if not passes:
        return RateVerdict(False, 0, ahead_s, ahead_s + rate.interval_s - rate.most_s)
    return RateVerdict(True, int((rate.most_s - ahead_s) / rate.interval_s + 1e-6), ahead_s)


# ---------------------------------------------------------------- quota of model calls
HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class QuotaDecision:
    """Whether a call may be made, how many more could follow at once, and if none, in how long one can."""

    granted: bool
    left: int
    retry_after_s: float = 0.0
    at: float = 0.0  # when it was counted; `refund` takes it


class CallQuota(Protocol):
    """The quota of our own model calls in any 60 minutes, shared by all processes of a store. Every method
    may raise StoreUnavailable."""

    async def spend(self, limit: int, now: float) -> QuotaDecision:
        """Count a call made now, if it is at most the `limit`th of the last hour. A store may use its own
        clock."""

    async def look(self, limit: int, now: float) -> QuotaDecision:
        """Return what `spend` would, and count nothing."""

    async def refund(self, at: float) -> None:
        """Take back the call that was counted at this time: it was not made."""


def calls_left(times: Sequence[float], limit: int, now: float) -> tuple[list[float], QuotaDecision]:
    """Return the times of the last hour, oldest first, and whether a call may be made now. A time in the
    future (the clock was set back) counts as now."""
    hour = [min(at, now) for at in times[bisect_right(times, now - HOUR_S) :]]
    left = max(0, limit - len(hour))
    return hour, QuotaDecision(left > 0, left, _wait_s(hour, limit, now))


def spend_call(times: Sequence[float], limit: int, now: float) -> tuple[list[float], QuotaDecision]:
    """Return the times with a call made now, if it may be made, and the decision."""
    hour, found = calls_left(times, limit, now)
    if not found.granted:
        return hour, found
    hour.append(now)
    return hour, QuotaDecision(True, found.left - 1, _wait_s(hour, limit, now), now)


def _wait_s(hour: Sequence[float], limit: int, now: float) -> float:
    if len(hour) < limit or not limit:
        return 0.0
    # Not hour[0]: the limit may have been lowered.
    return hour[len(hour) - limit] + HOUR_S - now


class LocalCallQuota:
    def __init__(self) -> None:
        self._times: list[float] = []

    async def spend(self, limit: int, now: float) -> QuotaDecision:
        self._times, found = spend_call(self._times, limit, now)
        return found

    async def look(self, limit: int, now: float) -> QuotaDecision:
        self._times, found = calls_left(self._times, limit, now)
        return found

    async def refund(self, at: float) -> None:
        if at in self._times:
            self._times.remove(at)


# ---------------------------------------------------------------- processor time
# Turns come first: an extraction takes some tens of milliseconds of processor time, for which a turn that is
# being prepared would wait. Mostly there is a pause without turns, while a user reads or a model answers. If
# none comes for PATIENCE_S, the work runs alongside the turns until nothing is left to do, so that deferred
# work cannot grow without bound.
PAUSE_S = 0.02  # without a turn; a client that sends requests back to back has sent its next by then
SHARE = 4  # time for turns : time for background work
PATIENCE_S = 4.0  # less than learn.budget.CallBounds.patience_s


class TurnPriority:
    """Lets background work wait for pauses between turns. Not thread-safe."""

    def __init__(self, steady: Callable[[], float] = time.monotonic, patience_s: float = PATIENCE_S) -> None:
        """`steady`: a monotonic clock."""
        self._steady, self._patience_s = steady, patience_s
        self._turns = 0
        self._last_ended_at = float("-inf")
        self._waiting = 0  # calls of `pause`
        self._waiting_since: float | None = None  # None: no work had to wait since all was done

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Enter while a turn is being prepared."""
        self._turns += 1
        try:
            yield
        finally:
            self._turns -= 1
            self._last_ended_at = self._steady()

    async def pause(self) -> None:
        """Return in a pause, or after `patience_s` without one."""
        self._waiting += 1
        try:
            while (pause_in_s := self._pause_in_s(now := self._steady())) > 0:
                if self._waiting_since is None:
                    self._waiting_since = now
                left_s = min(pause_in_s, self._waiting_since + self._patience_s - now)
                if left_s <= 0:
                    return
                await asyncio.sleep(left_s)
        finally:
            self._waiting -= 1

    async def give_way(self, spent_s: float) -> None:
        """Return in a pause, or after SHARE times the duration of the last step."""
        ends_at = self._steady() + SHARE * spent_s
        while (now := self._steady()) < ends_at:
            pause_in_s = self._pause_in_s(now)
            if pause_in_s <= 0:
                return
            await asyncio.sleep(min(pause_in_s, ends_at - now))

    def nothing_due(self) -> None:
        """Reset the patience: all work is done."""
        if not self._waiting:
            self._waiting_since = None

    def _pause_in_s(self, now: float) -> float:
        return PAUSE_S if self._turns else self._last_ended_at + PAUSE_S - now


NICENESS = 10


def lower_thread_priority() -> None:
    """Give the event loop's thread precedence over the calling one where processors are short (Linux only).

    At 32 streams on one processor with recalls in between, a chunk's median delay falls from 14 to 4 ms.
    """
    with suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


# ---------------------------------------------------------------- the operating system
MOST_FILES = 65_536  # enough for 30,000 connections; some systems allow a billion, which slows down each fork


def raise_file_limit() -> int | None:
    """Raise the soft limit of open files up to the hard one; return it, None if there is none.

    A shell starts programs with 1,024; each connection is a file, and so is each to the upstream."""
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft == resource.RLIM_INFINITY:
        return None
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # a sandbox that forbids it
            return soft
    return max(soft, wanted)


def trim_heap() -> None:
    """Return freed memory to the system: 8 MB after a table of tokens was loaded."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


IDLE_S = 60  # of silence, before the kernel probes the peer
INTERVAL_S = 10
PROBES = 6  # unanswered, then the connection ends


def enable_keep_alive(connection: socket.socket) -> None:
    """Have the kernel end the connection two minutes after it last heard of the peer.

    Detects a peer that disappeared without closing its connection: otherwise an answer that a model thinks
    about for minutes is lost where a NAT gateway drops idle connections (cloud providers' do after four to
    six minutes), and a client that vanished keeps its upstream busy until the timeout. OpenAI's clients do
    the same. The kernel probes only a silent peer: a slow client still acknowledges. Accepted connections
    inherit this from their listener.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", IDLE_S), ("TCP_KEEPINTVL", INTERVAL_S), ("TCP_KEEPCNT", PROBES)):
        if hasattr(socket, option):  # platforms differ
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
