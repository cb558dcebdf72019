"""Read JSON as language models write it. Elements are read whole or not at all: nothing is completed.

Beyond JSON: comments, trailing and missing commas, single and typographic quotes, bare keys, Python's and
JavaScript's literals, full-width punctuation, line breaks and quotation marks that were not escaped, and an
end in the middle: a list then holds the elements that were whole.
"""

import re
from typing import Any

_DEPTH = 40
_RESYNC = 4_000  # characters: of one broken element
_SPACE = re.compile(r"(?:[\s,\uff0c;\u3001]|//[^\n]*|/\*.{0,400}?\*/|(?<=[\s,])#[^\n]*)*", re.DOTALL)
_BARE_KEY = re.compile(r"[A-Za-z_][\w-]{0,40}")
_COLON = re.compile(r"\s*(?::|\uff1a|=>|=)\s*")
_SCALAR = re.compile(
    r"(?P<number>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?%?)|(?P<word>true|false|null|none|nan|undefined)\b",
    re.IGNORECASE,
)
_CLOSING = {'"': '"', "'": "'", "“": "”", "‘": "’", "\uff02": "\uff02", "「": "」", "`": "`"}
_OPENS_OBJECT, _CLOSES_OBJECT, _OPENS_LIST, _CLOSES_LIST = "{\uff5b", "}\uff5d", "[\uff3b", "]\uff3d"
# What may follow a closing quote: else the quote belongs to the text.
_AFTER_STRING = re.compile(
    r"[^\S\n]*+\n\s*+[\"'“‘{\[]|\s*+(?:\Z|[:\uff1a=}\]\uff5d\uff3d]|//|/\*"
    r"|[,\uff0c]\s*+(?:\Z|[\"'“‘\uff02{\[\uff5b\uff3b}\]\uff5d\uff3d]|//|[-+]?\d|(?:true|false|null|none)\b|[A-Za-z_]\w{0,40}\s*+[:\uff1a]))",
    re.IGNORECASE,
)
_NEXT_ELEMENT = re.compile(r"[}\uff5d]\s*+(?:[,\uff0c]\s*+)?(?=[{\uff5b])")
_ESCAPES = {"n": "\n", "t": "\t", "r": " ", "b": "", "f": ""}
_UNICODE = re.compile(r"u([0-9a-fA-F]{4})")


class Unclear(Exception):
    """What stands there is no value. `at`: how far it was read."""

    at = 0


class _Cut(Exception):
    """The text ends within a value."""


def read(text: str, start: int) -> tuple[Any, int]:
    """Return the list or object that opens at `start`, and where it ends. Raises Unclear."""
    reader = _Reader(text, start)
    try:
        return reader.value(0), reader.at
    except (_Cut, Unclear) as e:
        unclear = Unclear("cut off" if isinstance(e, _Cut) else str(e))
        unclear.at = reader.at
        raise unclear from None


class _Reader:
    def __init__(self, text: str, at: int) -> None:
        self.text, self.at = text, at

    def value(self, depth: int) -> Any:
        if depth > _DEPTH:
            raise Unclear("too deep")
        char = self._next()
        if char in _OPENS_OBJECT:
            return self._object(depth)
        if char in _OPENS_LIST:
            return self._list(depth)
        if char in _CLOSING:
            return self._string()
        return self._scalar()

    def _next(self) -> str:
        """Skip to the next character that means something and return it. Raises _Cut at the end."""
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at
        if self.at >= len(self.text):
            raise _Cut
        return self.text[self.at]

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.at += 1
        while True:
            try:
                if self._next() in _CLOSES_OBJECT:
                    self.at += 1
                    return found
                key = self._key()
                found.setdefault(key, self.value(depth + 1))
            except _Cut:
                # What wraps the facts may lack its end; a fact may not.
                if found and all(isinstance(v, list | dict) for v in found.values()):
                    return found
                raise

    def _key(self) -> str:
        if self.text[self.at] in _CLOSING:
            key = self._string()
        else:
            bare = _BARE_KEY.match(self.text, self.at)
            if bare is None:
                raise Unclear("no key")
            key, self.at = bare.group(), bare.end()
        colon = _COLON.match(self.text, self.at)
        if colon is None:
            raise Unclear("no colon")
        self.at = colon.end()
        return key

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self.at += 1
        while True:
            try:
                if self._next() in _CLOSES_LIST:
                    self.at += 1
                    return found
                found.append(self.value(depth + 1))
            except _Cut:
                self.at = len(self.text)
                if depth > 1 or not found:
                    raise  # the tags of a fact, not the list of facts
                return found
            except Unclear:
                following = _NEXT_ELEMENT.search(self.text, self.at, self.at + _RESYNC) if found else None
                if following is None:
                    raise
                self.at = following.end()

    def _string(self) -> str:
        opening = self.text[self.at]
        closing = _CLOSING[opening]
        plain = re.compile(rf"[^\\{closing}]+")
        self.at += 1
        parts: list[str] = []
        while self.at < len(self.text):
            run = plain.match(self.text, self.at)
            if run:
                parts.append(run.group())
                self.at = run.end()
                continue
            if self.text[self.at] == "\\":
                parts.append(self._escape())
                continue
            self.at += 1
            if _AFTER_STRING.match(self.text, self.at):
                return _paired("".join(parts))
            parts.append(closing)
        raise _Cut

    def _escape(self) -> str:
        unicode = _UNICODE.match(self.text, self.at + 1)
        if unicode:
            self.at = unicode.end()
            return chr(int(unicode[1], 16))
        char = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        return _ESCAPES.get(char, char)

    def _scalar(self) -> Any:
        found = _SCALAR.match(self.text, self.at)
        if found is None:
            raise Unclear("no value")
        self.at = found.end()
        if found["word"]:
            return {"true": True, "false": False}.get(found["word"].lower())
        return found["number"] if "%" in found["number"] else float(found["number"])


def _paired(text: str) -> str:
    r"""Return the text with surrogate pairs ("\ud83d\ude00") joined; a lone half stays, and is garbage."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return text
