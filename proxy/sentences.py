"""Sentence splitting for English, German, French, Spanish, Chinese and Japanese.

A stop with a blank behind it ends one, unless it stands after an abbreviation ("Dr. Ohm", "6 p.m. on
Friday", "z. B. Wein"), an initial, or a number that is a German ordinal ("am 3. Mai"); one inside 3.14 or
example.org ends nothing. An abbreviation may end a sentence too, which what follows tells; in doubt, after
a title or an initial, the sentence goes on: two facts in one harm less than half a fact.

The words are data, `words/abbreviations.txt`. Each stop is judged by a few characters around it: time is
linear in the text. (pysbd 0.3.4 reads one language at a time and takes 1 s for 8,000 characters of
"a. a. a. ", which cost 40 ms here.)
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from proxy.wordlists import words
from proxy.writing_systems import UNSPACED

_LOOK_AT = 24  # characters before a stop: longer than any abbreviation

# A run of stops is taken whole: "....x" would be looked at again from each of its stops.
_STOPS = re.compile(
    r"(?P<run>[.!?…]++)[\"')\]”’»“«]*+"
    r"|(?P<wide>[\u3002\uff01\uff1f\uff61][\u3002\uff01\uff1f\uff61!?…]*+)[)\]”’»」』）】》]*+"
)
_BLANKS = re.compile(r"\s*+")
_OPENING = re.compile(r"[\"'„“«»‘¿¡\[*_`]*+")
# The word before a stop, with the stops and blanks inside it: "Dr", "p.m", "z. B", "c.-à-d", "av. J.-C".
_LETTER = "[^\\W\\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
_WORD = re.compile(rf"(?:{_LETTER}{{1,4}}\.[ \u00a0\u202f]?-?)*+{_LETTER}+(?:-{_LETTER}{{1,2}})*+\Z")
_LAST = re.compile(rf"{_LETTER}+\Z")
_LETTERS = re.compile(r"(?:[^\W\d_]{1,2}\.-?)+[^\W\d_]{1,2}|(?:[^\W\d_]\.[ \u00a0\u202f]?)+[^\W\d_]")
_NUMBER = re.compile(r"(?:\A|(?P<I>\bI )?(?P<word>\b[^\W\d_]+)[ \u00a0]|[\s(\"„“«])\d{1,2}(?:\. ?\d{1,2})?\Z")
_ROMAN = re.compile(r"[IVX]{2,5}")
_NEXT_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_FIGURE = re.compile(r"[(+#]{0,2}\d|(?!I\b|A\b)[A-Z]{1,2}\d*(?!\w)|[IVX]{2,5}(?!\w)")
_GERMAN_MONTHS = frozenset("januar jänner februar märz mai juni juli oktober dezember".split())


def _listed(section: str) -> frozenset[str]:
    return words("abbreviations", section)


_TITLES, _ALWAYS, _NUMBERS = map(_listed, ("titles", "always", "numbers"))
_TIMES, _DATES, _DAYS = map(_listed, ("times", "dates", "days and zones"))
_COMPANIES, _PLACES = map(_listed, ("companies", "places"))
_BEFORE_ORDINAL, _COUNTED = map(_listed, ("before an ordinal", "counted"))
_SURELY, _BEGINS = map(_listed, ("begins surely", "begins"))


def sentences(text: str) -> list[str]:
    """Return the sentences in order, with their marks, stripped; a line break ends one."""
    return [sentence for piece in pieces(text) if (sentence := piece.strip())]


def pieces(text: str) -> Iterator[str]:
    """Yield the sentences with the blanks behind them: joined, they are the text."""
    for line in text.splitlines(keepends=True):
        at = 0
        for stops in _STOPS.finditer(line):
            if _ends(line, stops):
                end = _behind_blanks(line, stops.end())
                yield line[at:end]
                at = end
        if at < len(line):
            yield line[at:]


def goes_on(text: str, at: int) -> bool:
    """True if the stop at `at` ends no sentence: an abbreviation's, say, or the one in 3.14."""
    stops = _STOPS.match(text, at)
    return stops is not None and not _ends(text, stops)


def without_inner_stops(text: str) -> str:
    """Return the text without the full stops before a blank that end no sentence: "Dr Ohm"."""
    kept, at = [], 0
    for stops in _STOPS.finditer(text):
        blank = text[stops.end() : stops.end() + 1].isspace()
        if blank and stops.group() == "." and not _ends(text, stops):
            kept.append(text[at : stops.start()])
            at = stops.end()
    return "".join((*kept, text[at:]))


def _behind_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _ends(text: str, stops: re.Match[str]) -> bool:
    """True if a sentence ends with these stops."""
    run, end = stops["run"], stops.end()
    if run is None:
        return True
    if end < len(text) and not text[end].isspace():
        between = text[stops.start() - 1 : stops.start()] + text[end]
        return len(UNSPACED.findall(between)) == 2 or ("…" in run and not text[end].islower())
    after = _After.of(text, end)
    if after is None or "!" in run or "?" in run:
        return True
    before = text[max(0, stops.start() - _LOOK_AT) : stops.start()].rpartition("\n")[2]
    if not any(map(str.isalnum, before)):
        return True
    if run != ".":
        return not after.is_lower
    if before[-1].isdigit():
        return not _is_ordinal(before, after)
    word = _WORD.search(before)
    return word is None or not _belongs(_Before.of(word), after)


