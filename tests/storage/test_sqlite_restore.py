"""Restores: all or nothing, never under a running server; what was forgotten since the backup stays so."""

import asyncio
import json
import os
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.domain.documents import DocumentLimits, NewDocument, Passage
from proxy.domain.errors import StoreUnavailable
from proxy.storage.sql import forget
from proxy.storage.sqlite import SqliteStores, backup, living
from proxy.storage.sqlite.backup import Restore
from tests.storage.making import ANNA, BEN, NOW, contents, create, forgotten, key, of, store, supersede
from tests.storage.talking import always, converse, keep, never, quote, response, talk


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""


class House:
    """A data directory, a backup of it, and what is done to both."""

    def __init__(self, root: Path) -> None:
        self.root, self.data_dir, self.copy = root, root / "data", root / "copy"

    @asynccontextmanager
    async def open(self):
        stores = SqliteStores(self.data_dir)
        await stores.open()
        try:
            yield stores
        finally:
            await stores.close()

    def back_up(self) -> backup.Manifest:
        return backup.write(self.data_dir / "memory.db", self.copy, silent, now=NOW)

    def restore(self, **options):
        with self.copy.open("rb") as opened:
            return Restore(self.data_dir, silent, **options).run(opened, "copy")

    async def remembered(self, scope=ANNA, words="tea rum gin") -> set[str]:
        async with self.open() as stores:
            return await contents(stores.memories, words, scope)

    def files(self) -> set[str]:
        """The names in the data directory, without those of locks and of what was set aside."""
        names = {p.name for p in self.data_dir.iterdir()}
        return {n for n in names if "before-restore" not in n} - {"run", "memory.opening"}

    def bytes(self) -> bytes:
        """All that the restored database holds."""
        return (self.data_dir / "memory.db").read_bytes()


@pytest.fixture
def house(tmp_path):
    return House(tmp_path)


async def test_a_restore_gives_way_to_a_server_even_if_it_starts_in_the_middle(house):
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


def of_a_newer_version(data: bytes) -> bytes:
    trailer = json.loads(data[-backup.TRAILER_BYTES :]) | {"schema": 99}
    return data[: -backup.TRAILER_BYTES] + json.dumps(trailer).encode().ljust(backup.TRAILER_BYTES)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: data[:-1], "not a whole backup"),
        (lambda data: data[:-50_000], "not a whole backup"),
        (lambda data: b"x" * 9999, "not a whole backup"),
        (lambda data: data[:24] + b"?" + data[25:], "damaged"),
        (lambda data: data[:100_000] + b"?" + data[100_001:], "damaged"),
        (of_a_newer_version, "newer version"),
    ],
)
async def test_a_bad_backup_changes_nothing(house, spoil, said):
    async with house.open() as stores:
        await store(stores.memories, create("tea"))
        house.back_up()
    house.copy.write_bytes(spoil(house.copy.read_bytes()))
    before = house.bytes()
    with pytest.raises(StoreUnavailable, match=said):
        house.restore()
    assert (house.bytes(), house.files()) == (before, {"memory.db"})


@pytest.mark.parametrize("content", [b"garbage " * 2000, b""])
async def test_a_store_that_cannot_be_read_is_replaced_and_kept(house, content):
    async with house.open() as stores:
        await store(stores.memories, create("tea"))
        house.back_up()
    (house.data_dir / "memory.db").write_bytes(content)
    done = house.restore()
    assert done.present == "unreadable"
    assert done.aside.read_bytes() == content
    assert await house.remembered() == {"tea"}


@pytest.mark.parametrize("is_readable", [True, False])
async def test_a_log_left_by_a_kill_stays_with_the_old_file(house, is_readable):
    async with house.open() as stores:
        await store(stores.memories, create("tea"))
        house.back_up()
        await store(stores.memories, create("rum"))
        files = {p.name: p.read_bytes() for p in house.data_dir.glob("memory.db*")}
    if not is_readable:
        files["memory.db"] = b"garbage " * 2000
    for name, content in files.items():  # as a kill leaves them
        (house.data_dir / name).write_bytes(content)
    aside = house.restore().aside
    assert await house.remembered() == {"tea"}
    if is_readable:
        aside.replace(house.data_dir / "memory.db")
        assert await house.remembered() == {"tea", "rum"}
    else:
        assert aside.with_name(aside.name + "-wal").read_bytes() == files["memory.db-wal"]


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


