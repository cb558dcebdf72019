"""Heads with random weights, as files."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from proxy.models import weights
from proxy.models.judge import ABOUT, FOLLOWS, RELATION, SENSE

WIDTH = weights.WIDTH
_WIDE = 4 * WIDTH
_SHAPES = {"qkv": (WIDTH, 3 * WIDTH), "ao": (WIDTH, WIDTH), "up": (WIDTH, _WIDE), "down": (_WIDE, WIDTH)}


def write_head(directory: Path, name: str, arrays: Mapping[str, Any], **card: Any) -> None:
    """Write one head, its card changed as said."""
    path = directory / f"{name}.npz"
    np.savez(path, **arrays)
    said = {
        "name": name,
        "version": weights.ENCODER_NAME,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        **card,
    }
    path.with_suffix(".json").write_text(json.dumps(said), "utf-8")


def message_arrays(seed: int = 1) -> dict[str, Any]:
    """Return the weights of a message head."""
    chance = np.random.default_rng(seed)
    return {
        "mu": chance.normal(size=2 * WIDTH) / 10,
        "sd": 1 + chance.random(2 * WIDTH),
        "a.weight": chance.normal(size=(128, 2 * WIDTH)) / 20,
        "a.bias": chance.normal(size=128) / 10,
        "needs.weight": chance.normal(size=(5, 128)) / 4,
        "needs.bias": chance.normal(size=5),
        "asks.weight": chance.normal(size=(4, 128)) / 4,
        "asks.bias": chance.normal(size=4),
    }


def pair_arrays(classes: Sequence[int], rank: int, seed: int = 2) -> dict[str, Any]:
    """Return the weights of a head that reads two texts, packed as training/model.py packs them."""
    chance = np.random.default_rng(seed)
    found: dict[str, Any] = {"second": (chance.normal(size=WIDTH) / 50).astype(np.float16)}

    def pack(name: str, *shape: int) -> None:
        found[name + ".q"] = chance.integers(-127, 127, shape, np.int8)
        found[name + ".s"] = np.full((shape[0], 1), 2e-4, np.float32)

    for i in range(weights.LAYERS):
        for part, (inputs, outputs) in _SHAPES.items():
            pack(f"encoder.layers.{i}.{part}.down", rank, inputs)
            pack(f"encoder.layers.{i}.{part}.up", outputs, rank)
    for n, count in enumerate(classes):
        pack(f"outs.{n}.weight", count, 2 * WIDTH)
        found[f"outs.{n}.bias"] = np.zeros(count, np.float16)
    return found


def reader_arrays(width: int = 32, seed: int = 4) -> dict[str, Any]:
    """Return the weights of a relevance head that reads both texts."""
    chance = np.random.default_rng(seed)
    found: dict[str, Any] = {"cosine": np.array([12.0, -4.8]), "seg": chance.normal(size=(2, width))}

    def layer(name: str, inputs: int, outputs: int) -> None:
        found[name + ".weight"] = chance.normal(size=(outputs, inputs)) / inputs**0.5
        found[name + ".bias"] = chance.normal(size=outputs) / 10

    def norm(name: str) -> None:
        found[name + ".weight"], found[name + ".bias"] = 1 + chance.random(width), chance.random(width)

    for name in ("pq", "pm"):
        layer(name, WIDTH, width)
    for n in range(2):
        for part, inputs, outputs in (("qkv", 1, 3), ("o", 1, 1), ("up", 1, 2), ("dn", 2, 1)):
            layer(f"bl.{n}.{part}", inputs * width, outputs * width)
        for part in ("n1", "n3"):
            norm(f"bl.{n}.{part}")
    norm("nq")
    norm("nm")
    layer("f1", 4 * width + 1, width)
    layer("f2", width, 1)
    return found


def write_heads(directory: Path) -> Path:
    """Write all heads of the judge, of random weights."""
    chance = np.random.default_rng(3)
    profile = {"a.weight": chance.normal(size=(128, WIDTH)), "a.bias": chance.normal(size=128)}
    profile |= {"out.weight": chance.normal(size=(2, 128)) / 10, "out.bias": chance.normal(size=2)}
    write_head(directory, "message", message_arrays())
    write_head(directory, "profile", profile)
    write_head(directory, "relevance", reader_arrays(), open=[0.0, 0.0])  # the cosine decides alone
    relation = [sorted(RELATION)]
    write_head(directory, "relation", pair_arrays([3], 8), classes=relation, temperature=1.5)
    statement = [sorted(FOLLOWS), sorted(ABOUT), sorted(SENSE)]
    write_head(directory, "statement", pair_arrays([2, 3, 12], 16), classes=statement)
    write_head(directory, "forget", pair_arrays([2], 8), classes=[sorted(FOLLOWS)])
    return directory
