"""Does a hit belong to the question? A cosine alone does not say.

On the development personas two in five true memories lie below .20, where one unrelated prompt in ten has
its best hit. What tells them apart is the form of the question: "when do we fly?" expects memory, "list
the planets" does not. So the gate has two settings. A question that expects memory opens it with a weak
best hit and then lets the budget decide; any other needs a hit at the model's own threshold.
"""

from dataclasses import dataclass

from proxy.domain import Hit

# Shares of the model's threshold (.25 for MiniLM: .15 and .05, .25 and .10).
_EXPECTED = (0.6, 0.2)
_UNEXPECTED = (1.0, 0.4)
# Shares of the question's lexical weight. Half of it is as good as a vector.
_STRONG_COVERAGE = 0.5
_WEAK_COVERAGE = 0.1


@dataclass(frozen=True, slots=True)
class Gate:
    """`entry`: cosine that the best hit must reach for any to pass by cosine. `floor`: cosine of each.
    `coverage`: lexical coverage with which a hit passes by itself. `dense`: whether cosines count."""

    entry: float
    floor: float
    coverage: float
    dense: bool = True

    def opens(self, best_cosine: float) -> bool:
        """True if hits may pass by their cosine at all."""
        return self.dense and best_cosine >= self.entry

    def admits(self, hit: Hit, coverage: float, opened: bool) -> bool:
        """True if the hit passes."""
        if opened and hit.cosine is not None and hit.cosine >= self.floor:
            return True
        return hit.bm25 > 0 and coverage >= self.coverage


def gate_for(*, expects_memory: bool, dense: bool, model_threshold: float, asked: float | None) -> Gate:
    """Return the gate of a question.

    `asked`: the request's own similarity_threshold; it applies to every hit's cosine as it stands. Where
    cosines mean nothing (`dense` false: no embedder, or a language it does not know), words decide: any
    shared word if the question expects memory, else a tenth of what the question says.
    """
    if not dense:
        return Gate(0.0, 0.0, 0.0 if expects_memory else _WEAK_COVERAGE, dense=False)
    if asked is not None:
        return Gate(asked, asked, _STRONG_COVERAGE)
    entry, floor = _EXPECTED if expects_memory else _UNEXPECTED
    return Gate(entry * model_threshold, floor * model_threshold, _STRONG_COVERAGE)