@dataclass(frozen=True, slots=True)
class _Before:
    """The word before a full stop, with the stops and blanks inside it."""

    text: str
    forms: frozenset[str]  # "av.J.-C" of "av. J.-C", what is behind its last blank, and its last letters
    last: str  # letters
    counted: bool  # a number stands before it

    @staticmethod
    def of(word: re.Match[str]) -> "_Before":
        text = word.group()
        last = _LAST.search(text)
        letters = last.group() if last else text
        forms = frozenset(("".join(text.split()), text.split()[-1], letters))
        return _Before(text, forms, letters, word.string[: word.start()].rstrip()[-1:].isdigit())

    def is_of(self, abbreviations: frozenset[str]) -> bool:
        return any(form in abbreviations or form.lower() in abbreviations for form in self.forms)

    def goes_with(self, word: str) -> bool:
        """True if an abbreviation has these two parts: "z. B.", "J. R.", "p. ej."."""
        letters = len(self.last) == len(word) == 1
        return (
            letters or {f"{form}.{word}".lower() for form in self.forms} & (_ALWAYS | _PLACES) != frozenset()
        )

    @property
    def is_initial(self) -> bool:
        return len(self.last) == 1 and self.last.isupper()

    @property
    def is_of_letters(self) -> bool:
        """True for "U.S", "J.R", "J. R"."""
        return bool(_LETTERS.fullmatch(self.text) or _LETTERS.fullmatch(self.text.split()[-1]))


@dataclass(frozen=True, slots=True)
class _After:
    """What follows a stop in its line."""

    text: str
    at: int
    first: str  # its first character, quotation marks left out
    word: str  # "" where it begins with none

    @staticmethod
    def of(text: str, at: int) -> "_After | None":
        """Return what follows, None at the end of the line."""
        start = _behind_blanks(text, at)
        if start == len(text) or "\n" in text[at:start]:
            return None
        marks = _OPENING.match(text, start)
        begins = marks.end() if marks else start
        word = _NEXT_WORD.match(text, begins)
        return _After(text, begins, text[begins : begins + 1], word.group().replace("’", "'") if word else "")

    @property
    def is_lower(self) -> bool:
        return self.first.islower()

    @property
    def is_bound(self) -> bool:
        """True for small letters and signs: as far as one can see, no sentence begins with one."""
        return self.is_lower or not self.first.isalnum()

    @property
    def is_stopped(self) -> bool:
        """True if the word is an abbreviation or an initial itself, or a sentence of its own."""
        return bool(self.word) and self.text.startswith(".", self.at + len(self.word))

    @property
    def is_acronym(self) -> bool:
        return len(self.word) > 1 and self.word.isupper() and not self.begins_surely

    @property
    def is_cjk(self) -> bool:
        return bool(UNSPACED.match(self.first))

    @property
    def begins_surely(self) -> bool:
        return self._is_of(_SURELY)

    @property
    def begins(self) -> bool:
        return self.is_cjk or self._is_of(_SURELY) or self._is_of(_BEGINS)

    def _is_of(self, beginnings: frozenset[str]) -> bool:
        shouted = self.word.isupper() and self.word.capitalize() in beginnings
        return (shouted or self.word in beginnings) and not self.is_stopped


def _belongs(before: _Before, after: _After) -> bool:
    """True if the full stop between the two is that of an abbreviation, and the sentence goes on."""
    if before.is_of(_ALWAYS):
        return True
    if before.is_of(_TITLES):
        return not after.begins_surely
    if before.is_of(_NUMBERS) and _is_figure(after):
        return True
    if after.is_stopped and before.goes_with(after.word):
        return True
    return _is_in_doubt(before, after)


def _is_in_doubt(before: _Before, after: _After) -> bool:
    """True if a sentence goes on after a word that may end it as well."""
    if before.is_of(_TIMES) and (before.counted or "." in before.text):
        is_day = after.word.lower() in _DAYS or after.is_acronym
        return is_day or after.is_bound or after.first.isdigit()
    if before.last.capitalize() in _DATES and after.first.isdigit():
        return True
    if before.forms & _DATES:
        return after.is_bound or after.word in _DATES
    if before.is_of(_COMPANIES):
        return after.is_bound or after.is_acronym or after.word.lower() in _COMPANIES
    if before.is_of(_PLACES) or before.is_of_letters:
        return not after.begins
    if before.is_initial:
        begins = after.begins if before.last == "I" else after.begins_surely
        return not (begins or after.is_cjk or after.first.isdigit())
    if before.last.lower().endswith("str"):  # "Hauptstr. 5"
        return after.is_lower or after.first.isdigit()
    return bool(_ROMAN.fullmatch(before.last)) and after.is_lower


def _is_figure(after: _After) -> bool:
    """True for a number, a letter that stands for one, and what announces it as well: "tel. no."."""
    return bool(_FIGURE.match(after.text, after.at)) or (after.is_stopped and after.word.lower() in _NUMBERS)


def _is_ordinal(before: str, after: _After) -> bool:
    """True for a German ordinal: "am 3. Mai", "im 2. Stock", "bis zum 5. und"."""
    number = _NUMBER.search(before)
    if number is None:
        return False
    next_word = after.word.lower()
    if next_word in _GERMAN_MONTHS or next_word in _COUNTED:
        return True
    said_before = (number["word"] or "").lower() in _BEFORE_ORDINAL and not number["I"]
    return said_before and not after.begins and not after.is_cjk
