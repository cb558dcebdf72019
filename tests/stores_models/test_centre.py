"""Vectors that all point one way are seen from their middle, others are left alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from proxy.stores.models.catalog import Prompts
from proxy.stores.models.centre import NARROW, centred
from proxy.stores.models.encoder import Encoder, Vector

PLAIN = Prompts()
RANDOM = np.random.default_rng(7)


class Cone:
    """An encoder whose vectors lie around `axis`, the more closely the longer that is."""

    def __init__(self, length: float) -> None:
        self.axis = np.zeros(64, np.float32)
        self.axis[0] = length
        self.read: list[str] = []
        self.seen_from: Vector | None = None

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        self.read += texts
        drawn = RANDOM.normal(size=(len(texts), 64)).astype(np.float32)
        moved = drawn / np.linalg.norm(drawn, axis=1, keepdims=True) + self.axis
        return list(moved / np.linalg.norm(moved, axis=1, keepdims=True))

    def around(self, centre: Vector) -> "Cone":
        self.seen_from = centre
        return self


def centre_of(cone: Any, prompts: Prompts = PLAIN) -> Vector | None:
    found: Encoder = centred(cone, prompts)
    assert found is cone
    return cone.seen_from


def test_a_narrow_cone_is_seen_from_its_middle() -> None:
    middle = centre_of(Cone(2.0))
    assert middle is not None
    assert NARROW < np.linalg.norm(middle) < 1
    assert middle[0] > 0.9 * np.linalg.norm(middle)


def test_vectors_in_all_directions_are_left_alone() -> None:
    assert centre_of(Cone(0.3)) is None


def test_questions_and_what_answers_them_are_read_as_such() -> None:
    cone = Cone(2.0)
    centre_of(cone, Prompts("query: ", "passage: "))
    asked = [text for text in cone.read if text.startswith("query: ")]
    told = [text for text in cone.read if text.startswith("passage: ")]
    assert len(asked) == len(told) == len(cone.read) / 2 == 60
    assert "query: Where do we live?" in asked
