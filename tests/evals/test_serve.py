"""The clock that the harness lends to a proxy."""

import subprocess
import sys
from pathlib import Path

from evals.data import seconds
from evals.house import ROOT
from evals.serve import Clock

PROGRAM = """
import sys, time
from pathlib import Path
from evals.serve import lend_clock
monotonic = time.monotonic()
lend_clock(Path(sys.argv[1]))
assert abs(time.time() - float(sys.argv[2])) < 60
assert time.monotonic() - monotonic < 60
from proxy.background.worker import Worker
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
