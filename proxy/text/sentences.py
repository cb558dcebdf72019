"""Sentence splitting by punctuation and line breaks, for every script.

A full stop ends a sentence if a blank or the end of the line follows, except before a small letter in a text
with capitals ("tea, etc. and cake") and after an initial ("J. R. Smith", "z. B."), an abbreviation without a
vowel ("Dr. Ohm"), a short word before a number ("tel. 5") or the number of a day ("am 3. Mai"). One inside
3.14 or example.org ends nothing. In doubt the sentence continues: two facts in one harm less than half a
fact. Time is linear in the text.
"""

import re
from collections.abc import Iterator

UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")  # Chinese, Japanese and Korean
WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")  # each says as much as three Latin letters
_BEFORE = 24  # characters before a stop
_AROUND = 80  # characters on either side of a stop

# A run of stops is matched whole, or "....x" would be searched again from each of its stops.
_STOPS = re.compile(
    r"(?P<run>[.!?…؟।]++)[\"')\]”’»“«]*+"
    r"|(?P<wide>[\u3002\uff01\uff1f\uff61][\u3002\uff01\uff1f\uff61!?…]*+)[)\]”’»」』）】》]*+"
)
_BLANKS = re.compile(r"\s*+")
_OPENING = re.compile(r"[\"'„“«»‘¿¡\[*_`]*+")
_INITIAL = re.compile(r"(?<![^\W_])(?!I\Z)[^\W\d_](?:\. ?[^\W\d_]{1,2})*\Z|\.[^\W\d_]{1,2}\Z")
_WORD = re.compile(r"(?<![^\W_])[^\W\d_]{1,6}\Z")
_LONG_WORD = re.compile(r"[^\W\d_]{3}|[a-z]")
_VOWEL = re.compile("[aeiouyäöüáéíóúàèìòùâêîôûå]|[^a-z]", re.IGNORECASE)
_DAY = re.compile(r"(?:\A|\b[^\W\d_A-ZÄÖÜ]{1,3} )(?:[12]?\d|3[01])\Z")


def sentences(text: str) -> list[str]:
    """Return the sentences in order, with their marks, stripped; a line break ends one."""
    return [sentence for piece in pieces(text) if (sentence := piece.strip())]


def pieces(text: str) -> Iterator[str]:
    """Yield the sentences with the blanks after them: joined, they are the text."""
    for line in text.splitlines(keepends=True):
        at = 0
        for stops in _STOPS.finditer(line):
            if _ends(line, stops):
                end = _after_blanks(line, stops.end())
                yield line[at:end]
                at = end
        if at < len(line):
            yield line[at:]


def is_inner_stop(text: str, at: int) -> bool:
    """True if the stop at `at` ends no sentence, as in an abbreviation or in 3.14."""
    stops = _STOPS.match(text, at)
    return stops is not None and not _ends(text, stops)


def without_inner_stops(text: str) -> str:
    """Return the text without the full stops before a blank that end no sentence: "Dr Ohm"."""
    parts, at = [], 0
    for stops in _STOPS.finditer(text):
        blank = text[stops.end() : stops.end() + 1].isspace()
        if blank and stops.group() == "." and not _ends(text, stops):
            parts.append(text[at : stops.start()])
            at = stops.end()
    return "".join((*parts, text[at:]))


def is_question(sentence: str) -> bool:
    """True for a sentence that ends in a question mark, of any script."""
    return sentence.rstrip(" \"')]”’»」』）】").endswith(("?", "\uff1f", "؟"))


def _after_blanks(text: str, at: int) -> int:
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
    start = _after_blanks(text, end)
    if start == len(text) or "\n" in text[end:start] or "!" in run or "?" in run:
        return True
    marks = _OPENING.match(text, start)
    follows = text[marks.end() if marks else start :][:3]
    before = text[max(0, stops.start() - _BEFORE) : stops.start()].rpartition("\n")[2]
    if not any(map(str.isalnum, before)):
        return True
    if run == "." and _is_inner(before, follows):
        return bool(UNSPACED.match(follows)) and not before[-1].isdigit()
    return not follows[:1].islower() or _is_all_small(text, stops)


def _is_all_small(text: str, stops: re.Match[str]) -> bool:
    """True without a capital nearby: such a writer begins sentences with small letters."""
    around = text[max(0, stops.start() - _AROUND) : stops.end() + _AROUND]
    return around == around.lower()


def _is_inner(before: str, follows: str) -> bool:
    """True for a full stop that belongs to the word or the number before it."""
    if _INITIAL.search(before) or (_DAY.search(before) and _LONG_WORD.match(follows)):
        return True
    word = _WORD.search(before)
    if word is None:
        return False
    return (
        (len(word.group()) <= 4 and not _VOWEL.search(word.group()))
        or follows[:1].isdigit()
        or follows.startswith("(")
    )
