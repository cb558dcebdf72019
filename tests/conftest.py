"""How hypothesis searches (the same examples every time, so that no run fails where the last one passed), how
work is measured, and what is computed once for all tests.

`scripts/test --hypothesis-profile=explore` tries others each time, and 20 times as many.
"""

import contextlib
import functools
import os
import sys
import time

import pytest

# Containers often forbid to write bytecode. Each of the hundreds of processes that a run starts would compile
# all modules again, some 0.2 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The contract suites: their asserts tell what was compared, whichever folder imports them first.
pytest.register_assert_rewrite("tests.storage")

with contextlib.suppress(ModuleNotFoundError):  # scripts/test --clients has no properties, and no hypothesis
    from hypothesis import HealthCheck, settings

    # How long an example takes is the machine's affair: a property says nothing about time.
    _TIMELESS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
    settings.register_profile("same", _TIMELESS, derandomize=True, database=None)
    settings.register_profile("explore", _TIMELESS, derandomize=False, max_examples=2_000)
    settings.load_profile("same")


with contextlib.suppress(ModuleNotFoundError):
    import httpcore2

    # Each HTTP client would read the certificates of the system, 30 ms.
    httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)


@pytest.fixture
def benchmark_ms():
    """The best of three runs, in milliseconds of work: a busy machine takes longer, not more of it."""

    def measure(call):
        best = float("inf")
        for _ in range(3):
            start = time.thread_time()
            call()
            best = min(best, (time.thread_time() - start) * 1000)
        return best

    return measure
