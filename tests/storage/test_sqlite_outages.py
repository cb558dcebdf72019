"""Faults of the file under open stores: their reports, what still works, and recovery."""

import contextlib
import os

import pytest

from proxy.domain.errors import StoreUnavailable
from proxy.storage.sql.database import HOLD_S, Outages
from proxy.storage.sqlite import SqliteStores, database
from tests.storage.making import ANNA, BEN, contents, create, find, store
from tests.storage.recording import recorded
from tests.storage.talking import exchange


@pytest.fixture
def log(monkeypatch):
    """What is logged: (event, kind)."""
    return recorded(monkeypatch, lambda facts: facts.get("kind"))


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def steady(stores):
    """The clock of the stores' outages."""
    clock = Clock()
    stores._database.outages = Outages(database.DIAGNOSIS, clock)
    return clock


async def holds(stores, steady):
    """Let operations succeed until the outage counts as over."""
    steady.now += HOLD_S
    await stores.upkeep()


@contextlib.contextmanager
def full(stores, monkeypatch):
    """SQLite may use no more pages, and reports what it reports about a full disk."""
    connect = database.connect

    def connected(path):
        connection = connect(path)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(database, "connect", connected)
        stores._database._write_handle.discard()
        yield
    stores._database._write_handle.discard()


async def fill(stores, scope=ANNA):
    await store(stores.memories, *(create(f"fact {n} " * 200, scope) for n in range(40)), scope=scope)


async def test_on_a_full_disk_all_is_recalled_and_nothing_is_half_stored(stores, log, steady, monkeypatch):
    await store(stores.memories, create("tea"))
    with full(stores, monkeypatch):
        with pytest.raises(StoreUnavailable):
            await fill(stores)
        assert (stores.trouble, stores.is_readable) == (database.DISK_FULL, True)
        assert await contents(stores.memories, "tea fact") == {"tea"}
        assert stores.trouble == database.DISK_FULL  # recalling does not end it
    await stores.upkeep()
    assert (stores.trouble, stores.is_readable) == ("", True)
    await fill(stores)
    assert len(await find(stores.memories, "fact")) == 40
    await holds(stores, steady)
    assert log.count(("store.trouble", database.DISK_FULL)) == 1
    assert log.count(("store.recovered", database.DISK_FULL)) == 1


def damage(path, needle):
    """Overwrite the page that contains the needle in place, as a failing disk does."""
    data = path.read_bytes()
    start = data.index(needle) // 4096 * 4096
    with path.open("r+b") as opened:
        opened.seek(start)
        opened.write(b"\xff" * 4096)
    return data[start : start + 4096], start


async def filled_and_closed(data_dir):
    stores = SqliteStores(data_dir)
    await stores.open()
    await store(stores.memories, create("tea of Anna " + "x" * 3000))
    await fill(stores, BEN)
    await stores.close()
    return stores.path


async def test_a_damaged_page_leaves_others_their_memories_and_stops_all_writing(tmp_path, log):
    path = await filled_and_closed(tmp_path)
    page, start = damage(path, b"fact 20 fact 20 fact 20")
    stores = SqliteStores(tmp_path)
    await stores.open()
    with pytest.raises(StoreUnavailable):
        await find(stores.memories, "fact", BEN)
    assert stores.trouble == database.CORRUPT
    assert len(await find(stores.memories, "tea")) == 1
    with pytest.raises(StoreUnavailable, match="not written"):
        await stores.sessions.begin(exchange("hello"))
    await stores.upkeep()
    assert stores.trouble == database.CORRUPT
    assert ("store.trouble", database.CORRUPT) in log
    with path.open("r+b") as opened:  # the disk has come to itself
        opened.seek(start)
        opened.write(page)
    stores._database._check_due = 0.0
    await stores.upkeep()
    assert stores.trouble == ""
    assert await stores.sessions.begin(exchange("hello"))
    await stores.close()


async def test_what_only_the_log_held_survives_another_file_at_the_path(stores, tmp_path):
    """The log is found by its name: it would be read into another file, and be missing from its own."""
    await store(stores.memories, *(create(f"tea no {n}") for n in range(30)))
    away = tmp_path / "away"
    os.link(stores.path, away)
    (tmp_path / "garbage").write_bytes(b"garbage " * 9_999)
    os.replace(tmp_path / "garbage", stores.path)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await find(stores.memories, "tea")
        with pytest.raises(StoreUnavailable):
            await stores.sessions.begin(exchange("hello"))
    assert stores.path.read_bytes() == b"garbage " * 9_999
    os.replace(away, stores.path)
    assert len(await find(stores.memories, "tea")) == 30
    await stores.upkeep()
    await store(stores.memories, create("rum"))
