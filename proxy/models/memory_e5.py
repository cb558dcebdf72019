"""Our encoder: six fine-tuned layers, shipped with the project, on the word embeddings of the published
multilingual-e5-small.

`memory-e5-small-vN.npz` holds the layers as int8 with a scale per output row. A question and a memory that
answers it have a high cosine in any language. The word embeddings and the vocabulary are those that
scripts/fetch-models brings (e5.py, vocabulary.py); the graph maps the word embeddings from that file.

Changed layers are a new version: `scripts/dev/make_memory_e5.py` makes the file and prints the
line VERSION of catalog.py.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from proxy.domain.errors import EmbeddingFailed
from proxy.models import weights
from proxy.models.catalog import VERSION
from proxy.models.weights import Array

NAME, TUNED_SHA256 = VERSION
TUNED = Path(__file__).with_name(f"{NAME}.npz")
# The same for every version of these layers (scripts/dev/make_graph.py):
GRAPH = Path(__file__).with_name("memory-e5-small-int8.onnx")
PAIR_GRAPH = Path(__file__).with_name("memory-e5-small-pairs-int8.onnx")
PACKED_NAME = "memory-e5-small-int8.bin"
LAYERS, WIDTH = 6, 384
_LAYOUT = 2  # raise it if the layout or the quantisation of the packed file changes


def pack(into: Path) -> Path:
    """Return the packed file of the layers in the directory `into`; one of other layers is written again.
    Raises EmbeddingFailed."""
    try:
        digest = hashlib.sha256(TUNED.read_bytes()).hexdigest()
    except OSError as e:
        raise EmbeddingFailed(f"{TUNED.name} is missing: install memory-proxy again") from e
    if digest != TUNED_SHA256:
        raise EmbeddingFailed(f"{TUNED.name} is damaged or of another version: install memory-proxy again")
    tag = bytes.fromhex(digest[:14]) + bytes([_LAYOUT])
    return weights.ensure(into / PACKED_NAME, tag, tensors)


def tensors() -> Iterator[tuple[str, Array]]:
    """Yield (name, array) of everything but the word embeddings, as packed."""
    with np.load(TUNED) as held:
        tuned = {name: np.asarray(held[name], np.float32) for name in held.files}
    # A text on its own is all of segment 0: that row is folded into the positions.
    yield "position", _matrix(tuned, "pos") + tuned["seg"]
    yield from _norm(tuned, "n0", "norm_in")
    for i in range(LAYERS):
        layer = f"layers.{i}."
        yield from _linear(tuned, layer + "qkv", f"qkv{i}")
        yield from _linear(tuned, layer + "ao", f"attended{i}")
        yield from _norm(tuned, layer + "n1", f"norm_attended{i}")
        yield from _linear(tuned, layer + "up", f"up{i}")
        yield from _linear(tuned, layer + "down", f"down{i}")
        yield from _norm(tuned, layer + "n2", f"norm_out{i}")


def _linear(tuned: dict[str, Array], name: str, packed: str) -> Iterator[tuple[str, Array]]:
    weight = _matrix(tuned, name + ".weight")
    # Of `up` and `down` some input channels are divided by this (scripts/dev/make_memory_e5.py says why).
    smooth = tuned.get(name + ".smooth")
    if smooth is not None:
        weight = weight * smooth
        yield packed + "_smooth", 1 / smooth
    values, scale = weights.quantised(weight.T, axis=0, peak=63)
    yield from ((packed, values), (packed + "_scale", scale.reshape(-1)))
    yield packed + "_bias", tuned[name + ".bias"]


def _norm(tuned: dict[str, Array], name: str, packed: str) -> Iterator[tuple[str, Array]]:
    yield from ((packed + "_gain", tuned[name + ".weight"]), (packed + "_bias", tuned[name + ".bias"]))


def _matrix(tuned: dict[str, Array], name: str) -> Array:
    return np.asarray(tuned[name + ".q"] * tuned[name + ".s"])
