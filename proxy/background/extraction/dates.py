"""Relative dates in a fact, resolved against the day on which it was said.

"tomorrow" means nothing in a memory that is read in June. What a calendar resolves without doubt gets the
date behind it in parentheses; what it does not ("recently") gets the day on which it was stated. A fact
that holds an absolute date already was resolved by its model and stays as it is. Days
are those of the user's time zone.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from proxy import timezones

Resolve = Callable[[date, re.Match[str]], str]

_ISO = re.compile(r"\b\d{4}-\d{2}(?:-\d{2})?\b|\d{4}年\d{1,2}月")
_ABSOLUTE = re.compile(
    r"\b(?:19|20)\d{2}\b|\b\d{1,2}[./]\d{1,2}[./](?:\d{2}|\d{4})\b|\d{1,2}月\d{1,2}[日号]", re.IGNORECASE
)
_WEEKDAYS = (
    ("monday", "lunes", "montag", "lundi", "segunda-feira", "lunedì", "月", "一"),
    ("tuesday", "martes", "dienstag", "mardi", "terça-feira", "martedì", "火", "二"),
    ("wednesday", "miércoles", "mittwoch", "mercredi", "quarta-feira", "mercoledì", "水", "三"),
    ("thursday", "jueves", "donnerstag", "jeudi", "quinta-feira", "giovedì", "木", "四"),
    ("friday", "viernes", "freitag", "vendredi", "sexta-feira", "venerdì", "金", "五"),
    ("saturday", "sábado", "samstag", "samedi", "sábado", "sabato", "土", "六"),
    ("sunday", "domingo", "sonntag", "dimanche", "domingo", "domenica", "日", "日天"),
)
_DAY_OF = {name: day for day, names in enumerate(_WEEKDAYS) for name in names[:6]}
_NUMBERS = {
    **dict(
        zip("a one two three four five six seven eight nine ten".split(), (1, *range(1, 11)), strict=True)
    ),
    **dict(zip("un dos tres cuatro cinco seis siete ocho nueve diez".split(), range(1, 11), strict=True)),
    **dict(zip("einem zwei drei vier fünf sechs sieben acht neun zehn".split(), range(1, 11), strict=True)),
    **dict(zip("un deux trois quatre cinq six sept huit neuf dix".split(), range(1, 11), strict=True)),
    **dict(zip("一二三四五六七八九十", range(1, 11), strict=True)),
    **{"an": 1, "una": 1, "une": 1, "einer": 1, "两": 2},
}
_COUNT = "|".join(sorted(map(re.escape, _NUMBERS), key=len, reverse=True)) + r"|\d{1,3}"


@dataclass(frozen=True, slots=True)
class Rule:
    """A relative expression, and the date that it means, written out."""

    pattern: re.Pattern[str]
    resolve: Resolve


def _rule(pattern: str, resolve: Resolve) -> Rule:
    return Rule(re.compile(pattern, re.IGNORECASE), resolve)


def _day(offset: int) -> Resolve:
    return lambda today, _: (today + timedelta(days=offset)).isoformat()


def _count(sign: int) -> Resolve:
    def resolve(today: date, match: re.Match[str]) -> str:
        count = int(match["n"]) if match["n"].isdigit() else _NUMBERS[match["n"].lower()]
        unit = match["unit"].lower()
        if unit[0] in "dtj天日":
            return (today + timedelta(days=sign * count)).isoformat()
        if unit[0] in "ws周星個个礼":
            if unit.startswith(("个月", "個月")):
                return _month(today, sign * count)
            return (today + timedelta(weeks=sign * count)).isoformat()
        return _month(today, sign * count)

    return resolve


def _weekday(weeks: int) -> Resolve:
    """Return the weekday of the week that is `weeks` from today's; weeks begin on Monday."""

    def resolve(today: date, match: re.Match[str]) -> str:
        monday = today - timedelta(days=today.weekday())
        return (monday + timedelta(weeks=weeks, days=_number_of(match["day"]))).isoformat()

    return resolve


def _coming(today: date, match: re.Match[str]) -> str:
    ahead = (_number_of(match["day"]) - today.weekday() - 1) % 7 + 1
    return (today + timedelta(days=ahead)).isoformat()


def _gone(today: date, match: re.Match[str]) -> str:
    back = (today.weekday() - _number_of(match["day"]) - 1) % 7 + 1
    return (today - timedelta(days=back)).isoformat()


def _number_of(name: str) -> int:
    name = name.lower()
    if name in _DAY_OF:
        return _DAY_OF[name]
    return next(day for day, names in enumerate(_WEEKDAYS) if name in names[6] + names[7])


