"""Detectors: rows of patterns run over a text, and views of it in which they also match what is disguised.

A view is without zero-width characters, full-width and other digits, letters of another alphabet that look
Latin, blanks between single characters, markup and line ends inside a key. The views are only read: what is
found in one is cut out of the text itself.

Every pattern's repetition is bounded, or cannot fail once begun: the cost is linear in the text.
"""

import base64
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple

# ---------------------------------------------------------------- views of a text
_INVISIBLE = re.compile(
    "[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f]"
)
_SPACED = re.compile(r"(?<!\S)\S(?:[ \t\n]{1,2}\S){4,}(?!\S)")
_ESCAPE = re.compile(
    r"%[2-7][0-9A-Fa-f]|\\u00[2-7][0-9A-Fa-f]|\\x[2-7][0-9A-Fa-f]|\\[\"']|&(?:quot|apos|amp|#\d{2,3});"
)
_ENTITIES = {"&quot;": '"', "&apos;": "'", "&amp;": "&"}
# Markup inside a pasted key: emphasis, code, spoilers, escapes, tags. Only long tokens with digits are
# searched without it.
_MARK = r"(?:\*{1,3}|`{1,3}|~~|\|\||\\(?=[-_.])|</?[A-Za-z][^<>\n]{0,60}>)"
_KEY_SIGN = r"[\w+/=.-]"
_MARKED = re.compile(rf"(?<!{_KEY_SIGN}){_KEY_SIGN}{{2,}}+(?:{_MARK}{{1,4}}{_KEY_SIGN}++)++")
# A line break inside a long random token.
_WRAP = r"[ \t]{0,2}\\?\n[ \t>|]{0,12}"
_OPAQUE = r"(?=[^\s\d]{0,40}\d)"
_WRAPPED = re.compile(
    rf"(?<!{_KEY_SIGN}){_OPAQUE}{_KEY_SIGN}{{16,}}+(?:{_WRAP}{_OPAQUE}{_KEY_SIGN}{{8,}}+(?!\S))++"
)
_SPLITS_TOKENS = re.compile(f"{_MARK}|{_WRAP}")
_LEAST_SPLIT = 16  # characters of a key
_LATIN, _LIKE_LATIN = re.compile("[A-Za-z]"), re.compile("[\u0370-\u03ff\u0400-\u04ff]")
_LOOKALIKES = str.maketrans(
    "АВЕЅІЈКМНОРСТУХаеѕіјорсухԁԛԝһᴠΑΒΕΖΗΙΚΜΝΟΡΤΥΧανο", "ABESIJKMHOPCTYXaesijopcyxdqwhvABEZHIKMNOPTYXavo"
)
_QUOTES = dict(zip("‘’‚“”„′″", "'''\"\"\"'\"", strict=True))


@dataclass(frozen=True, slots=True)
class TextView:
    """A text as it is searched, and the places of its characters in the original."""

    text: str
    offsets: Sequence[int] | None = None  # None: the same
    ends: Sequence[int] | None = None  # after each character, if one replaces several

    def lowered(self) -> str:
        """Return the text in lower case, character by character: a capital İ would become two."""
        lowered = self.text.lower()
        if len(lowered) == len(self.text):
            return lowered
        return "".join(c.lower() if len(c.lower()) == 1 else c for c in self.text)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the original's span of a span of this view."""
        if self.offsets is None or start == end:
            return start, end
        return self.offsets[start], self.ends[end - 1] if self.ends else self.offsets[end - 1] + 1


def views(text: str) -> Iterator[TextView]:
    """Yield the text as it reads; if it has any, also with spaced-out characters joined, with escapes
    (%40, \\u0040, &quot;) resolved, and with keys that are split by markup or line ends joined."""
    view = _readable(text)
    yield view
    if _SPACED.search(view.text):
        yield _unspaced(view)
    if _ESCAPE.search(text):
        yield _unescaped(text)
    if joined := _joined(view):
        yield joined


def readable(text: str) -> str:
    """Return the text without invisible characters and in the letters that it seems to be written in."""
    return _readable(text).text


