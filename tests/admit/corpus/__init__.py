"""Texts for the write gate: what must be removed, and what must stay. All values are invented.

Each row of SECRETS and PERSONAL is (text, what must not be left of it). A broken bar is removed from both: it
keeps scanners of this repository from taking an invented key for a real one.
"""

import json
from pathlib import Path

_HERE = Path(__file__).parent


def _rows(name: str) -> list[tuple[str, str]]:
    lines = (_HERE / f"{name}.jsonl").read_text("utf-8").replace("¦", "").splitlines()
    return [(text, value) for text, value in map(json.loads, lines)]


def _lines(name: str) -> list[str]:
    return (_HERE / f"{name}.txt").read_text("utf-8").splitlines()


SECRETS, PERSONAL = _rows("secrets"), _rows("personal")
INNOCENT, PLANTED = _lines("innocent"), _lines("planted")
OWN_RULES = _lines("own_rules")  # the user's own rules and wishes
