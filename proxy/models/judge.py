"""The judge: our encoder's heads, behind threads. Implements judging.Judge.

A message is read once: the run for its vector also returns the hidden states for the heads. Pairs of texts
are judged in the background, on a thread of their own.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import numpy as np

from proxy.domain.errors import EmbeddingFailed
from proxy.domain.judging import Asks, MemoryText, ProfileScores, Reading, Relation, Statement, StoredReadings
from proxy.domain.limits import TTLCache
from proxy.domain.operating_system import lower_thread_priority
from proxy.models import heads
from proxy.models.embedder import OnnxEmbedder
from proxy.models.heads import MessageHead, PairHead, PairModel, ProfileHead, RelevanceHead, read_head
from proxy.models.load import load_embedder
from proxy.models.weights import WIDTH, Array

RELATION = frozenset({"same", "changed", "apart"})
FOLLOWS = frozenset({"yes", "no"})
ABOUT = frozenset({"user", "other", "nobody"})
SENSE = frozenset(
    "stated hedged hypothetical fiction quoted sarcastic transient instruction rule remember forget"
    " off_record".split()
)
_MEMORY_BYTES = 4_000_000  # cache for memories stored without their reading: some 2,000
_MAY_FORGET = (
    0.15  # of the message head: one message in fifteen reaches it, and nearly all that ask to forget
)
_YES = 0.5
_MAY_ASK = 0.02  # likewise, where no request waits: one in three reaches it, and all that ask for something
_SENSES = 512
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Heads:
    """All heads."""

    message: MessageHead
    profile: ProfileHead
    relevance: RelevanceHead
    relation: PairHead
    statement: PairHead
    forget: PairHead

    @classmethod
    def read(cls, model: PairModel, directory: Path = heads.DIRECTORY) -> "Heads":
        """Return the heads of a directory. Raises EmbeddingFailed."""
        return cls(
            MessageHead(read_head("message", directory)),
            ProfileHead(read_head("profile", directory)),
            RelevanceHead(read_head("relevance", directory)),
            PairHead(model, read_head("relation", directory), [RELATION]),
            PairHead(model, read_head("statement", directory), [FOLLOWS, ABOUT, SENSE]),
            PairHead(model, read_head("forget", directory), [FOLLOWS]),
        )


class OnnxJudge:
    """Implements judging.Judge. The event loop never waits for the encoder.

    `embedder`: of our encoder. `shares_space`: the stored vectors of memories are this encoder's, not another
    model's.
    """

    def __init__(self, embedder: OnnxEmbedder, heads: Heads, *, shares_space: bool = True) -> None:
        self.shares_space = shares_space
        self._embedder, self._heads = embedder, heads
        self._read_memories = TTLCache[bytes, bytes](_MEMORY_BYTES, size_of=len)
        self._senses = TTLCache[bytes, dict[str, float]](_SENSES)  # of messages that may ask for something
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="judge", initializer=lower_thread_priority)
        # Creating the session for pairs takes longer than a request may wait.
        self._pool.submit(heads.statement.model.open)

    def begin(self, text: str) -> None:
        """See judging.Judge."""
        self._embedder.begin(text)

    async def read(self, text: str, *, closely: bool = False) -> Reading:
        """See judging.Judge. A message that may ask something of memory is read again by the statement
        head, which is more accurate, and takes twice as long."""
        made = await self._embedder.read(text)
        needs, asks = self._heads.message.judge(_states(made.states))
        may_ask = closely and max(asks.remember, asks.off_record, asks.rule) >= _MAY_ASK
        if may_ask or asks.forget >= _MAY_FORGET:
            asks = await self._asks(text, asks)
        return Reading(made.vector, needs, asks, made.states)

    async def _asks(self, text: str, asks: Asks) -> Asks:
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if (sense := self._senses.get(key)) is None:
            work = partial(self._heads.statement.judge, text, text)
            _, _, sense = await self._embedder.run(work)
            self._senses.put(key, sense)
        return Asks(
            _surer(asks.remember, sense["remember"]),
            # A wish to remember is none to forget: the slower head is the surer about which of the two it is.
            sense["forget"] if sense["remember"] >= _YES else _surer(asks.forget, sense["forget"]),
            _surer(asks.off_record, sense["off_record"]),
            _surer(asks.rule, sense["rule"]),
        )

    async def helps(
        self, message: Reading, memories: Sequence[MemoryText], stored: StoredReadings | None = None
    ) -> list[float]:
        """See judging.Judge. Memories that the cosine leaves open are read with the message."""
        if not memories:
            return []
        vectors = await asyncio.gather(*map(self._vector, memories))
        cosines = np.stack([_floats(vector) for vector in vectors]) @ _floats(message.vector)
        relevance = self._heads.relevance
        chances = relevance.by_cosine(cosines)
        if opened := relevance.open(chances):
            readings = await stored(opened) if stored else [None] * len(opened)
            contents = [memories[at].content for at in opened]
            shown = await asyncio.gather(*map(self._memory, contents, readings))
            read = partial(relevance.read, _states(message.states), shown, cosines[opened])
            for at, chance in zip(opened, await self._embedder.run(read), strict=True):
                chances[at] = chance
        return chances

    async def readings(self, contents: Sequence[str]) -> list[bytes | None]:
        """See judging.Judge."""
        if self._heads.relevance.reader is None:
            return [None] * len(contents)
        return [await self._shown(content) for content in contents]

    async def _vector(self, memory: MemoryText) -> bytes:
        given = memory.vector if self.shares_space else None
        return given or (await self._embedder.embed([memory.content]))[0]

    async def _memory(self, content: str, reading: bytes | None) -> Array:
        """Return the memory as the relevance head reads it."""
        found = self._heads.relevance.memory(reading)
        if found is None:
            found = self._heads.relevance.memory(await self._shown(content))
        assert found is not None
        return found

    async def _shown(self, content: str) -> bytes:
        key = blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if (found := self._read_memories.get(key)) is None:
            made = await self._embedder.read_passage(content)
            found = self._heads.relevance.shown(_states(made.states))
            self._read_memories.put(key, found)
        return found

    async def covers(self, message: str, contents: Sequence[str]) -> list[float]:
        """See judging.Judge. In the embedder's threads, since a request waits for it."""
        judge = self._heads.forget.judge
        return [(await self._embedder.run(partial(judge, message, one)))[0]["yes"] for one in contents]

    def profile(self, vectors: Sequence[bytes]) -> list[ProfileScores]:
        """See judging.Judge. Vectors of another model cannot be judged."""
        if not vectors or not self.shares_space:
            return [ProfileScores(0.0, 0.0) for _ in vectors]
        return self._heads.profile.judge(np.stack([_floats(vector) for vector in vectors]))

    async def relations(self, pairs: Sequence[tuple[str, str]]) -> list[Relation]:
        """See judging.Judge."""
        return await self._each(pairs, self._relation)

    async def statements(self, pairs: Sequence[tuple[str, str]]) -> list[Statement]:
        """See judging.Judge."""
        return await self._each(pairs, self._statement)

    def close(self) -> None:
        """End the threads, after the steps already handed to them."""
        self._pool.shutdown(wait=True)
        if not self.shares_space:
            self._embedder.close()

    def _relation(self, pair: tuple[str, str]) -> Relation:
        (found,) = self._heads.relation.judge(*pair)
        return Relation(**found)

    def _statement(self, pair: tuple[str, str]) -> Statement:
        follows, about, sense = self._heads.statement.judge(*pair)
        return Statement(follows["yes"], about["user"], about["other"], about["nobody"], sense)

    async def _each(
        self, pairs: Sequence[tuple[str, str]], judge: Callable[[tuple[str, str]], _T]
    ) -> list[_T]:
        """Judge one pair per step, so that several callers take turns."""
        return [await self._run(partial(judge, pair)) for pair in pairs]

    async def _run(self, work: Callable[[], _T]) -> _T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except RuntimeError as e:  # the pool was shut down
            raise EmbeddingFailed("the judge is closed") from e


