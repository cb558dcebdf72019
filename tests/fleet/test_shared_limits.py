"""Replicas that share rate limits in Redis, and nothing else."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2

from tests.fleet.replicas import Replica

QUESTION = {"model": "m", "messages": [{"role": "user", "content": "What is the capital of France?"}]}


@contextlib.asynccontextmanager
async def machines(directory: Path, upstream: str, redis_url: str) -> AsyncIterator[list[Replica]]:
    """Two, each with a data directory of its own."""
    environ = {
        "MEMORY_PROXY__CACHE__REDIS_URL": redis_url,
        "MEMORY_PROXY__LIMITS__REQUESTS_PER_MINUTE": "1",
        "MEMORY_PROXY__LIMITS__REQUESTS_BURST": "3",
        "MEMORY_PROXY__CACHE__TIMEOUT_SECONDS": "2",
    }
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for name in ("one", "two"):
            own = directory / name
            own.mkdir()
            made.append(Replica(own, upstream, environ))
            stack.push_async_callback(made[-1].close)
            await made[-1].start()
        yield made


async def asked(replica: Replica, user: str) -> int:
    """Return the status of a request."""
    body = QUESTION | {"memory_context": {"user_id": user}}
    async with httpx2.AsyncClient(timeout=60) as http:
        return (await http.post(f"{replica.origin}/v1/chat/completions", json=body)).status_code


async def test_a_budget_is_one_over_all_replicas_and_each_ones_own_without_redis(tmp_path, redis, scripted):
    async with machines(tmp_path, scripted[1], redis.url) as (one, two):
        assert [await asked(each, "anna") for each in (one, two, one, two)] == [200, 200, 200, 429]
        redis.kill()
        assert [await asked(each, "ben") for each in (one, two, one, two, one, two)] == [200] * 6
        assert [await asked(each, "ben") for each in (one, two)] == [429, 429]
        for each in (one, two):
            async with httpx2.AsyncClient(timeout=60) as http:
                metrics = (await http.get(f"{each.origin}/metrics")).text
            assert "memory_proxy_cache_outages_total 1.0" in metrics
            assert each.log.read_text("utf-8").count("cache.unavailable") == 1
