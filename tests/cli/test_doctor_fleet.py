"""What `memory-proxy doctor` says of the stores that replicas share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis as Client

from proxy.cli import doctor_fleet
from proxy.cli.doctor_data import BAD, GOOD, Finding
from proxy.config import Settings, load
from tests import redis_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[redis_server.Server]:
    if redis_server.PROGRAM is None:
        pytest.skip(redis_server.MISSING)
    with redis_server.running(tmp_path / "redis") as running:
        yield running


def settings(url: str, backend: str = "redis") -> Settings:
    return load(
        None,
        {},
        {
            "storage": {"backend": backend},
            "redis": {"url": url, "timeout_seconds": 1},
            "qdrant": {"url": "http://127.0.0.1:9"},
        },
    )


def to_fix(findings: list[Finding]) -> str:
    return "\n".join(finding.text for finding in findings if finding.mark == BAD)


async def test_a_redis_that_keeps_what_it_gets_is_well(server: redis_server.Server) -> None:
    found = await doctor_fleet.findings(settings(server.url))
    assert [finding.mark for finding in found] == [GOOD]


async def test_a_redis_that_would_lose_something_is_to_be_fixed(server: redis_server.Server) -> None:
    client = Client.from_url(server.url)
    await client.config_set("appendfsync", "everysec")
    await client.config_set("maxmemory-policy", "allkeys-lru")
    await client.aclose()
    told = to_fix(await doctor_fleet.findings(settings(server.url)))
    assert "appendfsync is everysec" in told
    assert "maxmemory-policy is allkeys-lru" in told


async def test_what_does_not_answer_is_to_be_fixed_and_no_password_is_shown(
    server: redis_server.Server,
) -> None:
    told = to_fix(await doctor_fleet.findings(settings("redis://user:sesame@127.0.0.1:9/0")))
    assert "redis://127.0.0.1:9/0" in told
    assert "sesame" not in told
    told = to_fix(await doctor_fleet.findings(settings(server.url, "redis+qdrant")))
    assert "http://127.0.0.1:9" in told
