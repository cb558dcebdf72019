"""The relevance gate: decide whether the best hits belong to the question at all. A cosine alone does not
say.

On eight personas two in five true memories lie below .20, where half of the unrelated prompts have their
best hit. What tells them apart is the form of the question (see `expect`): the less it promises, the better
the best hit must be for the gate to open. Once it is open, the budget decides.
"""

from dataclasses import dataclass

from proxy.domain import Hit
from proxy.pipeline.decision.expect import Expectation

# Shares of the model's threshold, .25 for MiniLM: the cosine of the best hit, and of each.
_ENTRY_AND_FLOOR = {
    Expectation.STRONG: (0.5, 0.2),
    Expectation.SOME: (0.7, 0.3),
    Expectation.UNSAID: (1.3, 0.5),
    Expectation.NONE: (1.3, 0.5),
}
# Shares of the question's lexical weight. Half of it is as good as a vector.
_STRONG_COVERAGE = 0.5
_WEAK_COVERAGE = 0.1


@dataclass(frozen=True, slots=True)
class Gate:
    """`entry`: cosine that the best hit must reach for any to pass by cosine. `floor`: cosine of each.
    `coverage`: lexical coverage with which a hit passes by itself. `dense`: whether cosines count. `follows`:
    whether what is linked to a hit passes with it."""

    entry: float
    floor: float
    coverage: float
    dense: bool = True
    follows: bool = True

    def opens(self, best_cosine: float) -> bool:
        """True if hits may pass by their cosine at all."""
        return self.dense and best_cosine >= self.entry

    def admits(self, hit: Hit, coverage: float, opened: bool) -> bool:
        """True if the hit passes."""
        if opened and hit.cosine is not None and hit.cosine >= self.floor:
            return True
        return hit.bm25 > 0 and coverage >= self.coverage


def gate_for(*, expected: Expectation, dense: bool, model_threshold: float, asked: float | None) -> Gate:
    """Return the gate of a question.

    `asked`: the request's own similarity_threshold; it applies to every hit's cosine as it stands, linked or
    not. Where cosines mean nothing (`dense` false: no embedder, or a language it does not know), words
    decide: half of what the question says if a threshold was asked for, any shared word if 0 was, which lets
    everything pass by its cosine; else any shared word if the question expects memory, and a tenth if not.
    """
    if not dense:
        if asked is not None:
            return Gate(0.0, 0.0, _STRONG_COVERAGE if asked > 0 else 0.0, dense=False, follows=False)
        return Gate(0.0, 0.0, 0.0 if expected >= Expectation.SOME else _WEAK_COVERAGE, dense=False)
    if asked is not None:
        return Gate(asked, asked, _STRONG_COVERAGE, follows=False)
    entry, floor = _ENTRY_AND_FLOOR[expected]
    return Gate(entry * model_threshold, floor * model_threshold, _STRONG_COVERAGE)
