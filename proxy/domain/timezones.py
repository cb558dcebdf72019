"""Time zones by name, and the local time of a moment.

A zone is an IANA name (`Asia/Tokyo`, in any case) or a fixed offset (`+05:30`, `UTC-3`, `GMT+2`), which has
no daylight saving time. Names are compared with the published list, never used as paths.
"""

import difflib
import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DEFAULT = "UTC"
SKEW_S = 300.0  # by which a client's clock may be ahead of ours
LAST_SECOND = 253_402_300_799  # of the year 9999: most software has no later dates
_OFFSET = re.compile(r"(?:UTC|GMT)?([+\N{MINUS SIGN}-])(\d{1,2})(?::?([0-5]\d))?", re.IGNORECASE | re.ASCII)
_PERIOD = re.compile(r"(\d{4})-(\d{2})(?:-(\d{2}))?", re.ASCII)
_MOST_MINUTES = 14 * 60  # Kiritimati; the furthest from UTC
_FIRST_S = datetime(1, 1, 2, tzinfo=UTC).timestamp()
_LAST_S = datetime(9999, 12, 30, tzinfo=UTC).timestamp()


class UnknownZone(ValueError):
    """Unknown zone; the message suggests the nearest name."""


def canonical(name: str) -> str:
    """Return the zone's name as it is stored: the IANA spelling, or `+HH:MM`. Raises UnknownZone."""
    name = name.strip()
    if known := _names().get(name.casefold()):
        return known
    if match := _OFFSET.fullmatch(name):
        minutes = int(match[2]) * 60 + int(match[3] or 0)
        if minutes <= _MOST_MINUTES:
            sign = "+" if match[1] == "+" else "-"
            return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if minutes else DEFAULT
    wanted = name[:64].casefold().replace(" ", "_")
    by_city = {full.rpartition("/")[2]: full for full in _names() if not full.startswith(("etc/", "us/"))}
    near = by_city.get(wanted.rpartition("/")[2])
    if near is None:
        near = next(iter(difflib.get_close_matches(wanted, _names(), n=1, cutoff=0.7)), None)
    hint = f" (did you mean '{_names()[near]}'?)" if near else "; use an IANA name such as 'Europe/Berlin'"
    raise UnknownZone(f"there is no time zone of this name{hint}")


def local(at: float, name: str) -> datetime:
    """Return the time in the zone. Never fails: an unknown zone is UTC, and the years are limited to 1 to
    9999."""
    return datetime.fromtimestamp(min(max(at, _FIRST_S), _LAST_S), zone(name))


def day_start(year: int, month: int, day: int, name: str) -> float:
    """Return when the day begins in the zone, Unix seconds. Raises ValueError for an invalid day."""
    try:
        return datetime(year, month, day, tzinfo=zone(name)).timestamp()
    except OverflowError:  # the first hours of the year 1 are before it in UTC
        return datetime(year, month, day, tzinfo=UTC).timestamp()


def instant(text: str) -> float | None:
    """Return the Unix seconds of an ISO 8601 time; None without a time zone, since it would depend on the
    machine, and for what is not a time in the years 1 to 9999."""
    try:
        at = datetime.fromisoformat(text.strip().upper())  # RFC 3339 allows "t" and "z", Python no "z"
        return None if at.tzinfo is None else at.timestamp()
    except (ValueError, OverflowError):
        return None


def period(text: str, name: str) -> tuple[float, float] | None:
    """Return when a day (2027-01-31) or month (2027-01) begins and ends in the zone; None for other texts."""
    match = _PERIOD.fullmatch(text)
    try:
        if match is None:
            return None
        first = date(int(match[1]), int(match[2]), int(match[3] or 1))
        after = first + timedelta(days=1 if match[3] else 31)
        after = after if match[3] else after.replace(day=1)
        begin, end = (day_start(one.year, one.month, one.day, name) for one in (first, after))
        return begin, end
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=1024)
def zone(name: str) -> tzinfo:
    """Return the zone of a canonical name, UTC for one that this machine does not know."""
    if match := _OFFSET.fullmatch(name):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        return timezone(offset if match[1] == "+" else -offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    """Return the IANA names by their folded spelling."""
    listed = resources.files("tzdata").joinpath("zones").read_text("utf-8").split()
    return {name.casefold(): name for name in listed}