def _week(offset: int) -> Resolve:
    def resolve(today: date, _: re.Match[str]) -> str:
        monday = today - timedelta(days=today.weekday()) + timedelta(weeks=offset)
        return f"week of {monday.isoformat()}"

    return resolve


def _month(today: date, offset: int) -> str:
    months = today.year * 12 + today.month - 1 + offset
    return f"{months // 12:04d}-{months % 12 + 1:02d}"


def _in_month(offset: int) -> Resolve:
    return lambda today, _: _month(today, offset)


def _in_year(offset: int) -> Resolve:
    return lambda today, _: f"{today.year + offset}"


def _names(column: int) -> str:
    return "|".join(names[column] for names in _WEEKDAYS)


_EN, _ES, _DE, _FR = (rf"(?P<day>{_names(c)})" for c in range(4))
_ZH, _JA = r"(?P<day>[一二三四五六日天])", r"(?P<day>[月火水木金土日])曜日?"
_RULES = (
    _rule(r"\bday after tomorrow\b|后天|明後日|\bpasado mañana\b|\bübermorgen\b|\baprès-demain\b", _day(2)),
    _rule(
        r"\btomorrow\b|明天|明日|(?<!pasado )(?<!la )(?<!por la )(?<!esta )\bmañana\b(?! por| siguiente)"
        r"|\bdemain\b|내일",
        _day(1),
    ),
    _rule(r"\bday before yesterday\b|前天|一昨日|\banteayer\b|\bvorgestern\b|\bavant-hier\b", _day(-2)),
    _rule(
        r"\byesterday\b|昨天|昨日|\bayer\b|\bgestern\b|\bhier (?:soir|matin)\b|어제|\blast night\b|昨晚"
        r"|\banoche\b",
        _day(-1),
    ),
    _rule(
        r"\b(?:today|tonight|this (?:morning|afternoon|evening))\b|今天|今晚|今早|今日|\bhoy\b|\bheute\b"
        r"|\baujourd'hui\b|오늘",
        _day(0),
    ),
    _rule(rf"\bin (?P<n>{_COUNT}) (?P<unit>days?|weeks?|months?)\b(?!'? time\w)", _count(1)),
    _rule(rf"\b(?P<n>{_COUNT}) (?P<unit>days?|weeks?|months?) ago\b", _count(-1)),
    _rule(rf"\bdentro de (?P<n>{_COUNT}) (?P<unit>días?|semanas?|mes(?:es)?)\b", _count(1)),
    _rule(rf"\bhace (?P<n>{_COUNT}) (?P<unit>días?|semanas?|mes(?:es)?)\b", _count(-1)),
    _rule(rf"\bin (?P<n>{_COUNT}) (?P<unit>Tag(?:en)?|Wochen?|Monat(?:en)?)\b", _count(1)),
    _rule(rf"\bvor (?P<n>{_COUNT}) (?P<unit>Tag(?:en)?|Wochen?|Monat(?:en)?)\b", _count(-1)),
    _rule(rf"\bdans (?P<n>{_COUNT}) (?P<unit>jours?|semaines?|mois)\b", _count(1)),
    _rule(rf"\bil y a (?P<n>{_COUNT}) (?P<unit>jours?|semaines?|mois)\b", _count(-1)),
    _rule(rf"(?P<n>{_COUNT})\s?(?P<unit>天|日|周|星期|个星期|个礼拜|個月|个月)(?:之?后|以后)", _count(1)),
    _rule(rf"(?P<n>{_COUNT})\s?(?P<unit>天|日|周|星期|个星期|个礼拜|個月|个月)(?:之?前|以前)", _count(-1)),
    # "next Friday" is that of the next week; "this" and "coming" the first from now on
    _rule(rf"\bnext {_EN}\b", _weekday(1)),
    _rule(rf"下个?(?:周|星期|礼拜){_ZH}", _weekday(1)),
    _rule(rf"来週の?{_JA}", _weekday(1)),
    _rule(rf"\b(?:this coming|the coming|this) {_EN}\b", _coming),
    _rule(rf"\b(?:este|el próximo) {_ES}\b", _coming),
    _rule(rf"\bel {_ES} que viene\b", _coming),
    _rule(rf"\b(?:kommende[nrm]?|diese[nrm]?) {_DE}\b", _coming),
    _rule(rf"\b(?:ce {_FR})\b", _coming),
    _rule(rf"\b{_FR} prochain\b", _coming),
    _rule(rf"(?:这个?|本)(?:周|星期|礼拜){_ZH}", _weekday(0)),
    _rule(rf"今週の?{_JA}", _weekday(0)),
    _rule(rf"\blast {_EN}\b", _gone),
    _rule(rf"\bel (?:pasado {_ES})\b", _gone),
    _rule(rf"\bel {_ES} pasado\b", _gone),
    _rule(rf"\b(?:letzte[nrm]?|vergangene[nrm]?) {_DE}\b", _gone),
    _rule(rf"\b{_FR} dernier\b", _gone),
    _rule(rf"上个?(?:周|星期|礼拜){_ZH}", _weekday(-1)),
    _rule(rf"先週の?{_JA}", _weekday(-1)),
    _rule(
        r"\bnext week\b|下个?(?:周|星期|礼拜)(?![一二三四五六日天])|来週|\bla (?:próxima semana"
        r"|semana que viene)\b|\bnächste Woche\b|\bla semaine prochaine\b",
        _week(1),
    ),
    _rule(
        r"\blast week\b|上个?(?:周|星期|礼拜)(?![一二三四五六日天])|先週|\bla semana pasada\b"
        r"|\bletzte Woche\b|\bla semaine dernière\b",
        _week(-1),
    ),
    _rule(
        r"\bnext month\b|下个月|来月|\bel (?:próximo mes|mes que viene)\b|\bnächste[nr]? Monat\b"
        r"|\ble mois prochain\b",
        _in_month(1),
    ),
    _rule(
        r"\blast month\b|上个月|先月|\bel mes pasado\b|\bletzte[nr]? Monat\b|\ble mois dernier\b",
        _in_month(-1),
    ),
    _rule(
        r"\bnext year\b|明年|来年|\bel (?:próximo año|año que viene)\b|\bnächste[sn]? Jahr\b"
        r"|\bl'année prochaine\b",
        _in_year(1),
    ),
    _rule(
        r"\blast year\b|去年|昨年|\bel año pasado\b|\bletzte[sn]? Jahr\b|\bl'année dernière\b", _in_year(-1)
    ),
)
_VAGUE = re.compile(
    r"\b(?:recently|lately|just now|soon|currently|at the moment|a few (?:days|weeks|months) ago"
    r"|the other day|(?:this|next|last) (?:spring|summer|autumn|fall|winter|weekend|quarter))\b"
    r"|最近|近来|刚刚|不久|前几天|过几天|近日|这几天|目前|今度|そのうち"
    r"|\b(?:recientemente|últimamente|hace poco|pronto|actualmente|este (?:verano|invierno|otoño))\b"
    r"|\b(?:kürzlich|neulich|bald|zurzeit|derzeit|momentan|diesen (?:Sommer|Winter|Herbst))\b"
    r"|\b(?:récemment|bientôt|actuellement|en ce moment|l'autre jour|cet (?:été|hiver|automne))\b",
    re.IGNORECASE,
)
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


