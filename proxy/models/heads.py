"""The heads' files, and the two heads that need nothing but numpy: of a message, and of a memory's vector.

A head is `heads/NAME.npz` with its card `heads/NAME.json`: `name`, `version` (the encoder that it was trained
on), `sha256` of the weights, `offsets` (label to a number that is added to its logit, so that 0.5 is the
operating point), `temperature`, and the scores on users left out. Matrices are int8 rows with a scale (`X.q`,
`X.s`) or plain. `scripts/dev/make_head.py` puts a trained head in its place.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from proxy.domain.errors import EmbeddingFailed
from proxy.domain.judging import Asks, Needs, Profile
from proxy.models import memory_e5
from proxy.models.weights import Array

DIRECTORY = Path(__file__).with_name("heads")
NEEDS = ("memory", "small_talk", "world", "tool", "self_contained")
ASKS = ("remember", "forget", "off_record", "rule")
PROFILE = ("rule", "trait")
_VECTOR_SCALE = 8  # unit vectors of 384 numbers are small for a network


@dataclass(frozen=True, slots=True)
class HeadFile:
    """One head's card, and where its weights lie."""

    path: Path
    card: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.path.stem

    def arrays(self) -> dict[str, Array]:
        """Return the weights as float32. Raises EmbeddingFailed."""
        try:
            with np.load(self.path) as held:
                found = {name: np.asarray(held[name], np.float32) for name in held.files}
        except (OSError, ValueError) as e:
            raise EmbeddingFailed(f"{self.path.name} cannot be read") from e
        for name in [name for name in found if name.endswith(".q")]:
            found[name.removesuffix(".q")] = found.pop(name) * found.pop(f"{name[:-2]}.s")
        return found

    def offsets(self, labels: Sequence[str]) -> Array:
        """Return what is added to the labels' logits."""
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
    if wanted[:2] != (name, memory_e5.NAME):
        raise EmbeddingFailed(f"the head {name} is of another version ({wanted[1]}): {remedy}")
    if digest != wanted[2]:
        raise EmbeddingFailed(f"{path.name} is damaged: {remedy}")
    return HeadFile(path, card)


class MessageHead:
    """Judges a message by the hidden states of its tokens: two layers over their mean and maximum."""

    def __init__(self, file: HeadFile) -> None:
        self._arrays = complete(file, ("a", "needs", "asks"), ("mu", "sd"))
        self._needs, self._asks = file.offsets(NEEDS), file.offsets(ASKS)
        self.judge(np.zeros((2, memory_e5.WIDTH), np.float32))  # the shapes fit

    def judge(self, states: Array) -> tuple[Needs, Asks]:
        """Return what the message (tokens, width) needs and asks. Raises EmbeddingFailed."""
        a = self._arrays
        try:
            seen = (np.concatenate([states.mean(axis=0), states.max(axis=0)]) - a["mu"]) / a["sd"]
            hidden = gelu(linear(a, "a", seen))
            needs = linear(a, "needs", hidden)
            asks = linear(a, "asks", hidden) + self._asks
            check("message", needs, asks)
        except ValueError as e:
            raise EmbeddingFailed("the weights of the head message do not fit") from e
        # Memory's own log-odds: it is calibrated by itself. The others only give the reason.
        memory = sigmoid(needs[0] - np.logaddexp.reduce(needs[1:]) + self._needs[0])
        others = softmax(needs + np.append(np.float32(0), self._needs[1:]))[1:]
        return Needs(float(memory), *others.tolist()), Asks(*sigmoid(asks).tolist())


class ProfileHead:
    """Judges by a memory's vector whether it holds in every conversation: two layers."""

    def __init__(self, file: HeadFile) -> None:
        self._arrays, self._offsets = complete(file, ("a", "out")), file.offsets(PROFILE)
        self.judge(np.zeros((1, memory_e5.WIDTH), np.float32))

    def judge(self, vectors: Array) -> list[Profile]:
        """Return the judgement of each row. Raises EmbeddingFailed."""
        a = self._arrays
        try:
            logits = linear(a, "out", gelu(linear(a, "a", vectors * _VECTOR_SCALE))) + self._offsets
            check("profile", logits)
            return [Profile(rule, trait) for rule, trait in sigmoid(logits).tolist()]
        except ValueError as e:
            raise EmbeddingFailed("the weights of the head profile do not fit") from e


def sigmoid(logits: Array) -> Array:
    """Return the probabilities of independent logits."""
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -60, 60))))


def softmax(logits: Array) -> Array:
    """Return the probabilities of the classes of one row."""
    odds = np.exp(logits - logits.max())
    return np.asarray(odds / odds.sum())


def gelu(x: Array) -> Array:
    """Return x times the normal distribution's share below x (Abramowitz and Stegun 7.1.26, to 1.5e-7)."""
    x = np.asarray(x, np.float32)
    z = np.abs(x) / np.float32(2**0.5)
    t = 1 / (1 + 0.3275911 * z)
    series = np.full_like(t, 1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + factor
    return np.asarray(0.5 * x * (1 + np.sign(x) * (1 - series * t * np.exp(-(z**2)))))


def linear(arrays: Mapping[str, Array], layer: str, x: Array) -> Array:
    """Return what the layer makes of each row."""
    return np.asarray(x @ arrays[layer + ".weight"].T + arrays[layer + ".bias"])


def complete(file: HeadFile, layers: Sequence[str], others: Sequence[str] = ()) -> dict[str, Array]:
    """Return the weights of a head that needs these layers and arrays. Raises EmbeddingFailed."""
    arrays = file.arrays()
    names = [*others, *(f"{layer}.{part}" for layer in layers for part in ("weight", "bias"))]
    if missing := [name for name in names if name not in arrays]:
        raise EmbeddingFailed(f"{file.path.name} lacks {missing[0]}")
    return arrays


def check(name: str, *made: Array) -> None:
    """Raise EmbeddingFailed for what is no number."""
    if not all(np.isfinite(array).all() for array in made):
        raise EmbeddingFailed(f"the head {name} returned no number")
