"""The judge: our encoder's heads, behind threads. Implements ports.Judge.

A message is read once: the run for its vector also returns the hidden states for the heads of a message, and
of a message and a memory. Pairs of texts (relation, statement, forget) need runs of their own, with the
encoder's matrices changed by each head: most are judged in the background, on a thread of their own.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from proxy.domain.errors import EmbeddingFailed
from proxy.domain.limits import TTLCache, lower_thread_priority
from proxy.domain.ports import (
    Asks,
    MemoryText,
    Needs,
    ProfileScores,
    Reading,
    Relation,
    Statement,
    StoredReadings,
)
from proxy.models import weights
from proxy.models.embedder import Encoder, OnnxEmbedder
from proxy.models.load import load_embedder, onnx_session, ort_values
from proxy.models.vocabulary import MAX_TOKENS, Vocabulary
from proxy.models.weights import LAYERS, PAIR_GRAPH, WIDTH, Array, HeadFile, complete, read_head

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, OrtValue

RELATION = frozenset({"same", "changed", "apart"})
FOLLOWS = frozenset({"yes", "no"})
ABOUT = frozenset({"user", "other", "nobody"})
SENSE = frozenset(
    "stated hedged hypothetical fiction quoted sarcastic transient instruction rule remember forget"
    " off_record".split()
)
_MEMORY_BYTES = 4_000_000  # cache for memories stored without their reading: some 2,000
# Of the message head: one message in fifteen reaches it, and nearly all that ask to forget.
_MAY_FORGET = 0.15
_MAY_ASK = 0.02  # likewise, where no request waits: one in three reaches it, and all that ask for something
_SENSES = 512


# ---------------------------------------------------------------- of a message, of a memory's vector
NEEDS = ("memory", "small_talk", "world", "tool", "self_contained")
ASKS = ("remember", "forget", "off_record", "rule")
PROFILE = ("rule", "trait")
_VECTOR_SCALE = 8  # unit vectors of 384 numbers are small for a network


class MessageHead:
    """Judges a message by the hidden states of its tokens: two layers over their mean and maximum."""

    def __init__(self, file: HeadFile) -> None:
        self._arrays = complete(file, ("a", "needs", "asks"), ("mu", "sd"))
        self._needs, self._asks = file.offsets(NEEDS), file.offsets(ASKS)
        self.judge(np.zeros((2, WIDTH), np.float32))  # the shapes fit

    def judge(self, states: Array) -> tuple[Needs, Asks]:
        """Return what the message (tokens, width) needs and asks. Raises EmbeddingFailed."""
        a = self._arrays
        try:
            seen = (np.concatenate([states.mean(axis=0), states.max(axis=0)]) - a["mu"]) / a["sd"]
            hidden = gelu(linear(a, "a", seen))
            needs = linear(a, "needs", hidden)
            asks = linear(a, "asks", hidden) + self._asks
            check("message", needs, asks)
        except ValueError as e:
            raise EmbeddingFailed("the weights of the head message do not fit") from e
        # Memory's own log-odds: it is calibrated separately. The others only give the reason.
        memory = sigmoid(needs[0] - np.logaddexp.reduce(needs[1:]) + self._needs[0])
        others = softmax(needs + np.append(np.float32(0), self._needs[1:]))[1:]
        return Needs(float(memory), *others.tolist()), Asks(*sigmoid(asks).tolist())


class ProfileHead:
    """Judges by a memory's vector whether it applies to every conversation: two layers."""

    def __init__(self, file: HeadFile) -> None:
        self._arrays, self._offsets = complete(file, ("a", "out")), file.offsets(PROFILE)
        self.judge(np.zeros((1, WIDTH), np.float32))

    def judge(self, vectors: Array) -> list[ProfileScores]:
        """Return the judgement of each row. Raises EmbeddingFailed."""
        a = self._arrays
        try:
            logits = linear(a, "out", gelu(linear(a, "a", vectors * _VECTOR_SCALE))) + self._offsets
            check("profile", logits)
            return [ProfileScores(rule, trait) for rule, trait in sigmoid(logits).tolist()]
        except ValueError as e:
            raise EmbeddingFailed("the weights of the head profile do not fit") from e


def sigmoid(logits: Array) -> Array:
    """Return the probabilities of independent logits."""
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -60, 60))))


def softmax(logits: Array) -> Array:
    """Return the probabilities of the classes of one row."""
    odds = np.exp(logits - logits.max())
    return np.asarray(odds / odds.sum())


