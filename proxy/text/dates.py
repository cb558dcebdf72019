"""Time zones by name, and dates in facts and in questions, resolved against the moment of the statement in
the user's zone.

A zone is an IANA name (`Asia/Tokyo`, in any case) or a fixed offset (`+05:30`, `UTC-3`, `GMT+2`), which has
no daylight saving time. Names are compared with the published list, never used as paths.

"tomorrow" means nothing in a memory that is read in June. What a calendar resolves gets its date in
parentheses: "tomorrow (2026-03-06)". What it does not ("recently") gets the day of the statement. A fact with
a full date was resolved by its model and stays as it is.

The words are data, `dates.toml`: a section for each language. A fact is searched for the words of the
languages that it may be in, by its script and its frequent words.
"""

import difflib
import re
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from proxy.domain.core import DEFAULT_TIMEZONE

SKEW_S = 300.0  # by which a client's clock may be ahead of ours
LAST_SECOND = 253_402_300_799  # of the year 9999: most software has no later dates
_OFFSET = re.compile(r"(?:UTC|GMT)?([+\N{MINUS SIGN}-])(\d{1,2})(?::?([0-5]\d))?", re.IGNORECASE | re.ASCII)
_PERIOD = re.compile(r"(\d{4})-(\d{2})(?:-(\d{2}))?", re.ASCII)
_MOST_MINUTES = 14 * 60  # Kiritimati; the furthest from UTC
_FIRST_S = datetime(1, 1, 2, tzinfo=UTC).timestamp()
_LAST_S = datetime(9999, 12, 30, tzinfo=UTC).timestamp()
_UNSPACED = frozenset(("han", "kana", "hangul"))
_SCRIPTS = {
    "kana": re.compile(r"[\u3040-\u30ff]"),
    "han": re.compile(r"[\u4e00-\u9fff]"),
    "hangul": re.compile(r"[\uac00-\ud7af]"),
    "cyrillic": re.compile(r"[\u0400-\u04ff]"),
    "arabic": re.compile(r"[\u0600-\u06ff]"),
    "devanagari": re.compile(r"[\u0900-\u097f]"),
}
_ALIKE = 0.6  # share of the frequent words of the likeliest language that makes another likely, too
_UNITS = ("d", "w", "m", "y", "h")
_SHIFT = re.compile(r"(day|week|weekend|month|year|in|fortnight|bare)([+-]\d)")
_QUOTED = re.compile(r"\"[^\"\n]{1,200}\"|[“„«「『][^”“»」』\n]{1,200}[”“»」』]")
_ISO = re.compile(r"\b\d{4}-\d{2}(?:-\d{2})?\b|\d{4}年\d{1,2}月")
_ABSOLUTE = re.compile(
    r"\b(?:19|20)\d{2}\b|\b\d{1,2}[./]\d{1,2}[./](?:\d{2}|\d{4})\b|\d{1,2}月\d{1,2}[日号]", re.IGNORECASE
)
_DATED = re.compile(r"(?:['’]s)?,? ?[(\uff08][^()\uff08\uff09]*\d")  # follows words that have their date
_BEGINNING = re.compile(r"(?:^|[.!?:;\n\u2026])\W*\Z")
_POSSESSIVE = re.compile(r"['’]s\b")
_MONTH_NAMES = (
    "january february march april may june july august september october november december",
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "januar februar märz april mai juni juli august september oktober november dezember",
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
)
_MONTHS = {name: number for names in _MONTH_NAMES for number, name in enumerate(names.split(), 1)}
_A_DAY = (
    r"(?:(?P<iso>\d{4}-\d{2}-\d{2})|(?P<d>\d{1,2})\.? (?:de )?(?P<m>[^\W\d_]++),? (?:de )?(?P<y>20\d\d)"
    r"|(?<![^\W\d_])(?P<m2>[^\W\d_]++) (?P<d2>\d{1,2}),? (?P<y2>20\d\d)"
    r"|(?P<y3>20\d\d) ?年 ?(?P<m3>\d{1,2}) ?月 ?(?P<d3>\d{1,2}))"
)
_DAYS = re.compile(_A_DAY, re.IGNORECASE)
_UNTIL = re.compile(
    r"\b(?:until|till|through|expires? (?:on )?|bis(?: zum)?|hasta(?: el)?|jusqu'au)\s+" + _A_DAY,
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Language:
    """A section of dates.toml. `rules`: meanings, each with its words."""

    script: str
    words: re.Pattern[str]
    numbers: dict[str, int]
    months: re.Pattern[str]
    calendar: re.Pattern[str]  # weekdays and months
    rules: tuple[tuple[str, re.Pattern[str]], ...]
    was: re.Pattern[str]
    will: re.Pattern[str]
    habit: re.Pattern[str]
    vague: re.Pattern[str]


_Span = tuple[int, int, str]
"""The start and end of a date in a text, and the date that it means, written out."""


def anchored(content: str, type_: str, said: datetime, *, stated: bool = True) -> str:
    """Return the content with its relative dates resolved for the local time `said`; those of a procedure
    recur and stay as they are. `stated`: vague ones get the day of the statement."""
    if type_ == "procedural" or _ISO.search(content) or any(map(_day_of, _DAYS.finditer(content))):
        return content
    languages = _languages_of(content)
    is_habit = type_ == "preference"
    spans = _spans(content, languages, said, is_habit=is_habit)
    if not spans:
        others = _others(content, languages)
        spans = _spans(content, others, said, is_habit=is_habit, days_only=True, least=_TELLING_CHARS)
    if not spans:
        if not stated or _ABSOLUTE.search(content) or not any(one.vague.search(content) for one in languages):
            return content
        stop = next((c for c in ".。!！" if content.endswith(c)), "")
        return f"{content.removesuffix(stop)} (stated {said.date().isoformat()}){stop}"
    for _, end, meant in sorted(spans, key=lambda span: span[1], reverse=True):
        if _DATED.match(content, end) or (len(meant) == 4 and meant in content):
            continue  # the content itself says which date the words mean
        possessive = _POSSESSIVE.match(content, end)
        at = possessive.end() if possessive else end
        content = f"{content[:at]} ({meant}){content[at:]}"
    return content


# ---------------------------------------------------------------- relative dates in a text
def _spans(
    content: str,
    languages: tuple[_Language, ...],
    said: datetime,
    *,
    is_habit: bool,
    days_only: bool = False,
    least: int = 1,
) -> list[_Span]:
    """Return the relative dates without overlap, the longest first. `days_only`: words such as "tomorrow";
    `least`: characters."""
    found: list[_Span] = []
    for one in languages:
        for meaning, pattern in one.rules:
            is_day = meaning.startswith("day")
            if (days_only and not is_day) or (meaning == "on" and (is_habit or one.habit.search(content))):
                continue
            for match in pattern.finditer(content):
                # A capital in mid-sentence is a name: "a band called Yesterday".
                is_named = is_day and match[0][0].isupper()
                if len(match[0]) < least or (is_named and not _BEGINNING.search(content[: match.start()])):
                    continue
                with suppress(OverflowError, ValueError):  # before the year 1, after 9999
                    if meant := _meant(meaning, match, one, said):
                        found.append((*match.span(), meant))
    quoted = [(*match.span(), "") for match in _QUOTED.finditer(content)]
    chosen: list[_Span] = []
    for span in sorted(found, key=lambda span: span[0] - span[1]):
        if _is_free(span[0], span[1], (*chosen, *quoted)):
            chosen.append(span)
    return chosen


def _languages_of(content: str) -> tuple[_Language, ...]:
    """Return the languages that the content may be in, by its script and its frequent words."""
    scripts = {name for name, letters in _SCRIPTS.items() if letters.search(content)}
    if "kana" in scripts:
        scripts.discard("han")
    known = _languages()
    if scripts:
        return tuple(one for name, one in known.items() if one.script in scripts or name == "en")
    folded = content.casefold()
    counts = {
        name: len(set(one.words.findall(folded))) for name, one in known.items() if one.script == "latin"
    }
    least = _ALIKE * max(counts.values())
    return tuple(known[name] for name, count in counts.items() if count >= least)


_TELLING_CHARS = 5  # shorter words are words of other languages, too: "hier"


def _others(content: str, languages: tuple[_Language, ...]) -> tuple[_Language, ...]:
    """Return the other languages of a text in Latin letters; a short one may hold no frequent word at all."""
    folded = content.casefold()
    if any(one.script != "latin" or len(set(one.words.findall(folded))) > 1 for one in languages):
        return ()
    return tuple(one for one in _languages().values() if one.script == "latin" and one not in languages)


# ---------------------------------------------------------------- resolving
def _meant(meaning: str, match: re.Match[str], language: _Language, said: datetime) -> str | None:
    """Return the date that the words mean, None without any. Raises OverflowError, ValueError."""
    today = said.date()
    if shift := _SHIFT.fullmatch(meaning):
        return _shifted(shift[1], int(shift[2]), match, language, said)
    groups = match.groupdict()
    if meaning in ("in", "ago"):
        sign = 1 if meaning == "in" else -1
        return _counted(said, _unit(groups), sign * _number(groups["n"], language))
    weekday = next(number for number in range(7) if groups[f"d{number}"] is not None)
    if meaning == "after":
        coming, unit = _coming(today, weekday), _unit(groups) if groups.get("n") else "w"
        count = _number(groups["n"], language) if groups.get("n") else 1
        return _counted(datetime.combine(coming, said.time()), unit, count)
    if meaning == "on":
        was = language.was.search(match.string) and not language.will.search(match.string)
        meaning = "past" if was else "coming"
    if meaning == "coming":
        return _coming(today, weekday).isoformat()
    if meaning == "past":
        return (today - timedelta(days=(today.weekday() - weekday - 1) % 7 + 1)).isoformat()
    weeks = {"last": -1, "this": 0, "next": 1, "next2": 2}[meaning]
    return (_monday(today, weeks) + timedelta(days=weekday)).isoformat()


def _shifted(unit: str, by: int, match: re.Match[str], language: _Language, said: datetime) -> str | None:
    """Return the date `by` units from the day of the statement."""
    today, groups = said.date(), match.groupdict()
    match unit:
        case "day" | "fortnight":
            return (today + timedelta(days=by if unit == "day" else 14 * by)).isoformat()
        case "week":
            return f"week of {_monday(today, by)}"
        case "weekend":
            # On a Sunday "this weekend" lasts, and "last weekend" is the one before.
            return f"weekend of {_monday(today, by) + timedelta(days=5)}"
        case "month":
            return _month(today, by)
        case "year":
            return f"{date(today.year + by, 1, 1).year:04d}"
        case "in":
            return _counted(said + timedelta(days=by), _unit(groups), _number(groups["n"], language))
        case _:
            return _counted(said, _unit(groups), by)


def _counted(said: datetime, unit: str, count: int) -> str | None:
    match unit:
        case "d":
            return (said.date() + timedelta(days=count)).isoformat()
        case "w":
            return (said.date() + timedelta(weeks=count)).isoformat()
        case "m":
            return _month(said.date(), count) if count else None
        case "y":  # half a year is counted as 0
            return f"{date(said.year + count, 1, 1).year:04d}" if count else None
        case _:
            return (said + timedelta(hours=count)).date().isoformat()


def _unit(groups: dict[str, str | None]) -> str:
    return next(unit for unit in _UNITS if groups.get(unit) is not None)


def _number(text: str | None, language: _Language) -> int:
    text = (text or "").casefold()
    return int(text) if text.isdecimal() else language.numbers[text]


def _coming(today: date, weekday: int) -> date:
    return today + timedelta(days=(weekday - today.weekday() - 1) % 7 + 1)


def _monday(today: date, weeks: int) -> date:
    return today + timedelta(days=7 * weeks - today.weekday())


def _month(today: date, offset: int) -> str:
    months = today.year * 12 + today.month - 1 + offset
    first = date(months // 12, months % 12 + 1, 1)
    return f"{first:%Y-%m}" if first.year > 999 else f"{first.year:04d}-{first.month:02d}"


# ---------------------------------------------------------------- the past times of a question
_YEARS_BACK = 20  # a higher or lower number is an amount
_YEAR = re.compile(r"(?<![\d.,])(?:19|20)\d{2}(?![\d.,]\d)")
_NAMED_MONTH = re.compile(r"(?<!\d)(\d{4})[-年](\d{1,2})(?:月|(?![\d-]))")
_YEAR_AFTER = re.compile(r",? ?(?:de |del |of |г\. ?)?(20\d\d)(?!\d)")
_YEAR_BEFORE = re.compile(r"(?<!\d)(20\d\d) ?(?:年|년)? ?\Z")
Period = tuple[date, date]
"""The first day, and the day after the last."""


def past_period(question: str, asked: datetime) -> Period | None:
    """Return the times that the question names and that were over on the day on which it is `asked` (a local
    time), from the first to the last of them; None without any."""
    likely, rest = _languages_of(question), tuple[_Language, ...]()
    if all(one.script == "latin" for one in likely):
        # A question holds few of the frequent words, which are a fact's: it may be in another language, too.
        latin = [one for one in _languages().values() if one.script == "latin"]
        likely = likely if len(likely) < len(latin) else ()
        rest = tuple(one for one in latin if one not in likely)
    found = _spans(question, likely, asked, is_habit=False)
    found = found or _spans(question, rest, asked, is_habit=False, least=_TELLING_CHARS)
    for match in _DAYS.finditer(question):
        if (day := _day_of(match)) is not None:
            found.append((*match.span(), day.isoformat()))
    found += [(*m.span(), f"{m[1]}-{m[2]:0>2}") for m in _NAMED_MONTH.finditer(question)]
    for language in (*likely, *rest):
        found += _months(question, language, asked, found, is_likely=language in likely)
    years = range(asked.year - _YEARS_BACK, asked.year + 1)
    named = [(*m.span(), m[0]) for m in _YEAR.finditer(question) if int(m[0]) in years]
    found += [one for one in named if _is_free(one[0], one[1], found)]
    periods = (_period_of(meant) for _, _, meant in found)
    over = [period for period in periods if period is not None and period[1] <= asked.date()]
    return (min(p[0] for p in over), max(p[1] for p in over)) if over else None


def _months(
    question: str, language: _Language, asked: datetime, found: Sequence[_Span], *, is_likely: bool
) -> list[_Span]:
    """Return the months that are named without a day; one without its year is the last one that has begun."""
    is_to_come = bool(language.will.search(question)) and not language.was.search(question)
    months = []
    for match in language.months.finditer(question):
        month = next(number for number in range(1, 13) if match[f"m{number}"] is not None)
        year = _YEAR_AFTER.match(question, match.end()) or _YEAR_BEFORE.search(question[: match.start()])
        if len(match[0]) < _TELLING_CHARS and not (year or is_likely):
            continue
        if _is_free(*match.span(), found) and (year or not is_to_come):
            number = int(year[1]) if year else asked.year - (month > asked.month)
            spans = (match.span(), year.span() if year else match.span())
            months.append((min(spans)[0], max(spans)[1], f"{number:04d}-{month:02d}"))
    return months


def _is_free(start: int, end: int, found: Sequence[_Span]) -> bool:
    """True if nothing that was found overlaps this span."""
    return all(end <= begin or start >= finish for begin, finish, _ in found)


def _period_of(meant: str) -> Period | None:
    """Return the period of a date as this module writes it: a day, a week, a weekend, a month or a year."""
    with suppress(ValueError, OverflowError):
        if " of " in meant:
            unit, _, first = meant.partition(" of ")
            begin = date.fromisoformat(first)
            return begin, begin + timedelta(days=7 if unit == "week" else 2)
        year, *rest = map(int, meant.split("-"))
        if len(rest) == 2:
            return date(year, *rest), date(year, *rest) + timedelta(days=1)
        if not rest:
            return date(year, 1, 1), date(year + 1, 1, 1)
        begin = date(year, rest[0], 1)
        return begin, (begin + timedelta(days=31)).replace(day=1)
    return None


@lru_cache(maxsize=4096)
def names_calendar(word: str) -> bool:
    """True for the name of a weekday or month in any language of the table."""
    return any(one.calendar.fullmatch(f" {word}", 1) for one in _languages().values())


# ---------------------------------------------------------------- the table
@cache
def _languages() -> dict[str, _Language]:
    """Read the table; some 30 ms, when the first fact is dated."""
    table = tomllib.loads(Path(__file__).with_name("dates.toml").read_text("utf-8"))
    return {name: _language(rows) for name, rows in table.items()}


def _language(rows: dict[str, Any]) -> _Language:
    script, named = rows.pop("script"), [word.split(":") for word in rows.pop("numbers", "").split()]
    counted = (word for word, *value in named if not value)  # without a value they count from one
    numbers = dict(zip(counted, range(1, 100), strict=False)) | {w: int(v[0]) for w, *v in named if v}
    words = sorted(map(re.escape, numbers), key=len, reverse=True)
    known = {
        "n": rf"(?P<n>\d{{1,3}}|{'|'.join(words) or 'x'})",
        "unit": _groups(_UNITS, rows.pop("units")),
        "day": _groups([f"d{number}" for number in range(7)], rows.pop("weekdays")),
        "month": _groups([f"m{number}" for number in range(1, 13)], rows.pop("months")),
    }
    edged = "{}" if script in _UNSPACED else r"(?<!\w)(?:{})(?!\w)"

    def whole(pattern: str) -> re.Pattern[str]:
        for name, group in known.items():
            pattern = pattern.replace(f"{{{name}}}", group)
        return re.compile(edged.replace("{}", pattern), re.IGNORECASE)

    unnamed = re.sub(r"\?P<\w+>", "?:", known["day"])

    def any_of(name: str) -> re.Pattern[str]:
        return whole("|".join(rows.pop(name, [r"(?!)"])).replace("{day}", unnamed))

    frequent, was, will, habit, vague = map(any_of, ("words", "was", "will", "habit", "vague"))
    # One pattern for each alternative: a pattern may have each named group once.
    rules = tuple((meaning, whole(one)) for meaning, patterns in rows.items() for one in patterns)
    return _Language(
        script, frequent, numbers, whole("{month}"), whole("{day}|{month}"), rules, was, will, habit, vague
    )


def _groups(names: Sequence[str], row: str) -> str:
    """Return the pattern of any of the row's columns, each a group of its name."""
    columns = zip(names, row.split(" / "), strict=True)
    return f"(?:{'|'.join(f'(?P<{name}>{pattern})' for name, pattern in columns)})"


# ---------------------------------------------------------------- absolute dates
def expiry(content: str, type_: str, timezone: str) -> float | None:
    """Return when a rule ends that names its last day ("answer in French until 2026-05-05"), in the user's
    zone; None for all else: that a lease runs until May is true in June as well."""
    if type_ != "preference":
        return None
    match = _UNTIL.search(content)
    last = _day_of(match) if match else None
    if last is None:
        return None
    with suppress(OverflowError):
        after = last + timedelta(days=1)
        return day_start(after.year, after.month, after.day, timezone)
    return None


def _day_of(match: re.Match[str]) -> date | None:
    """Return the day that a match of _A_DAY names; None for 31 February."""
    try:
        if match["iso"]:
            return date.fromisoformat(match["iso"])
        if match["y3"]:
            return date(int(match["y3"]), int(match["m3"]), int(match["d3"]))
        month = _MONTHS.get((match["m"] or match["m2"]).lower())
        return date(int(match["y"] or match["y2"]), month, int(match["d"] or match["d2"])) if month else None
    except ValueError:
        return None


# ---------------------------------------------------------------- time zones
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
            return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if minutes else DEFAULT_TIMEZONE
    wanted = name[:64].casefold().replace(" ", "_")
    by_city = {full.rpartition("/")[2]: full for full in _names() if not full.startswith(("etc/", "us/"))}
    near = by_city.get(wanted.rpartition("/")[2])
    if near is None:
        near = next(iter(difflib.get_close_matches(wanted, _names(), n=1, cutoff=0.7)), None)
    hint = f" (did you mean '{_names()[near]}'?)" if near else "; use an IANA name such as 'Europe/Berlin'"
    raise UnknownZone(f"there is no time zone of this name{hint}")


def local_time(at: float, name: str) -> datetime:
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
