"""What the outcomes of the questions are worth: pure functions, shares between 0 and 1.

Recall is the mean over questions of the share of the answer's facts that were found.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

CUTS = (1, 5, 8, 10)
WEIGHTS = {
    "recall@5": 0.30,
    "recall in block": 0.30,
    "no stale": 0.10,
    "abstain silent": 0.15,
    "others silent": 0.10,
    "decisions": 0.05,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one question. Ids are those of facts, best first; "?" for a memory that is none."""

    question: str
    kind: str
    language: str
    skip: bool  # no search was wanted
    answers: tuple[str, ...]
    stale: tuple[str, ...]
    status: str  # X-Memory-Status
    reason: str
    injected: tuple[str, ...]
    searched: tuple[str, ...]
    tokens: int
    memory_ms: float

    @property
    def is_search(self) -> bool:
        """True if the proxy decided to search."""
        return self.status != "skipped"


@dataclass(frozen=True, slots=True)
class Row:
    """The numbers of a group of questions; None where no question of the group can tell."""

    asked: int
    recall: dict[int, float] | None  # of what was injected, by cut
    block: float | None  # recall of the whole block
    searched: dict[int, float] | None  # of what POST /v1/memory/search returns
    mrr: float | None
    stale: float | None
    wrong: float | None  # something was injected where nothing should have been
    decided: float | None
    tokens: float


def row(outcomes: Sequence[Outcome]) -> Row:
    """Return the numbers of these outcomes."""
    answered = [o for o in outcomes if o.answers]
    silent = [o for o in outcomes if not o.answers]
    outdated = [o for o in outcomes if o.stale]
    injected = [o for o in outcomes if o.injected]
    return Row(
        asked=len(outcomes),
        recall=_recalls(answered, lambda o: o.injected),
        block=_mean(recall(o.injected, o.answers) for o in answered),
        searched=_recalls(answered, lambda o: o.searched),
        mrr=_mean(reciprocal_rank(o.injected, o.answers) for o in answered),
        stale=_mean(bool(set(o.stale) & {*o.injected, *o.searched}) for o in outdated),
        wrong=_mean(bool(o.injected) for o in silent),
        decided=_mean(o.is_search != o.skip for o in outcomes),
        tokens=_mean(o.tokens for o in injected) or 0.0,
    )


def overall(outcomes: Sequence[Outcome]) -> float:
    """Return one number from 0 to 100: the mean of the parts of WEIGHTS."""
    parts = {name: value for name, value in parts_of(outcomes).items() if value is not None}
    weight = sum(WEIGHTS[name] for name in parts)
    return 100 * sum(WEIGHTS[name] * value for name, value in parts.items()) / weight if weight else 0.0


def parts_of(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    """Return the parts of the overall score, 1 being perfect."""
    whole = row(outcomes)
    return {
        "recall@5": whole.recall[5] if whole.recall else None,
        "recall in block": whole.block,
        "no stale": _less(whole.stale),
        "abstain silent": _less(row([o for o in outcomes if o.kind == "abstain"]).wrong),
        "others silent": _less(row([o for o in outcomes if is_quiet(o.kind)]).wrong),
        "decisions": whole.decided,
    }


def is_quiet(kind: str) -> bool:
    """True for kinds of question that no memory belongs to, and that do not sound as if one did."""
    return kind.startswith("skip")


def recall(found: Sequence[str], answers: Iterable[str], cut: int | None = None) -> float:
    """Return the share of the answers among the first `cut` found."""
    wanted = set(answers)
    return len(wanted & set(found[:cut])) / len(wanted)


def reciprocal_rank(found: Sequence[str], answers: Iterable[str]) -> float:
    """Return 1 / place of the first answer found, 0 without one."""
    wanted = set(answers)
    return next((1 / place for place, one in enumerate(found, 1) if one in wanted), 0.0)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that `share` of the values do not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def misses(outcomes: Iterable[Outcome]) -> list[str]:
    """Return one line for each question that went wrong: ids and reasons, no texts."""
    return [line for o in outcomes if (line := _miss(o))]


def _miss(o: Outcome) -> str:
    wrong = []
    if lost := sorted(set(o.answers) - set(o.injected)):
        elsewhere = [f"{i} (searched at {o.searched.index(i) + 1})" for i in lost if i in o.searched]
        wrong.append(
            "not in the block: " + ", ".join([*elsewhere, *(i for i in lost if i not in o.searched)])
        )
    elif late := sorted(set(o.answers) - set(o.injected[:5])):
        wrong.append("behind place 5: " + ", ".join(late))
    if shown := sorted(set(o.stale) & {*o.injected, *o.searched}):
        wrong.append("stale: " + ", ".join(shown))
    if not o.answers and o.injected:
        wrong.append(f"injected {len(o.injected)} for nothing: {', '.join(o.injected[:3])}")
    if o.is_search == o.skip:
        wrong.append(f"decided {o.status} {o.reason}".rstrip())
    return f"{o.question} {o.kind}: {'; '.join(wrong)}" if wrong else ""


def _recalls(
    outcomes: Sequence[Outcome], found: Callable[[Outcome], Sequence[str]]
) -> dict[int, float] | None:
    if not outcomes:
        return None
    return {cut: sum(recall(found(o), o.answers, cut) for o in outcomes) / len(outcomes) for cut in CUTS}


def _mean(values: Iterable[float]) -> float | None:
    held = [float(v) for v in values]
    return sum(held) / len(held) if held else None


def _less(value: float | None) -> float | None:
    return None if value is None else 1 - value
