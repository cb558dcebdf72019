#!/usr/bin/env python3
"""Write the users whom the training of the answerability networks left out as personas, for
`scripts/eval --part retrieval --data FILE`.

    .venv/bin/python scripts/dev/left_out.py talk /tmp/talks.json

The first argument is how the names of their files begin (`talk`, `own`, `en`, `zh` …).
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from train_answerability import DATA, LEFT_OUT, files

TOLD, ASKED = "2026-05-01T10:00:00Z", "2026-06-01T10:00:00Z"


def persona(number: int, user: dict[str, Any]) -> dict[str, Any]:
    """Return the user in the evaluation's format: all facts told in one session, then every question."""
    name = f"u{number}"
    facts = [
        {
            "id": f"{name}-f{at}", "type": "semantic", "content": fact, "evidence": [],
            "supersedes": None, "confidence": "stated",
        }
        for at, fact in enumerate(user["facts"])
    ]  # fmt: skip
    questions = [
        {
            "id": f"{name}-q{at}", "date": ASKED, "project_id": None, "history": [], "query": one["q"],
            "kind": "direct" if "a" in one else "abstain",
            "answer_facts": [facts[fact]["id"] for fact in one.get("a", ())],
            "stale_facts": [], "expect": "search",
        }
        for at, one in enumerate((*user["asked"], *user["missing"]))
    ]  # fmt: skip
    session = {"session_id": f"{name}-s", "date": TOLD, "project_id": None, "turns": [], "facts": facts}
    return {"user_id": name, "language": user["lang"], "sessions": [session], "questions": questions}


def main() -> int:
    beginning, out = sys.argv[1], Path(sys.argv[2])
    lines = [(file.stem, line) for file in files(DATA) for line in file.read_text("utf-8").splitlines()]
    found = [
        persona(number, json.loads(line))
        for number, (name, line) in enumerate(lines)
        if name.startswith(beginning) and number % LEFT_OUT == 0
    ]
    out.write_text(json.dumps(found, ensure_ascii=False), "utf-8")
    print(f"{out}: {len(found)} users, {sum(len(one['questions']) for one in found)} questions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
