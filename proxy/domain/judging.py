"""What the encoder's heads judge: values, and the port that `models` implements.

Every score is a probability. Heads are calibrated on held-out users, so that 0.5 is the operating point.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Needs:
    """What an answer to a message needs. `memory` is calibrated separately, since a missed memory is worse
    than a wasted search; the others give the reason if no memory is needed."""

    memory: float
    small_talk: float
    world: float
    tool: float
    self_contained: float


@dataclass(frozen=True, slots=True)
class Asks:
    """What a message asks the assistant to do with its memory, each judged independently."""

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
"""Returns the stored readings (see `Judge.readings`) of the memories at these indices, None if absent."""


@dataclass(frozen=True, slots=True)
class Relation:
    """How a newer fact relates to an older one; the three sum to 1."""

    same: float
    changed: float  # both cannot be true now: the newer one replaces the older one
    apart: float


@dataclass(frozen=True, slots=True)
class Statement:
    """The judgement of a candidate extracted from a message. Labels as in training/data/README.md.

    `follows`: it follows from the user's own words. `user`, `other`, `impersonal`: who the fact is about;
    they sum to 1. `sense`: how it was said, by label ("stated", "hedged", "hypothetical", "fiction",
    "quoted", "sarcastic", "transient", "instruction", "rule", "remember", "forget", "off_record"); they
    sum to 1.
    """

    follows: float
    user: float
    other: float
    impersonal: float
    sense: dict[str, float]

    @property
    def main_sense(self) -> str:
        """Return the most probable sense."""
        return max(self.sense, key=self.sense.__getitem__)


@dataclass(frozen=True, slots=True)
class ProfileScores:
    """Whether a memory applies to every conversation. `rule`: how to answer (language, tone, units, form of
    address). `trait`: what most answers about the user's life must respect (diet, health, accessibility)."""

    rule: float
    trait: float


class Judge(Protocol):
    """The heads. Every method raises EmbeddingFailed if the models cannot be used."""

    def begin(self, text: str) -> None:
        """Start to read a message that is about to be passed to `read`. A hint: it never fails."""
        ...

    async def read(self, text: str, *, closely: bool = False) -> Reading:
        """Return what the message-level heads say about a user's message. A message that makes no sense
        alone is passed after the user's message before it, joined by a newline. `closely`: verify
        everything that it asks of memory; else only whether it asks to forget, which the answer depends
        on."""
        ...

    async def helps(
        self, message: Reading, memories: Sequence[MemoryText], stored: StoredReadings | None = None
    ) -> list[float]:
        """Return for each memory whether it helps to answer the message. `stored` is called for the few
        memories that are read together with the message; one without a stored reading of this model is
        read from its content, which takes longer."""
        ...

    async def readings(self, contents: Sequence[str]) -> list[bytes | None]:
        """Return what to store with each memory (2 kB), so that `helps` need not read it for each message;
        None if this judge reads no memories."""
        ...

    async def covers(self, message: str, contents: Sequence[str]) -> list[float]:
        """Return for each memory whether a message that asks to forget something refers to it."""
        ...

    def profile(self, vectors: Sequence[bytes]) -> list[ProfileScores]:
        """Return for each memory's vector whether it applies to every conversation."""
        ...

    async def relations(self, pairs: Sequence[tuple[str, str]]) -> list[Relation]:
        """Return the relation of each pair (older fact, newer fact)."""
        ...

    async def statements(self, pairs: Sequence[tuple[str, str]]) -> list[Statement]:
        """Return the judgement of each pair (message, candidate). 128 tokens are read, both texts
        together: of a long message pass the part around the evidence."""
        ...
