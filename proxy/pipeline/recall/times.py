"""Find the times that a question names: "in March", "last week", "im März", "上个月", "el verano pasado".

A memory of that time is worth a little more than another (see `rank`); it is never left out for its time,
since a fact noted in May may well be about March. Times are read in English, in other languages in the gloss.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from proxy.gloss import question_gloss
from proxy.overlap import MEMORY_CHARS
from proxy.terms import fold

_MONTHS = "january february march april may june july august september october november december".split()
_SEASONS = {"spring": (3, 5), "summer": (6, 8), "autumn": (9, 11), "fall": (9, 11), "winter": (12, 2)}
# "may" is a verb and "march" a walk, unless something about them says a month.
_MONTH = re.compile(
    rf"\b(?:in|since|until|of|last|this|by|early|late|mid) (?P<month>{'|'.join(_MONTHS)})\b"
    r"(?: (?P<year>20\d\d))?"
)
_SEASON = re.compile(r"\b(?P<which>last|this|in the) (?P<season>spring|summer|autumn|fall|winter)\b")
_AGO = re.compile(r"\b(?P<which>last|this) (?P<unit>week|month|year)\b|\b(?P<day>yesterday|today)\b")
_ISO = re.compile(r"\b(20\d\d)-(\d\d)(?:-(\d\d))?\b")


@dataclass(frozen=True, slots=True)
class Period:
    """From `start` up to `end`, Unix seconds; `words` name it in a text ("march 2026")."""

    start: float
    end: float
    words: tuple[str, ...] = ()


def named_times(text: str, now: float) -> tuple[Period, ...]:
    """Return the times that the text names, the past ones that are nearest to `now` where it leaves the year
    open."""
    said = fold(question_gloss(text).text)
    at = datetime.fromtimestamp(now, UTC)
    found = [_month(m, at) for m in _MONTH.finditer(said)]
    found += [_season(m, at) for m in _SEASON.finditer(said)]
    found += [_ago(m, at) for m in _AGO.finditer(said)]
    return tuple(found)


def is_of(period: Period, content: str, valid_from: float) -> bool:
    """True if the memory began in the period, or its content names a day of it."""
    if period.start <= valid_from < period.end:
        return True
    if any(period.start <= day < period.end for day in _days(content)):
        return True
    said = fold(content, MEMORY_CHARS)
    # Not "in Mayfair"; Chinese has no edges.
    return any(re.search(rf"(?<![a-z]){re.escape(word)}(?![a-z])", said) for word in period.words)


def _month(match: re.Match[str], at: datetime) -> Period:
    month = _MONTHS.index(match["month"]) + 1
    year = int(match["year"] or (at.year if month <= at.month else at.year - 1))
    # "Delivered on 6 May 2026", "in May".
    words = (f"{match['month']} {year}", f"in {match['month']}")
    return Period(_day(year, month), _day(year + month // 12, month % 12 + 1), words)


def _season(match: re.Match[str], at: datetime) -> Period:
    first, last = _SEASONS[match["season"]]
    year = at.year if first <= at.month else at.year - 1
    if match["which"] == "last" and first <= at.month <= last:
        year -= 1
    end = year + (last < first)
    months = [*range(first, last + 1)] if first <= last else [12, 1, 2]
    words = tuple(f"{_MONTHS[m - 1]} {year if m >= first else end}" for m in months)
    return Period(_day(year, first), _day(end, last + 1), words)


def _ago(match: re.Match[str], at: datetime) -> Period:
    today = at.replace(hour=0, minute=0, second=0, microsecond=0)
    if match["day"]:
        start = today - timedelta(days=match["day"] == "yesterday")
        return Period(start.timestamp(), (start + timedelta(days=1)).timestamp())
    back = match["which"] == "last"
    if match["unit"] == "week":
        start = today - timedelta(days=today.weekday() + 7 * back)
        return Period(start.timestamp(), (start + timedelta(days=7)).timestamp())
    if match["unit"] == "year":
        return Period(_day(at.year - back, 1), _day(at.year - back + 1, 1), (f" {at.year - back}",))
    year, month = (at.year, at.month) if not back else (at.year - (at.month == 1), (at.month - 2) % 12 + 1)
    return Period(
        _day(year, month), _day(year + month // 12, month % 12 + 1), (f"{_MONTHS[month - 1]} {year}",)
    )


def _day(year: int, month: int, day: int = 1) -> float:
    return datetime(year, month, day, tzinfo=UTC).timestamp()


def _days(content: str) -> Iterator[float]:
    for year, month, day in _ISO.findall(content):
        with suppress(ValueError):  # 2026-02-31 is a number, not a day
            yield _day(int(year), int(month), int(day or 1))
