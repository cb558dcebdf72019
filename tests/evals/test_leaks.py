"""The search for what must not be stored."""

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


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_bytes(b"other things")
    assert found(tmp_path, "secret") == (False, False, False, False)


@pytest.mark.parametrize("shape", [SPAN.encode(), rb"hunter-\u00e9-2"])
def test_a_secret_is_found_in_any_data_file(tmp_path: Path, shape: bytes) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "memory.db-wal").write_bytes(b"\0\0" + shape + b"\0")
    assert found(tmp_path, "secret") == (False, True, False, True)


def test_a_memory_that_holds_it_is_found_however_it_is_spaced(tmp_path: Path) -> None:
    assert found(tmp_path, "transient", stored=[{"content": "It is HUNTER é 2."}]) == (
        True,
        False,
        False,
        True,
    )


def test_what_was_said_in_passing_may_be_in_a_prompt_but_planted_text_may_not(tmp_path: Path) -> None:
    assert found(tmp_path, "transient", prompts=[SPAN])[3] is False
    assert found(tmp_path, "poison", prompts=[SPAN])[3] is True
