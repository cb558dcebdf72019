"""The file and the threads: group commit, what is refused, what is recovered from."""

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest

from proxy.domain.core import ForgetCounts, Scope
from proxy.domain.errors import StoreUnavailable, UnfitStore, WrongModel
from proxy.domain.ports import EmbeddingModel
from proxy.storage import sqlite
from proxy.storage.sqlite import SqliteStores, database, obstacle
from tests.storage.conftest import on_disk
from tests.storage.forgetting_support import WORD, break_off
from tests.storage.making import ANNA, NOW, create, find, forgotten, of, store, vector
from tests.storage.talking import always, exchange, never, quote, talk
from tests.storage.test_reembed import NEW, OLD, axis

MINI = EmbeddingModel("mini", 3, 0.3, 0.8)


async def test_writes_that_wait_share_a_commit(stores):
    before = stores.database.commits
    await asyncio.gather(*(stores.sessions.begin(exchange()) for _ in range(100)))
    assert 1 <= stores.database.commits - before <= 20


async def test_work_that_fails_undoes_only_itself(stores):
    clash = exchange(id="same")
    outcomes = await asyncio.gather(
        stores.sessions.begin(clash),
        stores.sessions.begin(exchange(id="same", session="other")),
        stores.sessions.begin(exchange(id="another")),
        return_exceptions=True,
    )
    assert [type(o).__name__ for o in outcomes] == ["StoredExchange", "StoreUnavailable", "StoredExchange"]
    # The session that the failed one had made is gone again.
    assert await forgotten(stores.memories, of(ANNA)) == ForgetCounts(exchanges=2, sessions=1)


async def test_reads_that_share_a_transaction_do_not_mix_users(stores):
    scopes = [Scope(tenant, f"user-{n}") for n in range(10) for tenant in ("one", "other")]
    for scope in scopes:
        await store(stores.memories, create(f"fig of {scope.tenant} {scope.user}", scope), scope=scope)
        await stores.memories.snapshot(scope)  # the next one reads the rows
    held, began = hold_the_readers(stores._database)
    reads = [stores.memories.snapshot(scope) for scope in scopes]
    reads[4].cancel()
    held.set()
    await asyncio.gather(*began)
    for scope, read in zip(scopes, reads, strict=True):
        if not read.cancelled():
            stated = [memory.content for memory in (await read).memories.values()]
            assert stated == [f"fig of {scope.tenant} {scope.user}"]


def hold_the_readers(db):
    """Keep both threads busy; return what lets them go, and what they do."""
    held, loop = threading.Event(), asyncio.get_running_loop()
    return held, [loop.run_in_executor(db._readers, held.wait, 10) for _ in range(2)]


async def test_files_belong_to_the_owner_alone(tmp_path):
    stores = SqliteStores(tmp_path / "new" / "data")
    await stores.open()
    await store(stores.memories, create("tea"))
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "new" / "data").rglob("*")}
    await stores.close()
    assert stat.S_IMODE((tmp_path / "new" / "data").stat().st_mode) == 0o700
    assert modes.pop("run") == 0o700
    assert set(modes.values()) == {0o600}
    assert {"memory.db", "memory.db-wal"} <= modes.keys()


@pytest.mark.parametrize("content", [b"garbage " * 1000, b"SQLite format 3\0" + b"\xff" * 5000, b"x"])
async def test_a_file_that_is_not_a_database_is_refused_and_unchanged(tmp_path, content):
    path = tmp_path / "memory.db"
    path.write_bytes(content)
    stores = SqliteStores(tmp_path)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await stores.open()
    assert path.read_bytes() == content
    path.rename(tmp_path / "aside")
    await stores.open()  # tried again once the operator has acted
    await stores.memories.stamp(ANNA)
    await stores.close()


async def test_a_directory_or_a_foreign_or_newer_database_at_the_path_is_refused(tmp_path):
    (tmp_path / "directory" / "memory.db").mkdir(parents=True)
    for name, statement in (("foreign", "CREATE TABLE theirs (x)"), ("newer", "PRAGMA user_version = 99")):
        (tmp_path / name).mkdir()
        if name == "newer":
            database.prepare(tmp_path / name / "memory.db", create=True)
        with closing(sqlite3.connect(tmp_path / name / "memory.db")) as made:
            made.execute(statement)
    (tmp_path / "file").write_text("a file where the directory should be")
    for name in ("directory", "foreign", "newer", "file"):
        stores = SqliteStores(tmp_path / name)
        with pytest.raises(StoreUnavailable):
            await stores.open()
        await stores.close()


