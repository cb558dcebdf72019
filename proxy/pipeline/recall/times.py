"""Find the times that a question names: "in March", "on 3 March", "last week", "im März", "上个月".

A memory of that time is worth a little more than another (see `rank`); it is never left out for its time,
since a fact noted in May may well be about March. Times are read in English, in other languages in the gloss.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta

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
# A number before "may" is as often a count, so a day wants "on" or "the" before it, or a year behind it.
# "At" is what "am 3. März" is in English words.
_NAMES = "|".join(_MONTHS)
_DATE = re.compile(
    r"(?P<on>\b(?:on|the|at|from) (?:the )?)?\b(?:"
    rf"(?P<number>\d{{1,2}})(?:st|nd|rd|th|\.)? (?:of )?(?P<month>{_NAMES})"
    rf"|(?P<first>{_NAMES}) (?P<second>\d{{1,2}})(?:st|nd|rd|th)?"
    r")\b(?:,? (?P<year>20\d\d))?"
)
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_LAST = re.compile(rf"\blast (?P<weekday>{'|'.join(_WEEKDAYS)}|weekend)\b")
_YEAR = re.compile(r"\b(?:in|since|of) (?P<year>20\d\d)\b")
_ISO = re.compile(r"\b(20\d\d)-(\d\d)(?:-(\d\d))?\b")


@dataclass(frozen=True, slots=True)
class Period:
    """The user's days from `first` up to `after`, and the same in Unix seconds; `words` name them in a text
    ("march 2026")."""

    first: date
    after: date
    start: float
    end: float
    words: tuple[str, ...] = ()


def named_times(text: str, at: datetime) -> tuple[Period, ...]:
    """Return the times that the text names; where it leaves the year open, the past ones that are nearest to
    `at`, the user's local time."""
    if not text:
        return ()
    said = fold(question_gloss(text).text)
    found = [day for m in _DATE.finditer(said) if _is_date(m) and (day := _date(m, at))]
    said = _DATE.sub(lambda m: " " if _is_date(m) else m[0], said)  # "the 3rd of March" is no month
    found += [_month(m, at) for m in _MONTH.finditer(said)]
    found += [_season(m, at) for m in _SEASON.finditer(said)]
    found += [_ago(m, at) for m in _AGO.finditer(said)]
    found += [_last(m, at) for m in _LAST.finditer(said)]
    found += [_year(int(m["year"]), at) for m in _YEAR.finditer(said)]
    return tuple(found)


def is_of(period: Period, content: str, valid_from: float) -> bool:
    """True if the memory began in the period, or its content names a day of it."""
    if period.start <= valid_from < period.end:
        return True
    if any(period.first <= day < period.after for day in _days(content)):
        return True
    said = fold(content, MEMORY_CHARS)
    # Not "in Mayfair", nor "March 30" for "March 3"; Chinese has no edges.
    return any(re.search(rf"(?<![a-z\d]){re.escape(word)}(?![a-z\d])", said) for word in period.words)


def _month(match: re.Match[str], at: datetime) -> Period:
    month = _MONTHS.index(match["month"]) + 1
    year = int(match["year"] or (at.year if month <= at.month else at.year - 1))
    # "Delivered on 6 May 2026", "in May".
    words = (f"{match['month']} {year}", f"in {match['month']}")
    return _period(at, date(year, month, 1), date(year + month // 12, month % 12 + 1, 1), words)


def _is_date(match: re.Match[str]) -> bool:
    return bool(match["on"] or match["year"])


def _date(match: re.Match[str], at: datetime) -> Period | None:
    """Return the day, None for one that no calendar has."""
    name, number = match["month"] or match["first"], int(match["number"] or match["second"])
    month = _MONTHS.index(name) + 1
    year = int(match["year"] or (at.year if (month, number) <= (at.month, at.day) else at.year - 1))
    with suppress(ValueError):
        return _days_from(at, date(year, month, number), 1, (f"{number} {name}", f"{name} {number}"))
    return None


def _last(match: re.Match[str], at: datetime) -> Period:
    today = at.date()
    weekend = match["weekday"] == "weekend"
    first = 5 if weekend else _WEEKDAYS.index(match["weekday"])
    start = today - timedelta(days=(today.weekday() - first - 1) % 7 + 1)
    if weekend and today.weekday() == 6:  # on a Sunday the weekend before this one is meant
        start -= timedelta(days=7)
    return _days_from(at, start, 1 + weekend)


def _year(year: int, at: datetime) -> Period:
    return _period(at, date(year, 1, 1), date(year + 1, 1, 1), (f"{year}",))


def _season(match: re.Match[str], at: datetime) -> Period:
    first, last = _SEASONS[match["season"]]
    year = at.year if first <= at.month else at.year - 1
    if match["which"] == "last" and first <= at.month <= last:
        year -= 1
    end = year + (last < first)
    months = [*range(first, last + 1)] if first <= last else [12, 1, 2]
    words = tuple(f"{_MONTHS[m - 1]} {year if m >= first else end}" for m in months)
    return _period(at, date(year, first, 1), date(end, last + 1, 1), words)


def _ago(match: re.Match[str], at: datetime) -> Period:
    today = at.date()
    if match["day"]:
        return _days_from(at, today - timedelta(days=match["day"] == "yesterday"), 1)
    back = match["which"] == "last"
    if match["unit"] == "week":
        return _days_from(at, today - timedelta(days=today.weekday() + 7 * back), 7)
    if match["unit"] == "year":
        return _year(at.year - back, at)
    year, month = (at.year, at.month) if not back else (at.year - (at.month == 1), (at.month - 2) % 12 + 1)
    words = (f"{_MONTHS[month - 1]} {year}",)
    return _period(at, date(year, month, 1), date(year + month // 12, month % 12 + 1, 1), words)


def _days_from(at: datetime, first: date, count: int, words: tuple[str, ...] = ()) -> Period:
    return _period(at, first, first + timedelta(days=count), words)


def _period(at: datetime, first: date, after: date, words: tuple[str, ...] = ()) -> Period:
    """Return the days as they begin and end in the time zone of `at`."""
    start, end = (datetime(d.year, d.month, d.day, tzinfo=at.tzinfo).timestamp() for d in (first, after))
    return Period(first, after, start, end, words)


def _days(content: str) -> Iterator[date]:
    for year, month, day in _ISO.findall(content):
        with suppress(ValueError):  # 2026-02-31 is a number, not a day
            yield date(int(year), int(month), int(day or 1))