def gelu(x: Array) -> Array:
    """Return x times the normal distribution's share below x (Abramowitz and Stegun 7.1.26, to 1.5e-7)."""
    x = np.asarray(x, np.float32)
    z = np.abs(x) / np.float32(2**0.5)
    t = 1 / (1 + 0.3275911 * z)
    series = np.full_like(t, 1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + factor
    return np.asarray(0.5 * x * (1 + np.sign(x) * (1 - series * t * np.exp(-(z**2)))))


def linear(arrays: Mapping[str, Array], layer: str, x: Array) -> Array:
    """Return the layer's output for each row."""
    return np.asarray(x @ arrays[layer + ".weight"].T + arrays[layer + ".bias"])


def check(name: str, *made: Array) -> None:
    """Raise EmbeddingFailed if a value is not finite."""
    if not all(np.isfinite(array).all() for array in made):
        raise EmbeddingFailed(f"the head {name} returned no number")


# ---------------------------------------------------------------- relevance
RELEVANCE_LABEL = "helps"  # the offset's name in the card
MESSAGE_TOKENS, MEMORY_TOKENS = 64, 48
BLOCKS, HEADS = 2, 4
RELEVANCE_GRAPH = Path(__file__).with_name("relevance.onnx")
_COSINE_SCALE = 4.0
_EPSILON = 1e-5
_FAR = np.float32(-1e4)
_TAG_BYTES = 8  # bytes of the weights' checksum before a stored memory


class RelevanceHead:
    """Judges whether a memory helps with a message. The cosine decides where it leaves no doubt; for the
    other memories a small transformer reads the hidden states of both texts together, in one batch.

    The file holds `cosine` (slope and constant of a logistic curve), projections of both texts' states (`pq`,
    `pm`, their norms `nq`, `nm`, the rows `seg`), two blocks `bl.N` that attend to both texts as one, and two
    layers `f1`, `f2` over the pooled states and the cosine. The card's `open` (two probabilities) and `most`
    say which memories are read: none if the nearest one's chance by the cosine is above the second, else the
    `most` nearest of those above the first."""

    def __init__(self, file: HeadFile) -> None:
        blocks = [f"bl.{n}.{part}" for n in range(BLOCKS) for part in ("n1", "qkv", "o", "n3", "up", "dn")]
        self._arrays = complete(file, ("pq", "pm", "nq", "nm", "f1", "f2", *blocks), ("cosine", "seg"))
        try:
            self._slope, self._constant = self._arrays["cosine"].tolist()
            self._low, self._high = map(float, file.card.get("open", (0.0, 1.0)))
            self._most = int(file.card.get("most", 12))
            self._temperature = float(file.card.get("temperature", 1.0))
        except (TypeError, ValueError) as e:
            raise EmbeddingFailed(f"{file.path.name} does not hold what its head needs") from e
        self._offset = float(file.offsets((RELEVANCE_LABEL,))[0])
        self._tag = bytes.fromhex(str(file.card.get("sha256", ""))[:16].rjust(16, "0"))
        names = [f"{block}.{part}" for block in blocks for part in ("weight", "bias")]
        self._feed = ort_values({name: self._arrays.pop(name).T for name in names})
        self._session = onnx_session(RELEVANCE_GRAPH)
        some = np.zeros((2, WIDTH), np.float32)
        self.read(some, [self._projected("pm", "nm", some, segment=1)], np.zeros(1, np.float32))

    def by_cosine(self, cosines: Array) -> list[float]:
        """Return the chances that memories with these cosines help."""
        odds = self._slope * cosines + self._constant + self._offset
        return [float(chance) for chance in sigmoid(odds)]

    def open(self, chances: Sequence[float]) -> list[int]:
        """Return the indices of the memories that have to be read."""
        if max(chances) > self._high:
            return []
        nearest = sorted(range(len(chances)), key=lambda at: -chances[at])[: self._most]
        return [at for at in nearest if chances[at] >= self._low]

    def read(self, states: Array, memories: Sequence[Array], cosines: Array) -> list[float]:
        """Return the chances of memories (as `memory` returns them) for the message of these hidden states.
        Blocks, some milliseconds. Raises EmbeddingFailed."""
        message = self._projected("pq", "nq", states[:MESSAGE_TOKENS], segment=0)
        length, lengths = len(message), np.array([len(memory) for memory in memories])
        tokens = np.zeros((len(memories), length + lengths.max(), message.shape[1]), np.float32)
        tokens[:, :length] = message
        for at, memory in enumerate(memories):
            tokens[at, length : length + len(memory)] = memory
        known = np.arange(tokens.shape[1]) < length + lengths[:, None]
        feed = ort_values({"tokens": tokens, "known": known.astype(np.int32)})
        try:
            (made,) = self._session.run_with_ort_values(["read"], feed | self._feed)
        except Exception as e:  # the errors of onnxruntime have no base class of their own
            raise EmbeddingFailed(f"the head relevance failed: {type(e).__name__}") from e
        both, pooled = np.asarray(made.numpy()), list[Array]()
        for text in (slice(length), slice(length, None)):  # the mean and the maximum over the known tokens
            seen, read = known[:, text, None], both[:, text]
            mean = np.where(seen, read, np.float32(0)).sum(axis=1) / seen.sum(axis=1)
            pooled += np.asarray(mean, np.float32), np.where(seen, read, _FAR).max(axis=1)
        try:
            joined = np.concatenate([*pooled, cosines[:, None] * np.float32(_COSINE_SCALE)], axis=1)
            logits = linear(self._arrays, "f2", gelu(linear(self._arrays, "f1", joined)))[:, 0]
        except ValueError as e:
            raise EmbeddingFailed("the weights of the head relevance do not fit") from e
        check("relevance", logits)
        return [float(chance) for chance in sigmoid(logits / self._temperature + self._offset)]

    def shown(self, states: Array) -> bytes:
        """Return the memory of these hidden states as it is stored: int8 with one scale, a tenth of them."""
        read = self._projected("pm", "nm", states[:MEMORY_TOKENS], segment=1)
        scale = np.abs(read).max() / 127 or np.float32(1)
        return self._tag + np.float32(scale).tobytes() + np.round(read / scale).astype(np.int8).tobytes()

    def memory(self, shown: bytes | None) -> Array | None:
        """Return the memory as `read` takes it; None without a stored reading of this head."""
        if shown is None or shown[:_TAG_BYTES] != self._tag:
            return None
        scale = np.frombuffer(shown, np.float32, 1, _TAG_BYTES)[0]
        width = self._arrays["seg"].shape[1]
        return np.asarray(np.frombuffer(shown, np.int8, offset=_TAG_BYTES + 4).reshape(-1, width) * scale)

    def _projected(self, layer: str, norm: str, states: Array, *, segment: int) -> Array:
        """Return a text's states as the blocks see them. Raises EmbeddingFailed."""
        a = self._arrays
        try:
            x = linear(a, layer, states)
            x = x - x.mean(axis=-1, keepdims=True)
            x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(_EPSILON))
            return np.asarray(x * a[norm + ".weight"] + a[norm + ".bias"] + a["seg"][segment])
        except (ValueError, IndexError) as e:
            raise EmbeddingFailed("the weights of the head relevance do not fit") from e