def _readable(text: str) -> TextView:
    if text.isascii():
        return TextView(text)
    offsets: list[int] | None = None
    if _INVISIBLE.search(text):
        offsets = [place for place, char in enumerate(text) if not _INVISIBLE.match(char)]
        text = "".join(text[place] for place in offsets)
    forms = _plain_letters()
    for char in set(text) & forms.keys():  # one search a character: far quicker than str.translate
        text = text.replace(char, forms[char])
    if _LIKE_LATIN.search(text) and _LATIN.search(text):
        text = re.sub(r"[^\W\d_]+", _in_one_alphabet, text)
    return TextView(text, offsets)


def _in_one_alphabet(word: re.Match[str]) -> str:
    text = word.group()
    return text.translate(_LOOKALIKES) if _LATIN.search(text) and _LIKE_LATIN.search(text) else text


def _unspaced(view: TextView) -> TextView:
    """Return the view with each run of single characters as one word."""
    offsets: list[int] = []
    at = 0
    for run in _SPACED.finditer(view.text):
        offsets += range(at, run.start())
        offsets += (place for place in range(*run.span()) if not view.text[place].isspace())
        at = run.end()
    offsets += range(at, len(view.text))
    text = "".join(view.text[place] for place in offsets)
    return TextView(text, offsets if view.offsets is None else [view.offsets[place] for place in offsets])


def _joined(view: TextView) -> TextView | None:
    """Return what looks like keys split by markup or the end of a line, each in a paragraph of its own,
    without what splits them; None without any."""
    found = (*_MARKED.finditer(view.text), *_WRAPPED.finditer(view.text))
    spans: list[tuple[int, int]] = []
    for match in sorted(found, key=re.Match.span):
        token, (start, end) = _SPLITS_TOKENS.sub("", match.group()), match.span()
        if len(token) < _LEAST_SPLIT or not any(map(str.isdigit, token)) or not any(map(str.isalpha, token)):
            continue
        if spans and start < spans[-1][1]:
            start, end = spans[-1][0], max(end, spans.pop()[1])
        spans.append((start, end))
    if not spans:
        return None
    offsets: list[int] = []
    text = ""
    for start, end in spans:
        at = start
        for part in (*_SPLITS_TOKENS.finditer(view.text, start, end), None):
            to = part.start() if part else end
            text += view.text[at:to]
            offsets += range(at, to)
            at = part.end() if part else end
        text += "\n\n"
        offsets += (end - 1, end - 1)
    return TextView(text, offsets if view.offsets is None else [view.offsets[place] for place in offsets])


def _unescaped(text: str) -> TextView:
    """Return the lines that hold escapes, with what URLs, JSON and HTML escape as the characters meant."""
    chars, offsets, ends = list[str](), list[int](), list[int]()
    at = line_end = 0

    def copy(start: int, end: int) -> None:
        chars.extend(text[start:end])
        offsets.extend(range(start, end))
        ends.extend(range(start + 1, end + 1))

    for escape in _ESCAPE.finditer(text):
        if escape.start() >= line_end:
            copy(at, line_end)
            at = text.rfind("\n", 0, escape.start()) + 1
            line_end = (text.find("\n", escape.end()) + 1) or len(text)
        copy(at, escape.start())
        chars.append(_meant(escape.group()))
        offsets.append(escape.start())
        ends.append(escape.end())
        at = escape.end()
    copy(at, line_end)
    return TextView("".join(chars), offsets, ends)


def _meant(escape: str) -> str:
    if escape.startswith("&#"):
        code = int(escape[2:-1])
        return chr(code) if 32 <= code < 127 else " "
    if escape in _ENTITIES:
        return _ENTITIES[escape]
    return escape[1] if escape[1] in "\"'" else chr(int(escape[-2:], 16))


