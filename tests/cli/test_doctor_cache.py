"""What `memory-proxy doctor` says of the Redis that replicas share."""

from pathlib import Path

import pytest

from proxy.cli import doctor
from proxy.cli.doctor import BAD, GOOD
from proxy.config import Settings, load
from tests import redis_server


def settings(url: str | None) -> Settings:
    return load(None, {}, {"cache": {"redis_url": url, "timeout_seconds": 5}})


async def test_an_answering_redis_is_ok_and_without_redis_there_is_no_finding(tmp_path: Path) -> None:
    assert await doctor._cache(settings(None)) == []
    if redis_server.PROGRAM is None:
        pytest.skip(redis_server.MISSING)
    with redis_server.running(tmp_path) as server:
        (found,) = await doctor._cache(settings(server.url))
    assert (found.mark, found.text) == (GOOD, f"{server.url} answers")


async def test_an_unreachable_redis_is_an_error_without_its_password() -> None:
    (found,) = await doctor._cache(settings("redis://user:sesame@127.0.0.1:9/0"))
    assert found.mark == BAD
    assert "redis://127.0.0.1:9/0" in found.text
    assert "sesame" not in found.text
