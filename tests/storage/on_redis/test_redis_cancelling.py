"""A task that waits for Redis can be cancelled at any moment: deadlines and the shutdown rely on it."""

import asyncio

import pytest


@pytest.mark.parametrize("commands", [1, 2])
async def test_no_cancellation_is_lost_in_a_command(redis, commands):
    """asyncio.wait_for, in the client, drops one that comes with an answer: at every seventh moment here."""
    await redis.ping()
    for moment in range(200):
        task = asyncio.create_task(_ask_and_go_on(redis, commands))
        for _ in range(moment % 20):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=30)
        task.cancel()
        assert done, "it went on"
        assert task.cancelled()


async def _ask_and_go_on(redis, commands):
    await (redis.ping() if commands == 1 else redis.pipeline([("PING",)] * commands))
    await asyncio.Event().wait()