def decoded(token: str, *, is_hex: bool = False) -> str:
    """Return the text that the base64 or hexadecimal token encodes, "" if there is none."""
    bare = token.rstrip("=")
    if not is_hex and len(bare) % 4 == 1:
        return ""
    try:
        if is_hex:
            plain = bytes.fromhex(token).decode("utf-8")
        else:
            altchars = b"-_" if re.search("[-_]", bare) else None
            plain = base64.b64decode(bare + "=" * (-len(bare) % 4), altchars).decode("utf-8")
    except ValueError:  # binascii.Error is one
        return ""
    return plain if plain.replace("\n", " ").isprintable() else ""


@cache
def _plain_letters() -> dict[str, str]:
    """Return the ASCII letter, digit or quote of every character that is only another form of it."""
    forms = dict(_QUOTES)
    for code in (*range(0x80, 0x10000), *range(0x1D400, 0x1D800)):
        char = chr(code)
        plain = unicodedata.normalize("NFKC", char) if code >= 0x2070 else char
        if unicodedata.category(char) == "Nd":
            plain = str(unicodedata.decimal(char))
        if len(plain) == 1 and plain != char and plain.isascii():
            forms[char] = plain
    return forms


# ---------------------------------------------------------------- running detectors
MARKER = re.compile(r"\[redacted(?: [a-z -]{2,20})?\]")  # what replaced something earlier


class Finding(NamedTuple):
    """The kind of what was found ("secret", or a class of safety.PII) and its place in the text."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Detector:
    """One pattern. The group that matched last, or the whole match, is what is removed."""

    kind: str
    pattern: re.Pattern[str]
    check: Callable[[str], bool] = bool
    hints: tuple[str, ...] = ()  # lower case; without any in the text, the pattern is not tried
    starts: tuple[str, ...] = ()  # lower case; every match begins with one
    numeric: bool = False  # every match is mostly a number of six or more digits
    pieces: bool = False  # the value may continue after a space or a line break


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A table of rules: fragments of patterns and whole patterns by name, and the detectors."""

    fragments: Mapping[str, str]
    patterns: Mapping[str, re.Pattern[str]]
    detectors: tuple[Detector, ...]

    def words(self, name: str) -> tuple[str, ...]:
        """Return the words of a fragment "one|two"."""
        return tuple(self.fragments[name].split("|"))


def load_rules(
    name: str,
    check_of: Callable[[Mapping[str, str]], Callable[[str], bool]] = lambda rule: bool,
    package: str = __package__,
) -> RuleFile:
    """Read <name>.toml (see the head of secrets.toml). `check_of`: returns a rule's check."""
    text = resources.files(package).joinpath(f"{name}.toml").read_text("utf-8")
    table = tomllib.loads(re.sub(r"\n  (?=\S)", "", text))
    fragments: dict[str, str] = {}

    def filled(value: str) -> str:
        return re.sub(r"\{\{(\w+)\}\}", lambda match: fragments[match[1]], value)

    def words(value: str) -> tuple[str, ...]:
        return tuple(filled(value).split("|")) if value else ()

    for key, value in table["fragments"].items():
        fragments[key] = filled(value)
    detectors = (
        Detector(
            rule.get("kind", "secret"),
            re.compile(filled(rule["regex"])),
            check_of(rule),
            hints=words(rule.get("hints", "")),
            starts=words(rule.get("starts", "")),
            numeric=rule.get("numeric", False),
            pieces=rule.get("pieces", False),
        )
        for rule in table.get("rules", ())
    )
    patterns = {name: re.compile(filled(value)) for name, value in table.get("patterns", {}).items()}
    return RuleFile(fragments, patterns, tuple(detectors))


class DetectorTable:
    """Many detectors, indexed by the first three characters of their words: one set of a text's trigrams
    rules most of them out."""

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

    def near(self, lowered: str) -> Iterable[Detector]:
        """Return the detectors that may find something in the text, in their order."""
        if len(lowered) > _LONG_TEXT:
            return self._detectors
        beginnings = {lowered[at : at + _BEGINNING] for at in range(len(lowered) - _BEGINNING + 1)}
        found = self._always.union(*(self._places[begins] for begins in self._places.keys() & beginnings))
        return [self._detectors[place] for place in sorted(found)]


_BEGINNING = 3  # characters
_LONG_TEXT = 4_000  # characters; in longer ones searching for each word is quicker


