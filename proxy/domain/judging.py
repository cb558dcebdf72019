"""What the heads of the encoder judge, as values and a port. `models` implements it.

Every score is a probability. Heads are calibrated on held-out users: 0.5 is the operating point, so callers
compare with 0.5 unless they have a reason.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Needs:
    """What an answer to a message needs. `memory` is calibrated by itself: a missed memory is worse than a
    wasted search. The others name the reason if no memory is needed."""

    memory: float
    small_talk: float
    world: float
    tool: float
    self_contained: float


@dataclass(frozen=True, slots=True)
class Asks:
    """What a message asks the assistant to do with its memory. Each is judged by itself."""

    remember: float
    forget: float
    off_record: float
    rule: float  # a standing instruction: "always answer in Spanish"


@dataclass(frozen=True, slots=True)
class Reading:
    """One pass of the encoder over a message: the vector to search with (float32, unit length) and what the
    message-level heads say. `states`: the hidden states, for `Judge.helps` only."""

    vector: bytes
    needs: Needs
    asks: Asks
    states: bytes = b""


class MemoryText(NamedTuple):
    """A memory as `Judge.helps` takes it."""

    content: str
    vector: bytes | None = None


StoredReadings = Callable[[Sequence[int]], Awaitable[Sequence[bytes | None]]]
"""Returns the stored readings (see `Judge.readings`) of the memories at these places, or None."""


@dataclass(frozen=True, slots=True)
class Relation:
    """How a newer fact relates to an older one; the three sum to 1."""

    same: float
    changed: float  # both cannot hold now: the newer one replaces the older one
    apart: float


@dataclass(frozen=True, slots=True)
class Statement:
    """What a candidate drawn from a message is worth. Labels as in training/data/README.md.

    `follows`: the candidate, as it reads, follows from the user's own words. `user`, `other`, `nobody`: who
    the fact is about; they sum to 1. `sense`: how it was said, by label ("stated", "hedged", "hypothetical",
    "fiction", "quoted", "sarcastic", "transient", "instruction", "rule", "remember", "forget",
    "off_record"); the values sum to 1.
    """

    follows: float
    user: float
    other: float
    nobody: float
    sense: dict[str, float]

    @property
    def manner(self) -> str:
        """Return the most probable sense."""
        return max(self.sense, key=self.sense.__getitem__)


@dataclass(frozen=True, slots=True)
class ProfileScores:
    """Whether a memory holds in every conversation. `rule`: how to answer (language, tone, units, form of
    address). `trait`: what most answers about the user's life must respect (diet, health, accessibility)."""

    rule: float
    trait: float


class Judge(Protocol):
    """The heads. Every method raises EmbeddingFailed if the models cannot be used."""

    def begin(self, text: str) -> None:
        """Start to read a message that `read` is about to be called with. A hint: it never fails."""
        ...

    async def read(self, text: str, *, closely: bool = False) -> Reading:
        """Return what the message-level heads say of a user's message. A message that makes no sense alone is
        read after the user's message before it, joined by a newline. `closely`: make sure of all that it
        asks; else only of what it asks to forget, as the answer depends on nothing else of it."""
        ...

    async def helps(
        self, message: Reading, memories: Sequence[MemoryText], stored: StoredReadings | None = None
    ) -> list[float]:
        """Return for each memory whether it helps to answer the message well. `stored` is asked for the
        readings of the few memories that are read; a memory without one, or with one of another model, is
        read from its content, which takes longer."""
        ...

    async def readings(self, contents: Sequence[str]) -> list[bytes | None]:
        """Return what to store with each memory, so that `helps` need not read it again at each message: some
        2 kB. None where this judge reads no memories."""
        ...

    async def covers(self, message: str, contents: Sequence[str]) -> list[float]:
        """Return for each memory whether a message that asks to forget something means it."""
        ...

    def profile(self, vectors: Sequence[bytes]) -> list[ProfileScores]:
        """Return for each memory's vector whether it holds in every conversation."""
        ...

    async def relations(self, pairs: Sequence[tuple[str, str]]) -> list[Relation]:
        """Return the relation of each pair (older fact, newer fact)."""
        ...

    async def statements(self, pairs: Sequence[tuple[str, str]]) -> list[Statement]:
        """Return the judgement of each pair (message, candidate). Of a long message pass the part around the
        evidence: 128 tokens are read, both texts together."""
        ...
