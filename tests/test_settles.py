"""Caches reach their full size within minutes, so that the memory of a process stays bounded."""

import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from proxy.admit.safety import safe_id
from proxy.domain.core import MemoryOptions, Message, Scope, Turn
from proxy.http.memory_work import RecentResponses
from proxy.storage.exact_index import term_hash

# At most, after three times as many more. A full table still doubles or halves (0.1 MB), and other threads
# of the process allocate; an unbounded cache grows by more than this.
GROWN_BYTES = 250_000


def _said(number: int) -> Turn:
    said, options = f"Where is my umbrella {number}?", MemoryOptions(True, True, None, 5, None)
    return Turn(
        request_id="r", scope=Scope("t", "u"), session_id=f"s-{number}", model="m",
        messages=(Message("user", said),), options=options, at=0.0,
    )  # fmt: skip


def _chains() -> Callable[[int], object]:
    chains, turn = RecentResponses(), _said(0)
    return lambda n: chains.note(replace(turn, session_id=f"s-{n}"), f"resp_{n}")


def _most(see: Callable[[int], object], numbers: Iterable[int]) -> int:
    """Return the peak memory after any of them: some caches are emptied when they are full."""
    most = 0
    for number in numbers:
        see(number)
        most = max(most, tracemalloc.get_traced_memory()[0])
    return most


@pytest.mark.parametrize(
    ("make", "soon"),
    [
        pytest.param(lambda: lambda number: term_hash(f"word{number}"), 2_100, id="term hashes"),
        pytest.param(lambda: lambda number: safe_id(f"session-{number}"), 2_100, id="safe ids"),
        pytest.param(_chains, 1_100, id="recent responses"),
    ],
)
def test_a_cache_reaches_its_size_soon(make, soon):
    see = make()
    tracemalloc.start()
    try:
        before, after = (_most(see, numbers) for numbers in (range(soon), range(soon, 4 * soon)))
    finally:
        tracemalloc.stop()
    assert after - before < GROWN_BYTES
