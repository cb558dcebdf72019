"""The search for text that must not be stored."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from evals.data import Persona, persona
from evals.judge import Judge, StoredMemory, Verdict
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


VECTORS = {"The new one holds.": (1.0, 0.0), "New.": (0.9, 0.436), "Old.": (0.0, 1.0)}


async def embed(text: str) -> npt.NDArray[np.float32] | None:
    return np.array(VECTORS[text], np.float32) if text in VECTORS else None


async def verdict(*contents: str) -> Verdict:
    memories = [StoredMemory(f"m{i}", content) for i, content in enumerate(contents)]
    return await Judge(embed).verdict(persona(raw()), memories)


async def test_memories_are_compared_with_the_facts():
    right = await verdict("The new one holds.")
    assert (right.found, right.missing, right.stale, right.extra) == ({"f2"}, (), (), 0)
    assert (right.recall, right.precision) == (1.0, 1.0)
    stale = await verdict("New.", "Old.")
    assert (stale.stale, stale.precision) == (("f1",), 0.5)
    assert (await verdict("New.", "new")).doubled == ("f2",)
    quoting = await verdict("no, new", "Something else.")
    assert (quoting.extra, quoting.useful, quoting.covered, quoting.recall) == (2, 1, {"f2"}, 0.0)