def run(detectors: Iterable[Detector] | DetectorTable, text: str, lowered: str) -> Iterator[Finding]:
    """Yield what the detectors find, except markers of earlier removals; findings may overlap. `lowered`: the
    text in lower case, of the same length."""
    if isinstance(detectors, DetectorTable):
        detectors = detectors.near(lowered)
    marked = MARKER.search(text) is not None
    numbers = _numbers(text)
    offsets: dict[tuple[str, ...], list[int]] = {}
    for detector in detectors:
        for word in detector.starts or detector.hints or ("",):  # any() takes twice as long
            if word in lowered:
                break
        else:
            continue
        if detector.starts and detector.starts not in offsets:
            offsets[detector.starts] = offsets_of(detector.starts, lowered)
        if detector.numeric:
            matches = [match for span in numbers for match in detector.pattern.finditer(text, *span)]
        elif detector.starts:
            matches, free = [], 0
            for place in offsets[detector.starts]:
                if place >= free and (match := detector.pattern.match(text, place)):
                    free = match.end()
                    matches.append(match)
        else:
            matches = [*detector.pattern.finditer(text)]
        for match in matches:
            start, end = match.span(match.lastindex or 0)
            if detector.pieces:
                end = _with_pieces(text, end)
            if not (marked and _is_marker(text, start, end)) and detector.check(text[start:end]):
                yield Finding(detector.kind, start, end)


_NUMBER = re.compile(r"\d(?:[ .\u00a0\t\n/_-]{0,2}\d){5,}")
_AROUND = 24  # characters next to a number that may belong to it


def _numbers(text: str) -> list[tuple[int, int]]:
    """Return the stretches of the text around numbers."""
    found: list[tuple[int, int]] = []
    for number in _NUMBER.finditer(text):
        start, end = max(0, number.start() - _AROUND), number.end() + _AROUND
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def offsets_of(starts: tuple[str, ...], lowered: str) -> list[int]:
    """Return where the words occur, in order. Searching for a word is far quicker than for a pattern."""
    found: list[int] = []
    for word in starts:
        at = lowered.find(word)
        while at >= 0:
            found.append(at)
            at = lowered.find(word, at + 1)
    return sorted(found)


def _is_marker(text: str, start: int, end: int) -> bool:
    """True if the span holds nothing but markers and what encloses them."""
    around = text[max(0, start - 24) : end + 24]
    first = max(0, start - 24)
    for marker in MARKER.finditer(around):
        if marker.start() + first < end and marker.end() + first > start:
            rest = text[start : max(start, marker.start() + first)] + text[marker.end() + first : end]
            return not any(c.isalnum() for c in rest)
    return False


# The next piece of a split value: after blanks, or on the next line, after what wraps lines.
_PIECE = re.compile(
    r"(?:[ \t]{1,3}|[ \t]{0,3}[\"']?[ \t]{0,3}[\\+&]?[ \t]{0,3}\r?(\n)[ \t>"
    r"|\"'+]{0,8})([A-Za-z0-9+/=_-]{3,300})(?![^\s\"'\\,;.)])"
)
_MOST_PIECES = 40
_LONE = 12  # characters of a piece that is a line of its own
_LETTER_AND_DIGIT = re.compile(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])")
_CASE_INSIDE = re.compile(r"[a-z][A-Z].*[A-Z]|[A-Z]{2}[a-z]|[a-z][A-Z][a-z]?[A-Z]")


def _with_pieces(text: str, end: int) -> int:
    """Return the end of a value that continues in pieces: random ones (letters with digits among them, or
    capitals where no word has them), or long ones on lines of their own."""
    for _ in range(_MOST_PIECES):
        piece = _PIECE.match(text, end)
        if piece is None:
            return end
        word, after = piece.group(2), text[piece.end() : piece.end() + 1]
        alone = piece.group(1) and len(word) >= _LONE and after in ("", "\n", '"', "'")
        if not (alone or _LETTER_AND_DIGIT.match(word) or _CASE_INSIDE.search(word)):
            return end
        end = piece.end()
    return end
