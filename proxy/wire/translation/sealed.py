"""What a client stores for us in `encrypted_content`: the model's thoughts and signatures, and compactions.

Clients that keep no state at the server (`store: false`) send it back. Models that think between their tool
calls need their thoughts then, and some servers (Gemini, Anthropic behind OpenRouter) refuse to go on without
their signatures, which a client's own item types have no place for.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from proxy.wire.body import dump, loads

Item = dict[str, Any]

THOUGHTS, COMPACTION = "thoughts", "compaction"


class Seals(Protocol):
    """Packs a text so that only this proxy can read it, and only for its owner."""

    def seal(self, kind: str, text: str) -> str:
        """Return the text as one opaque word."""
        ...

    def open(self, kind: str, sealed: object) -> str | None:
        """Return the text; None for what we did not seal, sealed for another, or as another kind."""
        ...


class Packed:
    """Packed, not secret: for where there is no key. The client knows what is in it: it has sent it."""

    _MARK = "mp3."  # tells ours from what another server sealed
    _OLD = "mp1."  # thoughts, from before signatures were stored with them

    def seal(self, kind: str, text: str) -> str:
        """Return the text as one word."""
        raw = f"{kind}\0{text}".encode("utf-8", "replace")
        return self._MARK + base64.urlsafe_b64encode(raw).decode("ascii")

    def open(self, kind: str, sealed: object) -> str | None:
        """Return the text, also of thoughts that an earlier version has packed."""
        if not isinstance(sealed, str) or not sealed.startswith((self._MARK, self._OLD)):
            return None
        try:
            text = base64.urlsafe_b64decode(sealed[len(self._MARK) :]).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            return None
        if sealed.startswith(self._OLD):
            return dump({"text": text}).decode() if kind == THOUGHTS else None
        said, _, text = text.partition("\0")
        return text if said == kind else None


PACKED = Packed()


# ---------------------------------------------------------------- thoughts
@dataclass(frozen=True, slots=True)
class Thoughts:
    """What a model thought before it spoke or called, as it has to come back."""

    text: str = ""
    details: list[Item] = field(default_factory=list)  # `reasoning_details`, as OpenRouter gives them
    calls: Mapping[str, Item] = field(default_factory=dict)  # `extra_content` of calls, by call id

    def seal(self, seals: Seals) -> str:
        """Return them as one word."""
        said = {"text": self.text, "details": self.details, "calls": self.calls}
        return seals.seal(THOUGHTS, dump({name: value for name, value in said.items() if value}).decode())


def thoughts_in(item: Mapping[str, Any], seals: Seals) -> Thoughts:
    """Return what a reasoning item has sealed; nothing where another server, or another's, is its seal."""
    text = seals.open(THOUGHTS, item.get("encrypted_content"))
    try:
        said = loads(text.encode("utf-8", "replace")) if text else {}
    except (ValueError, RecursionError):
        said = {}
    said = said if isinstance(said, dict) else {}
    words, calls = said.get("text"), said.get("calls")
    return Thoughts(
        text=words if isinstance(words, str) else "",
        details=details_of(said.get("details")),
        calls={k: v for k, v in calls.items() if isinstance(v, dict)} if isinstance(calls, dict) else {},
    )


def details_of(given: object) -> list[Item]:
    """Return the entries of `reasoning_details`."""
    return [entry for entry in given if isinstance(entry, dict)] if isinstance(given, list) else []
