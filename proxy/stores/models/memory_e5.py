"""memory-e5-small-v1: six fine-tuned encoder layers, shipped with the project, on the word embeddings of the
published multilingual-e5-small.

`memory-e5-small-v1.npz` holds the layers as int8 with a scale per output row; they were distilled from a
fine-tuned twelve-layer multilingual-e5-small. A question and a memory that answers it have a high cosine in
any language, so neither glosses nor an encoder of its own for questions are needed. The word embeddings and
the vocabulary are those that `scripts/install multilingual` fetches (e5.py); the graph maps the word
embeddings from that file.

The vocabulary is read by SentencePiece: `tokenizers` needs 280 MB of private memory for its 250,000 pieces,
SentencePiece 54 MB and an eighth of the time for each text. Both return the same tokens.
"""

import hashlib
import json
import os
import re
import struct
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from proxy.errors import EmbeddingFailed
from proxy.stores.models import weights
from proxy.stores.models.weights import Array

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

LAYERS = 6
_LAYOUT = 1  # raise it if the layout or the quantisation of the packed file changes
MAX_TOKENS = 128  # rows of the position table
TUNED = Path(__file__).with_name("memory-e5-small-v1.npz")
TUNED_SHA256 = "ab768d2f8a7802b862d5ed25731d3ed5ca7a9b42e0b7b927cad4736ceb6d32d3"
WORDS = ("word", "word_scale")  # tensors of the published file that the graph refers to
VOCABULARY_NAME = "multilingual-e5-small.model"
VOCABULARY_SHA256 = "be70b20af94becf15e2cf0db087b72c04cc063418682a1558719f610bca31562"

_BEGIN, _END, _UNKNOWN = 0, 2, 3
_HIDDEN = 384
_NORMS = {"attention.output.LayerNorm": "n1", "output.LayerNorm": "n2"}
_LINEAR = {"attention.output.dense": "ao", "intermediate.dense": "up", "output.dense": "down"}
_QKV = ("query", "key", "value")


def pack(into: Path) -> Path:
    """Return the packed file of the layers in the directory `into`; one of other layers is written again.
    Raises EmbeddingFailed."""
    try:
        digest = _digest(TUNED)
    except OSError as e:
        raise EmbeddingFailed(f"{TUNED.name} is missing: install memory-proxy again") from e
    if digest != TUNED_SHA256:
        raise EmbeddingFailed(f"{TUNED.name} is damaged or of another version: install memory-proxy again")
    tag = bytes.fromhex(digest[:14]) + bytes([_LAYOUT])
    return weights.ensure(into / weights.MEMORY_E5.packed_name, tag, tensors)


def tensors() -> Iterator[tuple[str, Array]]:
    """Yield (name, array) of everything but the word embeddings, as packed."""
    with np.load(TUNED) as held:
        tuned = {name: np.asarray(held[name], np.float32) for name in held.files}
    yield "position", _matrix(tuned, "pos") + tuned["seg"]

    def get(published: str) -> Array:
        return _tuned(tuned, published)

    yield from weights.norm_in(get)
    yield from weights.transformer(get, LAYERS)
    for i in range(LAYERS):
        for part in ("up", "down"):
            yield f"{part}{i}_smooth", 1 / tuned[f"layers.{i}.{part}.smooth"]


def _tuned(tuned: dict[str, Array], published: str) -> Array:
    """Return the float32 tensor of this published name."""
    if published.startswith("embeddings.LayerNorm."):
        return tuned["n0." + published.rsplit(".", 1)[1]]
    _, _, layer, rest = published.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    name = f"layers.{layer}."
    if part in _NORMS:
        return tuned[f"{name}{_NORMS[part]}.{kind}"]
    if part in _LINEAR:
        name += f"{_LINEAR[part]}.{kind}"
        if kind == "bias":
            return tuned[name]
        # Of `up` and `down` some input channels are divided by this (scripts/dev/make_memory_e5.py says why).
        smooth = tuned.get(name.replace(".weight", ".smooth"))
        return _matrix(tuned, name) if smooth is None else _matrix(tuned, name) * smooth
    name += f"qkv.{kind}"
    first = _QKV.index(part.rsplit(".", 1)[1]) * _HIDDEN
    return (tuned[name] if kind == "bias" else _matrix(tuned, name))[first : first + _HIDDEN]


