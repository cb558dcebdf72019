"""Forgets over SQLite: concurrent, in portions, after crashes, and in the file's log."""

import shutil
import sqlite3
from contextlib import closing

import pytest

from proxy.storage.sqlite import SqliteStores, database
from tests.storage.forgetting_support import WORD, break_off, on_disk
from tests.storage.making import ANNA, create, of, quote, store, talk


@pytest.mark.usefixtures("in_portions")
@pytest.mark.parametrize("portions", range(1, 5))
async def test_later_statements_of_a_memory_are_deleted_with_it_after_a_crash_too(tmp_path, stores, portions):
    stated = await talk(stores.sessions, f"I play the {WORD} in October")
    await store(stores.memories, create(f"Plays the {WORD} in October.", id="a", evidence=quote(stated)))
    for n in range(3):
        await talk(stores.sessions, f"what is {n}?", f"the {WORD}, as I said")
        await talk(stores.sessions, f"as for October, I play the {WORD} {n} times", session=f"s{n + 2}")
    dying = SqliteStores(tmp_path)
    await dying.open()
    break_off(dying, portions)
    with pytest.raises(RuntimeError):
        await dying.memories.forget(of(ANNA), "a", by="test")
    await dying.close()
    again = await talk(stores.sessions, f"I do play the {WORD} in October", session="later")
    assert await stores.memories.resume_forgets() == 1
    assert [e.answer for e in await stores.sessions.recent(ANNA, "s1", 9)] == ["", "", ""]
    assert [e.id for e in await stores.sessions.recent(ANNA, "later", 9)] == [again.id]  # said after it
    disk = on_disk(tmp_path)
    assert disk.count(f"the {WORD}".encode()) == disk.count(f"do play the {WORD}".encode())


# ---------------------------------------------------------------- the log
async def test_a_purge_that_a_reader_put_off_is_done_by_the_upkeep(stores, tmp_path, monkeypatch):
    monkeypatch.setattr(database, "_PURGE_AGAIN_S", 0.0)
    await store(stores.memories, create(f"a {WORD}", id="a"))
    with closing(sqlite3.connect(stores.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM memories").fetchone()
        await stores.memories.forget(of(ANNA), "a", by="test")
        assert WORD.encode() in on_disk(tmp_path)
    assert await stores.memories.resume_forgets() == 0
    assert WORD.encode() not in on_disk(tmp_path)


async def test_a_purge_that_a_crash_prevented_is_done_at_the_next_start(stores, tmp_path):
    await store(stores.memories, create(f"a {WORD}", id="a"))
    with closing(sqlite3.connect(stores.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM memories").fetchone()
        await stores.memories.forget(of(ANNA), "a", by="test")
        crashed = tmp_path / "crashed"
        crashed.mkdir()
        for file in tmp_path.glob("memory.db*"):
            shutil.copy(file, crashed)
    assert WORD.encode() in on_disk(crashed)
    again = SqliteStores(crashed)
    await again.open()
    assert WORD.encode() not in on_disk(crashed)
    await again.close()
