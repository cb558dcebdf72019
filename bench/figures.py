"""Copy the tables of a saved run into docs/performance.md: `scripts/bench --docs [FILE]`."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"


def publish(file: Path | None, page: Path = PAGE) -> Path:
    """Replace the figures of the page by those of the run, by default the latest; returns its file.

    Raises FileNotFoundError if there is no run, ValueError if the page has no markers.
    """
    runs = sorted((ROOT / "results").glob("bench-*.json"))
    if file is None and not runs:
        raise FileNotFoundError("no run in results/: run scripts/bench first")
    chosen = file or runs[-1]
    report = json.loads(chosen.read_text("utf-8"))["report"]
    tables = report.partition("### Goals")[0].strip()
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has no markers for figures")
    page.write_text(f"{before}{BEGIN}\n{tables}\n\n{END}{after}", "utf-8")
    return chosen
