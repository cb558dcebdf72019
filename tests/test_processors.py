"""What a process takes of the machine's processors."""

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


@pytest.mark.skipif(PROCESSORS < 2, reason="told by Linux, and only where there are several")
@pytest.mark.parametrize(("chosen", "threads"), [(None, 1), ("2", 2)])
def test_products_of_matrices_begin_no_threads_that_wait_without_sleeping(
    chosen: str | None, threads: int
) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    if chosen is not None:  # the operator's word stands
        environment["OPENBLAS_NUM_THREADS"] = chosen
    told = subprocess.run(
        [sys.executable, "-c", MULTIPLY], env=environment, capture_output=True, text=True, check=True
    )
    assert int(told.stdout) == threads
