"""Background responses of this process: their events so far, and a way to cancel them.

A background response runs in the task of the request that asked for it, after that request was answered; the
server waits for it at shutdown. It saves itself every BEAT_S. One that is in progress and was not saved for
LEASE_S is dead, in whatever process it ran; so the clocks of machines that share a store must agree to within
LEASE_S - BEAT_S.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from proxy.domain.limits import TTLCache
from proxy.domain.responses import StoredResponse
from proxy.http.responses.owners import Owner
from proxy.wire.body import dump, loads

BEAT_S = 5.0
LEASE_S = 15.0
MAX_FINISHED = 200  # with events that can still be streamed
MAX_FINISHED_BYTES = 32 * 2**20

UNDER_WAY = ("queued", "in_progress")
_BEAT = "\x1fbeat_at"  # an additional field, in the store only


class BackgroundResponse:
    """One background response: its state, its events so far, and a way to end it."""

    def __init__(self, id_: str, owner: Owner, response: Callable[[], dict[str, Any]]) -> None:
        self.id, self.owner = id_, owner
        self.cancelled = False
        self.size = 0
        self._response = response
        self._events: list[bytes] = []  # the n-th has sequence_number n
        self._stop: Callable[[], None] | None = None
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def response(self) -> dict[str, Any]:
        """The response object as it is now."""
        return self._response()

    def stoppable(self, stop: Callable[[], None]) -> None:
        """Give the way to end the work."""
        self._stop = stop

    def cancel(self) -> None:
        """End the work, unless it has ended."""
        if not self._ended.is_set():
            self.cancelled = True
            if self._stop is not None:
                self._stop()

    def add(self, event: bytes) -> None:
        """Note an event for followers."""
        self._events.append(event)
        self.size += len(event)
        self._wake()

    def end(self) -> None:
        """There will be no more events."""
        self._ended.set()
        self._wake()

    async def ended(self) -> None:
        """Wait until the response has its final state, in the store too."""
        await self._ended.wait()

    async def follow(self, after: int) -> AsyncIterator[bytes]:
        """Yield the events after the one with this sequence number, those to come included."""
        place = max(after + 1, 0)
        while True:
            changed = self._changed
            if place < len(self._events):
                pieces = self._events[place:]
                place += len(pieces)
                yield b"".join(pieces)
            elif self._ended.is_set():
                return
            else:
                await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class BackgroundRegistry:
    """The background responses of this process, and the last that have ended."""

    def __init__(self) -> None:
        self._running: dict[str, BackgroundResponse] = {}
        least = MAX_FINISHED_BYTES // MAX_FINISHED
        self._done = TTLCache[str, BackgroundResponse](
            MAX_FINISHED_BYTES, size_of=lambda live: max(live.size, least)
        )

    def begin(self, live: BackgroundResponse) -> None:
        """Register a response that begins."""
        self._running[live.id] = live

    def end(self, live: BackgroundResponse) -> None:
        """Note its end; its events can be streamed for some time."""
        self._running.pop(live.id, None)
        live.end()
        self._done.put(live.id, live)

    def under_way(self, owner: Owner, response_id: str) -> BackgroundResponse | None:
        """Return the response if it is being made here, and the owner may see it."""
        return _visible(self._running.get(response_id), owner)

    def recent(self, owner: Owner, response_id: str) -> BackgroundResponse | None:
        """Return the response if it is being made here or was lately."""
        return self.under_way(owner, response_id) or _visible(self._done.get(response_id), owner)


def _visible(live: BackgroundResponse | None, owner: Owner) -> BackgroundResponse | None:
    """Return the response if the owner may see it, by the rules of ResponseStore.find."""
    if live is None:
        return None
    made_by = live.owner
    mine = (live.owner.scope.tenant, live.owner.scope.user) == (owner.scope.tenant, owner.scope.user)
    same_credential = owner.credential is not None and made_by.credential == owner.credential
    return live if mine or (same_credential and not (owner.named and made_by.named)) else None


# ---------------------------------------------------------------- as it is stored
def with_beat(response: dict[str, Any], now: float) -> bytes:
    """Return what to store of a response that is under way."""
    return dump({**response, _BEAT: now})


def shown(stored: StoredResponse, now: float) -> "StoredState":
    """Return a stored response as its owner gets it: one whose process died has failed."""
    response: dict[str, Any] = loads(stored.response)
    beat_at = response.pop(_BEAT, None)
    died = response.get("status") in UNDER_WAY and (beat_at is None or now - beat_at > LEASE_S)
    if died:
        error = {"code": "server_error", "message": "The server stopped before the response was complete."}
        response = {**response, "status": "failed", "error": error}
    return StoredState(response, died)


@dataclass(frozen=True, slots=True)
class StoredState:
    """A response object; `died`: the store does not know yet that it failed."""

    response: dict[str, Any]
    died: bool
