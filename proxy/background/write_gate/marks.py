"""The numbers that identify one thing among similar ones in a statement: labels ("room 101") and times.

See `numbered` for what they are compared for.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from proxy.background.write_gate.change_words import PLANNED, Cue
from proxy.background.write_gate.reading import VALUE_KINDS, WEEKDAY, read
from proxy.embedtext import without_note
from proxy.terms import plain, terms
from proxy.wordlists import whole_words
from proxy.writing_systems import IDEOGRAPH


def _said(section: str) -> str:
    return whole_words("numbered", section)


_MOST = 500  # characters of a statement that are read: what it is about stands at its beginning
_CJK = "\u3400-\u4dbf\u4e00-\u9fff"
DIGITS = r"(?:\d+|[一二两三四五六七八九十百]+)"
_VERB = re.compile(rf"{_said('verbs')}|[:\uff1a](?!\d)")
# Where no verb is known, what ends like one: "flight 123 departs", "Projekt 1 verlangt".
_AFTER_LABEL = re.compile(r"(?<=\d) [a-z]{3,}(?:s|ed|t)\b")
_LIKE_A_VERB = re.compile(r"(?<= )(?!\w+ss\b)[a-z]{2,}(?:s|ed)\b")
_LIKE_A_GERMAN_VERB = re.compile(r"(?<= )[a-z]{3,}t\b")
_GERMAN = re.compile(r"\b(?:der|die|das|des|dem|den|meine?)\b")
_DONE = re.compile(_said("done"))
_PUT = re.compile(_said("put"))
_SCALE = re.compile(_said("scale"))
_NUMBERED = re.compile(_said("numbered"))
_NO_THING = re.compile("|".join(_said(s) for s in ("no thing", "done", "verbs")))
# Who does it is the user, and what stands before tells when. "The user's", "del usuario" is an owner.
_USER = re.compile(
    r"\busers?\b(?!')|\b(?:der nutzer|die nutzerin|el usuario|la usuaria)\b|(?<!\bde )\bl'utilisat\w+\b"
    r"|^(?:nutzer(?:in)?|usuari[oa]|utilisat\w+)\b|\bi(?=(?:'\w+)? [a-z])|\b(?:ich|yo)\b|\bj(?:e |')(?=[a-z])"
)
_TURNED = re.compile(r"^[^,;']{2,40} (?:is|are|was) (the user's .+)$")  # "Room 12 is the user's office"
# Since when or until when it holds is not what it is about.
_SINCE = re.compile(
    r"\b(?:since|from|until|till|by|as of|starting|seit|ab|bis|stand|desde|hasta|depuis|a partir d[eu])"
    rf"(?: (?:the|in|on|el|le|dem|de|the end of|ende?|early|late))* (?:{VALUE_KINDS['date']}|(?:19|20)\d\d\b)"
    rf"(?: (?:to|bis|al?|au) (?:the end of )?{VALUE_KINDS['date']})?"
    r"|[自从] ?(?:\d+ ?[年月日号] ?)+|(?:\d+ ?[年月日号] ?)+起"
)
_NEXT = re.compile(r"\b(?:next|upcoming|nachste\w*|proxim\w+|prochain\w*)\b|下次|下一")
_QUANTITY = re.compile(
    rf"{VALUE_KINDS['money']}|(?<![\d.,])\d[\d.,]*+(?:\s?%|[\s-]?(?:{_said('units')}))"
    r"|(?<![\d.,])\d[\d.,]*+\s?[次杯个只条台家口人岁分名张克斤米公千天周毫升小厘页本匹辆件套倍亩平]"
)
TIMES = {
    "time": re.compile(
        r"\b(?P<hour>\d{1,2})(?::(?P<colon>\d\d)|h(?P<h>\d\d)?|\s?(?P<half>am|pm|uhr))\b"
        rf"|(?P<zh>{DIGITS})\s?点(?P<zh_minute>半|\d+分?)?"
    ),
    "date": re.compile(VALUE_KINDS["date"]),
    "weekday": re.compile(rf"\b{WEEKDAY}\b|(?:周|星期|礼拜)[一二三四五六日天末]"),
    "year": re.compile(r"(?<![\d.,:/$€£#-])(?:19|20)\d\d(?![.,:/-]?\d)(?!\w*[a-z])"),
}
_LABEL = re.compile(
    r"(?P<noun>(?<![^\W\d_])[^\W\d_]+|§)(?: (?:no\.?|nr\.?|number|nummer|numero|n°|num\.?))?[ -]?#?"
    r"(?P<number>\d+(?:[./-]\d+)*[a-z]?|one|two|three|four|five|six)(?![\w%]|[:.,]\d)",
)
_LABEL_CJK = re.compile(
    rf"第\s?(?P<nth>{DIGITS})\s?(?P<of>[{_CJK}]{{1,2}})"
    rf"|(?:(?<![{_CJK}\d])|(?<=[户的住坐乘在]))(?P<no>{DIGITS})\s?"
    rf"(?P<kind>号(?![的是在到])[{_CJK}]|[室楼栋幢层班线路组队])"
    rf"|(?P<what>(?![有了是共约满在第每的和与])[{_CJK}]{{1,2}})\s?(?P<number>\d+)(?![\d.:/-]|\s?[{_CJK}](?<![的是在由]))"
)
_BEHIND = re.compile(
    r"\b(?:in|on|at|during|im|am|um|auf|en|a las?|a|au|aux|pour|for|fur|para)"
    r" (?:the |der |dem |el |la |le )?$"
)
_ONLY_ARTICLE = re.compile(r" (?:(?:the|an?|h(?:er|is)|their|its|my|d(?:as|en|ie|er)|el|las?|los|les?) )?")
_BREAK = re.compile(r"[,;，；。]|\b(?:and|und|y|et|but|aber|pero|mais)\b")
_CLAUSE_END = re.compile(r"[,;](?!\d)")
_CLAUSE_END_CJK = re.compile("[,，;；。]")
_NEXT_WORD = re.compile(r"\S+")
_EVERY = re.compile(r"[ygioh]s$")  # "Mondays", "montags"; "lunes" is one day, too
_DIGIT_OF = {
    **dict(zip("one two three four five six".split(), "123456", strict=True)),
    **dict(zip("一二三四五六七八九两", "1234567892", strict=True)),
}


@dataclass(frozen=True, slots=True)
class Mark:
    """A number that tells a thing from its like: its kind, the noun that it labels ("" of times), itself."""

    kind: str
    noun: str
    number: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Told:
    """What a statement tells by numbers."""

    subject: tuple[Mark, ...]  # before the verb
    behind: tuple[Mark, ...]  # after the verb and something else
    labels: tuple[Mark, ...]  # everywhere
    put: tuple[Mark, ...]  # of them, what somebody puts somewhere, keeps there or gives away
    turned: frozenset[str]  # the words of the subject, where it stands behind the verb
    done: bool  # one has many of these
    moved: bool  # says that something changed
    planned: bool
    quantities: frozenset[str]
    words: frozenset[str]  # without all of these


@lru_cache(maxsize=256)
def told(text: str) -> Told:
    said = plain(without_note(text[:_MOST])).strip().rstrip(".。!")
    clear = _SINCE.sub(_blank, said)
    subject, rest, known = _parted(clear)
    turned = _TURNED.match(said)
    marks, quantities, bare = _marks(clear)
    before = [m for m in marks if m.end <= subject and (m.kind == "label" or _is_subjects(clear, m, subject))]
    if not known:  # "Budget 500" has a value, "Camera 1 in the garage" a thing, "floor 2" alone a thing, too
        before = [m for m in before if m.end < len(clear) or _NUMBERED.match(clear, m.start)]
    if not (terms(bare[:subject]) or _USER.search(clear[subject:][:16])):
        before = [m for m in before if m.kind == "label"]  # "3 May is the wedding day" gives a date
    if _NEXT.search(clear[:subject]):
        before = [m for m in before if m.kind not in ("date", "weekday", "time")]
    labels = tuple(m for m in marks if m.kind == "label")
    return Told(
        subject=tuple(before),
        behind=tuple(_behind(clear, marks, rest)),
        labels=labels,
        put=tuple(_put(clear, labels)),
        turned=frozenset(terms(turned.group(1))) if turned else frozenset(),
        done=bool(_DONE.search(said)),
        moved=any(claim.cue is Cue.MOVED for claim in read(text).claims),
        planned=bool(PLANNED.search(bare)),  # without its dates: "may" is a month there
        quantities=quantities,
        words=frozenset(terms(bare)),
    )


def _is_subjects(text: str, mark: Mark, verb: int) -> bool:
    """True if the time is the subject's: it stands near the verb, or the statement begins with it. Behind a
    verb that is not known it tells when something happened: "Ana fell in May and her wrist is in plaster"."""
    between = text[mark.end : verb]
    if IDEOGRAPH.search(text):
        owned = between.lstrip("度份 ").startswith("的") and "了" not in text[: mark.start]
        return owned or (text.startswith(("是", "为", "叫"), verb) and len(between) <= 5)
    begins = not terms(text[: mark.start])
    return begins or (len(between.split()) <= 3 and not _BREAK.search(between))


def _parted(text: str) -> tuple[int, int, bool]:
    """Return where the subject ends, where what is said of it begins, and whether a verb tells so."""
    if IDEOGRAPH.search(text):
        return _parted_cjk(text)
    clause = _CLAUSE_END.split(text)[0]
    verb, user = _VERB.search(clause) or _like_a_verb(clause) or _VERB.search(text), _USER.search(text)
    if user and (verb is None or user.start() < verb.start()):
        word = _NEXT_WORD.search(text, user.end())
        return user.start(), word.end() if word else user.end(), True
    return (verb.start(), verb.end(), True) if verb else (len(text), len(text), False)


def _like_a_verb(clause: str) -> re.Match[str] | None:
    found = _AFTER_LABEL.search(clause) or _LIKE_A_VERB.search(clause)
    return found or (_LIKE_A_GERMAN_VERB.search(clause) if _GERMAN.search(clause) else None)


def _parted_cjk(text: str) -> tuple[int, int, bool]:
    clause = _CLAUSE_END_CJK.split(text)[0]
    if clause.startswith(("用户", "我")) and "的" not in clause:
        return 0, 2, True
    if verb := _VERB.search(clause):
        return verb.start(), verb.end(), True
    end = clause.rfind("的") + 1 or len(clause)
    return end, end, True


def _marks(text: str) -> tuple[list[Mark], frozenset[str], str]:
    """Return the marks in their order, the quantities, and the text without either."""
    quantities: frozenset[str] = frozenset()
    found: list[Mark] = []
    for label in (*_labels_cjk(text), *_labels(text, known=True)):
        found.append(label)
        text = _without(text, label)
    for kind, pattern in TIMES.items():
        if kind == "year":
            quantities = frozenset("".join(m.group().split()) for m in _QUANTITY.finditer(text))
            text = _QUANTITY.sub(_blank, text)
        for match in pattern.finditer(text):
            found.append(Mark(kind, "", _time(match) if kind == "time" else match.group(), *match.span()))
        text = pattern.sub(_blank, text)
    for label in _labels(text, known=False):
        found.append(label)
        text = _without(text, label)
    return sorted(found, key=lambda mark: mark.start), quantities, text


def _labels(text: str, *, known: bool) -> Iterator[Mark]:
    for match in _LABEL.finditer(text):
        noun, number = match["noun"], match["number"]
        thing = _NUMBERED.fullmatch(noun) or noun == "§"
        if known and not thing:
            continue
        if IDEOGRAPH.search(noun) or _NO_THING.fullmatch(noun) or (number.isalpha() and not thing):
            continue
        if len(noun) == 1 and noun.isalpha() and match.end("noun") < match.start("number"):
            continue  # "Ana's 2 cats"
        yield Mark("label", (terms(noun) or (noun,))[0], _DIGIT_OF.get(number, number), *match.span())


def _labels_cjk(text: str) -> Iterator[Mark]:
    for match in _LABEL_CJK.finditer(text):
        noun = match["of"] or match["kind"] or match["what"]
        number = match["nth"] or match["no"] or match["number"]
        yield Mark("label", noun, _DIGIT_OF.get(number, number), *match.span())


def _behind(text: str, marks: list[Mark], start: int) -> Iterator[Mark]:
    """Return the marks that stand behind a value, and say when or where it holds."""
    cjk = IDEOGRAPH.search(text)
    for mark in marks:
        between = text[start : mark.start]
        if cjk:
            first = not _BREAK.search(text[: mark.start])
            if mark.kind in ("year", "time") and first and (mark.start < start or between):
                yield mark
        elif mark.start < start or _BREAK.search(between):
            continue
        elif not terms(between):  # "war 2024 50000 Euro"
            if mark.kind == "year" and _QUANTITY.match(text[mark.end :].strip()):
                yield mark
        elif mark.kind == "label":
            if _NUMBERED.match(text, mark.start) and _BEHIND.search(between):
                yield mark
        elif mark.kind == "weekday":
            if _EVERY.search(mark.number):
                yield mark
        elif _BEHIND.search(between) and (mark.kind != "date" or mark.number.isalpha()):
            yield mark


def _put(text: str, labels: tuple[Mark, ...]) -> Iterator[Mark]:
    """Yield the labels that stand right behind such a verb, and no preposition between."""
    for verb in _PUT.finditer(text):
        behind = [m for m in labels if m.start >= verb.end()]
        if not behind or _SCALE.match(text, behind[0].start):
            continue
        if _ONLY_ARTICLE.fullmatch(text, verb.end(), behind[0].start):
            yield behind[0]


def _time(match: re.Match[str]) -> str:
    """Return hour and minute: "8:00", "8 Uhr" and "8 am" are one."""
    if match["zh"]:
        return match["zh"] + (match["zh_minute"] or "")
    hour = int(match["hour"]) % 12 + 12 if match["half"] == "pm" else int(match["hour"])
    return f"{hour}:{match['colon'] or match['h'] or '00'}"


def _without(text: str, mark: Mark) -> str:
    return text[: mark.start] + " " * (mark.end - mark.start) + text[mark.end :]


def _blank(match: re.Match[str]) -> str:
    return " " * len(match.group())  # as long, so that what is found later keeps its place
