"""Server-sent events, decoded as they arrive. Sans-I/O: bytes go in, events come out.

The rules are the WHATWG's (HTML standard, 9.2.6): lines end in LF, CR or CRLF; a blank line dispatches
the event; several `data` lines are joined by newlines; a byte order mark at the very start and comments
are dropped; an event that the end of the stream cuts short is none. Lines are split before they are
decoded: no byte of a UTF-8 sequence looks like a line end, so any split of the bytes gives the same.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One dispatched event. `name` is "message" where the stream gave none."""

    name: str
    data: str


class Decoder:
    """Decodes one stream. `feed` takes the bytes in any pieces."""

    def __init__(self) -> None:
        self._line = bytearray()  # of the line that has not ended yet
        self._after_cr = False  # a LF now would belong to the line end that the last chunk closed with
        self._at_start = True
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that the chunk completes."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.splitlines()  # of bytes: CR, LF and CRLF only
        rest = b"" if chunk[-1:] in b"\r\n" else lines.pop()
        events = [event for line in lines if (event := self._end_line(line))]
        self._line += rest
        return events

    def _end_line(self, tail: bytes) -> ServerEvent | None:
        line = bytes(self._line) + tail
        self._line.clear()
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        self._field(line.decode("utf-8", "replace"))
        return None

    def _field(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        # Comments have the empty field; `id` and `retry` are for reconnecting, which we never do.

    def _dispatch(self) -> ServerEvent | None:
        name, data = self._name or "message", self._data
        self._name, self._data = "", []
        # One empty `data` line makes an event of empty data; none at all makes no event.
        return ServerEvent(name, "\n".join(data)) if data else None


def decode_all(chunks: Iterable[bytes]) -> Iterator[ServerEvent]:
    """Yield the events of a whole stream given in any pieces."""
    decoder = Decoder()
    for chunk in chunks:
        yield from decoder.feed(chunk)
