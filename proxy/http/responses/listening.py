"""Feed the upstream's bytes, in whatever form it answered, to the translation of one response. Sans-I/O."""

from typing import Any

from proxy.wire.answers import LIMIT_BYTES, Values
from proxy.wire.translation import Translation

Event = dict[str, Any]

TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})


class Listener:
    """Feeds one translation. `broken` says why there is no answer, where the upstream sent none."""

    def __init__(
        self,
        translation: Translation,
        content_type: str,
        content_encoding: str,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        self.broken = ""
        self.ended = False
        self._translation = translation
        self._values = Values(content_type, content_encoding, limit_bytes)

    @property
    def is_heavy(self) -> bool:
        """True if the next bytes may take long."""
        return self._values.is_heavy

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that the bytes give rise to."""
        if self.ended:
            return []
        events = [event for value in self._values.feed(chunk) for event in self._translation.feed(value)]
        if self._values.trouble or self._values.done:  # the connection may stay open for long
            events += self._finish(cut=False)
        return self._ending(events)

    def end(self, *, cut: bool) -> list[Event]:
        """The upstream's answer is over, or was cut: return what is left, the terminal event last."""
        if self.ended:
            return []
        values = self._values.end(cut=cut)
        events = [event for value in values for event in self._translation.feed(value)]
        return self._ending(events + self._finish(cut=cut))

    def _finish(self, *, cut: bool) -> list[Event]:
        values = self._values
        if values.trouble:
            return self._translation.fail(values.trouble)
        return self._translation.finish(ended_well=values.over, cut=cut or values.ragged)

    def _ending(self, events: list[Event]) -> list[Event]:
        self.ended = self.ended or any(event["type"] in TERMINAL for event in events)
        if self.ended and self._translation.status == "failed":
            self.broken = self._translation.response["error"]["message"]
        return events
