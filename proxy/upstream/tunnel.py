"""WebSockets of routes that are not ours: tunnelled to the upstream, byte for byte, both ways."""

import asyncio
from collections.abc import MutableMapping
from typing import Any, Protocol

from proxy import telemetry
from proxy.domain.errors import UpstreamCut, UpstreamError
from proxy.upstream import troubles
from proxy.upstream.client import Upstream
from proxy.upstream.downstream import Downstream, Receive, Send
from proxy.upstream.headers import request_headers
from proxy.upstream.opened import Opened
from proxy.upstream.relay import Ending, raw_target, relay, send_upstream_error

_UPGRADE = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
_LAST_WORDS_S = 5.0  # for the upstream to end after the client has


class Tunnel(Protocol):
    """The client's side, once the answer is 101."""

    async def read(self) -> bytes:
        """Return what the client has sent since the last call, b"" at its end."""

    async def write(self, data: bytes) -> None:
        """Send to the client, as fast as it takes it."""


async def tunnelled(
    scope: MutableMapping[str, Any], receive: Receive, send: Send, upstream: Upstream, tunnel: Tunnel
) -> Ending:
    """Pass an upgrade on, and then what both sides say until one of them ends. An upstream that refuses is
    relayed as on any route."""
    async with Downstream(receive) as downstream:
        await downstream.body()
        headers = request_headers(scope["headers"])
        try:
            opened = await upstream.open("GET", raw_target(scope), headers, upgrade=_UPGRADE)
        except UpstreamError as error:
            troubles.failed(error)
            downstream.settle()
            await send_upstream_error(send, error)
            return Ending.UPSTREAM_CUT
        if not opened.switched:
            return await relay(opened, downstream, send)
        with opened:
            downstream.settle()  # from here on the tunnel itself shows that the client leaves
            await send({"type": "http.response.start", "status": opened.status, "headers": opened.headers})
            opened.wait_without_limit()
            return await _Exchange(opened, tunnel, upstream.idle_s).run()
    return Ending.CLIENT_LEFT


class _Exchange:
    """Both directions, and the watch over a tunnel in which nothing moves."""

    def __init__(self, opened: Opened, tunnel: Tunnel, idle_s: float) -> None:
        self._opened, self._tunnel, self._idle_s = opened, tunnel, idle_s
        self._clock = asyncio.get_running_loop().time
        self._moved = self._clock()

    async def run(self) -> Ending:
        """Return who ended it."""
        up, down = asyncio.create_task(self._up()), asyncio.create_task(self._down())
        idle = asyncio.create_task(self._idle())
        try:
            await asyncio.wait((up, down, idle), return_when=asyncio.FIRST_COMPLETED)
            if up.done() and not down.done():
                await asyncio.wait((down,), timeout=_LAST_WORDS_S)
                return Ending.CLIENT_LEFT
            return Ending.COMPLETE if down.done() and not down.exception() else Ending.UPSTREAM_CUT
        finally:
            for task in (up, down, idle):
                task.cancel()
            await asyncio.gather(up, down, idle, return_exceptions=True)

    async def _up(self) -> None:
        while data := await self._tunnel.read():
            self._moved = self._clock()
            await self._opened.write(data)

    async def _down(self) -> None:
        try:
            while data := await self._opened.read():
                self._moved = self._clock()
                await self._tunnel.write(data)
        except UpstreamCut:
            troubles.cut()
            raise

    async def _idle(self) -> None:
        while (  # noqa: ASYNC110
            left_s := self._moved + self._idle_s - self._clock()
        ) > 0:
            await asyncio.sleep(left_s)  # no event: bytes move too often to set one
        telemetry.log.info("tunnel.idle", seconds=self._idle_s)
