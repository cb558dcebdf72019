"""Documents: are questions to them given their section, others none, and do memories stay as they were?

Our own three documents (evals/handbooks) are posted to an otherwise empty user, and their questions put
as chat requests. The same index is then searched in this process, flat and through sections, since that is
no setting of the proxy's. At last some personas are asked their questions without documents and with them.
"""

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from evals import retrieval
from evals.data import HERE, Persona
from evals.house import ROOT, House, opened
from evals.model import Model
from evals.score import Outcome, percentile, row
from proxy.background.library import Library
from proxy.documents import Look
from proxy.domain import Scope
from proxy.pipeline.documents import Shelf, search
from proxy.stores.models.load import load_embedder
from proxy.stores.sqlite import SqliteStores

FOLDER = HERE / "handbooks"
# To get lost in: our own documentation, but for what quotes the documents.
CROWD = tuple(f for f in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if f.stem != "documents")
PARTS = ("tune", "held")  # thresholds were chosen by the first half; the second is only measured
USER = "reader"
CUT = 3
WAYS = {"flat": 0, "through 2 sections": 2, "through 4 sections": 4, "through 8 sections": 8}


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, and the section that answers it: None where no document does."""

    id: str
    part: str
    query: str
    section: tuple[str, str] | None  # document and last heading


@dataclass(frozen=True, slots=True)
class Given:
    """What one question was given through the chat."""

    asked: Asked
    found: bool  # its section was among what was injected
    wrong: bool  # passages were injected, and nothing of them belongs
    memory_ms: float


@dataclass(frozen=True, slots=True)
class Report:
    """What one run found out."""

    given: tuple[Given, ...]
    by_way: Mapping[str, Mapping[str, float]]  # recall at CUT by way of searching, and part
    without: tuple[Outcome, ...]  # the personas' questions before there were documents
    beside: tuple[Outcome, ...]  # and after


async def run(
    personas: Sequence[Persona], directory: Path, settings: Mapping[str, Any], tick: retrieval.Tick
) -> Report:
    """Ask everything. Raises Refused."""
    async with opened(directory / "documents", Model(), settings) as house:
        await _post(house, USER)
        given = [await _ask(house, one, tick) for one in questions()]
        beside = await _personas(house, personas, tick, reading=True)
    # Another store: memories that were recalled once rank differently afterwards.
    async with opened(directory / "no-documents", Model(), settings) as house:
        without = await _personas(house, personas, tick, reading=False)
    by_way: dict[str, Mapping[str, float]] = {}
    for name, crowd in (("alone", ()), ("in a crowd", CROWD)):
        found = await _by_way(directory / "models", crowd)
        by_way |= {f"{way}, {name}": recalls for way, recalls in found.items()}
    return Report(tuple(given), by_way, tuple(without), tuple(beside))


async def _personas(
    house: House, personas: Sequence[Persona], tick: retrieval.Tick, *, reading: bool
) -> list[Outcome]:
    """Return what became of the personas' questions, each with the documents too if they are `reading`."""
    outcomes: list[Outcome] = []
    for persona in personas:
        facts = await retrieval.store(house, persona)
        if reading:
            await _post(house, persona.user)
        outcomes += await retrieval.ask_all(house, persona, persona.questions, facts, tick)
    return outcomes


def questions() -> list[Asked]:
    """Return the questions to the documents, and those to nothing."""
    raw = _raw()
    return [
        *(Asked(q["id"], q["part"], q["query"], (q["document"], q["heading"])) for q in raw["questions"]),
        *(Asked(q["id"], q["part"], q["query"], None) for q in raw["unrelated"]),
    ]


def texts() -> dict[str, str]:
    """Return the documents by their names."""
    return {d["name"]: (FOLDER / d["file"]).read_text("utf-8") for d in _raw()["documents"]}


def _raw() -> dict[str, Any]:
    raw: dict[str, Any] = json.loads((FOLDER / "questions.json").read_text("utf-8"))
    return raw


# ---------------------------------------------------------------- through the API
async def _post(house: House, user: str) -> None:
    for name, content in texts().items():
        body = {"name": name, "content": content, "user_id": user}
        reply = await house.call("POST", "/v1/memory/documents", body)
        if reply.status not in (200, 201):
            raise retrieval.Refused(f"document: {reply.status} {reply.body}")


async def _ask(house: House, one: Asked, tick: retrieval.Tick) -> Given:
    body = {
        "model": retrieval.MODEL,
        "messages": [{"role": "user", "content": one.query}],
        "memory_context": {"user_id": USER, "session_id": f"ask-{one.id}"},
    }
    reply = await house.call(
        "POST", "/v1/chat/completions", body, authorization="Bearer sk-eval", x_memory_mode="read"
    )
    if reply.status != 200:
        raise retrieval.Refused(f"{one.id}: {reply.status} {reply.body}")
    lines = [line for line in house.model.shown_text().splitlines() if line.startswith("- [doc ")]
    document, heading = one.section or ("", "")
    found = any(f'"{document}"' in line and f"› {heading} #" in line for line in lines)
    tick(one.id)
    return Given(one, found, bool(lines) and not found, retrieval.milliseconds(reply))


