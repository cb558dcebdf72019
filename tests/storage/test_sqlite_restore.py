"""Restores: all or nothing, never under a running server, and what was forgotten stays forgotten."""

import asyncio
import os
import time

import pytest

from proxy.domain.errors import StoreUnavailable
from proxy.storage.sqlite import SqliteStores
from proxy.storage.sqlite.restore import Restore
from proxy.storage.sqlite.stores import living
from tests.storage.making import NOW, always, contents, create, store, talk, vector  # fmt: skip
from tests.storage.restoring import House


@pytest.fixture
def house(tmp_path):
    return House(tmp_path)


async def test_a_restored_directory_serves_what_was_backed_up(house):
    async with house.open() as stores:
        await store(stores.memories, create("tea", vec=vector(1)))
        await talk(stores.sessions, "hello", trigger=always)
        house.back_up()
        await store(stores.memories, create("rum"))
    done = house.restore()
    assert await house.remembered() == {"tea"}
    assert done.aside is not None
    assert house.files() == {"memory.db"}
    async with house.open() as stores:
        assert (await stores.jobs.claim(NOW, 60)).session_id == "s1"
        await store(stores.memories, create("gin"))
        assert await contents(stores.memories, "tea gin") == {"tea", "gin"}


async def test_a_restore_is_refused_while_a_server_runs(house):
    async with house.open() as stores:
        await store(stores.memories, create("tea"))
        house.back_up()
        await store(stores.memories, create("rum"))
        with pytest.raises(StoreUnavailable, match="stop the proxy first"):
            house.restore()
        assert await contents(stores.memories, "tea rum") == {"tea", "rum"}
    assert house.files() == {"memory.db"}


async def test_a_restore_gives_way_to_a_server_that_starts_in_the_middle(house):
    async with house.open() as stores:
        await store(stores.memories, create("tea"))
        house.back_up()
        await store(stores.memories, create("rum"))
    loop, starting = asyncio.get_running_loop(), []
    late = SqliteStores(house.data_dir)

    def report(what, done, total):
        if (what, done) == ("forget", 1):  # all is ready, and nothing is in place
            starting.append(asyncio.run_coroutine_threadsafe(late.open(), loop))
            deadline = time.monotonic() + 30
            while not living(house.data_dir / "run") and time.monotonic() < deadline:
                time.sleep(0.01)

    with house.copy.open("rb") as opened, pytest.raises(StoreUnavailable, match="stop the proxy"):
        await asyncio.to_thread(Restore(house.data_dir, report).run, opened, "copy")
    await asyncio.wrap_future(starting[0])
    assert await contents(late.memories, "tea rum") == {"tea", "rum"}
    await late.close()


@pytest.mark.parametrize("spoil", ["truncated", "changed", "foreign"])
async def test_a_bad_backup_changes_nothing(house, spoil):
    async with house.open() as stores:
        await store(stores.memories, create("tea"))
        house.back_up()
    data = house.copy.read_bytes()
    spoilt = {"truncated": data[:-5000], "changed": data[:9000] + b"?" + data[9001:], "foreign": b"x" * 9999}
    house.copy.write_bytes(spoilt[spoil])
    before = house.bytes()
    with pytest.raises(StoreUnavailable, match="copy is"):
        house.restore()
    assert (house.bytes(), house.files()) == (before, {"memory.db"})


@pytest.mark.parametrize("content", [b"garbage " * 2000, b"short", b""])
async def test_a_store_that_cannot_be_read_is_replaced_and_kept(house, content):
    async with house.open() as stores:
        await store(stores.memories, create("tea"))
        house.back_up()
    (house.data_dir / "memory.db").write_bytes(content)
    done = house.restore()
    assert done.present == "unreadable"
    assert done.aside.read_bytes() == content
    assert await house.remembered() == {"tea"}


async def test_a_log_left_by_a_kill_is_not_read_into_the_restored_file(house):
    async with house.open() as stores:
        await store(stores.memories, create("tea"))
        house.back_up()
        await store(stores.memories, *(create(f"rum {n}") for n in range(50)))
        log = stores.path.with_name("memory.db-wal").read_bytes()
    (house.data_dir / "memory.db").write_bytes(b"garbage " * 2000)
    (house.data_dir / "memory.db-wal").write_bytes(log)
    aside = house.restore().aside
    assert aside.with_name(aside.name + "-wal").read_bytes() == log
    assert await house.remembered() == {"tea"}


async def test_what_only_the_log_held_is_kept_with_the_old_file(house, tmp_path):
    async with house.open() as stores:
        await store(stores.memories, create("tea"))
        house.back_up()
        await store(stores.memories, create("rum"))
        files = {p.name: p.read_bytes() for p in house.data_dir.glob("memory.db*")}
    for name, content in files.items():  # as a kill leaves them
        (house.data_dir / name).write_bytes(content)
    aside = house.restore().aside
    assert await house.remembered() == {"tea"}
    aside.replace(house.data_dir / "memory.db")
    assert await house.remembered() == {"tea", "rum"}


@pytest.mark.parametrize("call", ["link", "replace", "fsync"])
async def test_a_kill_at_any_step_of_the_swap_leaves_one_whole_database_at_the_path(house, call, monkeypatch):
    async with house.open() as stores:
        await store(stores.memories, create("tea"))
        house.back_up()
        await store(stores.memories, create("rum"))

    class Killed(BaseException):
        """Stands for the kill: nothing after it runs but what a dead process cannot do anyway."""

    real = getattr(os, call)

    def killed(*args, **kwargs):
        real(*args, **kwargs)
        raise Killed

    monkeypatch.setattr(os, call, killed)
    with pytest.raises(Killed):
        house.restore()
    monkeypatch.undo()
    assert await house.remembered() in ({"tea", "rum"}, {"tea"})
