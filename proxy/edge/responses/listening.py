"""Parse the upstream's bytes, in whatever form it answered, into the events of the response being made.

Sans-I/O. A stream is read as it comes; a document, or what is compressed although we asked for plain, when
it is whole. What the upstream sends need not be what was asked for: some stream unasked, others never do.
"""

from collections.abc import Iterable
from typing import Any

from proxy.wire.body import loads
from proxy.wire.sse import Decoder
from proxy.wire.tapped import decoded
from proxy.wire.translation import Translation

Event = dict[str, Any]

TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})
_DONE = "[DONE]"


class Listener:
    """Feeds one translation. `broken` says why there is no answer, where the upstream sent none."""

    def __init__(self, translation: Translation, content_type: str, content_encoding: str) -> None:
        self.broken = ""
        self.ended = False
        self._translation = translation
        self._encoding = "" if content_encoding.lower() in ("", "identity") else content_encoding
        self._is_stream: bool | None = True if "event-stream" in content_type.lower() else None
        self._decoder = Decoder()
        self._held: list[bytes] = []
        self._done = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that the bytes give rise to."""
        if self.ended or self._done:
            return []
        if self._encoding:
            self._held.append(chunk)
            return []
        return self._read(chunk)

    def end(self, *, cut: bool) -> list[Event]:
        """The upstream's answer is over, or was cut: return what is left, the terminal event last."""
        if self.ended:
            return []
        events: list[Event] = []
        if self._encoding:
            pieces, self._held = self._held, []
            events += [event for piece in decoded(pieces, self._encoding) for event in self._read(piece)]
        if self.ended:
            return events
        if self._is_stream:
            return events + self._ending(self._translation.finish(ended_well=False))
        return events + self._document(b"".join(self._held), cut=cut)

    def _read(self, chunk: bytes) -> list[Event]:
        if self._is_stream is None and (start := chunk.lstrip()):
            self._is_stream = not start.startswith((b"{", b"[", b"<"))
        if not self._is_stream:
            self._held.append(chunk)
            return []
        return [e for told in self._decoder.feed(chunk) for e in self._event(told.data)]

    def _event(self, data: str) -> Iterable[Event]:
        if self.ended or self._done:
            return []
        if data.strip() == _DONE:
            self._done = True  # the connection may stay open for long
            return self._ending(self._translation.finish(ended_well=True))
        value = _object(data.encode())
        return self._ending(self._translation.feed(value)) if value is not None else []

    def _document(self, document: bytes, *, cut: bool) -> list[Event]:
        value = None if cut else _object(document)
        if value is None:
            return self._fail("The upstream's answer could not be read.")
        if problem := _error_of(value):
            return self._fail(problem)
        if not isinstance(value.get("choices"), list) or not value["choices"]:
            return self._fail("The upstream's answer holds no choices.")
        return self._ending(self._translation.complete(value))

    def _fail(self, why: str) -> list[Event]:
        self.broken = why
        return self._ending(self._translation.fail(why))

    def _ending(self, events: list[Event]) -> list[Event]:
        self.ended = self.ended or any(event["type"] in TERMINAL for event in events)
        return events


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _error_of(value: dict[str, Any]) -> str:
    """Return the message of an error that came in place of an answer, "" where there is none."""
    error = value.get("error")
    if not error or value.get("choices"):
        return ""
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) and message else "The upstream failed."