def anchored(content: str, type_: str, said: datetime, *, stated: bool = True) -> str:
    """Return the content with its relative dates resolved for what was said then, in the user's local time.

    A procedure's days come again: they stay as they are."""
    if type_ == "procedural" or _ISO.search(content):
        return content
    today = said.date()
    spans: list[tuple[int, int, str]] = []
    for rule in _RULES:
        for match in rule.pattern.finditer(content):
            if all(match.end() <= start or match.start() >= end for start, end, _ in spans):
                spans.append((match.start(), match.end(), rule.resolve(today, match)))
    if not spans:
        vague = stated and _VAGUE.search(content) and not _ABSOLUTE.search(content)
        return _stated(content, today) if vague else content
    for _, end, meant in sorted(spans, reverse=True):
        content = f"{content[:end]} ({meant}){content[end:]}"
    return content


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
        return timezones.day_start(after.year, after.month, after.day, timezone)
    return None


_RESOLVED = re.compile(r" \((?:week of )?(\d{4}(?:-\d\d){0,2})\)")


def is_ahead(content: str, at: float) -> bool | None:
    """Return whether the content names a day that had not come when it was said at `at`; None where it
    names no day with its year."""
    days = [day for match in _DAYS.finditer(content) if (day := _day_of(match)) is not None]
    return max(days) > timezones.local(at, timezones.DEFAULT).date() if days else None


def resolved(content: str) -> tuple[str, ...]:
    """Return the dates that `anchored` has put behind the words that mean them, in order."""
    if "(" not in content:
        return ()
    ends = {match.end() for rule in _RULES for match in rule.pattern.finditer(content)}
    found = (match[1] for end in sorted(ends) if (match := _RESOLVED.match(content, end)))
    return tuple(found)


def _stated(content: str, day: date) -> str:
    stop = next((c for c in ".。!！" if content.endswith(c)), "")
    return f"{content.removesuffix(stop)} (stated {day.isoformat()}){stop}"


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
