"""`memory-proxy migrate …` as an operator uses it: a real Redis, a real data directory."""

import argparse
import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from proxy.cli import database
from proxy.domain.errors import ConfigError
from proxy.storage.sqlite import SqliteStores
from tests import redis_server
from tests.storage.making import ANNA, of
from tests.storage.test_redis_migration import load

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis_server.Server]:
    if redis_server.PROGRAM is None:
        pytest.skip(redis_server.MISSING)
    with redis_server.running(tmp_path_factory.mktemp("redis")) as running:
        with Redis.from_url(running.url) as client:
            load(client)
        yield running


@pytest.fixture
def run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Run the command; returns exit status, standard output, standard error."""
    monkeypatch.delenv(database.MIGRATE_FROM, raising=False)
    parser = argparse.ArgumentParser()
    database.add_migrate(parser)

    async def run(*argv: str) -> tuple[int, str, str]:
        status = await asyncio.to_thread(
            database._migrate, parser.parse_args([*argv, "--data-dir", str(tmp_path / "data")])
        )
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


async def test_everything_is_copied_and_no_user_is_named(
    run: Callable[..., Any], server: redis_server.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(database.MIGRATE_FROM, server.url)
    status, out, err = await run()
    assert (status, err) == (0, "")
    assert "15  memories\n" in out
    assert "Everything was copied." in out
    assert not [name for name in ("anna", "ben", "tea", "acme", "obey", "sealed") if name in out]
    stores = SqliteStores(tmp_path / "data")
    await stores.open()
    assert len((await stores.memories.list(of(ANNA), limit=99)).items) == 6
    await stores.close()


async def test_the_numbers_can_be_had_as_json(run: Callable[..., Any], server: redis_server.Server) -> None:
    _, out, _ = await run("--from", server.url, "--json")
    found = json.loads(out)
    assert found["rows"]["receipts"] == 5
    assert found["without_vector"] == 0


async def test_what_is_wrong_is_said_without_a_password(
    run: Callable[..., Any], server: redis_server.Server
) -> None:
    await run("--from", server.url)
    status, out, err = await run("--from", server.url)
    assert (status, out) == (1, "")
    assert "has users already" in err
    status, _, err = await run("--from", "redis://:secret@127.0.0.1:1/0")
    assert status == 1
    assert "Nothing was copied." in err
    assert "secret" not in err
    for wrong in ("http://h", "redis://:secret@h:port/0"):
        with pytest.raises(ConfigError) as refused:
            await run("--from", wrong)
        assert "secret" not in str(refused.value)
