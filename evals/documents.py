"""Documents: are questions to them given their section, and others none?

Our own three documents (evals/handbooks) are posted to an otherwise empty user, and their questions put as
chat requests. Then some personas with the same documents are asked their own questions.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals import retrieval
from evals.data import HERE, Persona
from evals.house import House, opened
from evals.model import Model
from evals.score import Shares, Tally, recall

FOLDER = HERE / "handbooks"
PARTS = ("tune", "held")  # thresholds were chosen by the first half; the second is only measured
USER = "reader"


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, and the section that answers it: None where no document does."""

    id: str
    part: str
    query: str
    section: tuple[str, str] | None  # document and last heading


async def run(
    personas: Sequence[Persona], directory: Path, settings: Mapping[str, Any], tick: retrieval.Tick
) -> Shares:
    """Ask everything. Raises Refused."""
    found = Tally()
    async with opened(directory / "documents", Model(), settings) as house:
        await _post(house, USER)
        for one in questions():
            right, lines = await _ask(house, one, tick)
            if one.section:
                found.add(f"section shown: {one.part}", "en", right)
                found.add("only wrong", "en", bool(lines) and not right)
            else:
                found.add("wrong: unrelated", "en", bool(lines))
        for persona in personas:
            facts = await retrieval.store(house, persona)
            await _post(house, persona.user)
            for o in await retrieval.ask_all(house, persona, persona.questions, facts, tick):
                if o.answers:
                    memories = [i for i in o.injected if i != "?"]
                    found.add("recall@5: memories of personas", o.language, recall(memories, o.answers, 5))
                else:
                    found.add("wrong: passages for personas", o.language, "?" in o.injected)
    return found.shares()


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


async def _post(house: House, user: str) -> None:
    for name, content in texts().items():
        body = {"name": name, "content": content, "user_id": user}
        reply = await house.call("POST", "/v1/memory/documents", body)
        if reply.status not in (200, 201):
            raise retrieval.Refused(f"document: {reply.status} {reply.body}")


async def _ask(house: House, one: Asked, tick: retrieval.Tick) -> tuple[bool, list[str]]:
    """Return whether the question's section is shown, and the lines of documents that are."""
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
    tick(one.id)
    return any(f'"{document}"' in line and f"› {heading} #" in line for line in lines), lines
