"""Whether a memory helps with a message. The cosine decides where it leaves no doubt; for the other memories
a small transformer reads the hidden states of both texts together, all candidates in one batch.

The file holds `cosine` (slope and constant of a logistic curve) and, if it has a reader, the reader's arrays:
projections of both texts' states (`pq`, `pm`, their norms `nq`, `nm`, the rows `seg`), two blocks `bl.N` that
attend to both texts as one, and two layers `f1`, `f2` over what is pooled and the cosine. The card's `open`
(two probabilities) and `most` say which memories are read: none if the nearest one's chance by the cosine is
above the second, else the `most` nearest of those above the first.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from proxy.domain.errors import EmbeddingFailed
from proxy.models.heads import HeadFile, check, complete, gelu, linear, sigmoid
from proxy.models.load import onnx_session
from proxy.models.memory_e5 import WIDTH
from proxy.models.weights import Array

LABEL = "helps"  # the offset's name in the card
MESSAGE_TOKENS, MEMORY_TOKENS = 64, 48
BLOCKS, HEADS = 2, 4
GRAPH = Path(__file__).with_name("relevance.onnx")
_COSINE_SCALE = 4.0
_EPSILON = 1e-5
_FAR = np.float32(-1e4)
_TAG = 8  # bytes of the weights' checksum before a stored memory


class RelevanceHead:
    """Judges (message, memory) by the cosine, and by reading both where there is a reader."""

    def __init__(self, file: HeadFile) -> None:
        arrays = complete(file, (), ("cosine",))
        try:
            self._slope, self._constant = arrays["cosine"].tolist()
            self._low, self._high = map(float, file.card.get("open", (0.0, 1.0)))
            self._most = int(file.card.get("most", 12))
            self._temperature = float(file.card.get("temperature", 1.0))
        except (TypeError, ValueError) as e:
            raise EmbeddingFailed(f"{file.path.name} does not hold what its head needs") from e
        self._offset = float(file.offsets((LABEL,))[0])
        self.reader = _Reader(file) if "pq.weight" in arrays else None
        self._tag = bytes.fromhex(str(file.card.get("sha256", ""))[:16].rjust(16, "0"))

    def by_cosine(self, cosines: Array) -> list[float]:
        """Return the chances that memories of these cosines help."""
        odds = self._slope * cosines + self._constant + self._offset
        return [float(chance) for chance in sigmoid(odds)]

    def open(self, chances: Sequence[float]) -> list[int]:
        """Return the places of the memories that have to be read."""
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
        """Return the memory as `read` takes it; None for one that another head, or nothing, has made."""
        if shown is None or self.reader is None or shown[:_TAG] != self._tag:
            return None
        scale = np.frombuffer(shown, np.float32, 1, _TAG)[0]
        return np.asarray(
            np.frombuffer(shown, np.int8, offset=_TAG + 4).reshape(-1, self.reader.width) * scale
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
        self._session = onnx_session(GRAPH)
        self.width = int(self._arrays["seg"].shape[1])
        some = np.zeros((2, WIDTH), np.float32)
        check(file.name, self.logits(some, [self.memory(some)], np.zeros(1, np.float32)))

    def memory(self, states: Array) -> Array:
        """Return a memory's states as the blocks see them. Raises EmbeddingFailed."""
        return self._projected("pm", "nm", states, segment=1)

    def logits(self, states: Array, memories: Sequence[Array], cosines: Array) -> Array:
        """Return one logit a memory. Raises EmbeddingFailed."""
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
