"""Back-off: one pause for each endpoint and credential that wants to be left alone. Time is passed in.

When a pause is over, one call goes ahead to see how things are, and the others wait for how it ends: an
endpoint that comes back is not met at once by all that has waited.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from proxy.upstream.headers import Headers

PROBE_S = 5.0  # how long the others wait for the call that goes ahead
LONGEST_S = 3_600.0  # however long the endpoint asks for: an account may be topped up any time
MOST = 1_000  # pauses, of clients' credentials; those that are over go first, then the oldest

Key = tuple[str | None, bytes]
"""Endpoint (None: the conversation's upstream) and a digest of the credential."""


@dataclass(slots=True)
class _Pause:
    since: float
    until: float
    failures: int  # in a row


class Pauses:
    """Asked before every call, and told how it ended."""

    def __init__(
        self, *, first_s: float = 2.0, limit_s: float = 300.0, jitter: Callable[[], float] = random.random
    ) -> None:
        """`first_s`: the pause where the endpoint names none; it doubles up to `limit_s`."""
        self._first_s, self._limit_s, self._jitter = first_s, limit_s, jitter
        self._pauses: dict[Key, _Pause] = {}

    def left(self, key: Key, now: float) -> float:
        """Return for how many seconds no call may be made; 0: this one may, and has to be reported."""
        pause = self._pauses.get(key)
        if pause is None:
            return 0.0
        if now < pause.until:
            return pause.until - now
        pause.until = now + PROBE_S
        return 0.0

    def answered(self, key: Key) -> None:
        """The endpoint took a call: the pause is over for all."""
        self._pauses.pop(key, None)

    def refused(self, key: Key, *, began: float, now: float, asked_s: float | None) -> float:
        """Begin a pause, or a longer one, and return its length. `asked_s`: what the endpoint asked for;
        `began`: when the call began. Calls that were under way together count as one refusal."""
        pause = self._pauses.get(key)
        if pause is not None and began < pause.since:
            pause.until = max(pause.until, now + min(asked_s or 0.0, LONGEST_S))
            return pause.until - now
        failures = 1 if pause is None else pause.failures + 1
        length = self._length(failures, asked_s)
        self._make_room(now)
        self._pauses[key] = _Pause(since=now, until=now + length, failures=failures)
        return length

    def _length(self, failures: int, asked_s: float | None) -> float:
        if asked_s is not None:
            return min(asked_s, LONGEST_S) + self._first_s * 0.5 * self._jitter()
        full = min(self._limit_s, self._first_s * 2.0 ** min(failures - 1, 30))
        return full * (0.5 + 0.5 * self._jitter())

    def _make_room(self, now: float) -> None:
        if len(self._pauses) >= MOST:
            self._pauses = {key: pause for key, pause in self._pauses.items() if pause.until > now}
        while len(self._pauses) >= MOST:
            del self._pauses[next(iter(self._pauses))]


def retry_after(headers: Headers, now: float) -> float | None:
    """Return the seconds that the answer asks to wait: Retry-After in seconds or as a date, or
    retry-after-ms. `now`: Unix time. None where it asks for nothing that can be read."""
    given = {name.lower(): value.decode("latin-1").strip() for name, value in headers}
    if (milliseconds := _number(given.get(b"retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = given.get(b"retry-after")
    seconds = _number(value)
    if seconds is None and value:
        try:
            seconds = max(0.0, parsedate_to_datetime(value).timestamp() - now)
        except (ValueError, OverflowError):
            return None
    return seconds


def _number(value: str | None) -> float | None:
    """Return a plain number, None for anything else; "nan" and "inf" are no numbers of seconds."""
    if value is None or not value.replace(".", "", 1).isdecimal() or not value.isascii():
        return None
    return float(value)
