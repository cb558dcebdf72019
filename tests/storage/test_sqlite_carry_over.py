"""What must survive a restore although the backup lacks it: forgets, receipts and keys."""

import asyncio
import io
import sqlite3
from contextlib import closing

import pytest

from proxy.domain.core import Scope
from proxy.domain.ports import Key
from proxy.domain.responses import Conversation, StoredResponse
from proxy.storage.sql import forget
from proxy.storage.sqlite import restore
from tests.storage.making import (
    ANNA,
    BEN,
    NOW,
    always,
    create,
    forgotten,
    never,
    of,
    quote,
    store,
    supersede,
    talk,
)  # fmt: skip
from tests.storage.restoring import House


@pytest.fixture
def house(tmp_path):
    return House(tmp_path)


async def test_a_memory_forgotten_after_the_backup_does_not_come_back(house):
    async with house.open() as stores:
        begun = await talk(stores.sessions, "I like tea", "Tea it is.", always)
        await store(
            stores.memories, create("tea", id="a", evidence=quote(begun, "like tea")), create("rum", id="b")
        )
        await store(stores.memories, create("tea", BEN), scope=BEN)
        house.back_up()
        await forgotten(stores.memories, of(ANNA), "a")
    done = house.restore()
    assert (done.carried.receipts, done.carried.erased.memories, done.carried.erased.exchanges) == (1, 1, 1)
    assert await house.remembered() == {"rum"}
    assert await house.remembered(BEN) == {"tea"}
    assert b"like tea" not in house.bytes()


async def test_a_user_forgotten_after_the_backup_does_not_come_back(house, monkeypatch):
    async with house.open() as stores:
        await talk(stores.sessions, "I like tea", "Tea it is.", always)
        await store(stores.memories, create("tea"))
        await store(stores.memories, create("rum", BEN), scope=BEN)
        house.back_up()
        await forgotten(stores.memories, of(ANNA))
        await store(stores.memories, create("gin"))
    house.restore()
    assert await house.remembered() == set()
    assert await house.remembered(BEN) == {"rum"}
    async with house.open() as stores:
        assert await stores.sessions.recent(ANNA, "s1", 9) == []
        assert await stores.jobs.claim(NOW, 60) is None


async def test_what_a_forgotten_memory_had_been_made_of_does_not_come_back(house):
    """Neither the older wording that it replaced, nor the exchange that it would be extracted from again."""
    async with house.open() as stores:
        await store(stores.memories, create("tea with sugar", id="old"))
        unread = await talk(stores.sessions, "no sugar any more", "Noted.", never)
        house.back_up()
        await store(
            stores.memories, supersede("old", "tea pure", id="new", evidence=quote(unread, "no sugar"))
        )
        await forgotten(stores.memories, of(ANNA), "new")
    house.restore()
    assert await house.remembered() == set()
    assert b"sugar" not in house.bytes()


async def test_receipts_survive_the_restore_as_they_were(house):
    async with house.open() as stores:
        await store(stores.memories, create("tea", id="a"), create("rum", id="b"))
        await forgotten(stores.memories, of(ANNA), "b")
        house.back_up()
        await forgotten(stores.memories, of(ANNA), "a")
        before = await stores.receipts.list("acme", None, limit=9)
    house.restore()
    async with house.open() as stores:
        assert await stores.receipts.list("acme", None, limit=9) == before
    assert house.restore().carried.receipts == 1  # again: the backup still lacks it


async def test_a_forget_that_was_a_mistake_can_be_undone(house):
    async with house.open() as stores:
        await store(stores.memories, create("tea"))
        house.back_up()
        await forgotten(stores.memories, of(ANNA))
    assert house.restore(forgets=False).carried.receipts == 0
    assert await house.remembered() == {"tea"}


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


