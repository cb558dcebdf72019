"""Begin to read before it is known that what is read will be asked for."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def begun(read: Awaitable[T]) -> Iterator[asyncio.Future[T]]:
    """Give what is being read to the block, and call it off where that ends without having asked for it."""
    future = asyncio.ensure_future(read)
    try:
        yield future
    finally:
        future.cancel()  # of one that has failed, too: then asyncio does not complain that nobody asked
