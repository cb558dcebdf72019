"""The encoder's weights as int8, packed once into files that onnxruntime maps.

The graphs (committed, some 20 kB) hold no weights: they refer to (offset, length) pairs of files in the
directory that scripts/fetch-models makes. What yields (name, array) is the single source of truth for both:
`scripts/dev/make_graph.py` lays a graph out by it, `write` the bytes.

Quantisation: matrices have one scale per output column and seven bits (±63), since AVX2 machines without
VNNI saturate when they add two products of eight-bit values; the word table has one scale per row and eight
bits, since it is only looked up.

Our encoder is six fine-tuned layers, shipped with the project (`memory-e5-small-vN.npz`: int8 with a scale
per output row), on the word embeddings of the published multilingual-e5-small, which scripts/fetch-models
brings. Changed layers are a new version: `scripts/dev/make_memory_e5.py` makes the file and prints the line
VERSION.
"""

import hashlib
import json
import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


# ---------------------------------------------------------------- the encoder's layers
# Our encoder: its name, which is the stamp of stores, and the checksum of its layers.
VERSION = ("memory-e5-small-v2", "a96c84c35c8ee37350fc31df1e9cc6ec60c4f25020fbff1dade1c60318841848")
ENCODER_NAME, TUNED_SHA256 = VERSION
TUNED = Path(__file__).with_name(f"{ENCODER_NAME}.npz")
# The same for every version of these layers (scripts/dev/make_graph.py):
GRAPH = Path(__file__).with_name("memory-e5-small-int8.onnx")
PAIR_GRAPH = Path(__file__).with_name("memory-e5-small-pairs-int8.onnx")
PACKED_NAME = "memory-e5-small-int8.bin"
LAYERS, WIDTH = 6, 384
_LAYOUT = 2  # raise it if the layout or the quantisation of the packed file changes


def pack_layers(into: Path) -> Path:
    """Return the packed file of the layers in the directory `into`; one of other layers is written again.
    Raises EmbeddingFailed."""
    try:
        digest = hashlib.sha256(TUNED.read_bytes()).hexdigest()
    except OSError as e:
        raise EmbeddingFailed(f"{TUNED.name} is missing: install memory-proxy again") from e
    if digest != TUNED_SHA256:
        raise EmbeddingFailed(f"{TUNED.name} is damaged or of another version: install memory-proxy again")
    tag = bytes.fromhex(digest[:14]) + bytes([_LAYOUT])
    return ensure(into / PACKED_NAME, tag, layer_tensors)


def layer_tensors() -> Iterator[tuple[str, Array]]:
    """Yield (name, array) of everything but the word embeddings, as packed."""
    with np.load(TUNED) as file:
        tuned = {name: np.asarray(file[name], np.float32) for name in file.files}
    # A text on its own is all of segment 0: that row is folded into the positions.
    yield "position", _matrix(tuned, "pos") + tuned["seg"]
    yield from _norm_layer(tuned, "n0", "norm_in")
    for i in range(LAYERS):
        layer = f"layers.{i}."
        yield from _linear_layer(tuned, layer + "qkv", f"qkv{i}")
        yield from _linear_layer(tuned, layer + "ao", f"attended{i}")
        yield from _norm_layer(tuned, layer + "n1", f"norm_attended{i}")
        yield from _linear_layer(tuned, layer + "up", f"up{i}")
        yield from _linear_layer(tuned, layer + "down", f"down{i}")
        yield from _norm_layer(tuned, layer + "n2", f"norm_out{i}")


def _linear_layer(tuned: dict[str, Array], name: str, packed: str) -> Iterator[tuple[str, Array]]:
    weight = _matrix(tuned, name + ".weight")
    # Of `up` and `down` some input channels are divided by this (scripts/dev/make_memory_e5.py says why).
    smooth = tuned.get(name + ".smooth")
    if smooth is not None:
        weight = weight * smooth
        yield packed + "_smooth", 1 / smooth
    values, scale = quantised(weight.T, axis=0, peak=63)
    yield from ((packed, values), (packed + "_scale", scale.reshape(-1)))
    yield packed + "_bias", tuned[name + ".bias"]


def _norm_layer(tuned: dict[str, Array], name: str, packed: str) -> Iterator[tuple[str, Array]]:
    yield from ((packed + "_gain", tuned[name + ".weight"]), (packed + "_bias", tuned[name + ".bias"]))


def _matrix(tuned: dict[str, Array], name: str) -> Array:
    return np.asarray(tuned[name + ".q"] * tuned[name + ".s"])


# ---------------------------------------------------------------- the heads
# A head is `heads/NAME.npz` with its card `heads/NAME.json`: `name`, `version` (the encoder that it was
# trained on), `sha256` of the weights, `offsets` (label to a number that is added to its logit,
# so that 0.5 is the operating point), `temperature`, and the scores on users left out. Matrices are int8
# rows with a scale (`X.q`, `X.s`) or plain. `scripts/dev/make_head.py` installs a trained head.
DIRECTORY = Path(__file__).with_name("heads")


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


def complete(file: HeadFile, layers: Sequence[str], others: Sequence[str] = ()) -> dict[str, Array]:
    """Return the weights of a head that needs these layers and arrays. Raises EmbeddingFailed."""
    arrays = file.arrays()
    names = [*others, *(f"{layer}.{part}" for layer in layers for part in ("weight", "bias"))]
    if missing := [name for name in names if name not in arrays]:
        raise EmbeddingFailed(f"{file.path.name} lacks {missing[0]}")
    return arrays
