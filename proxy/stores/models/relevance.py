"""Whether a memory helps with a message. The cosine decides where it leaves no doubt; for the other memories
a small transformer reads the hidden states of both texts together, all candidates in one batch.

The file holds `cosine` (slope and constant of a logistic curve) and, if it has a reader, the reader's arrays:
projections of both texts' states (`pq`, `pm`, their norms `nq`, `nm`, the rows `seg`), blocks `bl.N`, and two
layers `f1`, `f2` over what is pooled and the cosine. It has two forms, told apart by the width of `f1`:
"joint" blocks attend to both texts as one, "cross" blocks let the message look at the memory. The card's
`open` (two probabilities) says between which chances by the cosine a memory is read.
"""

import re
from collections.abc import Sequence

import numpy as np

from proxy.errors import EmbeddingFailed
from proxy.stores.models.heads import HeadFile, check, complete, gelu, linear, sigmoid
from proxy.stores.models.memory_e5 import WIDTH
from proxy.stores.models.weights import Array

LABEL = "helps"  # the offset's name in the card
MESSAGE_TOKENS, MEMORY_TOKENS = 64, 48
_HEADS = 4
_COSINE_SCALE = 4.0
_EPSILON = 1e-5
_FAR = np.float32(-1e4)


class RelevanceHead:
    """Judges (message, memory) by the cosine, and by reading both where there is a reader."""

    def __init__(self, file: HeadFile) -> None:
        arrays = complete(file, (), ("cosine",))
        try:
            self._slope, self._constant = arrays["cosine"].tolist()
            self._low, self._high = map(float, file.card.get("open", (0.0, 1.0)))
            self._temperature = float(file.card.get("temperature", 1.0))
        except (TypeError, ValueError) as e:
            raise EmbeddingFailed(f"{file.path.name} does not hold what its head needs") from e
        self._offset = float(file.offsets((LABEL,))[0])
        self.reader = _Reader(file) if "pq.weight" in arrays else None

    def by_cosine(self, cosines: Array) -> list[float]:
        """Return the chances that memories of these cosines help."""
        return [float(chance) for chance in sigmoid(self._slope * cosines + self._constant)]

    def open(self, chances: Sequence[float]) -> list[int]:
        """Return the places of the memories that have to be read."""
        if self.reader is None:
            return []
        return [at for at, chance in enumerate(chances) if self._low <= chance <= self._high]

    def read(self, states: Array, memories: Sequence[Array], cosines: Array) -> list[float]:
        """Return the chances of memories (as `shown` returns them) for the message of these hidden states.
        Blocks, some milliseconds. Raises EmbeddingFailed."""
        assert self.reader is not None
        logits = self.reader.logits(states[:MESSAGE_TOKENS], memories, cosines)
        check("relevance", logits)
        return [float(chance) for chance in sigmoid(logits / self._temperature + self._offset)]

    def shown(self, states: Array) -> Array:
        """Return the memory of these hidden states as `read` takes it: a quarter of them."""
        assert self.reader is not None
        return self.reader.memory(states[:MEMORY_TOKENS]).astype(np.float16)


class _Reader:
    """The transformer over two texts' states."""

    def __init__(self, file: HeadFile) -> None:
        arrays = file.arrays()
        self._blocks = 1 + max((int(found[1]) for found in map(_BLOCK.match, arrays) if found), default=-1)
        self._joint = arrays["f1.weight"].shape[1] == 4 * len(arrays["pq.weight"]) + 1
        parts = ("n1", "qkv", "o", "n3", "up", "dn") + (() if self._joint else ("n2", "cq", "ckv", "co"))
        blocks = [f"bl.{n}.{part}" for n in range(self._blocks) for part in parts]
        self._arrays = complete(file, ("pq", "pm", "nq", "nm", "f1", "f2", *blocks), ("seg",))
        some = np.zeros((2, WIDTH), np.float32)
        try:
            check(file.name, self.logits(some, [self.memory(some)], np.zeros(1, np.float32)))
        except (ValueError, IndexError) as e:
            raise EmbeddingFailed(f"the weights of the head {file.name} do not fit") from e

    def memory(self, states: Array) -> Array:
        """Return a memory's states as the blocks see them."""
        return np.asarray(self._norm("nm", linear(self._arrays, "pm", states)) + self._arrays["seg"][1])

    def logits(self, states: Array, memories: Sequence[Array], cosines: Array) -> Array:
        """Return one logit a memory."""
        a, count = self._arrays, len(memories)
        message = self._norm("nq", linear(a, "pq", states)) + a["seg"][0]
        longest = max(len(memory) for memory in memories)
        told = np.zeros((count, longest, message.shape[1]), np.float32)
        known = np.zeros((count, longest), bool)
        for at, memory in enumerate(memories):
            told[at, : len(memory)], known[at, : len(memory)] = memory, True
        asked = np.broadcast_to(message, (count, *message.shape))
        heard = np.ones((count, len(message)), bool)
        if self._joint:
            x, seen = np.concatenate([asked, told], axis=1), np.concatenate([heard, known], axis=1)
            for n in range(self._blocks):
                x = self._block(n, x, seen)
            asked, told = x[:, : len(message)], x[:, len(message) :]
            pooled = [*_pooled(asked, heard), *_pooled(told, known)]
        else:
            for n in range(self._blocks):
                asked = self._block(n, asked, heard, (told, known))
            pooled = [*_pooled(asked, heard), _pooled(told, known)[0]]
        both = np.concatenate([*pooled, cosines[:, None] * np.float32(_COSINE_SCALE)], axis=1)
        return linear(a, "f2", gelu(linear(a, "f1", both)))[:, 0]

    def _block(self, n: int, x: Array, known: Array, other: tuple[Array, Array] | None = None) -> Array:
        a, name = self._arrays, f"bl.{n}."
        query, key, value = np.split(linear(a, name + "qkv", self._norm(name + "n1", x)), 3, axis=-1)
        x = x + linear(a, name + "o", _attended(query, key, value, known))
        if other is not None:
            key, value = np.split(linear(a, name + "ckv", other[0]), 2, axis=-1)
            query = linear(a, name + "cq", self._norm(name + "n2", x))
            x = x + linear(a, name + "co", _attended(query, key, value, other[1]))
        return np.asarray(
            x + linear(a, name + "dn", gelu(linear(a, name + "up", self._norm(name + "n3", x))))
        )

    def _norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(_EPSILON))
        return np.asarray(centred / scale * self._arrays[name + ".weight"] + self._arrays[name + ".bias"])


_BLOCK = re.compile(r"bl\.(\d+)\.")


def _attended(query: Array, key: Array, value: Array, known: Array) -> Array:
    """Return the attention of each text's tokens to those of its `known` keys."""
    count, length, width = query.shape

    def heads(x: Array) -> Array:
        return x.reshape(count, -1, _HEADS, width // _HEADS).transpose(0, 2, 1, 3)

    scores = heads(query) @ heads(key).transpose(0, 1, 3, 2) / np.float32((width // _HEADS) ** 0.5)
    scores = np.where(known[:, None, None, :], scores, _FAR)
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    read = (odds / odds.sum(axis=-1, keepdims=True)) @ heads(value)
    return np.asarray(read.transpose(0, 2, 1, 3).reshape(count, length, width))


def _pooled(x: Array, known: Array) -> tuple[Array, Array]:
    """Return the mean and the maximum over the known tokens."""
    seen = known[..., None]
    mean = np.where(seen, x, np.float32(0)).sum(axis=1) / known.sum(axis=1, keepdims=True)
    return np.asarray(mean, np.float32), np.where(seen, x, _FAR).max(axis=1)
