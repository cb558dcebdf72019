"""Normalised views of a text in which a disguised secret can be matched by a pattern.

Zero-width characters, full-width and other digits, letters of another alphabet that look Latin, single
characters with spaces between, markup and line ends inside a key. The views are only read: what is found in
one is cut out of the text itself.
"""

import base64
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

INVISIBLE = re.compile(
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
    if spans := _split_keys(view.text):
        yield _joined(view, spans)


def readable(text: str) -> str:
    """Return the text without invisible characters and in the letters that it seems to be written in."""
    return _readable(text).text


def _readable(text: str) -> TextView:
    if text.isascii():
        return TextView(text)
    view = _without(text, INVISIBLE) if INVISIBLE.search(text) else TextView(text)
    plain, forms = view.text, _plain_letters()
    for char in set(plain) & forms.keys():  # one search a character: far quicker than str.translate
        plain = plain.replace(char, forms[char])
    if _LIKE_LATIN.search(plain) and _LATIN.search(plain):
        plain = re.sub(r"[^\W\d_]+", _in_one_alphabet, plain)
    return TextView(plain, view.offsets)


def _in_one_alphabet(word: re.Match[str]) -> str:
    text = word.group()
    return text.translate(_LOOKALIKES) if _LATIN.search(text) and _LIKE_LATIN.search(text) else text


def _without(text: str, unwanted: re.Pattern[str]) -> TextView:
    offsets = [place for place, char in enumerate(text) if not unwanted.match(char)]
    return TextView("".join(text[place] for place in offsets), offsets)


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


def _split_keys(text: str) -> list[tuple[int, int]]:
    """Return the spans of what looks like a key split by markup or the end of a line."""
    found = (*_MARKED.finditer(text), *_WRAPPED.finditer(text))
    spans: list[tuple[int, int]] = []
    for start, end in sorted(
        m.span() for m in found if _is_long_and_mixed(_SPLITS_TOKENS.sub("", m.group()))
    ):
        if spans and start < spans[-1][1]:
            start, end = spans[-1][0], max(end, spans.pop()[1])
        spans.append((start, end))
    return spans


def _is_long_and_mixed(token: str) -> bool:
    return len(token) >= _LEAST_SPLIT and any(map(str.isdigit, token)) and any(map(str.isalpha, token))


def _joined(view: TextView, spans: Sequence[tuple[int, int]]) -> TextView:
    """Return the keys, each in a paragraph of its own, without what splits them."""
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
    chars: list[str] = []
    offsets: list[int] = []
    ends: list[int] = []
    at = line_end = 0
    for escape in _ESCAPE.finditer(text):
        if escape.start() >= line_end:
            _copy(text, at, line_end, chars, offsets, ends)
            at = text.rfind("\n", 0, escape.start()) + 1
            line_end = (text.find("\n", escape.end()) + 1) or len(text)
        _copy(text, at, escape.start(), chars, offsets, ends)
        chars.append(_meant(escape.group()))
        offsets.append(escape.start())
        ends.append(escape.end())
        at = escape.end()
    _copy(text, at, line_end, chars, offsets, ends)
    return TextView("".join(chars), offsets, ends)


def _copy(text: str, at: int, to: int, chars: list[str], offsets: list[int], ends: list[int]) -> None:
    chars += text[at:to]
    offsets += range(at, to)
    ends += range(at + 1, to + 1)


def _meant(escape: str) -> str:
    if escape.startswith("&#"):
        code = int(escape[2:-1])
        return chr(code) if 32 <= code < 127 else " "
    if escape in _ENTITIES:
        return _ENTITIES[escape]
    return escape[1] if escape[1] in "\"'" else chr(int(escape[-2:], 16))


def unhexed(token: str) -> str:
    """Return the text that the hexadecimal token encodes, "" if there is none."""
    return _printable(lambda: bytes.fromhex(token))


def _printable(decode: Callable[[], bytes]) -> str:
    """Return what is decoded as text, "" if it is none."""
    try:
        plain = decode().decode("utf-8")
    except ValueError:  # binascii.Error is one
        return ""
    return plain if plain.replace("\n", " ").isprintable() else ""


def decoded(token: str) -> str:
    """Return the text that the base64 token encodes, "" if there is none."""
    if len(token.rstrip("=")) % 4 == 1:
        return ""
    padded = token.rstrip("=") + "=" * (-len(token.rstrip("=")) % 4)
    altchars = b"-_" if re.search("[-_]", padded) else None
    return _printable(lambda: base64.b64decode(padded, altchars))


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