def _matrix(tuned: dict[str, Array], name: str) -> Array:
    return np.asarray(tuned[name + ".q"] * tuned[name + ".s"])


# The text as the published model's normaliser (nmt_nfkc) leaves it: control characters are dropped, every
# separator is a space, then NFKC.
_DROPPED = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]")
_SEPARATOR = re.compile("[\t\n\x0c\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]")


class SentencePieceTokenizer:
    """Implements encoder.TextTokenizer with the vocabulary file that `write_vocabulary` makes."""

    def __init__(self, processor: "SentencePieceProcessor") -> None:
        self._processor = processor

    def ids(self, text: str) -> list[int]:
        """See encoder.TextTokenizer. Special tokens that are spelt out in a text are read as text."""
        found = self._processor.encode(_normalised(text))
        return [_BEGIN, *found[: MAX_TOKENS - 2], _END]

    def pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """See encoder.TextTokenizer; pieces of the normalised text."""
        text = _normalised(text)
        for piece in self._processor.encode(text, out_type=str)[: MAX_TOKENS - 2]:
            yield piece, self._processor.piece_to_id(piece) == _UNKNOWN


def _normalised(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return unicodedata.normalize("NFKC", _SEPARATOR.sub(" ", _DROPPED.sub("", text)))


def read_vocabulary(directory: Path) -> SentencePieceTokenizer:
    """Return the tokenizer of the vocabulary file in `directory`. Raises EmbeddingFailed."""
    path = directory / VOCABULARY_NAME
    if not is_vocabulary(path):
        what = "is damaged" if path.exists() else "is missing"
        raise EmbeddingFailed(f"{VOCABULARY_NAME} in {directory} {what}: run scripts/install multilingual")
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError as e:
        raise EmbeddingFailed("sentencepiece cannot be imported") from e
    try:
        return SentencePieceTokenizer(SentencePieceProcessor(model_file=str(path)))
    except (RuntimeError, OSError) as e:
        raise EmbeddingFailed(f"{VOCABULARY_NAME} cannot be read") from e


def is_vocabulary(path: Path) -> bool:
    """True if the file is the vocabulary of this version."""
    try:
        return _digest(path) == VOCABULARY_SHA256
    except OSError:
        return False


def write_vocabulary(directory: Path) -> None:
    """Make the vocabulary file of `directory` from its tokenizer.json. Raises EmbeddingFailed, OSError."""
    try:
        vocabulary = json.loads((directory / "tokenizer.json").read_bytes())["model"]["vocab"]
        content = _sentencepiece_model(vocabulary)
    except (ValueError, KeyError, TypeError) as e:
        raise EmbeddingFailed(f"tokenizer.json in {directory} holds no vocabulary") from e
    if hashlib.sha256(content).hexdigest() != VOCABULARY_SHA256:
        raise EmbeddingFailed(f"tokenizer.json in {directory} is not the published one")
    handle, temporary = tempfile.mkstemp(prefix=VOCABULARY_NAME, suffix=".tmp", dir=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, directory / VOCABULARY_NAME)
    except BaseException:
        os.unlink(temporary)
        raise


def _sentencepiece_model(vocabulary: list[list[Any]]) -> bytes:
    """Return sentencepiece_model.proto's ModelProto of (piece, score) pairs in the order of their ids. Its
    normaliser does nothing (`_normalised` does it) but for spaces."""
    pieces = b"".join(_message(1, _piece(piece, score)) for piece, score in vocabulary)
    unigram = 1
    # trainer_spec: model_type, then unk_id, bos_id, eos_id, pad_id
    trainer = _number(3, unigram) + _number(40, 3) + _number(41, 0) + _number(42, 2) + _number(43, 1)
    # normalizer_spec: name, add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces
    normaliser = _message(1, b"identity") + _number(3, 1) + _number(4, 1) + _number(5, 1)
    return pieces + _message(2, trainer) + _message(3, normaliser)


_TYPES = {"<s>": 3, "<pad>": 3, "</s>": 3, "<mask>": 3, "<unk>": 2}  # 3: control, 2: unknown; others: normal


def _piece(piece: str, score: float) -> bytes:
    kind = _TYPES.get(piece)
    return (
        _message(1, piece.encode())
        + struct.pack("<Bf", 2 << 3 | 5, score)
        + (_number(3, kind) if kind else b"")
    )


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _varint(value: int) -> bytes:
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
