"""The encoder's heads: of a message, of a memory's vector, of a message and a memory, and of two texts.

A head is `heads/NAME.npz` with its card `heads/NAME.json`: `name`, `version` (the encoder that it was trained
on), `sha256` of the weights, `offsets` (label to a number that is added to its logit, so that 0.5 is the
operating point), `temperature`, and the scores on users left out. Matrices are int8 rows with a scale (`X.q`,
`X.s`) or plain. `scripts/dev/make_head.py` installs a trained head.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from proxy.domain.errors import EmbeddingFailed
from proxy.domain.judging import Asks, Needs, ProfileScores
from proxy.models.embedder import Encoder
from proxy.models.load import onnx_session
from proxy.models.vocabulary import MAX_TOKENS, Vocabulary
from proxy.models.weights import ENCODER_NAME, LAYERS, PAIR_GRAPH, WIDTH, Array

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, OrtValue


DIRECTORY = Path(__file__).with_name("heads")
NEEDS = ("memory", "small_talk", "world", "tool", "self_contained")
ASKS = ("remember", "forget", "off_record", "rule")
PROFILE = ("rule", "trait")
_VECTOR_SCALE = 8  # unit vectors of 384 numbers are small for a network


@dataclass(frozen=True, slots=True)
class HeadFile:
    """One head's card, and the path of its weights."""

    path: Path
    card: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.path.stem

    def arrays(self) -> dict[str, Array]:
        """Return the weights as float32. Raises EmbeddingFailed."""
        try:
            with np.load(self.path) as file:
                found = {name: np.asarray(file[name], np.float32) for name in file.files}
        except (OSError, ValueError) as e:
            raise EmbeddingFailed(f"{self.path.name} cannot be read") from e
        for name in [name for name in found if name.endswith(".q")]:
            found[name.removesuffix(".q")] = found.pop(name) * found.pop(f"{name[:-2]}.s")
        return found

    def offsets(self, labels: Sequence[str]) -> Array:
        """Return the offsets of the labels' logits."""
        given = self.card.get("offsets", {})
        return np.array([float(given.get(label, 0.0)) for label in labels], np.float32)


def read_head(name: str, directory: Path = DIRECTORY) -> HeadFile:
    """Return the head's file, checked. Raises EmbeddingFailed with the reason."""
    path = directory / f"{name}.npz"
    remedy = "install memory-proxy again"
    try:
        card = json.loads(path.with_suffix(".json").read_bytes())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        wanted = (card["name"], card["version"], card["sha256"])
    except OSError as e:
        raise EmbeddingFailed(f"the head {name} is missing: {remedy}") from e
    except (ValueError, KeyError, TypeError) as e:
        raise EmbeddingFailed(f"the card of the head {name} cannot be read: {remedy}") from e
    if wanted[:2] != (name, ENCODER_NAME):
        raise EmbeddingFailed(f"the head {name} is of another version ({wanted[1]}): {remedy}")
    if digest != wanted[2]:
        raise EmbeddingFailed(f"{path.name} is damaged: {remedy}")
    return HeadFile(path, card)


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