def _surer(asked: float, meant: float) -> float:
    """Return the probability by both heads. The statement head counts only if the message head sees the
    request at all, since a message wrongly taken as off the record is lost."""
    return max(asked, meant) if asked >= _MAY_ASK else asked


def _states(raw: bytes) -> Array:
    return np.frombuffer(raw, np.float16).reshape(-1, WIDTH).astype(np.float32)


def _floats(vector: bytes) -> Array:
    return np.frombuffer(vector, np.float32)


@dataclass(frozen=True, slots=True)
class LoadedJudge:
    """`judge` is None where it cannot be used; `note` says why."""

    judge: OnnxJudge | None
    note: str = ""


def load_judge(
    models_dir: Path,
    embedder: OnnxEmbedder | None,
    *,
    directory: Path | None = None,
) -> LoadedJudge:
    """Return the judge. A missing file is not an error. `embedder`: the one for searches; if it is of
    another model, or None, our encoder is loaded, too. Blocks, 50 ms, or as long as the encoder's loading
    takes."""
    shares_space = embedder is not None and embedder.encoder.directory is not None
    if embedder is None or not shares_space:
        loaded = load_embedder(models_dir)
        if loaded.embedder is None:
            return LoadedJudge(None, loaded.notes[0])
        embedder = loaded.embedder
    try:
        found = Heads.read(PairModel(embedder.encoder), directory or heads.DIRECTORY)
    except EmbeddingFailed as e:
        if not shares_space:
            embedder.close()
        return LoadedJudge(None, str(e))
    return LoadedJudge(OnnxJudge(embedder, found, shares_space=shares_space))
