"""The search for text that must not be stored."""

from pathlib import Path
from typing import Any

import pytest

from evals.data import Persona, persona
from evals.leaks import find
from tests.evals.test_data import raw

SPAN = "hunter-é-2"


def holding(reason: str) -> Persona:
    made = raw()
    made["sessions"][0]["never_store"] = [{"evidence": "t1", "span": SPAN, "reason": reason}]
    return persona(made)


def found(directory: Path, reason: str, stored: Any = (), prompts: Any = ()) -> tuple[bool, ...]:
    (leak,) = find([holding(reason)], {"u": stored}, prompts, directory)
    return leak.api, leak.files, leak.prompts, leak.is_bad


@pytest.mark.parametrize("shape", [SPAN.encode(), rb"hunter-\u00e9-2"])
def test_a_leak_is_found_in_files_memories_and_prompts(tmp_path, shape):
    file = tmp_path / "deep" / "memory.db-wal"
    file.parent.mkdir()
    file.write_bytes(b"other things")
    assert found(tmp_path, "secret") == (False, False, False, False)
    spaced = [{"content": "It is HUNTER é 2."}]
    assert found(tmp_path, "transient", stored=spaced) == (True, False, False, True)
    assert found(tmp_path, "transient", prompts=[SPAN])[3] is False  # a prompt may contain it
    assert found(tmp_path, "poison", prompts=[SPAN])[3] is True
    file.write_bytes(b"\0\0" + shape + b"\0")
    assert found(tmp_path, "secret") == (False, True, False, True)
