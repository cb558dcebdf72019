"""Weights of small BERT encoders as int8, packed once: of all-MiniLM-L6-v2 from the published safetensors
file, of multilingual-e5-small see e5.py.

The graphs (16 and 32 kB, committed) hold no weights: they refer to (offset, length) pairs of a file that is
written beside the operator's data. `tensors` is the single source of truth for both:
`scripts/dev/make_graph.py` lays a graph out by it, `write` the bytes.

Quantisation: matrices have one scale per output column and seven bits (±63), since AVX2 machines
without VNNI saturate when they add two products of eight-bit values; the word table has one scale per
row and eight bits, since it is only looked up.
"""

import hashlib
import json
import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxy.errors import EmbeddingFailed

SOURCE_NAME = "model.safetensors"
SOURCE_SIZE = 90_868_376
SOURCE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

# Raise the number whenever the layout or the quantisation changes: older packed files are then replaced.
_FORMAT = b"MPMINI01"
_HEADER = struct.Struct("<8sIQ")  # format, CRC-32 of the body, length of the body
_BODY = 4096  # the body starts on a page of its own, so that onnxruntime can map what it refers to
_PAGE_FROM = 65_536  # tensors from this size start on a page, smaller ones on a cache line

Array = NDArray[Any]
Published = Callable[[str], Array]  # a tensor's published name to its float32 values
Named = Iterable[tuple[str, Array]]


@dataclass(frozen=True, slots=True)
class Layout:
    """A graph, and the name of the file of its weights."""

    graph: Path
    packed_name: str


MINILM = Layout(Path(__file__).with_name("minilm-int8.onnx"), "minilm-int8.bin")
QUESTION = Layout(Path(__file__).with_name("minilm-question-int8.onnx"), "minilm-question-int8.bin")
READER = Layout(Path(__file__).with_name("minilm-reader-int8.onnx"), "minilm-reader-int8.bin")
MEMORY_E5 = Layout(Path(__file__).with_name("memory-e5-small-v1-int8.onnx"), "memory-e5-small-v1-int8.bin")
E5 = Layout(Path(__file__).with_name("multilingual-e5-small-int8.onnx"), "multilingual-e5-small-int8.bin")


@dataclass(frozen=True, slots=True)
class Placed:
    """One tensor and where its bytes lie in the packed file."""

    name: str
    array: Array
    offset: int


class NotWritten(EmbeddingFailed):
    """The packed file cannot be written where it should be."""


def ensure_packed(
    source: Path, target: Path, made: Callable[[Path], Named] | None = None, *, tag: bytes = _FORMAT
) -> Path:
    """Return `target`, packed from MiniLM's safetensors file `source` unless it is there, whole and current.
    `made` says what is packed (the embedder), `tag` (8 bytes) names its version.

    Safe when several processes start at once: each writes a file of its own and renames it into place,
    and all of them write the same bytes. Raises EmbeddingFailed with the reason, NotWritten where the
    directory of `target` takes no file.
    """

    def named() -> Named:
        _check_source(source)
        return (made or minilm)(source)

    return ensure(target, tag, named)


def ensure(target: Path, tag: bytes, named: Callable[[], Named]) -> Path:
    """Return `target`, with the tensors of `named` written into it unless it is whole and has this tag. As
    `ensure_packed`."""
    if not is_whole(target, tag):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write(named(), target, tag)
        except OSError as e:
            raise NotWritten(f"cannot pack {target.name}: {e.strerror or e}") from e
    return target


def is_whole(packed: Path, tag: bytes = _FORMAT) -> bool:
    """True if the packed file has this tag, the recorded length and the recorded checksum.

    Reads all of it (about 15 ms for 24 MB), which also brings in the pages that the session maps next.
    """
    checksum = length = 0
    try:
        with packed.open("rb") as file:
            header = file.read(_HEADER.size)
            file.seek(_BODY)
            while block := file.read(1 << 20):
                checksum = zlib.crc32(block, checksum)
                length += len(block)
    except OSError:
        return False
    return header == _HEADER.pack(tag, checksum, length)


def place(named: Named) -> Iterator[Placed]:
    """Yield every tensor of the packed file in file order, with its offset."""
    offset = _BODY
    for name, array in named:
        align = 4096 if array.nbytes >= _PAGE_FROM else 64
        offset += -offset % align
        yield Placed(name, np.ascontiguousarray(array), offset)
        offset += array.nbytes


