"""Read the bytes of an upstream's answer as JSON objects: streamed or whole, compressed or plain. Sans-I/O.

What the upstream sends need not be what was asked for, nor what its headers say: some stream unasked, others
never do; some stream under `application/json`, or send a document under `text/event-stream`. The first bytes
decide. Everything is bounded: a document and a single event by the limit, what a compressed body unfolds to
by EXPANSION times the limit.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from proxy.wire.codings import TooLong, Undecodable, Unpacker, named_codings
from proxy.wire.sse import JsonDecoder, lenient

LIMIT_BYTES = 32 << 20
EXPANSION = 4
_LINE_BYTES = 64 * 1024  # of the first JSON line of a stream; a longer one is a document on one line
_BEFORE = b"\xef\xbb\xbf \t\r\n"  # a byte order mark, white space

_CHARSET = re.compile(
    r"charset=[\"']?(iso-8859-\d{1,2}|windows-125\d|gbk|gb2312|gb18030|big5|shift_jis|euc-(?:jp|kr)|koi8-[ru])\b",
    re.IGNORECASE,
)

Json = dict[str, Any]


class Values:
    """Decodes one answer. `feed` takes the bytes in any pieces and never raises; `trouble` then says why
    nothing more is read, in words for the client."""

    def __init__(self, content_type: str, content_encoding: str, limit_bytes: int = LIMIT_BYTES) -> None:
        self.trouble = ""
        self.streamed: bool | None = None  # None: not known yet
        self._limit_bytes = limit_bytes
        self._charset = _charset(content_type)
        self._is_coded = bool(named_codings(content_encoding))
        self._unpacker = Unpacker(content_encoding, limit_bytes * EXPANSION)
        self._events = JsonDecoder()
        self._held: list[bytes] = []  # of a document, or of what may be one
        self._held_bytes = 0
        self._is_object = False  # it begins as one

    @property
    def done(self) -> bool:
        """True once a stream has said that it is over."""
        return self._events.done

    @property
    def over(self) -> bool:
        """True if the answer came to its end for certain: so it said, or it is a document that parses."""
        return self.done or (self.streamed is False and not self.trouble)

    @property
    def ragged(self) -> bool:
        """True if a stream ended inside an event, or inside its content coding."""
        return self._events.ragged or not self._unpacker.whole

    @property
    def is_heavy(self) -> bool:
        """True if the next piece may take long: it may unfold, or end what is large."""
        return self._is_coded or self._events.pending_bytes > _LINE_BYTES

    def feed(self, chunk: bytes) -> Iterable[Json]:
        """Return the objects that the bytes complete, to be iterated over before the next call. What is
        compressed unfolds while that is done: all of it at once may not fit the memory."""
        if self.trouble or self.done:
            return ()
        if self.streamed and self._unpacker.is_plain:
            return self._read(chunk)
        return self._unfold(self._unpacker.feed(chunk))

    def end(self, *, cut: bool = False) -> list[Json]:
        """Return what is left: the document, or the last event. `cut`: the bytes broke off."""
        values: list[Json] = []
        if self.trouble or self.done:
            return values
        values += self._unfold(self._unpacker.end())
        if self.trouble:
            return values
        if self.streamed:
            return values + self._events.end()
        self.streamed = False
        return values + self._document(cut=cut)

    def _unfold(self, pieces: Iterator[bytes]) -> Iterator[Json]:
        try:
            for piece in pieces:
                yield from self._read(piece)
        except Undecodable as error:
            self.trouble = _undecodable(error)
        except TooLong:
            self.trouble = self._too_long()

    def _read(self, piece: bytes) -> list[Json]:
        if self.trouble:
            return []
        if self.streamed is None:
            self._decide(piece)
        if self.streamed:
            if self._held:
                piece, self._held = b"".join((*self._held, piece)), []
            values = self._events.feed(piece)
            if self._events.pending_bytes > self._limit_bytes:
                self.trouble = self._too_long()
            return values
        self._held.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes > self._limit_bytes:
            self._held = []
            self.trouble = self._too_long()
        return []

    def _decide(self, piece: bytes) -> None:
        """Find out what this is. A document is read at its end; JSON lines are told from one by the first."""
        if self._is_object and b"\n" not in piece and self._held_bytes < _LINE_BYTES:
            return
        start = b"".join((*self._held, piece)).lstrip(_BEFORE) if self._held else piece.lstrip(_BEFORE)
        if not start:
            return
        self._is_object = start[:1] == b"{"
        if start[:1] not in b"{[<":
            self.streamed = True
        elif start[:1] == b"{":
            line, newline, _ = start.partition(b"\n")
            if len(start) > _LINE_BYTES:
                self.streamed = False
            elif newline:
                self.streamed = _object(line) is not None
        else:
            self.streamed = False

    def _document(self, *, cut: bool) -> list[Json]:
        text, self._held = b"".join(self._held).strip(_BEFORE), []
        if cut:
            self.trouble = "The upstream's answer broke off."
            return []
        if not text:
            self.trouble = "The upstream's answer is empty."
            return []
        try:
            value = self._parsed(text)
        except (ValueError, RecursionError):
            page = text[:1] == b"<"
            self.trouble = (
                "The upstream answered with a page, not with JSON."
                if page
                else "The upstream's answer could not be read."
            )
            return []
        objects = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]
        if not objects:
            self.trouble = "The upstream's answer is no JSON object."
        return objects

    def _parsed(self, text: bytes) -> Any:
        """Return the document. A charset that the header names is tried where UTF-8 fails."""
        if self._charset and not _is_utf8(text):
            try:
                return lenient(text.decode(self._charset).encode())
            except (LookupError, ValueError):
                pass
        return lenient(text)

    def _too_long(self) -> str:
        return f"The upstream's answer is longer than {self._limit_bytes / 2**20:g} MB."


def objects(values: Values, chunks: Iterable[bytes]) -> Iterator[Json]:
    """Yield the objects of an answer that is there, decoded by `values`."""
    for chunk in chunks:
        yield from values.feed(chunk)
    yield from values.end()


def values_of(chunks: Sequence[bytes], content_type: str, content_encoding: str) -> tuple[Values, list[Json]]:
    """Return what was decoded of a small answer, and its objects."""
    values = Values(content_type, content_encoding)
    return values, list(objects(values, chunks))


def tokens_of(usage: Any) -> tuple[int, int] | None:
    """Return the tokens read and written in a `usage` of either API."""
    if not isinstance(usage, dict):
        return None
    read = usage.get("prompt_tokens", usage.get("input_tokens"))
    written = usage.get("completion_tokens", usage.get("output_tokens"))
    if type(read) is not int or type(written) is not int or read < 0 or written < 0:
        return None
    return read, written


def _object(text: bytes) -> Json | None:
    try:
        value = lenient(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _undecodable(error: Undecodable) -> str:
    name = "".join(c for c in str(error) if c.isalnum() or c in "-_")
    return (
        f"The upstream's answer could not be decoded: it is damaged, or not in the content coding '{name}'."
    )


def _charset(content_type: str) -> str:
    """Return the charset that the header names, if it is one of those that servers still write."""
    found = _CHARSET.search(content_type)
    return found[1] if found else ""


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
