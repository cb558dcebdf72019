"""Weights of the encoder as int8, packed once into files that onnxruntime maps.

The graphs (committed, some 20 kB) hold no weights: they refer to (offset, length) pairs of files in the
directory that scripts/fetch-models makes. What yields (name, array) is the single source of truth for both:
`scripts/dev/make_graph.py` lays a graph out by it, `write` the bytes.

Quantisation: matrices have one scale per output column and seven bits (±63), since AVX2 machines
without VNNI saturate when they add two products of eight-bit values; the word table has one scale per
row and eight bits, since it is only looked up.
"""

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

from proxy.domain.errors import EmbeddingFailed

_FORMAT = b"MPMINI01"  # of the word embeddings; the layers' tag is of their version
_HEADER = struct.Struct("<8sIQ")  # format, CRC-32 of the body, length of the body
_BODY = 4096  # the body starts on a page of its own, so that onnxruntime can map what it refers to
_PAGE_FROM = 65_536  # tensors from this size start on a page, smaller ones on a cache line

Array = NDArray[Any]
Named = Iterable[tuple[str, Array]]


@dataclass(frozen=True, slots=True)
class Placed:
    """One tensor and where its bytes lie in the packed file."""

    name: str
    array: Array
    offset: int


def ensure(target: Path, tag: bytes, named: Callable[[], Named]) -> Path:
    """Return `target`, with the tensors of `named` written into it unless it is whole and has this tag
    (8 bytes, for its version).

    Safe when several processes start at once: each writes a file of its own and renames it into place,
    and all of them write the same bytes. Raises EmbeddingFailed with the reason.
    """
    if not is_whole(target, tag):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write(named(), target, tag)
        except OSError as e:
            raise EmbeddingFailed(f"cannot pack {target.name}: {e.strerror or e}") from e
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


def quantised(weight: Array, *, axis: int, peak: int) -> tuple[Array, Array]:
    """Return symmetric int8 values in ±peak and the float32 scale of each slice along `axis`."""
    scale = np.maximum(np.abs(weight).max(axis=axis, keepdims=True), 1e-12) / np.float32(peak)
    return np.rint(weight / scale).astype(np.int8), scale.astype(np.float32)


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