def complete(file: HeadFile, layers: Sequence[str], others: Sequence[str] = ()) -> dict[str, Array]:
    """Return the weights of a head that needs these layers and arrays. Raises EmbeddingFailed."""
    arrays = file.arrays()
    names = [*others, *(f"{layer}.{part}" for layer in layers for part in ("weight", "bias"))]
    if missing := [name for name in names if name not in arrays]:
        raise EmbeddingFailed(f"{file.path.name} lacks {missing[0]}")
    return arrays


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
    other memories a small transformer, the reader, reads the hidden states of both texts together, in one
    batch.

    The file holds `cosine` (slope and constant of a logistic curve) and, if it has a reader, the reader's
    arrays: projections of both texts' states (`pq`, `pm`, their norms `nq`, `nm`, the rows `seg`), two
    blocks `bl.N` that attend to both texts as one, and two layers `f1`, `f2` over the pooled states and
    the cosine. The card's `open` (two probabilities) and `most` say which memories are read: none if the
    nearest one's chance by the cosine is above the second, else the `most` nearest of those above the
    first."""

    def __init__(self, file: HeadFile) -> None:
        arrays = complete(file, (), ("cosine",))
        try:
            self._slope, self._constant = arrays["cosine"].tolist()
            self._low, self._high = map(float, file.card.get("open", (0.0, 1.0)))
            self._most = int(file.card.get("most", 12))
            self._temperature = float(file.card.get("temperature", 1.0))
        except (TypeError, ValueError) as e:
            raise EmbeddingFailed(f"{file.path.name} does not hold what its head needs") from e
        self._offset = float(file.offsets((RELEVANCE_LABEL,))[0])
        self.reader = _Reader(file) if "pq.weight" in arrays else None
        self._tag = bytes.fromhex(str(file.card.get("sha256", ""))[:16].rjust(16, "0"))

    def by_cosine(self, cosines: Array) -> list[float]:
        """Return the chances that memories with these cosines help."""
        odds = self._slope * cosines + self._constant + self._offset
        return [float(chance) for chance in sigmoid(odds)]

    def open(self, chances: Sequence[float]) -> list[int]:
        """Return the indices of the memories that have to be read."""
        if self.reader is None or max(chances) > self._high:
            return []
        nearest = sorted(range(len(chances)), key=lambda at: -chances[at])[: self._most]
        return [at for at in nearest if chances[at] >= self._low]

    def read(self, states: Array, memories: Sequence[Array], cosines: Array) -> list[float]:
        """Return the chances of memories (as `shown` returns them) for the message of these hidden states.
        Blocks, some milliseconds. Raises EmbeddingFailed."""
        assert self.reader is not None
        logits = self.reader.logits(states[:MESSAGE_TOKENS], memories, cosines)
        check("relevance", logits)
        return [float(chance) for chance in sigmoid(logits / self._temperature + self._offset)]

    def shown(self, states: Array) -> bytes:
        """Return the memory of these hidden states as it is stored: int8 with one scale, a tenth of them."""
        assert self.reader is not None
        read = self.reader.memory(states[:MEMORY_TOKENS])
        scale = np.abs(read).max() / 127 or np.float32(1)
        return self._tag + np.float32(scale).tobytes() + np.round(read / scale).astype(np.int8).tobytes()

    def memory(self, shown: bytes | None) -> Array | None:
        """Return the memory as `read` takes it; None without a stored reading of this head."""
        if shown is None or self.reader is None or shown[:_TAG_BYTES] != self._tag:
            return None
        scale = np.frombuffer(shown, np.float32, 1, _TAG_BYTES)[0]
        return np.asarray(
            np.frombuffer(shown, np.int8, offset=_TAG_BYTES + 4).reshape(-1, self.reader.width) * scale
        )


class _Reader:
    """The transformer over two texts' states."""

    def __init__(self, file: HeadFile) -> None:
        import onnxruntime

        blocks = [f"bl.{n}.{part}" for n in range(BLOCKS) for part in ("n1", "qkv", "o", "n3", "up", "dn")]
        self._arrays = complete(file, ("pq", "pm", "nq", "nm", "f1", "f2", *blocks), ("seg",))
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        self._feed = {
            f"{block}.{part}": value(np.ascontiguousarray(self._arrays.pop(f"{block}.{part}").T))
            for block in blocks
            for part in ("weight", "bias")
        }
        self._session = onnx_session(RELEVANCE_GRAPH)
        self.width = int(self._arrays["seg"].shape[1])
        some = np.zeros((2, WIDTH), np.float32)
        check(file.name, self.logits(some, [self.memory(some)], np.zeros(1, np.float32)))

    def memory(self, states: Array) -> Array:
        """Return a memory's states as the blocks see them. Raises EmbeddingFailed."""
        return self._projected("pm", "nm", states, segment=1)

    def logits(self, states: Array, memories: Sequence[Array], cosines: Array) -> Array:
        """Return one logit per memory. Raises EmbeddingFailed."""
        message = self._projected("pq", "nq", states, segment=0)
        length, lengths = len(message), np.array([len(memory) for memory in memories])
        tokens = np.zeros((len(memories), length + lengths.max(), message.shape[1]), np.float32)
        tokens[:, :length] = message
        for at, memory in enumerate(memories):
            tokens[at, length : length + len(memory)] = memory
        known = np.arange(tokens.shape[1]) < length + lengths[:, None]
        read = self._read(tokens, known)
        pooled = [
            *_pooled(read[:, :length], known[:, :length]),
            *_pooled(read[:, length:], known[:, length:]),
        ]
        try:
            both = np.concatenate([*pooled, cosines[:, None] * np.float32(_COSINE_SCALE)], axis=1)
            return linear(self._arrays, "f2", gelu(linear(self._arrays, "f1", both)))[:, 0]
        except ValueError as e:
            raise EmbeddingFailed("the weights of the head relevance do not fit") from e

    def _projected(self, layer: str, norm: str, states: Array, *, segment: int) -> Array:
        a = self._arrays
        try:
            x = linear(a, layer, states)
            x = x - x.mean(axis=-1, keepdims=True)
            x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(_EPSILON))
            return np.asarray(x * a[norm + ".weight"] + a[norm + ".bias"] + a["seg"][segment])
        except (ValueError, IndexError) as e:
            raise EmbeddingFailed("the weights of the head relevance do not fit") from e

    def _read(self, tokens: Array, known: Array) -> Array:
        import onnxruntime

        value = onnxruntime.OrtValue.ortvalue_from_numpy
        feed = {"tokens": value(tokens), "known": value(known.astype(np.int32)), **self._feed}
        try:
            (made,) = self._session.run_with_ort_values(["read"], feed)
        except Exception as e:  # the errors of onnxruntime have no base class of their own
            raise EmbeddingFailed(f"the head relevance failed: {type(e).__name__}") from e
        return np.asarray(made.numpy())


