"""The client's side of an exchange: its body as it arrives, and the news that it has disconnected."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any

from proxy.domain.errors import TooLarge

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ClientLeft(Exception):
    """The client disconnected before its request was complete."""


class Downstream:
    """What `receive` tells of the client, read in one place.

    `async with` it around all work done for the client: when the client leaves, the block is cancelled
    where it stands and ends quietly, with `left` true. uvicorn's send is silent after a disconnect; only
    receive tells. Nothing is watched before the request's body has been read to its end.
    """

    def __init__(self, receive: Receive) -> None:
        self.left = False
        self._receive = receive
        self._body_complete = False
        self._task: asyncio.Task[Any] | None = None  # whose work it is
        self._watcher: asyncio.Task[None] | None = None
        self._cancelled = False

    async def read(self, limit_bytes: int) -> bytes:
        """Return the whole body. Raises TooLarge, or ClientLeft."""
        chunks: list[bytes] = []
        size = 0
        while not self._body_complete:
            chunks.append(await self._next())
            size += len(chunks[-1])
            if size > limit_bytes:
                raise TooLarge(f"The request body is larger than {limit_bytes} bytes.")
        return b"".join(chunks)

    async def body(self) -> bytes | AsyncIterator[bytes]:
        """Return the body if it came in one piece, as small ones do, else an iterator over it."""
        first = await self._next()
        return first if self._body_complete else self._stream(first)

    def settle(self) -> None:
        """The client has what it came for: from here on its leaving changes nothing."""
        self._task = None

    def hold(self) -> Callable[[], None]:
        """From here on the client's leaving changes nothing. What is returned ends the work in its place."""
        if self._watcher is not None:
            self._watcher.cancel()
        return self._leave

    def absorb(self) -> bool:
        """Return True if the CancelledError just caught means that the client left, and nothing else."""
        if not self._cancelled:
            return False
        self._cancelled = False
        task = asyncio.current_task()
        return task is not None and task.uncancel() == 0

    async def __aenter__(self) -> "Downstream":
        self._task = asyncio.current_task()
        self._watch_if_complete()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._task = None
        if self._watcher is not None:
            self._watcher.cancel()
        if isinstance(error, asyncio.CancelledError):
            return self.absorb()
        return isinstance(error, ClientLeft)

    async def _stream(self, first: bytes) -> AsyncIterator[bytes]:
        yield first
        while not self._body_complete:
            yield await self._next()

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._leave()
            raise ClientLeft
        self._body_complete = not message.get("more_body", False)
        self._watch_if_complete()
        return message.get("body", b"")  # type: ignore[no-any-return]

    def _watch_if_complete(self) -> None:
        if self._body_complete and self._task is not None and self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        if self._body_complete and self._task is None:
            return  # settled
        self.left = True
        if self._task is not None and self._task is not asyncio.current_task():
            self._cancelled = True
            self._task.cancel()
