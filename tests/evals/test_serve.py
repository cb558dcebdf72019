"""The clock that the harness lends to a proxy: a question is asked on its day."""

import subprocess
import sys
from pathlib import Path

from evals.data import seconds
from evals.house import ROOT, opened
from evals.model import Model
from evals.serve import Clock

PROGRAM = """
import sys, time
from pathlib import Path
from evals.serve import lend_clock
monotonic = time.monotonic()
lend_clock(Path(sys.argv[1]))
assert abs(time.time() - float(sys.argv[2])) < 60
assert time.monotonic() - monotonic < 60
from proxy.learn.worker import Worker
assert abs(Worker.__init__.__kwdefaults__["clock"]() - float(sys.argv[2])) < 60
print("fine")
"""


def test_a_process_that_was_lent_a_clock_lives_at_that_time(tmp_path: Path) -> None:
    clock, at = Clock(tmp_path / "clock"), seconds("2031-05-01T12:00:00Z")
    clock.set(at)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(clock.file), str(at)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "fine\n", done.stderr


async def test_each_request_of_an_evaluation_is_made_at_its_own_time(tmp_path: Path) -> None:
    """Through a whole proxy, forwards and backwards, at once."""
    said = {"2026-05-01T12:00:00Z": "User has cats", "2031-01-01T00:00:00Z": "User owns a kayak",
            "2027-02-03T04:05:06Z": "User works at Acme"}  # fmt: skip
    async with opened(tmp_path, Model(), {}, whole=False) as house:
        for when, content in said.items():
            house.clock.set(seconds(when))
            added = await house.call("POST", "/v1/memory", {"user_id": "anna", "content": content})
            assert abs(added.body["created_at"] - seconds(when)) < 60, content
