"""Metrics: shares between 0 and 1 by language, and how they compare with their floors. Pure functions.

Recall is the mean over questions of the share of the answer's memories that were shown. A standing rule is
shown in every conversation, so it counts neither as an answer to another question nor as wrong.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

CUTS = (1, 5, 10)
SMALL_TALK = ("small_talk", "skip_greeting")
ALL = "all"
# The lower, the better. A metric named "x: detail" is found by its x.
LOWER = {
    "false silence", "wrong", "stale", "degraded", "updates wrong", "replaces believed", "stored",
    "forgotten too much", "doubled", "forbidden", "added by a replay", "unseen turns", "only wrong", "silent",
    "lost", "block",
}  # fmt: skip
FLOORS = Path(__file__).parent / "floors.json"
Shares = dict[str, dict[str, tuple[float, int]]]  # metric, language, (mean, number of cases)


def is_lower(metric: str) -> bool:
    """Return whether a lower value of the metric is better."""
    return metric.partition(":")[0] in LOWER


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one question. Ids are those of facts, best first; "?" for a memory that is none."""

    question: str
    kind: str
    language: str
    skip: bool  # no search is wanted
    answers: tuple[str, ...]
    stale: tuple[str, ...]
    status: str  # X-Memory-Status
    reason: str
    injected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """Memories that hold in every conversation. `rules` are always shown; `traits` may be shown wherever the
    message concerns the user's life."""

    rules: AbstractSet[str] = frozenset()
    traits: AbstractSet[str] = frozenset()


@dataclass(slots=True)
class Tally:
    """Collects the cases of each metric."""

    cases: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, metric: str, language: str, value: float) -> None:
        """Count a case; a truth value counts as 0 or 1."""
        self.cases[metric, language].append(float(value))

    def shares(self) -> Shares:
        """Return the mean and the number of cases of each metric, by language and over all languages."""
        found: Shares = defaultdict(dict)
        for (metric, language), values in self.cases.items():
            found[metric][language] = (_mean(values), len(values))
        for metric, by_language in found.items():
            whole = [v for language in by_language for v in self.cases[metric, language]]
            by_language[ALL] = (_mean(whole), len(whole))
        return dict(found)


def tally(outcomes: Sequence[Outcome], standing: Standing, short: Sequence[Outcome] = ()) -> Shares:
    """Return the metrics of questions. `short`: the outcomes of the same questions in 400 tokens."""
    found = Tally()
    for o in outcomes:
        _count(found, o, standing)
    for o in short:
        if o.answers:
            found.add("in 400 tokens", o.language, recall(o.injected, o.answers))
    return found.shares()


def _count(found: Tally, o: Outcome, standing: Standing) -> None:
    shown = [i for i in o.injected if i not in standing.rules or i in o.answers]
    if own := _rules_of(o, standing):
        found.add("rule shown", o.language, own <= set(o.injected))
    found.add("degraded", o.language, o.status == "degraded")
    if o.answers:
        for cut in CUTS:
            found.add(f"recall@{cut}", o.language, recall(shown, o.answers, cut))
        found.add("in 600 tokens", o.language, recall(shown, o.answers))
        found.add("false silence", o.language, not shown)
        if o.kind in ("reworded", "advice"):
            found.add(f"recall@5: {o.kind}", o.language, recall(shown, o.answers, 5))
            found.add(f"false silence: {o.kind}", o.language, not shown)
    elif o.kind in SMALL_TALK:
        found.add("wrong: small talk", o.language, bool(shown))
    elif o.skip:
        found.add("wrong: skip", o.language, bool(shown))
    else:
        found.add("wrong: abstain", o.language, bool(set(shown) - standing.traits))
    if o.stale:
        found.add("stale", o.language, bool(set(o.stale) & set(o.injected)))


def _rules_of(o: Outcome, standing: Standing) -> set[str]:
    """Return the rules of the user who asks: ids of memories begin with those of their user."""
    user = o.question.rpartition("-q")[0]
    return {rule for rule in standing.rules if rule.startswith(f"{user}-")}


def recall(found: Sequence[str], answers: Iterable[str], cut: int | None = None) -> float:
    """Return the share of the answers among the first `cut` found."""
    wanted = set(answers)
    return len(wanted & set(found[:cut])) / len(wanted)


def misses(outcomes: Iterable[Outcome], standing: Standing) -> list[str]:
    """Return one line for each question that went wrong: ids and reasons, no texts."""
    return [line for o in outcomes if (line := _miss(o, standing))]


def _miss(o: Outcome, standing: Standing) -> str:
    wrong = []
    if lost := sorted(set(o.answers) - set(o.injected)):
        wrong.append(f"not shown: {', '.join(lost)} ({o.status} {o.reason})")
    if shown := sorted(set(o.stale) & set(o.injected)):
        wrong.append(f"stale: {', '.join(shown)}")
    others = [i for i in o.injected if i not in standing.rules | standing.traits]
    if not o.answers and others:
        wrong.append(f"shown for nothing: {', '.join(others[:3])}")
    if lost := sorted(_rules_of(o, standing) - set(o.injected)):
        wrong.append(f"rule not shown: {', '.join(lost)} ({o.status} {o.reason})")
    return f"{o.question} {o.kind}: {'; '.join(wrong)}" if wrong else ""


# ------------------------------------------------------------ floors
Floors = Mapping[str, Mapping[str, Mapping[str, float]]]  # part, metric, language


def floors(kind: str, file: Path = FLOORS) -> Floors:
    """Return the floors of a kind of run ("full", "quick"); of metrics in LOWER they are ceilings."""
    found: dict[str, Floors] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return found.get(kind, {})


def below(part: str, shares: Shares, limits: Floors) -> list[str]:
    """Return one line for each metric of the part that misses its floor. A metric without cases misses it."""
    found = []
    for metric, by_language in limits.get(part, {}).items():
        for language, limit in by_language.items():
            value, cases = shares.get(metric, {}).get(language, (math.nan, 0))
            if not (value <= limit if is_lower(metric) else value >= limit):
                sign = "≤" if is_lower(metric) else "≥"
                found.append(
                    f"{part}, {metric}, {language}: {value:.3f} ({cases} cases), wanted {sign} {limit}"
                )
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
