"""Encode a text to a unit vector with a tokenizer and an ONNX graph; synchronous, no files, no threads of
its own.

Every text is encoded separately. In a batch, int8 models scale activations over all texts at once, so that
a text's vector would depend on its neighbours (cosine .98 to the vector it has alone); on one core a batch
would save only a tenth of the time.

An encoder may be called from several threads at once: onnxruntime sessions and tokenizers both allow it.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from proxy.domain.errors import EmbeddingFailed

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

MAX_TOKENS = 256
# No more of a text is tokenised, half of it at either end: megabytes would take seconds.
MAX_CHARS = 16 * MAX_TOKENS
_GLANCE = 400  # characters that tell whether a text can be read
# Above this share of letters that the model's vocabulary does not have, its vector means nothing.
UNKNOWN_LIMIT = 0.25

_UNKNOWN_TOKENS = ("[UNK]", "<unk>")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_POOLED = "sentence_embedding"

_STATES = "states"

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Pass:
    """What one run over a text gave: the unit vector (float32), and of our encoder the last hidden states
    (float16, a row a token)."""

    vector: bytes
    states: bytes = b""


class TextTokenizer(Protocol):
    """What an encoder needs of a tokenizer. It truncates at what the model reads."""

    def ids(self, text: str) -> list[int]:
        """Return the token ids of a text, special tokens included."""
        ...

    def pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield each piece of the text, and True if the vocabulary does not have it."""
        ...


class HubTokenizer:
    """A tokenizer.json, read by `tokenizers`."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        tokenizer.no_padding()  # the published file pads everything to 128 tokens
        self._tokenizer = tokenizer
        self._unknown = {tokenizer.token_to_id(token) for token in _UNKNOWN_TOKENS} - {None}

    def ids(self, text: str) -> list[int]:
        """See TextTokenizer."""
        return self._tokenizer.encode(text).ids

    def pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """See TextTokenizer."""
        encoding = self._tokenizer.encode(text)
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            yield text[start:end], token in self._unknown


class Encoder:
    """One sentence model: mean (or first-token) pooling over its last layer, unit length.

    `directory`: where the weights of our own encoder lie, which the heads share; None for any other."""

    def __init__(
        self,
        session: "InferenceSession",
        tokenizer: TextTokenizer,
        *,
        pooling: str = "mean",
        directory: Path | None = None,
    ) -> None:
        self.tokenizer, self.directory = tokenizer, directory
        self._session = session
        self._inputs = {i.name: np.int32 if "int32" in i.type else np.int64 for i in session.get_inputs()}
        outputs = [o.name for o in session.get_outputs()]
        self._output = _POOLED if _POOLED in outputs else outputs[0]
        self.has_states = _STATES in outputs
        self._first_token = pooling == "cls"

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return one unit vector a text. Raises EmbeddingFailed."""
        return [self._pool(*self._run(text, [self._output])) for text in texts]

    def read(self, text: str) -> Pass:
        """Return all that one run over the text gives. Raises EmbeddingFailed."""
        if not self.has_states:
            return Pass(self.encode([text])[0].tobytes())
        pooled, states = self._run(text, [self._output, _STATES])
        return Pass(self._pool(pooled).tobytes(), states.astype(np.float16).tobytes())

    def understands(self, text: str) -> bool:
        """True while enough of the text's words are known to the model for its vector to mean something."""
        if text.isascii():
            return bool(text) and not text.isspace()
        total = unknown = 0
        for piece, is_unknown in self.tokenizer.pieces(readable(text)[:_GLANCE]):
            weight = _weight(piece)
            total += weight
            unknown += weight if is_unknown else 0
        return total > 0 and unknown / total < UNKNOWN_LIMIT

    def _run(self, text: str, outputs: list[str]) -> list[Vector]:
        """Return these outputs of a run over one text."""
        try:
            made = self._session.run(outputs, self._feed(self.tokenizer.ids(readable(text))))
        except Exception as e:  # the errors of onnxruntime and tokenizers have no base class of their own
            raise EmbeddingFailed(f"the embedding model failed: {type(e).__name__}") from e
        return [np.asarray(output[0], np.float32) for output in made]

    def _feed(self, tokens: list[int]) -> dict[str, NDArray[np.integer]]:
        """Return the graph's inputs for one text: it asks for two or three, as int64 or int32."""
        shape = (1, len(tokens))
        values = {"input_ids": [tokens], "attention_mask": np.ones(shape), "token_type_ids": np.zeros(shape)}
        return {name: np.asarray(values[name], kind) for name, kind in self._inputs.items()}

    def _pool(self, output: Vector) -> Vector:
        """Return the unit vector of (tokens, dimension), or of what the graph has pooled already."""
        if output.ndim == 2:
            # The sum and the mean have the same direction, and length is taken out below.
            output = output[0] if self._first_token else output.sum(axis=0)
        return _unit(output)


def _unit(vector: Vector) -> Vector:
    norm = np.linalg.norm(vector)
    if not np.isfinite(norm) or norm == 0:
        raise EmbeddingFailed("the embedding model returned no direction")
    return vector / norm


def readable(text: str) -> str:
    """Return both ends of the text, without what UTF-8 cannot hold."""
    return _LONE_SURROGATE.sub("\ufffd", edges(text))


def edges(text: str) -> str:
    """Return the text without the middle that no model reads."""
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS // 2] + text[-MAX_CHARS // 2 :]


def _weight(piece: str) -> int:
    """Return how much a piece says, in letters: an emoji nothing, a Chinese character three."""
    return sum(3 if unicodedata.east_asian_width(c) in "WF" else 1 for c in piece if c.isalnum())