# ---------------------------------------------------------------- pairs of texts
# The encoder's names of the matrices, and those of their changes in a head's file.
_MATRICES = {"qkv": "qkv", "attended": "ao", "up": "up", "down": "down"}


class PairModel:
    """The encoder for two texts, its matrices changed by a head's low-rank updates.

    All heads use one session, whose changes are inputs; the encoder's own matrices are mapped from its
    file. Texts are cut as in training (training/model.py): the second one's first 64 tokens; of the first,
    as many as are left of 128, half from its beginning and half from its end. The session is created at
    the first use."""

    def __init__(self, encoder: Encoder) -> None:
        assert isinstance(encoder.tokenizer, Vocabulary)
        self._directory, self._tokenizer = encoder.directory, encoder.tokenizer
        self._made: InferenceSession | None = None
        self._making = Lock()

    def states(
        self, first: str, second: str, second_segment: Array, changes: Mapping[str, "OrtValue"]
    ) -> tuple[Array, int]:
        """Return the hidden states of both texts, and how many tokens are the first's. Raises
        EmbeddingFailed."""
        session = self.open()
        try:
            b = self._tokenizer.all_ids(second)[1:][: MAX_TOKENS // 2]
            a = self._tokenizer.ids(first, MAX_TOKENS - len(b))
            segments = np.zeros((1, len(a) + len(b), WIDTH), np.float32)
            segments[0, len(a) :] = second_segment
            feed = ort_values({"input_ids": np.array([a + b], np.int64), "segments": segments})
            (made,) = session.run_with_ort_values(["states"], {**feed, **changes})
            return np.asarray(made.numpy()[0], np.float32), len(a)
        except Exception as e:  # the errors of onnxruntime have no base class of their own
            raise EmbeddingFailed(f"the encoder failed on two texts: {type(e).__name__}") from e

    def open(self) -> "InferenceSession":
        """Return the session; create it if necessary. Blocks. Raises EmbeddingFailed."""
        with self._making:
            if self._made is None:
                self._made = onnx_session(PAIR_GRAPH, self._directory, packed=False)
            return self._made


class PairHead:
    """A head that reads two texts: for each of its questions, the probability of each label. Its weights
    are read at the first use. `labels`: of each question, in any order; the card has the order of
    training."""

    def __init__(self, model: PairModel, file: HeadFile, labels: Sequence[frozenset[str]]) -> None:
        self.model, self._file = model, file
        self._labels: list[tuple[str, ...]] = [tuple(given) for given in file.card.get("classes", ())]
        if [frozenset(given) for given in self._labels] != list(labels):
            raise EmbeddingFailed(f"the card of the head {file.name} has other classes")
        self._weights: _PairWeights | None = None

    def judge(self, first: str, second: str) -> list[dict[str, float]]:
        """Return the probabilities by label, one dict per question. Blocks. Raises EmbeddingFailed."""
        if self._weights is None:
            self._weights = _PairWeights(self._file, self._labels)
        weights = self._weights
        states, length = self.model.states(first, second, weights.second, weights.changes)
        both = np.concatenate([states[:length].mean(axis=0), states[length:].mean(axis=0)])
        found = []
        for labels, (matrix, bias), temperature, offsets in zip(
            self._labels, weights.outs, weights.temperatures, weights.offsets, strict=True
        ):
            chances = softmax((matrix @ both + bias) / temperature + offsets)
            check(self._file.name, chances)
            found.append(dict(zip(labels, chances.tolist(), strict=True)))
        return found


class _PairWeights:
    """The weights of a head's file, prepared for use. Raises EmbeddingFailed."""

    def __init__(self, file: HeadFile, labels: Sequence[Sequence[str]]) -> None:
        arrays = file.arrays()
        try:
            self.second = arrays["second"]
            self.changes = ort_values(
                {
                    f"{name}{i}_{part}": arrays[f"encoder.layers.{i}.{trained}.{part}"].T
                    for i in range(LAYERS)
                    for name, trained in _MATRICES.items()
                    for part in ("down", "up")
                }
            )
            self.outs = [(arrays[f"outs.{n}.weight"], arrays[f"outs.{n}.bias"]) for n in range(len(labels))]
            self.offsets = [file.offsets(names) for names in labels]
            given = file.card.get("temperature", 1.0)
            many = given if isinstance(given, list) else [given] * len(labels)
            self.temperatures = [float(t) for t in many]
        except (KeyError, TypeError, ValueError) as e:
            raise EmbeddingFailed(f"{file.path.name} does not hold what its head needs") from e
        fitting = [(len(names), 2 * WIDTH) for names in labels]
        if [matrix.shape for matrix, _ in self.outs] != fitting or len(self.temperatures) != len(labels):
            raise EmbeddingFailed(f"{file.path.name} does not fit its classes")


# ---------------------------------------------------------------- the judge
class OnnxJudge:
    """Implements ports.Judge. The event loop never waits for the encoder.

    `embedder`: of our encoder. `shares_space`: the stored vectors of memories are this encoder's, not another
    model's.
    """

    def __init__(
        self, embedder: OnnxEmbedder, directory: Path = weights.DIRECTORY, *, shares_space: bool = True
    ) -> None:
        """`directory`: of the heads' files. Raises EmbeddingFailed."""
        self.shares_space, self._embedder = shares_space, embedder
        self._message = MessageHead(read_head("message", directory))
        self._profile = ProfileHead(read_head("profile", directory))
        self._relevance = RelevanceHead(read_head("relevance", directory))
        pairs = PairModel(embedder.encoder)
        self._relation = PairHead(pairs, read_head("relation", directory), [RELATION])
        self._statement = PairHead(pairs, read_head("statement", directory), [FOLLOWS, ABOUT, SENSE])
        self._forget = PairHead(pairs, read_head("forget", directory), [FOLLOWS])
        self._read_memories = TTLCache[bytes, bytes](_MEMORY_BYTES, size_of=len)
        self._senses = TTLCache[bytes, dict[str, float]](_SENSES)  # of messages that may ask for something
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="judge", initializer=lower_thread_priority)
        # Creating the session for pairs takes longer than a request may wait.
        self._pool.submit(pairs.open)

    def begin(self, text: str) -> None:
        self._embedder.begin(text)

    async def read(self, text: str, *, closely: bool = False) -> Reading:
        """A message that may ask something of memory is read again by the statement
        head, which is more accurate, and takes twice as long."""
        made = await self._embedder.read(text)
        needs, asks = self._message.judge(_states(made.states))
        may_ask = closely and max(asks.remember, asks.off_record, asks.rule) >= _MAY_ASK
        if may_ask or asks.forget >= _MAY_FORGET:
            key = _key(text)
            if (sense := self._senses.get(key)) is None:
                _, _, sense = await self._embedder.run(partial(self._statement.judge, text, text))
                self._senses.put(key, sense)
            asks = Asks(
                _surer(asks.remember, sense["remember"]),
                # A wish to remember is none to forget: the slower head is surer about which of the two it is.
                sense["forget"] if sense["remember"] >= 0.5 else _surer(asks.forget, sense["forget"]),
                _surer(asks.off_record, sense["off_record"]),
                _surer(asks.rule, sense["rule"]),
            )
        return Reading(made.vector, needs, asks, made.states)

    async def helps(
        self, message: Reading, memories: Sequence[MemoryText], stored: StoredReadings | None = None
    ) -> list[float]:
        """Memories that the cosine leaves open are read with the message."""
        if not memories:
            return []
        vectors = await asyncio.gather(*map(self._vector, memories))
        cosines = np.stack([_floats(vector) for vector in vectors]) @ _floats(message.vector)
        relevance = self._relevance
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
        return [await self._shown(content) for content in contents]

    async def _vector(self, memory: MemoryText) -> bytes:
        given = memory.vector if self.shares_space else None
        return given or (await self._embedder.embed([memory.content]))[0]

    async def _memory(self, content: str, reading: bytes | None) -> Array:
        """Return the memory as the relevance head reads it."""
        found = self._relevance.memory(reading)
        if found is None:
            found = self._relevance.memory(await self._shown(content))
        assert found is not None
        return found

    async def _shown(self, content: str) -> bytes:
        key = _key(content)
        if (found := self._read_memories.get(key)) is None:
            made = await self._embedder.read_passage(content)
            found = self._relevance.shown(_states(made.states))
            self._read_memories.put(key, found)
        return found

    async def covers(self, message: str, contents: Sequence[str]) -> list[float]:
        """In the embedder's threads, since a request waits for it."""
        judge = self._forget.judge
        return [(await self._embedder.run(partial(judge, message, one)))[0]["yes"] for one in contents]

    def profile(self, vectors: Sequence[bytes]) -> list[ProfileScores]:
        """Vectors of another model cannot be judged."""
        if not vectors or not self.shares_space:
            return [ProfileScores(0.0, 0.0) for _ in vectors]
        return self._profile.judge(np.stack([_floats(vector) for vector in vectors]))

    async def relations(self, pairs: Sequence[tuple[str, str]]) -> list[Relation]:
        judged = await self._each(pairs, self._relation)
        return [Relation(**found) for (found,) in judged]

    async def statements(self, pairs: Sequence[tuple[str, str]]) -> list[Statement]:
        judged = await self._each(pairs, self._statement)
        return [Statement(f["yes"], a["user"], a["other"], a["nobody"], sense) for f, a, sense in judged]

    def close(self) -> None:
        """End the threads, after the steps already handed to them."""
        self._pool.shutdown(wait=True)
        if not self.shares_space:
            self._embedder.close()

    async def _each(self, pairs: Sequence[tuple[str, str]], head: PairHead) -> list[list[dict[str, float]]]:
        """Judge one pair per step, so that several callers take turns."""
        run = asyncio.get_running_loop().run_in_executor
        try:
            return [await run(self._pool, head.judge, *pair) for pair in pairs]
        except RuntimeError as e:  # the pool was shut down
            raise EmbeddingFailed("the judge is closed") from e


def _surer(asked: float, meant: float) -> float:
    """Return the probability by both heads. The statement head counts only if the message head sees the
    request at all, since a message wrongly taken as off the record is lost."""
    return max(asked, meant) if asked >= _MAY_ASK else asked


def _key(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


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
    models_dir: Path, embedder: OnnxEmbedder | None, *, directory: Path = weights.DIRECTORY
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
        return LoadedJudge(OnnxJudge(embedder, directory, shares_space=shares_space))
    except EmbeddingFailed as e:
        if not shares_space:
            embedder.close()
        return LoadedJudge(None, str(e))
