"""Server-sent events, decoded as they arrive. Sans-I/O: bytes go in, events come out.

`Decoder` follows the WHATWG's rules (HTML standard, 9.2.6): lines end in LF, CR or CRLF; a blank line
dispatches the event; several `data` lines are joined by newlines; a byte order mark at the very start and
comments are dropped; an event that the end of the stream cuts short is none. Lines are split before they are
decoded: no byte of a UTF-8 sequence looks like a line end, so any split of the bytes gives the same.

`JsonDecoder` reads the streams of model servers as clients do that read line by line.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from proxy.wire.body import loads

_BOM = b"\xef\xbb\xbf"
_DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One dispatched event. `name` is "message" where the stream gave none."""

    name: str
    data: str


class _Lines:
    """Splits one stream into lines. `rest` is the line that has not ended yet."""

    def __init__(self) -> None:
        self.rest = bytearray()
        self._after_cr = False  # a LF now would belong to the line end that the last chunk closed with
        self._at_start = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that the chunk ends."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.splitlines()  # of bytes: CR, LF and CRLF only
        rest = b"" if chunk[-1:] in b"\r\n" else lines.pop()
        if lines and self.rest:
            lines[0] = bytes(self.rest) + lines[0]
            self.rest.clear()
        if lines and self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        self.rest += rest
        return lines

    def end(self) -> bytes:
        """Return the line that nothing has ended."""
        line, self.rest = bytes(self.rest), bytearray()
        return line.removeprefix(_BOM) if self._at_start else line


class Decoder:
    """Decodes one stream by the standard. `feed` takes the bytes in any pieces."""

    def __init__(self) -> None:
        self._lines = _Lines()
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that the chunk completes."""
        return [event for line in self._lines.feed(chunk) if (event := self._take(line))]

    def _take(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        # Comments have the empty field; `id` and `retry` are for reconnecting, which we never do.
        return None

    def _dispatch(self) -> ServerEvent | None:
        name, data = self._name or "message", self._data
        self._name, self._data = "", []
        # One empty `data` line makes an event of empty data; none at all makes no event.
        return ServerEvent(name, "\n".join(data)) if data else None


class JsonDecoder:
    """Decodes a stream of JSON objects, as model servers send and clients read them.

    A `data` line that is JSON by itself is an event at once: servers separate events by one line feed, and
    end the last one with none. Otherwise the standard holds, and `data` split over lines is joined. A line
    that is JSON, or `[DONE]`, needs no `data:`. What is not JSON is left out, but the text of `event: error`.
    """

    def __init__(self) -> None:
        self.done = False  # `[DONE]` has come: nothing after it is read
        self.ragged = False  # the stream ended inside an event
        self._lines = _Lines()
        self._name = b""
        self._data: list[bytes] = []
        self._data_bytes = 0

    @property
    def pending_bytes(self) -> int:
        """How many bytes are held of an event that has not ended."""
        return len(self._lines.rest) + self._data_bytes

    def feed(self, chunk: bytes) -> list[dict[str, Any]]:
        """Return the objects that the chunk completes."""
        values: list[dict[str, Any]] = []
        for line in self._lines.feed(chunk):
            if self._data or self._name or self.done:
                self._take(line, values)
            elif line[:6] == b"data: " and line[6:7] == b"{":  # as nearly all are
                self._datum(line[6:], values)
            elif line and line[:1] != b":":
                self._take(line, values)
        return values

    def end(self) -> list[dict[str, Any]]:
        """Return what the last line completes, which nothing has ended."""
        values: list[dict[str, Any]] = []
        if not self.done and (line := self._lines.end()):
            known = len(values)
            self._take(line, values)
            is_comment = line.startswith(b":") or not line.strip()
            self.ragged = not (self._data or len(values) > known or self.done or is_comment)
        if self._data:
            known = len(values)
            self._dispatch(values)
            self.ragged = len(values) == known
        return values

    def _take(self, line: bytes, values: list[dict[str, Any]]) -> None:
        if self.done:
            return
        stripped = line.strip()
        if stripped.startswith(b"data:"):
            self._datum(stripped[5:].strip(), values)
        elif not stripped:
            self._dispatch(values)
        elif stripped[:1] == b"{" or stripped == _DONE:
            self._datum(stripped, values)
        elif stripped.startswith(b"event:"):
            self._dispatch(values)
            self._name = stripped[6:].strip()

    def _datum(self, datum: bytes, values: list[dict[str, Any]]) -> None:
        begins = datum[:1] == b"{" or datum == _DONE
        if self._data and begins and self._data[-1].endswith(b"}"):  # JSON has no `}` right before a `{`
            self._dispatch(values)
        if datum == _DONE:
            self._dispatch(values)
            self.done = True
        elif self._data or not begins or not self._told(datum, values):  # alone, it is an event at once
            self._data.append(datum)
            self._data_bytes += len(datum)

    def _dispatch(self, values: list[dict[str, Any]]) -> None:
        if self._data:
            joined = b"\n".join(self._data)
            self._data, self._data_bytes = [], 0
            if not self._told(joined, values) and self._name == b"error" and joined:
                values.append({"error": joined.decode("utf-8", "replace")})
        self._name = b""

    def _told(self, text: bytes, values: list[dict[str, Any]]) -> bool:
        """Add what the text holds. False if it is not JSON."""
        try:
            value = lenient(text)
        except (ValueError, RecursionError):
            return False
        if type(value) is dict and not self._name:
            values.append(value)
            return True
        found = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]
        if self._name == b"error":
            found = [v if v.keys() & {"error", "choices", "type"} else {"error": v} for v in found]
        values += found
        return True


def lenient(text: bytes) -> Any:
    """Return any JSON value; bytes that are not UTF-8 are replaced, control characters in strings are taken.
    Raises ValueError or RecursionError."""
    try:
        return loads(text)
    except ValueError:
        return json.loads(text.decode("utf-8", "replace").removeprefix("\ufeff"), strict=False)


def decode_all(chunks: Iterable[bytes]) -> Iterator[ServerEvent]:
    """Yield the events of a whole stream given in any pieces."""
    decoder = Decoder()
    for chunk in chunks:
        yield from decoder.feed(chunk)
