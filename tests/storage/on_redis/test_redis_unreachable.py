"""What an operator is told where there is no Redis, or one that lets nobody in."""

import argparse
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis as Client

from proxy.app import App
from proxy.cli import keys as keys_cli
from proxy.cli import migrate as migrate_cli
from proxy.config import load
from proxy.domain.errors import ConfigError, StoreUnavailable
from proxy.storage.redis.stores import Places, RedisStores, Unreachable, redis_of
from proxy.storage.sqlite import SqliteStores
from tests import redis_server

Run = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture
def port() -> Iterator[int]:
    """A port on which nobody answers."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        yield nobody.getsockname()[1]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on a fleet at the address; returns exit status and standard error."""
    for command in (keys_cli, migrate_cli):
        monkeypatch.setattr(command.telemetry, "configure", lambda *_: None)

    async def run(url: str, *argv: str) -> tuple[int, str]:
        path = tmp_path / "cluster.yaml"
        redis = f"redis: {{url: '{url}', timeout_seconds: 1}}"
        path.write_text(f"storage: {{backend: redis}}\n{redis}\n", "utf-8")
        parser = argparse.ArgumentParser()
        commands = parser.add_subparsers()
        keys_cli.add_keys(commands.add_parser("keys"))
        migrate_cli.add_migrate(commands.add_parser("migrate"))
        capsys.readouterr()
        args = parser.parse_args([*argv, "--config", str(path)])
        ran = keys_cli._run(args, keys_cli._list) if argv[0] == "keys" else migrate_cli._run(args)
        return await ran, capsys.readouterr().err

    return run


async def test_keys_that_cannot_be_read_say_where_they_should_be_and_what_to_do(run: Run, port: int) -> None:
    status, told = await run(f"redis://me:secret@127.0.0.1:{port}/3", "keys", "list")
    assert status == 1
    where = f"redis://127.0.0.1:{port}/3"
    assert f"\nmemory-proxy: {where} cannot be used (Redis: ConnectionError)" in told
    assert "redis.url" in told
    assert "secret" not in told


async def test_a_move_that_cannot_begin_says_where_to_and_not_that_it_goes_on(
    run: Run, port: int, tmp_path: Path
) -> None:
    old = SqliteStores(tmp_path / "old")
    await old.open()
    await old.close()
    url = f"redis://:secret@127.0.0.1:{port}/0"
    status, told = await run(url, "migrate", "--data-dir", str(tmp_path / "old"))
    assert status == 1
    assert f"redis://127.0.0.1:{port}/0 cannot be used" in told
    assert "go on" not in told
    assert "secret" not in told


async def test_who_is_not_let_in_is_told_so(run: Run, own_server: redis_server.Server) -> None:
    async with Client.from_url(own_server.url) as client:
        await client.config_set("requirepass", "right")
    status, told = await run(own_server.url.replace("//", "//:wrong@"), "keys", "list")
    assert status == 1
    assert f"127.0.0.1:{own_server.port}/0 cannot be used (Redis: AuthenticationError)" in told
    assert "wrong" not in told


async def test_a_start_without_redis_names_the_address(port: int) -> None:
    stores = RedisStores(Places(redis_url=f"redis://127.0.0.1:{port}/0"))
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}") as raised:
        await stores.open()
    assert isinstance(raised.value, StoreUnavailable)
    await stores.close()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_redis_that_evicts_is_refused_at_the_start(
    policy: str, own_server: redis_server.Server, tmp_path: Path
) -> None:
    async with Client.from_url(own_server.url) as client:
        await client.config_set("maxmemory-policy", policy)
    settings = load(
        None,
        {},
        {"storage": {"backend": "redis", "data_dir": tmp_path}, "redis": {"url": own_server.url}},
    )
    with pytest.raises(ConfigError, match=f"maxmemory-policy {policy}.*noeviction"):
        async with App.open(settings, "http://127.0.0.1:9/v1"):
            pass


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://redis.internal", "redis://redis.internal:6379"),
        ("rediss://me:secret@redis.internal:7000/2", "rediss://redis.internal:7000/2"),
        ("redis://:secret@[::1]:7000/0?password=other", "redis://[::1]:7000/0"),
        ("unix://:secret@/run/redis.sock?db=1", "unix:///run/redis.sock"),
    ],
)
def test_an_address_is_shown_with_its_port_and_without_a_credential(url: str, shown: str) -> None:
    assert redis_of(Places(redis_url=url)) == shown


def test_sentinels_are_shown_with_what_they_are_asked_for() -> None:
    places = Places(redis_url="redis://:secret@ignored/0", sentinels=("a:26379", "b:26379"))
    assert redis_of(places) == "Redis mymaster (a:26379, b:26379)"
