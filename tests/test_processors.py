"""A process uses the processors sparingly."""

import os
import subprocess
import sys

import pytest

PROCESSORS = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1

MULTIPLY = """
import proxy
import numpy as np
from pathlib import Path

np.ones((2_000, 400), np.float32) @ np.ones((400, 400), np.float32)
print(len(list(Path("/proc/self/task").iterdir())))
"""


@pytest.mark.skipif(PROCESSORS < 2, reason="needs Linux and several processors")
@pytest.mark.parametrize(("chosen", "threads"), [(None, 1), ("2", 2)])
def test_matrix_products_start_no_busy_waiting_threads(chosen: str | None, threads: int) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    if chosen is not None:  # the operator's choice
        environment["OPENBLAS_NUM_THREADS"] = chosen
    output = subprocess.run(
        [sys.executable, "-c", MULTIPLY], env=environment, capture_output=True, text=True, check=True
    )
    assert int(output.stdout) == threads
