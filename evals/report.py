"""The tables that a run prints, and what is kept of it as JSON."""

import collections
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from evals import extraction, leaks
from evals.score import CUTS, Outcome, Row, is_quiet, overall, parts_of, percentile, row

Goal = tuple[str, float | None, float, bool]  # name, value, goal, whether lower is better


def retrieval(console: Console, name: str, outcomes: Sequence[Outcome]) -> None:
    """Print the numbers by kind of question and by language."""
    table = Table(title=f"{name}: {overall(outcomes):.1f} of 100", title_justify="left")
    for head in ("", "asked", *(f"r@{c}" for c in CUTS), "block", "MRR"):
        table.add_column(head, justify="left" if not head else "right")
    for head in ("search@5", "@10", "stale", "wrong", "decided", "tokens"):
        table.add_column(head, justify="right")
    for title, held in groups(outcomes).items():
        table.add_row(title, *_cells(row(held)), end_section=title in ("all", "skip_tool"))
    console.print(table)
    times = [o.memory_ms for o in outcomes]
    console.print(
        f"memory time p50 {percentile(times, 0.5):.1f} ms, p99 {percentile(times, 0.99):.1f} ms;"
        f" degraded answers: {sum(o.status == 'degraded' for o in outcomes)}"
    )


def groups(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Return the outcomes by kind, by language, and together."""
    found = collections.defaultdict(list)
    for o in outcomes:
        found[o.kind].append(o)
    by_kind = {kind: found[kind] for kind in sorted(found, key=lambda k: (is_quiet(k), k))}
    languages = {f"[{name}]": [o for o in outcomes if o.language == name] for name in _languages(outcomes)}
    return {"all": list(outcomes), **by_kind, **{f"language {k[1:-1]}": v for k, v in languages.items()}}


def baselines(console: Console, runs: Mapping[str, Sequence[Outcome]], others: Mapping[str, Any]) -> None:
    """Print the proxy's recall beside the baselines', on the questions that have an answer."""
    table = Table(title="Recall beside baselines, which never abstain", title_justify="left")
    for head in ("", "", "r@1", "r@5", "r@10", "in 600 tokens", "in 400 tokens", "MRR"):
        table.add_column(head, justify="right" if head else "left")
    names = dict.fromkeys(name.rpartition("-")[0] for name in others)
    systems = {name: (others[f"{name}-600"], others[f"{name}-400"]) for name in names}
    systems = {"memory-proxy": (runs["default"], runs.get("budget-400", ())), **systems}
    for language in ("all", *_languages(runs["default"])):
        for name, blocks in systems.items():
            long, short = (row([o for o in x if o.answers and _speaks(o, language)]) for x in blocks)
            recalls = [long.recall[c] if long.recall else None for c in (1, 5, 10)]
            shares = map(_share, (*recalls, long.block, short.block, long.mrr))
            table.add_row(language, name, *shares, end_section=name == list(systems)[-1])
    console.print(table)


def _speaks(outcome: Outcome, language: str) -> bool:
    return language in ("all", outcome.language)


def ablations(console: Console, runs: Mapping[str, Sequence[Outcome]]) -> None:
    """Print one line for each run."""
    table = Table(title="Ablations", title_justify="left")
    for head in ("", "score", "r@5", "block", "MRR", "stale", "abstain", "quiet", "decided", "tokens"):
        table.add_column(head, justify="left" if not head else "right")
    for name, outcomes in runs.items():
        r, parts = row(outcomes), parts_of(outcomes)
        quiet = [
            None if parts[p] is None else 1 - (parts[p] or 0) for p in ("abstain silent", "others silent")
        ]
        shares = (r.recall[5] if r.recall else None, r.block, r.mrr, r.stale, *quiet, r.decided)
        table.add_row(name, f"{overall(outcomes):.1f}", *map(_share, shares), f"{r.tokens:.0f}")
    console.print(table)


def goals(console: Console, runs: Mapping[str, Sequence[Outcome]]) -> list[dict[str, Any]]:
    """Print what issue 6 asks for, and whether it is met; return it."""
    table = Table(title="Goals", title_justify="left")
    for head in ("", "measured", "goal", ""):
        table.add_column(head)
    kept = []
    for name, value, goal, lower in _goals(runs):
        if value is None:
            continue
        met = value <= goal if lower else value >= goal
        table.add_row(name, _share(value), f"{'≤' if lower else '≥'} {goal:.2f}", "met" if met else "MISSED")
        kept.append({"name": name, "value": round(value, 4), "goal": goal, "met": met})
    console.print(table)
    return kept


def _goals(runs: Mapping[str, Sequence[Outcome]]) -> list[Goal]:
    outcomes = runs["default"]
    found: list[Goal] = []
    for language, first, block in (("en", 0.85, 0.93), ("zh", 0.75, 0.88)):
        long, short = (
            row([o for o in run if o.language == language]) for run in (outcomes, runs.get("budget-400", ()))
        )
        found.append((f"recall@5, {language}", long.recall[5] if long.recall else None, first, False))
        found.append((f"recall in 400 tokens, {language}", short.block, block, False))
    return [
        *found,
        ("stale as current", row(outcomes).stale, 0.02, True),
        ("wrong on skip", row([o for o in outcomes if o.kind.startswith("skip")]).wrong, 0.05, True),
        ("wrong on abstain", row([o for o in outcomes if o.kind == "abstain"]).wrong, 0.30, True),
    ]


def extractions(console: Console, reports: Sequence[extraction.Report]) -> None:
    """Print what is remembered of the conversations, and what the replays changed."""
    table = Table(title="Extraction", title_justify="left")
    for head in (
        "model",
        "gold",
        "stored",
        "recall",
        "precision",
        "covered",
        "useful",
        "stale",
        "doubled",
        "type",
    ):
        table.add_column(head, justify="left" if head == "model" else "right")
    for head in ("unseen turns", "calls"):
        table.add_column(head, justify="right")
    for report in reports:
        held = list(report.verdicts.values())
        gold, stored = sum(v.gold for v in held), sum(v.stored for v in held)
        right = sum(v.stored - v.extra - len(v.stale) for v in held)
        counts = (
            sum(len(v.stale) for v in held),
            sum(len(v.doubled) for v in held),
            sum(len(v.wrong_type) for v in held),
            len(report.unseen_turns),
            report.calls,
        )
        shares = (
            sum(len(v.found) for v in held) / (gold or 1),
            right / (stored or 1),
            sum(len(v.covered) for v in held) / (gold or 1),
            sum(v.useful for v in held) / (stored or 1),
        )
        table.add_row(report.model, str(gold), str(stored), *map(_share, shares), *map(str, counts))
    console.print(table)
    replays = Table(title="Replays", title_justify="left")
    for head in ("model", "replay", "memories before", "added", "lost", "doubled"):
        replays.add_column(head)
    for report in reports:
        for name, r in report.replays.items():
            replays.add_row(
                report.model, name, str(r.before), *(_ids(x) for x in (r.added, r.lost, r.doubled))
            )
    console.print(replays)
    for report in reports:
        if report.unseen_turns:
            console.print(
                f"{report.model}: turns that came to no extraction: {', '.join(report.unseen_turns)}"
            )


def forbidden(console: Console, reports: Sequence[extraction.Report]) -> None:
    """Print where forbidden words were found, by reason."""
    table = Table(title="What must not be stored (bad / all spans)", title_justify="left")
    for head in ("model", "reason", "spans", "memories", "files", "prompts", "bad"):
        table.add_column(head)
    for report in reports:
        for reason, held in leaks.by_reason(report.leaks).items():
            sums = (sum(x.api for x in held), sum(x.files for x in held), sum(x.prompts for x in held))
            bad = sum(x.is_bad for x in held)
            table.add_row(report.model, reason, str(len(held)), *map(str, sums), str(bad))
    console.print(table)


def compare(console: Console, now: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Print the overall scores of two kept results side by side, and which questions turned."""
    table = Table(title=f"Against {before['commit']} of {before['when']}", title_justify="left")
    for head in ("run", "before", "now", ""):
        table.add_column(head, justify="left" if head == "run" else "right")
    for name in now["scores"]:
        if name in before.get("scores", {}):
            old, new = before["scores"][name], now["scores"][name]
            table.add_row(name, f"{old:.1f}", f"{new:.1f}", f"{new - old:+.1f}")
    console.print(table)
    old_misses = {line.split(" ")[0] for line in before.get("misses", ())}
    new_misses = {line.split(" ")[0] for line in now.get("misses", ())}
    console.print(f"mended: {', '.join(sorted(old_misses - new_misses)) or 'none'}")
    console.print(f"broken: {', '.join(sorted(new_misses - old_misses)) or 'none'}")


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the numbers of all groups, and every outcome."""
    return {
        "score": round(overall(outcomes), 2),
        "rows": {name: asdict(row(held)) for name, held in groups(outcomes).items()},
        "outcomes": [asdict(o) for o in outcomes],
    }


def _cells(r: Row) -> list[str]:
    recalls = [r.recall[c] if r.recall else None for c in CUTS]
    searched = [r.searched[c] if r.searched else None for c in (5, 10)]
    shares = map(_share, (*recalls, r.block, r.mrr, *searched, r.stale, r.wrong, r.decided))
    return [str(r.asked), *shares, f"{r.tokens:.0f}"]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}".removeprefix("0") if value < 1 else "1.0"


def _ids(found: Sequence[str]) -> str:
    shown = ", ".join(found[:4]) + (", …" if len(found) > 4 else "")
    return f"{len(found)}: {shown}" if found else "0"


def _languages(outcomes: Sequence[Outcome]) -> list[str]:
    return sorted({o.language for o in outcomes})
