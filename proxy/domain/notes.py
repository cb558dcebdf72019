"""Session notes: what is stored of a session beside its exchanges. Plain frozen values, nothing of ours
imported.

Anchors are the user's standing instructions for the session, lines say in short what was last said, and the
state stands for all that came before. They are not memories: they belong to one session and end with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

State = Mapping[str, str | Sequence[str]]

OTHER = "other"
"""The slot of instructions of which several hold side by side. Of any other slot the last one said holds."""
EVERY, LATEST = "every", "latest"
"""Slots of an instruction that ends others: all of them; the one that the exchange before has set."""
MOST_ANCHORS = 10
MOST_ANCHOR_CHARS = 200
MOST_LINE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Anchor:
    """A standing instruction in the user's own words; without words, the end of what the slot held."""

    slot: str  # any name, OTHER; EVERY or LATEST only without words
    text: str
    at: float = 0.0  # when it was said


@dataclass(frozen=True, slots=True)
class Line:
    """One turn in short."""

    said: str
    answered: str
    at: float


@dataclass(frozen=True, slots=True)
class SessionNotes:
    """What a request of the session may be reminded of. Everything oldest first."""

    anchors: tuple[Anchor, ...] = ()
    lines: tuple[Line, ...] = ()
    state: State | None = None  # only where there were more turns than `lines` tell
    state_at: float = 0.0


NOTHING = SessionNotes()


@dataclass(frozen=True, slots=True)
class Standing:
    """A session's state, and the marks of the exchanges that it stands for (see pipeline.compress)."""

    state: State
    covered: frozenset[str]
