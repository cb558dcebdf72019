"""How a process says that it is well."""

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.app.care import vitals
from proxy.domain import Level

WELL: dict[str, Any] = {"is_open": True, "is_readable": True, "trouble": ""}


def told(*, resting: str | None = None, embedder: object = object(), **stores: Any) -> tuple[Level, str]:
    parts: Any = SimpleNamespace(
        stores=SimpleNamespace(**WELL | stores), fail_open=SimpleNamespace(resting=resting), embedder=embedder
    )
    found = vitals(parts)
    return found.level, found.reason


@pytest.mark.parametrize(
    ("how", "level", "reason"),
    [
        ({}, Level.FULL, ""),
        ({"embedder": None}, Level.LEXICAL, "no_embedding_model"),
        ({"resting": "deadline"}, Level.NONE, "deadline"),
        ({"is_open": False, "trouble": "store_disk_full"}, Level.NONE, "store_unavailable"),
        ({"trouble": "store_corrupt", "is_readable": False}, Level.NONE, "store_corrupt"),
        # Commits rest on a full disk; what is remembered is recalled.
        ({"trouble": "store_disk_full", "resting": "store_unavailable"}, Level.FULL, "store_disk_full"),
    ],
)
def test_what_is_wrong_is_said_by_its_cause(how: dict[str, Any], level: Level, reason: str) -> None:
    assert told(**how) == (level, reason)
