"""Heads that read two texts (relation, statement, forget), with the encoder's matrices changed by each."""

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from proxy.domain.errors import EmbeddingFailed
from proxy.models.embedder import Encoder
from proxy.models.load import onnx_session
from proxy.models.vocabulary import MAX_TOKENS, Vocabulary
from proxy.models.weights import LAYERS, PAIR_GRAPH, WIDTH, Array, HeadFile

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, OrtValue

# The encoder's names of the matrices, and those of their changes in a head's file.
_LAYER = "encoder.layers."
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
            logits = (matrix @ both + bias) / temperature + offsets
            odds = np.exp(logits - logits.max())
            chances = odds / odds.sum()
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
                f"{name}{i}_{part}": value(np.ascontiguousarray(arrays[f"{_LAYER}{i}.{trained}.{part}"].T))
                for i in range(LAYERS)
                for name, trained in _MATRICES.items()
                for part in ("down", "up")
            }
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