async def test_a_write_waits_longer_than_one_timeout_for_other_processes(stores, monkeypatch):
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 400)
    other = sqlite3.connect(stores.path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(store(stores.memories, create("tea", id="a")))
    await asyncio.sleep(0.6)
    assert not writing.done()
    other.execute("ROLLBACK")
    other.close()
    await writing
    assert stores.trouble == ""


async def test_another_embedding_model_is_refused_while_there_are_vectors(stores):
    await stores.memories.stamp_model(MINI)
    await stores.memories.stamp_model(EmbeddingModel("other", 2, 0.3, 0.8))  # nothing stored yet
    await stores.memories.stamp_model(MINI)
    await store(stores.memories, create("tea", vec=vector(1)))
    await stores.memories.stamp_model(MINI)
    for other in (EmbeddingModel("other", 3, 0.3, 0.8), EmbeddingModel("mini", 2, 0.3, 0.8)):
        with pytest.raises(WrongModel, match=r"mini.*embedding.model"):
            await stores.memories.stamp_model(other)
    with pytest.raises(WrongModel):
        await store(stores.memories, create("rum", vec=vector(1)[:8]))
    with pytest.raises(WrongModel):
        await find(stores.memories, vec=vector(1)[:8])


async def test_a_dead_owners_exchanges_and_jobs_are_adopted_at_once(stores, second):
    await talk(second.sessions, "queued", trigger=always)
    assert await second.jobs.claim(NOW, 3600) is not None
    await second.sessions.begin(exchange("unanswered", session="s2"))
    assert await stores.jobs.claim(NOW, 60) is None
    assert await stores.sessions.sweep(NOW, never) == 0
    assert await stores.sessions.recent(ANNA, "s2", 9) == []
    await second.close()
    job = await stores.jobs.claim(NOW, 60)
    assert (job.session_id, job.attempts) == ("s1", 2)
    assert await stores.sessions.sweep(NOW, always) == 1
    (orphan,) = await stores.sessions.recent(ANNA, "s2", 9)
    assert (orphan.said, orphan.answer, orphan.whole) == ("unanswered", "", False)


# ---------------------------------------------------------------- older schemas
async def test_a_file_of_version_1_keeps_its_model_and_its_vectors(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "SCHEMA_VERSION", 1)
    path = tmp_path / "memory.db"
    database.prepare(path, create=True)
    made = sqlite3.connect(path)
    made.execute("INSERT INTO meta VALUES ('embedding_model', '[\"old\", 384]')")
    made.execute("INSERT INTO scopes (tenant, user) VALUES ('acme', 'anna')")
    made.execute(
        "INSERT INTO memories (id, owner, type, content, digest, source, created_at, updated_at, valid_from,"
        " importance, weight, confidence, tags, changed, written)"
        " VALUES ('a', 1, 'semantic', 'tea', x'00', 'api', 1, 1, 1, 1, 1, 1, '[]', 1, 1)"
    )
    made.execute("INSERT INTO vectors (memory, embedding, terms) VALUES (1, ?, x'')", (axis(OLD),))
    made.commit()
    made.close()
    monkeypatch.undo()
    stores = SqliteStores(tmp_path)
    await stores.open()
    with pytest.raises(WrongModel, match="old"):
        await stores.memories.stamp_model(NEW)
    await stores.memories.stamp_model(OLD)
    hits = await find(stores.memories, vec=axis(OLD), now=NOW)
    await stores.close()
    assert [(hit.memory.id, hit.cosine) for hit in hits] == [("a", 1.0)]


# ---------------------------------------------------------------- the directory
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_a_directory_of_another_user_names_the_owner_and_what_to_run():
    script = (
        "import pathlib, sys; from proxy.storage.sqlite import obstacle;"
        "print(*(obstacle(pathlib.Path(each)) for each in sys.argv[1:]), sep='|')"
    )
    with tempfile.TemporaryDirectory() as made:  # those of pytest are closed to other users
        root = Path(made)
        root.chmod(0o755)
        for name, mode in (("closed", 0o755), ("open", 0o777), ("with a file", 0o777)):
            (root / name).mkdir()
            (root / name).chmod(mode)
        (root / "with a file" / "memory.db").touch(mode=0o600)
        paths = [str(root / name) for name in ("closed", "new/data", "open", "with a file")]
        output = subprocess.check_output(
            [sys.executable, "-c", script, *paths], user=65534, group=65534, extra_groups=(), text=True
        )
    closed, new, usable, with_a_file = output.strip().split("|")
    assert "root (uid 0), mode 755" in closed
    assert "(uid 65534)" in closed
    assert f"chown -R 65534:65534 {root}/closed" in closed
    assert f"mkdir -p {root}/new/data" in new
    assert usable == ""
    assert "memory.db cannot be written to" in with_a_file


def test_a_directory_that_can_be_used_or_made_has_no_obstacle(tmp_path):
    assert obstacle(tmp_path) == obstacle(tmp_path / "a" / "b") == ""
    (tmp_path / "file").touch()
    assert "is not a directory" in obstacle(tmp_path / "file")


async def test_a_network_file_system_is_refused_unless_it_is_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "network_file_system", lambda _: "cifs")
    stores = SqliteStores(tmp_path)
    with pytest.raises(UnfitStore, match="network file system \\(cifs\\)"):
        await stores.open()
    assert "a database server" in stores.failure
    await stores.close()
    allowed = SqliteStores(tmp_path, allow_network=True)
    await allowed.open()
    assert allowed.failure == ""
    await allowed.close()


@pytest.mark.usefixtures("in_portions")
@pytest.mark.parametrize("portions", [1, 3])
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


async def test_a_purge_that_a_reader_put_off_is_done_by_the_upkeep_or_the_next_start(
    stores, tmp_path, monkeypatch
):
    monkeypatch.setattr(database, "_PURGE_AGAIN_S", 0.0)
    await store(stores.memories, create(f"a {WORD}", id="a"))
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    with closing(sqlite3.connect(stores.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM memories").fetchone()
        await stores.memories.forget(of(ANNA), "a", by="test")
        for each in tmp_path.glob("memory.db*"):
            shutil.copy(each, crashed)
    assert WORD.encode() in on_disk(crashed)
    again = SqliteStores(crashed)
    await again.open()
    await again.close()
    await stores.memories.resume_forgets()
    assert WORD.encode() not in on_disk(tmp_path)
