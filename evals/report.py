"""Tables of a run: on the terminal, and in evals/RESULTS.md."""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from evals.data import HERE
from evals.house import ROOT
from evals.score import ALL, Shares, is_lower

OURS = "memory-proxy"
RESULT_FILES = ROOT / "results" / "eval"
RESULTS = HERE / "RESULTS.md"
COMPARED = ("recall@1", "recall@5", "recall@10", "in 400 tokens", "in 600 tokens")
Systems = Mapping[str, Shares]
HEAD = """# Results of the evaluation

Written by `scripts/eval --write`; [README.md](README.md) says what the sets and metrics are. Shares between
0 and 1, by language ("all": over all cases). ↓: the lower, the better.
"""


def languages(shares: Shares) -> list[str]:
    """Return the languages of a part: all together, then by the number of cases."""
    found: Counter[str] = Counter()
    for by_language in shares.values():
        found |= Counter({language: cases for language, (_, cases) in by_language.items()})
    return sorted(found, key=lambda lang: (lang != ALL, -found[lang], lang))


def rows(shares: Shares) -> list[list[str]]:
    """Return one row for each metric: its name and its value in each language."""
    names = languages(shares)
    return [
        [
            metric + (" ↓" if is_lower(metric) else ""),
            *(_share(by_language[lang]) if lang in by_language else "" for lang in names),
        ]
        for metric, by_language in sorted(shares.items(), key=lambda item: (is_lower(item[0]), item[0]))
    ]


def compared(systems: Systems) -> list[list[str]]:
    """Return one row for each system and language with its recall."""
    ours = systems[OURS]
    return [
        [lang, name, *(_share(s[m][lang]) if lang in s.get(m, {}) else "" for m in COMPARED)]
        for lang in languages(ours)
        for name, s in systems.items()
        if lang in ours.get("recall@5", {})
    ]


def show(console: Console, part: str, systems: Systems) -> None:
    """Print a part's tables."""
    ours = systems[OURS]
    _print(console, part, ["", *languages(ours)], rows(ours))
    if len(systems) > 1:
        _print(console, f"{part}: other systems, which never abstain", ["", "", *COMPARED], compared(systems))


def _print(console: Console, title: str, head: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for place, name in enumerate(head):
        table.add_column(name, justify="right" if place and name else "left")
    for line in lines:
        table.add_row(*line)
    console.print(table)


def keep(part: str, systems: Systems, extra: Mapping[str, Any], *, quick: bool) -> Path:
    """Write a part's result as JSON; return the file."""
    RESULT_FILES.mkdir(parents=True, exist_ok=True)
    file = RESULT_FILES / f"{'quick' if quick else 'full'}-{part.replace(' ', '-')}.json"
    whole = {"part": part, **stamp(), **extra, "systems": systems}
    file.write_text(json.dumps(whole, indent=1, ensure_ascii=False), "utf-8")
    return file


def write(file: Path = RESULTS, results: Path = RESULT_FILES) -> None:
    """Write all results of full runs as Markdown."""
    parts = [json.loads(one.read_text("utf-8")) for one in sorted(results.glob("full-*.json"))]
    file.write_text(HEAD + "".join(map(_markdown, parts)), "utf-8")


def _markdown(results: Mapping[str, Any]) -> str:
    systems: Systems = results["systems"]
    ours = systems[OURS]
    counts = {n for by_language in ours.values() for lang, (_, n) in by_language.items() if lang == ALL}
    about = f"{results['when']}, commit {results['commit']}, {results['seconds']:.0f} s"
    about += f"; up to {max(counts)} cases."
    text = f"\n## {results['part']}\n{about}\n\n" + _table(["", *languages(ours)], rows(ours))
    if len(systems) > 1:
        text += "\nOther systems with the product's encoder and the same memories; they never abstain.\n\n"
        text += _table(["", "", *COMPARED], compared(systems))
    return text


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *lines))


def stamp() -> dict[str, str]:
    """Return the commit and the time."""

    def git(*words: str) -> str:
        try:
            done = subprocess.run(
                ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False
            )
        except OSError:
            return ""
        return done.stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = bool(git("status", "--porcelain", "--", "proxy"))
    when = time.strftime("%Y-%m-%d %H:%M")
    return {"commit": f"{commit} with changes" if changed else commit, "when": when}


def _share(value: Sequence[float]) -> str:
    share = value[0]
    return f"{share:.2f}".removeprefix("0") if share < 0.995 else "1.0"
