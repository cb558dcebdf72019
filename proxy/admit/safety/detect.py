"""The Detector type, and how a table of detectors is run over a text.

Every pattern's repetition is bounded, or cannot fail once begun: the cost is linear in the text.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

MARKER = re.compile(r"\[redacted(?: [a-z -]{2,20})?\]")  # what stands for something removed before


class Span(NamedTuple):
    """Something found: its kind ("secret", or a class of policy.PII) and where it stands."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Detector:
    """One shape. The group that matched last, or the whole match, is what is removed."""

    kind: str
    pattern: re.Pattern[str]
    check: Callable[[str], bool] = bool
    hints: tuple[str, ...] = ()  # lower case; where none is in the text, the pattern need not be tried
    starts: tuple[str, ...] = ()  # lower case; every match begins with one: it is tried nowhere else
    numeric: bool = False  # every match is mostly a number of six or more digits: tried only there
    pieces: bool = False  # the value may go on after a space or a line break, in pieces
    whole: bool = False  # groups or not, the whole match is the value


class Table:
    """Many detectors; only those with a word that may be in the text are tried.

    A text that holds a word holds its first three characters: a set of them rules most detectors out at once.
    """

    def __init__(self, detectors: Iterable[Detector]) -> None:
        self._detectors = tuple(detectors)
        self._always: set[int] = set()
        self._places: dict[str, set[int]] = {}
        for place, detector in enumerate(self._detectors):
            words = detector.starts or detector.hints
            if not words or min(map(len, words)) < _BEGINNING:
                self._always.add(place)
                continue
            for word in words:
                self._places.setdefault(word[:_BEGINNING], set()).add(place)

    def __iter__(self) -> Iterator[Detector]:
        return iter(self._detectors)

    def near(self, lowered: str) -> Iterable[Detector]:
        """Return the detectors that may find something in the text, in their order."""
        if len(lowered) > _LONG_TEXT:
            return self._detectors
        beginnings = {lowered[at : at + _BEGINNING] for at in range(len(lowered) - _BEGINNING + 1)}
        found = self._always.union(*(self._places[begins] for begins in self._places.keys() & beginnings))
        return [self._detectors[place] for place in sorted(found)]


_BEGINNING = 3  # characters of a word by which it is looked for
_LONG_TEXT = 4_000  # characters; in longer ones looking for each word is quicker


def run(detectors: Iterable[Detector], text: str, lowered: str) -> Iterator[Span]:
    """Yield what the detectors find; spans may overlap. Markers of earlier removals are nothing new.

    `lowered` is the text in lower case, of the same length.
    """
    if isinstance(detectors, Table):
        detectors = detectors.near(lowered)
    marked = MARKER.search(text) is not None
    numbers = _numbers(text)
    places: dict[tuple[str, ...], list[int]] = {}
    for detector in detectors:
        if (words := detector.starts or detector.hints) and not _any_in(words, lowered):
            continue
        if detector.starts and detector.starts not in places:
            places[detector.starts] = places_of(detector.starts, lowered)
        if detector.numeric:
            matches = _near(detector.pattern, text, numbers)
        else:
            matches = _matches(detector, text, lowered, places.get(detector.starts, []))
        for match in matches:
            start, end = match.span(0 if detector.whole else match.lastindex or 0)
            if detector.pieces:
                end = _with_pieces(text, end)
            if not (marked and _is_marker(text, start, end)) and detector.check(text[start:end]):
                yield Span(detector.kind, start, end)


def _any_in(words: tuple[str, ...], lowered: str) -> bool:
    for word in words:  # noqa: SIM110 hundreds of times for each text: any() takes twice as long
        if word in lowered:
            return True
    return False


def _matches(detector: Detector, text: str, lowered: str, places: Iterable[int]) -> Iterator[re.Match[str]]:
    if detector.starts:
        free = 0
        for place in places:
            if place >= free and (match := detector.pattern.match(text, place)):
                free = match.end()
                yield match
    else:
        yield from detector.pattern.finditer(text)


_NUMBER = re.compile(r"\d(?:[ .\u00a0\t\n/_-]{0,2}\d){5,}")
_BESIDE = 24  # characters around a number that may belong to it


def _numbers(text: str) -> list[tuple[int, int]]:
    """Return the stretches of the text in which numbers stand."""
    found: list[tuple[int, int]] = []
    for number in _NUMBER.finditer(text):
        start, end = max(0, number.start() - _BESIDE), number.end() + _BESIDE
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _near(
    pattern: re.Pattern[str], text: str, stretches: Iterable[tuple[int, int]]
) -> Iterator[re.Match[str]]:
    for start, end in stretches:
        yield from pattern.finditer(text, start, end)


def places_of(starts: tuple[str, ...], lowered: str) -> list[int]:
    """Return where the words stand, in order. Searching for a word is far quicker than for a pattern."""
    found: list[int] = []
    for word in starts:
        at = lowered.find(word)
        while at >= 0:
            found.append(at)
            at = lowered.find(word, at + 1)
    return sorted(found)


def _is_marker(text: str, start: int, end: int) -> bool:
    """True if nothing but markers (and what encloses them) stands in the span."""
    around = text[max(0, start - 24) : end + 24]
    first = max(0, start - 24)
    for marker in MARKER.finditer(around):
        if marker.start() + first < end and marker.end() + first > start:
            rest = text[start : max(start, marker.start() + first)] + text[marker.end() + first : end]
            return not any(c.isalnum() for c in rest)
    return False


# The next piece of a broken value: after blanks, or on the next line, behind what wraps lines.
_PIECE = re.compile(
    r"(?:[ \t]{1,3}"
    r"|[ \t]{0,3}[\"']?[ \t]{0,3}[\\+&]?[ \t]{0,3}\r?(\n)[ \t>|\"'+]{0,8})([A-Za-z0-9+/=_-]{3,300})"
    r"(?![^\s\"'\\,;.)])"
)
_MOST_PIECES = 40
_LONE = 12  # characters of a word that is a line of its own and no word of a language


def _with_pieces(text: str, end: int) -> int:
    """Return where a value ends that goes on in pieces: random ones, or long ones on lines of their own."""
    for _ in range(_MOST_PIECES):
        piece = _PIECE.match(text, end)
        if piece is None:
            return end
        word, after = piece.group(2), text[piece.end() : piece.end() + 1]
        alone = piece.group(1) and len(word) >= _LONE and after in ("", "\n", '"', "'")
        if not (alone or is_random_piece(word)):
            return end
        end = piece.end()
    return end


_LETTER_AND_DIGIT = re.compile(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])")
_CASE_INSIDE = re.compile(r"[a-z][A-Z].*[A-Z]|[A-Z]{2}[a-z]|[a-z][A-Z][a-z]?[A-Z]")


def is_random_piece(word: str) -> bool:
    """True for letters with digits among them, or capitals where no word has them."""
    return bool(_LETTER_AND_DIGIT.match(word) or _CASE_INSIDE.search(word))
