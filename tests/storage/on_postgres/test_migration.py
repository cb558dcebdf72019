"""Moves between SQLite and PostgreSQL: with every kind of row, broken off, and refused."""

import asyncio
import json
import multiprocessing
import sqlite3
import time
from contextlib import closing

import psycopg
import pytest

from proxy.cli.main import main
from proxy.domain.errors import UnfitStore
from proxy.storage import Refused, migration
from proxy.storage.migration import NOT_COPIED, TABLES, copy, open_source, open_target
from proxy.storage.postgres import PostgresStores
from proxy.storage.sqlite import SqliteStores
from tests.migrate_support import MODEL, QUESTIONS, alike, fill, opened
from tests.storage.making import create, store


def moved(source, target, progress=lambda *_: None):
    with open_source(source) as old, open_target(target) as new:
        return copy(old, new, progress)


@pytest.fixture(scope="session")
def filled(tmp_path_factory):
    """A data directory with a row of every kind."""
    made = tmp_path_factory.mktemp("filled") / "data"

    async def fill_and_close():
        stores = await opened(made)
        await fill(stores)
        await stores.close()

    asyncio.run(fill_and_close())
    return made


async def test_both_engines_answer_what_the_first_did_before_and_after_the_next_forgets(
    filled, url, tmp_path, monkeypatch
):
    monkeypatch.setattr(migration, "_AT_ONCE", 2)
    there = moved(filled, url)
    back = moved(url, tmp_path / "back")
    assert there.rows == back.rows
    assert there.digests == back.digests
    may_be_empty = {
        "meta", "evicted", "forgets", "unnamed", "memory_uses", "contradictions", "reviews", "review_cursors",
    }  # fmt: skip
    assert {table for table, count in there.rows.items() if not count} <= may_be_empty
    expected, found = SqliteStores(tmp_path / "back"), PostgresStores(url, connections=4)
    for stores in (expected, found):
        await stores.open()
        await stores.memories.stamp_model(MODEL)
    for question in QUESTIONS:
        assert alike(await question(found)) == alike(await question(expected)), question
    await expected.close()
    await found.close()


async def test_new_rows_get_numbers_that_no_deleted_row_had(filled, url, tmp_path):
    moved(filled, url)
    with closing(sqlite3.connect(filled / "memory.db")) as db:
        (last,) = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'memories'").fetchone()
    stores = PostgresStores(url, connections=2)
    await stores.open()
    await stores.memories.stamp_model(MODEL)
    await store(stores.memories, create("new here", id="new"))
    await stores.close()
    with psycopg.connect(url) as db:
        assert db.execute("SELECT seq FROM memories WHERE id = 'new'").fetchone() == (last + 1,)
    moved(url, tmp_path / "back")
    with closing(sqlite3.connect(tmp_path / "back" / "memory.db")) as db:
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'memories'"
        assert db.execute(query).fetchone() == (last + 1,)


def _copy_slowly(source, target):
    migration._AT_ONCE = 1
    moved(source, target, lambda *_: time.sleep(0.01))


def _copied_rows(url):
    with psycopg.connect(url) as db:
        return sum(db.execute(f"SELECT count(*) FROM {t}".encode()).fetchone()[0] for t in TABLES)


async def test_a_killed_copy_continues_where_it_was_and_no_proxy_opens_it_before(filled, url):
    process = multiprocessing.get_context("spawn").Process(target=_copy_slowly, args=(filled, url))
    process.start()
    async with asyncio.timeout(30):
        while _copied_rows(url) < 40:
            assert process.is_alive()
            await asyncio.sleep(0.02)
    process.kill()
    process.join()
    stores = PostgresStores(url, connections=2)
    with pytest.raises(UnfitStore, match="migrate"):
        await stores.open()
    await stores.close()
    steps = []
    copied = moved(filled, url, lambda what, done, total: steps.append((what, done, total)))
    assert copied.resumed
    assert steps[0][1] >= 40
    assert steps[-1] == ("verify", sum(copied.rows.values()), sum(copied.rows.values()))
    with pytest.raises(Refused, match="not empty"):
        moved(filled, url)


async def test_a_source_that_changed_during_the_copy_is_noticed(filled, url, tmp_path, server):
    moved(filled, url)

    def change(what, done, total):
        if what == "verify":
            server.execute("UPDATE memories SET content = content || '!'", database=url.rpartition("/")[2])

    with pytest.raises(Refused, match="changed"):
        moved(url, tmp_path / "back", change)
    with pytest.raises(UnfitStore):
        await SqliteStores(tmp_path / "back").open()


def test_every_table_is_copied_or_named(url):
    with psycopg.connect(url) as db:
        found = db.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
        ).fetchall()
    assert {name for (name,) in found} == TABLES.keys() | NOT_COPIED


def test_the_command_copies_there_and_back(filled, url, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MEMORY_PROXY__STORAGE__BACKEND", "postgres")
    monkeypatch.setenv("MEMORY_PROXY__STORAGE__POSTGRES_URL", url)
    assert main(["migrate", "--from", str(filled), "--json"]) == 0
    there = json.loads(capsys.readouterr().out)
    assert main(["migrate", "--from", str(filled)]) == 1
    assert "is not empty" in capsys.readouterr().err
    monkeypatch.setenv("MEMORY_PROXY__STORAGE__BACKEND", "sqlite")
    monkeypatch.setenv("MEMORY_PROXY_MIGRATE_FROM", url)
    assert main(["migrate", "--data-dir", str(tmp_path / "back"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == there