def _pooled(x: Array, known: Array) -> tuple[Array, Array]:
    """Return the mean and the maximum over the known tokens."""
    seen = known[..., None]
    mean = np.where(seen, x, np.float32(0)).sum(axis=1) / known.sum(axis=1, keepdims=True)
    return np.asarray(mean, np.float32), np.where(seen, x, _FAR).max(axis=1)


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
        import onnxruntime

        session = self.open()
        try:
            a, b = self._tokens(first, second)
            segments = np.zeros((1, len(a) + len(b), WIDTH), np.float32)
            segments[0, len(a) :] = second_segment
            value = onnxruntime.OrtValue.ortvalue_from_numpy
            feed = {"input_ids": value(np.array([a + b], np.int64)), "segments": value(segments), **changes}
            (made,) = session.run_with_ort_values(["states"], feed)
            return np.asarray(made.numpy()[0], np.float32), len(a)
        except Exception as e:  # the errors of onnxruntime have no base class of their own
            raise EmbeddingFailed(f"the encoder failed on two texts: {type(e).__name__}") from e

    def _tokens(self, first: str, second: str) -> tuple[list[int], list[int]]:
        b = self._tokenizer.all_ids(second)[1:][: MAX_TOKENS // 2]
        return self._tokenizer.ids(first, MAX_TOKENS - len(b)), b

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
        self._weights: _Weights | None = None

    def judge(self, first: str, second: str) -> list[dict[str, float]]:
        """Return the probabilities by label, one dict per question. Blocks. Raises EmbeddingFailed."""
        if self._weights is None:
            self._weights = _Weights(self._file, self._labels)
        weights = self._weights
        states, length = self.model.states(first, second, weights.second, weights.changes)
        both = np.concatenate([states[:length].mean(axis=0), states[length:].mean(axis=0)])
        found = []
        for labels, (matrix, bias), temperature, offsets in zip(
            self._labels, weights.outs, weights.temperatures, weights.offsets, strict=True
        ):
            chances = softmax((matrix @ both + bias) / temperature + offsets)
            if not np.isfinite(chances).all():
                raise EmbeddingFailed(f"the head {self._file.name} returned no number")
            found.append(dict(zip(labels, chances.tolist(), strict=True)))
        return found


class _Weights:
    """The weights of a head's file, prepared for use. Raises EmbeddingFailed."""

    def __init__(self, file: HeadFile, labels: Sequence[Sequence[str]]) -> None:
        import onnxruntime

        arrays = file.arrays()
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        try:
            self.second = arrays["second"]
            self.changes = {
                f"{name}{i}_{part}": value(
                    np.ascontiguousarray(arrays[f"encoder.layers.{i}.{trained}.{part}"].T)
                )
                for i in range(LAYERS)
                for name, trained in _MATRICES.items()
                for part in ("down", "up")
            }
            self.outs = [(arrays[f"outs.{n}.weight"], arrays[f"outs.{n}.bias"]) for n in range(len(labels))]
            self.offsets = [file.offsets(names) for names in labels]
            given = file.card.get("temperature", 1.0)
            self.temperatures = [
                float(t) for t in (given if isinstance(given, list) else [given] * len(labels))
            ]
        except (KeyError, TypeError, ValueError) as e:
            raise EmbeddingFailed(f"{file.path.name} does not hold what its head needs") from e
        fitting = [(len(names), 2 * WIDTH) for names in labels]
        if [matrix.shape for matrix, _ in self.outs] != fitting or len(self.temperatures) != len(labels):
            raise EmbeddingFailed(f"{file.path.name} does not fit its classes")