# ---------------------------------------------------------------- what the backup lacks
async def test_what_was_forgotten_after_the_backup_does_not_come_back(house):
    """Nor does what it had been made of, from which it would be extracted again."""
    async with house.open() as stores:
        begun = await talk(stores.sessions, "I like tea", "Tea it is.", always)
        liked = create("tea", id="a", evidence=quote(begun, "like tea"))
        await store(stores.memories, liked, create("rum", id="b"), create("gin, sweetened", id="old"))
        unread = await talk(stores.sessions, "no sugar any more", "Noted.", never, session="s2")
        await talk(stores.sessions, "I am Ben", "Hi.", always, scope=BEN, session="s3")
        await store(stores.memories, create("tea of Ben", BEN), scope=BEN)
        house.back_up()
        await forgotten(stores.memories, of(ANNA), "a")
        pure = supersede("old", "gin pure", id="new", evidence=quote(unread, "no sugar", "s2"))
        await store(stores.memories, pure)
        await forgotten(stores.memories, of(ANNA), "new")
        await forgotten(stores.memories, of(BEN))
        await store(stores.memories, create("gin", BEN), scope=BEN)
    done = house.restore()
    assert (done.carried.receipts, done.carried.erased.memories, done.carried.erased.exchanges) == (3, 3, 3)
    assert await house.remembered() == {"rum"}
    assert await house.remembered(BEN) == set()
    for word in (b"like tea", b"sugar", b"sweetened", b"Ben"):
        assert word not in house.bytes()
    async with house.open() as stores:
        assert await stores.sessions.recent(BEN, "s3", 9) == []
        assert await stores.jobs.list("acme", "ben", state=None, limit=9) == []


async def test_a_forget_under_way_when_the_process_died_is_carried_out(house, in_portions, monkeypatch):
    async with house.open() as stores:
        await store(stores.memories, create("tea", type="preference"), create("rum"))
        house.back_up()

        async def dies(*_):
            raise asyncio.CancelledError

        monkeypatch.setattr(forget.Forgetting, "_carry_out", dies)
        with pytest.raises(asyncio.CancelledError):
            await stores.memories.forget(of(ANNA, type="preference"), by="test")
    monkeypatch.undo()
    house.restore()
    assert await house.remembered() == {"rum"}
    assert b"tea" not in house.bytes()


async def test_a_revoked_key_stays_revoked_and_a_forget_that_was_a_mistake_can_be_undone(house):
    async with house.open() as stores:
        await stores.keys.add(key("old"), b"1")
        await stores.keys.add(key("stays"), b"2")
        await store(stores.memories, create("tea"))
        house.back_up()
        await stores.keys.revoke("old", NOW + 1)
        await stores.keys.add(key("new"), b"3")
        await forgotten(stores.memories, of(ANNA))
    for forgets in (True, False):
        carried = house.restore(forgets=forgets).carried
        assert (carried.keys, carried.receipts) == (2, int(forgets))
        assert await house.remembered() == (set() if forgets else {"tea"})
        async with house.open() as stores:
            assert {k.id: k.revoked_at for k in await stores.keys.list()} == {
                "old": NOW + 1, "stays": None, "new": None,
            }  # fmt: skip


async def test_a_document_forgotten_after_the_backup_does_not_come_back(house):
    async with house.open() as stores:
        for name in ("one", "two"):
            passage = Passage(headings=(), section=0, tile=f"brewing by {name}", start=0)
            new = NewDocument(scope=ANNA, name=name, digest=b"1", passages=(passage,), at=NOW)
            last, _ = await stores.documents.put(new, DocumentLimits())
        house.back_up()
        await stores.documents.delete(last, by="test", now=NOW)
    receipts = backup.receipts_in(house.data_dir / "memory.db")
    for present in ("read", "lost"):
        if present == "lost":
            (house.data_dir / "memory.db").unlink()
        done = house.restore(receipts=receipts)
        assert (done.carried.receipts, done.carried.unknown) == (1, 0)
        assert b"brewing by two" not in house.bytes()
        assert b"brewing by one" in house.bytes()


@pytest.mark.parametrize("forgets", [True, False], ids=["with a forget", "without a forget"])
async def test_what_a_client_deleted_after_the_backup_does_not_come_back(house, forgets):
    async with house.open() as stores:
        await store(stores.memories, create("rum", id="b"))
        await keep(stores, response("r1"), response("r2", previous_id="r1"), response("r1", BEN))
        for id_ in ("c1", "c2"):
            await converse(stores.conversations, "i1", "i2", id=id_)
        house.back_up()
        assert await stores.chains.delete(ANNA, "r1")
        assert await stores.conversations.delete(ANNA, "c1")
        assert await stores.conversations.remove(ANNA, "c2", "i1")
        if forgets:
            await forgotten(stores.memories, of(ANNA), "b")
    assert house.restore().carried.erased.responses == 1
    async with house.open() as stores:
        there = [await stores.chains.get(s, r, NOW) for s, r in ((ANNA, "r1"), (ANNA, "r2"), (BEN, "r1"))]
        assert [found is not None for found in there] == [False, True, True]
        assert await stores.conversations.get(ANNA, "c1") is None
        assert await stores.conversations.item(ANNA, "c2", "i1") is None
        assert await stores.conversations.item(ANNA, "c2", "i2") is not None
