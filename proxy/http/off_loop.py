"""Work on large bodies, off the event loop: few at a time, and small ones at once."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from proxy.wire.body import LARGE_BYTES

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 2  # more would not be quicker: most of it needs the interpreter's lock


class OffLoop:
    """Runs plain functions, those of large bodies in threads of its own. Others wait their turn."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, "large-bodies")

    def takes(self, size: int) -> bool:
        """True if work on so many bytes is done in a thread."""
        return size >= LARGE_BYTES

    async def run(self, size: int, work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """Return what the work returns. `size`: bytes of the body that it reads."""
        if not self.takes(size):
            return work(*args, **more)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **more))


OFF_LOOP = OffLoop()
"""The threads of this process: they start with the first large body."""