async def test_saved_receipts_stand_in_for_a_database_that_is_lost(house):
    async with house.open() as stores:
        await store(stores.memories, create("tea", id="a"), create("rum", id="b"))
        await talk(stores.sessions, "I like gin", "Noted.", never)
        await store(stores.memories, create("tea", BEN, id="c"), create("rum", BEN, id="d"), scope=BEN)
        house.back_up()
        await forgotten(stores.memories, of(ANNA), "a")
        await forgotten(stores.memories, of(BEN))
    lines = list(forget.to_lines(restore.receipts_in(house.data_dir / "memory.db")))
    (house.data_dir / "memory.db").unlink()
    done = house.restore(receipts=list(forget.from_lines(io.StringIO("".join(lines)))))
    assert (done.carried.receipts, done.carried.erased.memories, done.carried.unknown) == (2, 3, 0)
    assert await house.remembered() == {"rum"}
    assert await house.remembered(BEN) == set()
    # What was not extracted yet may have contained what was forgotten.
    assert b"like gin" not in house.bytes()
    assert "tea" not in "".join(lines)


async def test_a_revoked_key_stays_revoked_and_a_new_one_valid(house):
    def key(id_):
        return Key(
            id=id_, name=id_, tenant="acme", user=None, rights=frozenset(("chat",)), upstream_key=None,
            created_at=NOW,
        )  # fmt: skip

    async with house.open() as stores:
        await stores.keys.add(key("old"), b"1")
        await stores.keys.add(key("kept"), b"2")
        house.back_up()
        await stores.keys.revoke("old", NOW + 1)
        await stores.keys.add(key("new"), b"3")
    for forgets in (True, False):
        assert house.restore(forgets=forgets).carried.keys == 2
        async with house.open() as stores:
            assert {k.id: k.revoked_at for k in await stores.keys.list()} == {
                "old": NOW + 1, "kept": None, "new": None,
            }  # fmt: skip


async def test_a_document_forgotten_after_the_backup_does_not_come_back(house):
    async with house.open() as stores:
        await store(stores.memories, create("tea"))
        with closing(sqlite3.connect(stores.path)) as file, file:
            file.execute(
                "INSERT INTO documents (id, owner, name, version, digest, characters, sections, passages,"
                " created_at, updated_at)"
                " SELECT 'd' || column1, id, 'name' || column1, 1, x'00', 1, 1, 1, 0, 0"
                " FROM scopes JOIN (VALUES (1), (2))"
            )
            file.execute(
                "INSERT INTO passages (document, section, headings, start, lead, tile, terms, generation)"
                " SELECT seq, 0, '[]', 0, 0, 'brewing by ' || id, x'', -1 FROM documents"
            )
        house.back_up()
        deleted = await stores.memories.forgetting.forget_document(ANNA, "d1", by="test", now=NOW)
        assert deleted.documents == 1
    receipts = restore.receipts_in(house.data_dir / "memory.db")
    for present in ("read", "lost"):
        if present == "lost":
            (house.data_dir / "memory.db").unlink()
        done = house.restore(receipts=receipts)
        assert (done.carried.receipts, done.carried.unknown) == (1, 0)
        assert b"brewing by d1" not in house.bytes()
        assert b"brewing by d2" in house.bytes()


def stored(id_: str, scope: Scope = ANNA, previous: str | None = None) -> StoredResponse:
    return StoredResponse(
        id=id_, scope=scope, session_id="s1", previous_id=previous, conversation_id=None, created_at=NOW,
        expires_at=None, response=b"tea for " + id_.encode(), input_items=b"[]",
    )  # fmt: skip


async def converse(stores, id_: str) -> None:
    made = Conversation(id=id_, scope=ANNA, metadata=b"{}", created_at=NOW)
    await stores.conversations.create(made, [("i1", b'"one"'), ("i2", b'"two"')])


@pytest.mark.parametrize("forgets", [True, False], ids=["with a forget", "without a forget"])
async def test_what_a_client_deleted_after_the_backup_does_not_come_back(house, forgets):
    async with house.open() as stores:
        await store(stores.memories, create("rum", id="b"))
        for response in (stored("r1"), stored("r2", previous="r1"), stored("r1", BEN)):
            assert await stores.chains.save(response, generation=0)
        await converse(stores, "c1")
        await converse(stores, "c2")
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
        assert (await stores.conversations.items(ANNA, "c2", limit=9, after=None, ascending=True)).items == (
            b'"two"',
        )
