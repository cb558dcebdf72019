"""Places: how many turns memory works for at once, and which of those that wait is next (a bulkhead).

In a burst that is too much for the deadline, first come, first served lets every turn wait until its time
is nearly up: the work is begun, and then given up. So of those that wait the latest is next: it has the most
time left, and those that cannot be served in time cost nothing.
"""

import asyncio

TURNS_AT_ONCE = 6  # more keep no more threads busy, and in a burst make all of them late


class Places:
    """So many places; an asynchronous context manager holds one. Belongs to one event loop."""

    def __init__(self, places: int = TURNS_AT_ONCE) -> None:
        self._free = places
        self._waiting: list[asyncio.Future[None]] = []  # in the order in which they came

    async def __aenter__(self) -> None:
        """Wait for a place. Whoever is cancelled meanwhile holds none."""
        if self._free:
            self._free -= 1
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.cancelled():
                self._waiting.remove(mine)
            else:  # it was given the place and cancelled at the same moment
                self._pass_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        if waiting := next((w for w in reversed(self._waiting) if not w.done()), None):
            self._waiting.remove(waiting)
            waiting.set_result(None)
        else:
            self._free += 1
