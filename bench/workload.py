"""What is sent: the kinds of request, the shapes of load, and the bodies, one a line of a file.

Questions vary, so that the proxy's cache of query embeddings serves none of them; every user has a
session that continues, as in a chat.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.seed import question, user_id

SYSTEM = "You are a helpful assistant. Answer briefly, in plain words, and say when you do not know."
PLAIN = (
    "What did we decide about the naming of the memory tables, and why did we drop the second index? "
    "Say it in two sentences, and name who was against it."
)
CHUNKS = 64
QUESTIONS = {False: 20_000, True: 6_000}  # bodies a file: not streamed, streamed


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request. `reads`: recall for a user who has memories. `writes`: the exchange is stored."""

    name: str
    path: str
    reads: bool = False
    writes: bool = False


PASSTHROUGH = Kind("passthrough", "/v1/embeddings")
CHAT = Kind("chat", "/v1/chat/completions")
RECALL = Kind("recall", "/v1/chat/completions", reads=True)
MEMORY = Kind("memory", "/v1/chat/completions", reads=True, writes=True)


@dataclass(frozen=True, slots=True)
class Load:
    """A shape of load. `pace_ms`: between two chunks of a stream; None: not streamed. `stagger_ms`: the
    connections begin spread over this time, so that their chunks do not come in step."""

    name: str
    connections: int
    seconds: float
    pace_ms: int | None = None
    stagger_ms: int = 0

    @property
    def streams(self) -> bool:
        return self.pace_ms is not None

    @property
    def model(self) -> str:
        """Name of the scripted model that answers in this shape."""
        return f"m-{CHUNKS}-{(self.pace_ms or 0) * 1000}"


ONE = Load("c1", 1, 2.5)
FEW = Load("c4", 4, 3)  # of requests with memory: as many as a processor serves within their deadline
MANY = Load("c32", 32, 3)
STREAMS = {
    load.name: load
    for load in (
        Load("s0_c1", 1, 2, pace_ms=0),
        Load("s0_c32", 32, 3, pace_ms=0),
        Load("s0_c256", 256, 3, pace_ms=0),
        Load("s5_c1", 1, 2, pace_ms=5),
        Load("s5_c32", 32, 3, pace_ms=5, stagger_ms=300),
        Load("s5_c256", 256, 3, pace_ms=5, stagger_ms=300),
        Load("s20_c1", 1, 3, pace_ms=20),
        Load("s20_c32", 32, 4, pace_ms=20, stagger_ms=1300),
        Load("s20_c256", 256, 5, pace_ms=20, stagger_ms=1300),
        Load("s250_c2000", 2_000, 24, pace_ms=250, stagger_ms=16_000),
    )
}


class Bodies:
    """The files of bodies, made when first asked for, and where in each the next measurement begins."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._next: dict[Path, int] = {}

    def file(self, kind: Kind, load: Load, users: int) -> Path:
        """Return the file of such requests by so many users."""
        shape = "stream" if load.streams else "plain"
        path = self._directory / f"{kind.name}-{load.model}-{shape}-{users}.jsonl"
        if not path.exists():
            path.write_text("".join(f"{json.dumps(body)}\n" for body in self._bodies(kind, load, users)))
        return path

    def take(self, file: Path, count: int) -> int:
        """Return the line to begin with, so that no line is sent twice before all were."""
        first = self._next.get(file, 0)
        self._next[file] = first + count
        return first

    def _bodies(self, kind: Kind, load: Load, users: int) -> Iterator[dict[str, object]]:
        if kind is PASSTHROUGH:
            yield {"model": load.model, "input": SYSTEM + " " + PLAIN}
            return
        if not kind.reads:
            yield _chat(load, PLAIN)
            return
        chance = random.Random(11)
        for number in range(QUESTIONS[load.streams]):
            user_number = chance.randrange(users)
            user, said = user_id(user_number), question(chance, user_number, number)
            if kind.writes:  # something worth remembering: bench/csrc/upstream.c extracts it
                said += f" By the way, I bought ticket {number} today."
            body = _chat(load, said)
            body["memory_context"] = {"user_id": user, "session_id": f"{user}-{load.name}"}
            if not kind.writes:
                body["memory_config"] = {"auto_store": False}
            yield body


def _chat(load: Load, content: str) -> dict[str, object]:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": content}]
    body: dict[str, object] = {"model": load.model, "messages": messages, "temperature": 0.2}
    return {**body, "stream": True} if load.streams else body
