"""Made-up users of the soak: how many there are never changes, who they are does.

A person states up to ten facts, each with a unique word, and is completely forgotten after so many
acts; another comes in that place, under a new id. So the data reach a steady state, while whatever a process
keeps of each user that it ever saw does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

# What a person says, and what may be asked about it later. {} is the person's own word.
FACTS: tuple[tuple[str, str], ...] = (
    ("My dog is called {}.", "What is my dog called?"),
    ("I work for {}.", "Which company do I work for?"),
    ("I live in {}.", "Which town do I live in?"),
    ("My favorite tea is {}.", "What is my favorite tea?"),
    ("My sister is called {}.", "What is my sister called?"),
    ("I play the {} every weekend.", "What do I play at weekends?"),
    ("My car is a {}.", "Which car do I drive?"),
    ("I have a friend named {}.", "What is my friend's name?"),
    ("My street is called {}.", "What is my street called?"),
    ("My boat is called {}.", "What is my boat called?"),
)
SMALL_TALK = (
    "Hello there!",
    "Thanks, that is all for now.",
    "What is the capital of Portugal?",
    "How do I sort a list in Python?",
    "Write me a short poem about the sea.",
)
_SYLLABLES = tuple(c + v for c in "bdfgklmnprstvz" for v in "aeiou")


@dataclass(slots=True)
class StatedFact:
    """A word that a person stated, and what was promised about it."""

    fact: int
    word: str
    at: float  # when it was acknowledged, by the monotonic clock
    memory_id: str = ""  # where a list has shown it
    forgotten: bool = False


@dataclass(slots=True)
class Person:
    """A user, and what the user has said and stored so far."""

    user_id: str
    lifetime: int  # acts
    acts: int = 0
    stated: list[StatedFact] = field(default_factory=list)
    doubtful: set[str] = field(default_factory=set)  # stated, and cut off before anything was promised
    messages: list[dict[str, str]] = field(default_factory=list)  # of the present conversation
    session: int = 0
    response_id: str = ""  # the last response of the chain
    chain: int = 0
    documents: dict[str, str] = field(default_factory=dict)  # name → id

    @property
    def session_id(self) -> str:
        return f"{self.user_id}-s{self.session}"

    def known(self, before: float) -> list[StatedFact]:
        """Return what was promised before a time, and not taken back."""
        return [t for t in self.stated if t.at < before and not t.forgotten]

    def untold(self) -> list[int]:
        """Return which facts this person has not stated yet."""
        used = {t.fact for t in self.stated} | {int(d.partition(":")[0]) for d in self.doubtful}
        return [n for n in range(len(FACTS)) if n not in used]

    def turn_over(self) -> None:
        """Begin another conversation."""
        self.messages, self.session = [], self.session + 1


class Crowd:
    """So many people; each does one thing at a time."""

    def __init__(self, size: int, rng: Random) -> None:
        self._rng, self._born, self._words = rng, 0, set[str]()
        self.forgotten_ids: list[str] = []  # user ids of those who were forgotten, the last ones
        self.seen = 0
        self.idle: list[Person] = [self._new() for _ in range(size)]

    def take(self) -> Person | None:
        """Return a person who is idle; None: all are busy."""
        return self.idle.pop(self._rng.randrange(len(self.idle))) if self.idle else None

    def give_back(self, person: Person) -> None:
        self.idle.append(person)

    def bury(self, person: Person) -> None:
        """Let another come in the place of one who was forgotten."""
        self.forgotten_ids = [*self.forgotten_ids[-99:], person.user_id]
        self.idle.append(self._new())

    def word(self) -> str:
        """Return a word that was not said before."""
        while True:
            word = "".join(self._rng.choices(_SYLLABLES, k=4)).capitalize()
            if word not in self._words:
                self._words.add(word)
                return word

    def _new(self) -> Person:
        self._born += 1
        self.seen += 1
        return Person(f"soak-{self._born}", lifetime=self._rng.randrange(20, 60))


def asked(rng: Random, known: Sequence[StatedFact]) -> tuple[str, StatedFact] | None:
    """Return a question about something known, and its answer."""
    if not known:
        return None
    stated = rng.choice(known)
    return FACTS[stated.fact][1], stated