# ---------------------------------------------------------------- in this process
async def _by_way(models_dir: Path, crowd: Sequence[Path]) -> dict[str, dict[str, float]]:
    """Return recall by way, with the crowd's documents beside ours."""
    embedder = load_embedder(models_dir).embedder
    if embedder is None:
        return {}
    scope = Scope("default", USER)
    with tempfile.TemporaryDirectory(prefix="memory-proxy-eval-") as scratch:
        stores = SqliteStores(Path(scratch))
        await stores.open()
        await stores.memories.stamp_model(embedder.model)
        library = Library(stores.documents, stores.passages, embedder, time.time)
        for name, content in texts().items():
            await library.add(scope, name, content, "markdown")
        for file in crowd:
            await library.add(scope, file.name, file.read_text("utf-8"), "markdown")
        while await library.catch_up(60):
            pass
        shelf = Shelf(stores.passages, stores.memories, embedder)
        found = {
            way: await _recall(scope, replace(shelf, look=Look(None, (), sections=sections)))
            for way, sections in WAYS.items()
        }
        await stores.close()
    embedder.close()
    return found


async def _recall(scope: Scope, shelf: Shelf) -> dict[str, float]:
    """Return, by part, the share of questions whose section is among the first CUT; no gate stands before."""
    hits: dict[str, list[bool]] = {part: [] for part in PARTS}
    for one in questions():
        if one.section is not None:
            ranked = await search(scope, one.query, shelf, limit=CUT, threshold=0.0)
            sections = [(r.hit.document.name, r.hit.passage.headings[-1]) for r in ranked]
            hits[one.part].append(one.section in sections)
    return {part: sum(of_part) / len(of_part) for part, of_part in hits.items()}


# ---------------------------------------------------------------- told
def tell(console: Console, report: Report) -> None:
    """Print the tables."""
    table = Table(title="Documents", title_justify="left")
    for head in ("", "asked", "section injected", "only wrong ones", "unrelated", "wrong"):
        table.add_column(head, justify="right" if head else "left")
    for part in (*PARTS, "all"):
        ours = [g for g in report.given if part in (g.asked.part, "all")]
        to_them = [g for g in ours if g.asked.section]
        others = [g for g in ours if not g.asked.section]
        cells = (
            _share(to_them, "found"),
            _share(to_them, "wrong"),
            str(len(others)),
            _share(others, "wrong"),
        )
        table.add_row(part, str(len(to_them)), *cells)
    console.print(table)
    for way, recalls in report.by_way.items():
        told = ", ".join(f"{part} {value:.2f}" for part, value in recalls.items())
        console.print(f"recall@{CUT} {way}: {told}")
    if report.beside:
        _tell_personas(console, report)


def as_json(report: Report) -> dict[str, Any]:
    """Return the numbers."""
    return {
        "given": [{"id": g.asked.id, "found": g.found, "wrong": g.wrong} for g in report.given],
        "by_way": report.by_way,
        "personas": _compared(report) if report.beside else {},
    }


def _tell_personas(console: Console, report: Report) -> None:
    c = _compared(report)
    console.print(
        f"{len(report.beside)} questions of personas, without documents and with them: recall@5"
        f" {c['recall@5'][0]:.3f} and {c['recall@5'][1]:.3f}, in the block {c['block'][0]:.3f} and"
        f" {c['block'][1]:.3f}; p50 {c['p50_ms'][0]:.1f} and {c['p50_ms'][1]:.1f} ms"
    )
    told = ", ".join(f"{kind} {share:.2f}" for kind, share in c["passages"].items())
    console.print(f"share of them that were given passages: {told}")


def _compared(report: Report) -> dict[str, Any]:
    bare = [replace(o, injected=tuple(i for i in o.injected if i != "?")) for o in report.beside]
    rows = [row(side) for side in (report.without, bare)]
    kinds = {"abstain": "abstain", "skip": "skip"}
    by_kind: dict[str, list[bool]] = {"answered by memory": [], "abstain": [], "skip": []}
    for o in report.beside:
        kind = kinds.get(o.kind.partition("_")[0], "answered by memory")
        by_kind[kind].append("?" in o.injected)
    return {
        # Recalled memories are touched after the answer: the last digit differs from run to run.
        "recall@5": [(r.recall or {}).get(5, 0.0) for r in rows],
        "block": [r.block or 0.0 for r in rows],
        "p50_ms": [percentile([o.memory_ms for o in s], 0.5) for s in (report.without, report.beside)],
        "passages": {kind: sum(x) / len(x) for kind, x in by_kind.items() if x},
    }


def _share(given: Sequence[Given], what: str) -> str:
    return f"{sum(getattr(g, what) for g in given) / len(given):.2f}" if given else "-"
