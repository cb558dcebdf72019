"""A judge with scripted verdicts, for tests of what callers do with them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proxy.domain.ports import Asks, Needs, ProfileScores, Reading, Relation, Statement

NEEDS_MEMORY = Needs(memory=0.9, small_talk=0.0, world=0.05, tool=0.05, self_contained=0.0)
SMALL_TALK = Needs(memory=0.05, small_talk=0.9, world=0.05, tool=0.0, self_contained=0.0)
ASKS_NOTHING = Asks(remember=0.0, forget=0.0, off_record=0.0, rule=0.0)
SAME, CHANGED, APART = Relation(0.9, 0.05, 0.05), Relation(0.05, 0.9, 0.05), Relation(0.05, 0.05, 0.9)


def one_value(old: str, new: str) -> Relation:
    """Judge as if two texts that both begin with "User lives in", "User's rent is", … gave it two values."""
    one, other = old.split()[:3], new.split()[:3]
    return CHANGED if one == other and one[-1] in ("in", "is", "for") else APART


def stated(*, follows=0.95, user=0.95, other=0.03, impersonal=0.02, sense="stated"):
    """Return the judgement of a plain statement of the user, changed as said."""
    return Statement(follows, user, other, impersonal, {sense: 1.0})


@dataclass
class ScriptedJudge:
    """Implements ports.Judge with functions; by default everything helps, nothing is related."""

    needs: Callable[[str], Needs] = lambda text: NEEDS_MEMORY
    asks: Callable[[str], Asks] = lambda text: ASKS_NOTHING
    help: Callable[[str, str], float] = lambda message, memory: 0.9
    covered: Callable[[str, str], float] = lambda message, memory: 0.1
    relation: Callable[[str, str], Relation] = lambda old, new: APART
    statement: Callable[[str, str], Statement] = lambda message, candidate: stated()
    standing: Callable[[bytes], ProfileScores] = lambda vector: ProfileScores(0.0, 0.0)
    vector: Callable[[str], bytes] = lambda text: b""
    read_texts: list[str] = field(default_factory=list)
    shares_space = False

    def close(self) -> None: ...

    def begin(self, text: str) -> None: ...

    async def read(self, text: str, *, closely: bool = False) -> Reading:
        self.read_texts.append(text)
        return Reading(self.vector(text), self.needs(text), self.asks(text), text.encode())

    async def helps(self, message, memories, stored=None):
        return [self.help(message.states.decode(), memory.content) for memory in memories]

    async def readings(self, contents: Sequence[str]) -> list[bytes | None]:
        return [content.encode() for content in contents]

    async def covers(self, message: str, contents: Sequence[str]) -> list[float]:
        return [self.covered(message, content) for content in contents]

    def profile(self, vectors: Sequence[bytes]) -> list[ProfileScores]:
        return [self.standing(vector) for vector in vectors]

    async def relations(self, pairs: Sequence[tuple[str, str]]) -> list[Relation]:
        return [self.relation(*pair) for pair in pairs]

    async def statements(self, pairs: Sequence[tuple[str, str]]) -> list[Statement]:
        return [self.statement(*pair) for pair in pairs]
