"""What is read before it is asked for."""

import asyncio
import gc

import pytest

from proxy.errors import StoreUnavailable
from proxy.pipeline.begun import begun


async def test_it_is_read_while_the_block_does_something_else():
    async def read():
        order.append("read")
        return 7

    order = []
    with begun(read()) as reading:
        await asyncio.sleep(0)
        order.append("else")
        assert await reading == 7
    assert order == ["read", "else"]


async def test_it_is_called_off_where_nobody_asked():
    reading = asyncio.get_running_loop().create_future()
    with pytest.raises(ValueError, match="stop"), begun(reading):
        raise ValueError("stop")
    assert reading.cancelled()


async def test_of_what_nobody_asked_for_no_error_is_heard():
    async def read():
        raise StoreUnavailable("gone")

    async def leave():
        with begun(read()):
            await asyncio.sleep(0.01)

    heard = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: heard.append(context))
    await leave()
    gc.collect()
    assert heard == []
