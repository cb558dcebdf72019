"""`memory-proxy migrate …` as an operator uses it: a real Redis, a real data directory."""

import asyncio

import pytest
from redis import Redis

from proxy.cli import opened_stores
from proxy.cli.database import MIGRATE_FROM
from proxy.config import load as load_settings
from tests import redis_server
from tests.storage.making import ANNA, of
from tests.storage.test_redis_migration import load


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if redis_server.PROGRAM is None:
        pytest.skip(redis_server.MISSING)
    with redis_server.running(tmp_path_factory.mktemp("redis")) as running:
        with Redis.from_url(running.url) as client:
            load(client)
        yield running


def test_everything_is_copied_and_no_user_is_named(command, server, tmp_path, monkeypatch):
    monkeypatch.setenv(MIGRATE_FROM, server.url)
    status, out, _ = command("migrate")
    assert status == 0
    assert "15  memories\n" in out
    assert "Everything was copied." in out
    assert not [name for name in ("anna", "ben", "tea", "acme", "obey", "sealed") if name in out]

    async def memories_of_anna():
        settings = load_settings(None, {}, {"storage": {"data_dir": tmp_path / "data"}})
        async with opened_stores(settings) as stores:
            return len((await stores.memories.list(of(ANNA), limit=99)).items)

    assert asyncio.run(memories_of_anna()) == 6
    status, out, err = command("migrate")
    assert (status, out, "has users already" in err) == (1, "", True)


@pytest.mark.parametrize(
    ("source", "status"),
    [("redis://:secret@127.0.0.1:1/0", 1), ("http://:secret@h", 2), ("redis://:secret@h:port/0", 2), ("", 2)],
)
def test_a_wrong_source_is_reported_without_its_password(command, source, status):
    found, out, err = command("migrate", "--from", source)
    assert (found, out) == (status, "")
    assert "secret" not in err
    assert status == 2 or "Nothing was copied." in err
