"""Connections of clients: how many may be open, and how long one may keep the proxy waiting.

A connection that waits for its client (nothing sent yet, half a head, a body that stopped, idle between two
requests) costs a file descriptor for nothing. Two rules keep such connections from locking out others:

- Time: a head has `head_s` from its first byte, and a body `body_s` for its next bytes. A slow upload that
  makes progress is fine. Idle connections between two requests have the server's own time limit (keep-alive).
- Room: if a new connection finds no room, the one that has waited longest is closed, of the peer (address)
  that has most of them. Only if all are busy with requests is the new one refused.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from proxy import telemetry

_SWEEP_S = 1.0
_SPARE_FILES = 64  # the store, the log, listening sockets


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """0: no limit."""

    head_s: float = 20.0
    body_s: float = 60.0
    most: int = 0
    most_of_peer: int = 0

    @classmethod
    def of(
        cls, head_s: float, body_s: float, most: int, most_of_peer: int, files: int | None
    ) -> "ConnectionLimits":
        """Return the limits. 0 for `most`: half of the `files` that the process may open, since each may need
        another connection to the upstream. 0 for `most_of_peer`: half of that."""
        if most == 0 and files is not None:
            most = max(32, (files - _SPARE_FILES) // 2)
        return cls(head_s, body_s, most, most_of_peer or most // 2)


class Waiting(Protocol):
    """A connection, as its protocol shows it."""

    def is_late(self, now: float, limits: ConnectionLimits) -> str:
        """Return what the client took too long for, "" if it has time left."""
        ...

    def end(self, reason: str) -> None:
        """Close the connection, with an answer if a request has begun and none was given."""
        ...


@dataclass(slots=True)
class _Peer:
    count: int = 0
    waiting: "OrderedDict[Waiting, None]" = field(default_factory=OrderedDict)  # the longest silent first


class Connections:
    """The connections of one process. Belongs to one event loop."""

    def __init__(self, limits: ConnectionLimits, ended: Callable[[str], None] = lambda reason: None) -> None:
        """`ended` is called with the reason for each connection that is refused or closed here."""
        self.limits, self._ended = limits, ended
        self._peers: dict[str, _Peer] = {}
        self._of: dict[Waiting, str] = {}
        self._seldom = telemetry.Seldom()
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._of)

    def admit(self, connection: Waiting, address: str) -> bool:
        """Take in a connection, which waits for its client; False if there is no room for it. Connections
        without an address (a Unix socket) are of no peer."""
        if not self._has_room(address):
            self._note("refused")
            return False
        self._of[connection] = address
        peer = self._peers.setdefault(address, _Peer())
        peer.count += 1
        peer.waiting[connection] = None
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        return True

    def busy(self, connection: Waiting) -> None:
        """Its request is complete: the client waits now."""
        if (address := self._of.get(connection)) is not None:
            self._peers[address].waiting.pop(connection, None)

    def heard(self, connection: Waiting) -> None:
        """It waits for its client, and has just heard from it or answered it."""
        if (address := self._of.get(connection)) is not None:
            waiting = self._peers[address].waiting
            waiting[connection] = None
            waiting.move_to_end(connection)

    def release(self, connection: Waiting) -> None:
        """It is closed, or somebody else's."""
        if (address := self._of.pop(connection, None)) is None:
            return
        peer = self._peers[address]
        peer.count -= 1
        peer.waiting.pop(connection, None)
        if not peer.count:
            del self._peers[address]

    def _has_room(self, address: str) -> bool:
        limits, peer = self.limits, self._peers.get(address)
        if address and peer is not None and 0 < limits.most_of_peer <= peer.count:
            return self._close_one(peer)
        if 0 < limits.most <= len(self._of):
            return self._close_one(max(self._peers.values(), key=lambda p: len(p.waiting)))
        return True

    def _close_one(self, peer: _Peer) -> bool:
        """Close the connection of the peer that has waited longest; False if all are busy."""
        if not peer.waiting:
            return False
        self._close(next(iter(peer.waiting)), "displaced")
        return True

    def _close(self, connection: Waiting, reason: str) -> None:
        self.release(connection)
        self._note(reason)
        connection.end(reason)

    def _note(self, reason: str) -> None:
        self._ended(reason)
        level = self._seldom.info if reason.endswith("timeout") else self._seldom.warning
        level("connection.ended", reason=reason)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        late = [
            (connection, reason)
            for peer in self._peers.values()
            for connection in peer.waiting
            if (reason := connection.is_late(now, self.limits))
        ]
        for connection, reason in late:
            self._close(connection, reason)
        self._sweeping = loop.call_later(_SWEEP_S, self._sweep) if self._of else None
