"""Read from two vectors whether the memory answers the question: a small network over a sentence embedder.

The vectors hold more than their angle: which property a question asks for, and which ones a memory states.
One hidden layer over both vectors, their products and their differences reads some of it, beside what the
memory holds of the question's words, since vectors blur names. It is trained on invented users by
`scripts/dev/train_answerability.py`; the weights belong to the model whose vectors they were trained on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from proxy.ports import Told
from proxy.stores.models.catalog import MINILM
from proxy.stores.models.manner import MANNERS, Manner

WEIGHTS = {MINILM: Path(__file__).with_name("answerability-minilm.npz")}
# Components of unit vectors are some .05: scaled, so that all inputs of the network are about 1.
SCALE = 20.0
SCALE_SHARES = 2.0

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the network makes of memories beside a question, in their order: the log-odds of each, and of any
    of them, against none; and their cosines."""

    scores: Floats
    total: float
    cosines: Floats


class AnswerabilityHead:
    """Some 0.2 ms for twelve memories."""

    def __init__(self, weights: Path) -> None:
        with np.load(weights) as file:
            held = {name: np.asarray(file[name], np.float32) for name in file.files}
        dimension = len(held["hidden"]) // 4
        # The question's part of the input is the same for all memories.
        self._of_question, self._of_memory = held["hidden"][:dimension], held["hidden"][dimension:]
        self._bias, self._output = held["bias"], held["output"]
        self._cosine = float(held["cosine"])
        self._bars = {manner: float(held[f"bar_{manner}"]) for manner in MANNERS}

    def bar(self, manner: Manner) -> float:
        """Return what most log-odds are above that belong to a question with an answer."""
        return self._bars[manner]

    def see(self, question: bytes, memories: Sequence[Told]) -> Seen:
        """Return what speaks for the memories."""
        if not memories:
            return Seen(np.zeros(0, np.float32), float("-inf"), np.zeros(0, np.float32))
        asked = np.frombuffer(question, np.float32)
        told = np.stack([np.frombuffer(memory.vector, np.float32) for memory in memories])
        shares = np.array([(memory.terms, memory.weight) for memory in memories], np.float32)
        hidden = of_memory(asked, told, shares) @ self._of_memory + (SCALE * asked) @ self._of_question
        cosines = told @ asked
        scores = np.maximum(hidden + self._bias, 0) @ self._output + self._cosine * cosines
        # The odds of "none" are 1 (see the training): those of all memories together are the sum of theirs.
        return Seen(scores, float(np.logaddexp.reduce(scores)), cosines)


def of_memory(asked: Floats, told: Floats, shares: Floats) -> Floats:
    """Return the network's input behind the question's own part, a row for each memory."""
    products, differences = SCALE * SCALE * told * asked, SCALE * np.abs(told - asked)
    return np.hstack([SCALE * told, products, differences, SCALE_SHARES * shares])


def has_head(model: str) -> bool:
    """True if a network was trained on the model's vectors."""
    return model in WEIGHTS


def head_of(model: str) -> AnswerabilityHead | None:
    """Return the network trained on the model's vectors; None where there is none."""
    return AnswerabilityHead(WEIGHTS[model]) if model in WEIGHTS else None
