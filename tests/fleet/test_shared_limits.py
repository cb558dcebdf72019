"""Replicas that share rate limits in Redis, and nothing else."""

import httpx2
import pytest

from tests import redis_server
from tests.e2e.conftest import house, models_dir

__all__ = ["house", "models_dir"]

QUESTION = {"model": "m", "messages": [{"role": "user", "content": "What is the capital of France?"}]}


async def test_a_budget_is_one_over_all_replicas_and_each_ones_own_without_redis(tmp_path, house):
    if redis_server.PROGRAM is None:
        pytest.skip(redis_server.MISSING)

    async def asked(*houses, user):
        headers = {"X-Memory-User-Id": user}
        requests = [
            await http.post(f"{h.base_url}/chat/completions", json=QUESTION, headers=headers) for h in houses
        ]
        return [answer.status_code for answer in requests]

    with redis_server.running(tmp_path / "redis") as redis:
        sections = {
            "cache": {"redis_url": redis.url, "timeout_seconds": 2},
            "limits": {"requests_per_minute": 1, "requests_burst": 3},
        }
        async with (
            house(data_dir=tmp_path / "one", **sections) as one,
            house(data_dir=tmp_path / "two", **sections) as two,
            httpx2.AsyncClient(timeout=60) as http,
        ):
            assert await asked(one, two, one, two, user="anna") == [200, 200, 200, 429]
            redis.kill()
            assert await asked(one, two, one, two, one, two, user="ben") == [200] * 6
            assert await asked(one, two, user="ben") == [429, 429]
            for each in (one, two):
                metrics = (await http.get(f"{each.origin}/metrics")).text
                assert "memory_proxy_cache_outages_total 1.0" in metrics
