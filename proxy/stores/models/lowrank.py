"""Low-rank changes of published matrices (LoRA; Hu et al. 2021): what was trained is a megabyte, and is added
to weights that everybody has.

A file of trained values names published tensors: `NAME.in` and `NAME.out` are the factors of a matrix's
change, `NAME` itself stands in the place of a tensor.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from proxy.stores.models.weights import Array, Published


def read_trained(file: Path) -> dict[str, Array]:
    """Return the trained values of a file."""
    with np.load(file) as held:
        return {name: np.asarray(held[name], np.float32) for name in held.files}


def tag_of(file: Path) -> bytes:
    """Return what marks a packed file as made of these trained values (see weights.ensure_packed)."""
    return hashlib.blake2b(file.read_bytes(), digest_size=8).digest()


def changed(published: Published, trained: Mapping[str, Any]) -> Published:
    """Return the published tensors with the trained ones in their place, and their low-rank changes added to
    those that have any."""

    def get(name: str) -> Array:
        if name in trained:
            return np.asarray(trained[name])
        base = published(name)
        if name + ".in" not in trained:
            return base
        return np.asarray(base + (trained[name + ".in"] @ trained[name + ".out"]).T)

    return get