def minilm(source: Path) -> Named:
    """Return the quantised tensors of all-MiniLM-L6-v2."""
    return tensors(read_safetensors(source), layers=6)


def tensors(get: Published, layers: int) -> Iterator[tuple[str, Array]]:
    """Yield (name, array) of the quantised model, made from the published tensors that `get` returns."""
    words, scale = _quantise(get("embeddings.word_embeddings.weight"), axis=1, peak=127)
    yield from (("word", words), ("word_scale", scale))
    # A sentence on its own is all of segment 0: that row is folded into the positions.
    segment = get("embeddings.token_type_embeddings.weight")[0]
    yield "position", get("embeddings.position_embeddings.weight") + segment
    yield from norm_in(get)
    yield from transformer(get, layers)


def norm_in(get: Published) -> Iterator[tuple[str, Array]]:
    """Yield (name, array) of the norm before the layers."""
    yield from _norm(get, "norm_in", "embeddings.LayerNorm")


def transformer(get: Published, layers: int) -> Iterator[tuple[str, Array]]:
    """Yield (name, array) of the quantised layers."""
    for i in range(layers):
        layer = f"encoder.layer.{i}."
        attention = [f"{layer}attention.self.{part}" for part in ("query", "key", "value")]
        yield from _linear(get, f"qkv{i}", attention)
        yield from _linear(get, f"attended{i}", [layer + "attention.output.dense"])
        yield from _norm(get, f"norm_attended{i}", layer + "attention.output.LayerNorm")
        yield from _linear(get, f"up{i}", [layer + "intermediate.dense"])
        yield from _linear(get, f"down{i}", [layer + "output.dense"])
        yield from _norm(get, f"norm_out{i}", layer + "output.LayerNorm")


def read_safetensors(path: Path) -> Published:
    """Return a function that maps a tensor's name to its float32 values, read lazily.

    Format: u64 length of a JSON header, the header, then the tensors at `data_offsets`.
    """
    raw = np.memmap(path, np.uint8, "r")
    start = 8 + int.from_bytes(raw[:8].tobytes(), "little")
    entries = json.loads(raw[8:start].tobytes())

    def get(name: str) -> Array:
        first, last = entries[name]["data_offsets"]
        return np.asarray(raw[start + first : start + last]).view(np.float32).reshape(entries[name]["shape"])

    return get


def _linear(get: Published, name: str, parts: list[str]) -> Iterator[tuple[str, Array]]:
    weight = np.concatenate([get(p + ".weight").T for p in parts], axis=1)
    quantised, scale = _quantise(weight, axis=0, peak=63)
    yield from ((name, quantised), (name + "_scale", scale.reshape(-1)))
    yield name + "_bias", np.concatenate([get(p + ".bias") for p in parts])


def _norm(get: Published, name: str, part: str) -> Iterator[tuple[str, Array]]:
    yield from ((name + "_gain", get(part + ".weight")), (name + "_bias", get(part + ".bias")))


def _quantise(weight: Array, *, axis: int, peak: int) -> tuple[Array, Array]:
    """Return symmetric int8 values in ±peak and the float32 scale of each slice along `axis`."""
    scale = np.maximum(np.abs(weight).max(axis=axis, keepdims=True), 1e-12) / np.float32(peak)
    return np.rint(weight / scale).astype(np.int8), scale.astype(np.float32)


def _check_source(path: Path) -> None:
    if not path.is_file():
        raise EmbeddingFailed(f"no {SOURCE_NAME} in {path.parent}")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SOURCE_SHA256:
        raise EmbeddingFailed(f"{path} is not the published all-MiniLM-L6-v2 (sha256 {digest[:12]}…)")


def write(named: Named, target: Path, tag: bytes = _FORMAT) -> None:
    """Write the packed file, so that no reader ever sees half of it."""
    handle, temporary = tempfile.mkstemp(prefix=target.name, suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            checksum, end = 0, _BODY
            file.seek(_BODY)
            for tensor in place(named):
                block = bytes(tensor.offset - end) + tensor.array.tobytes()
                file.write(block)
                checksum = zlib.crc32(block, checksum)
                end = tensor.offset + tensor.array.nbytes
            file.seek(0)
            file.write(_HEADER.pack(tag, checksum, end - _BODY))
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
