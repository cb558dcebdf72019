"""The tables over PostgreSQL: SQLite's, made once; those of another program or newer version are refused."""

import asyncio
import sqlite3
from contextlib import closing

import psycopg
import pytest

from proxy.domain.errors import StoreUnavailable, UnfitStore
from proxy.storage.postgres import PostgresStores
from proxy.storage.sqlite import database

TYPES = {"INTEGER": "bigint", "REAL": "double precision", "BLOB": "bytea", "TEXT": "text"}


def columns_of_sqlite(path):
    database.prepare(path, create=True)
    with closing(sqlite3.connect(path)) as opened:
        tables = opened.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
        return {
            (table, name, TYPES[kind])
            for (table,) in tables.fetchall()
            for _, name, kind, *_ in opened.execute(f"PRAGMA table_info({table})")
        }


def test_both_databases_have_the_same_columns(tmp_path, url):
    with psycopg.connect(url) as opened:
        found = opened.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = 'public' AND table_name <> 'instances'"
        ).fetchall()
    assert set(found) == columns_of_sqlite(tmp_path / "memory.db")


async def test_replicas_that_start_together_make_the_tables_once(server):
    url = server.new_database()
    replicas = [PostgresStores(url, connections=2) for _ in range(3)]
    await asyncio.gather(*(stores.open() for stores in replicas))
    for stores in replicas:
        await stores.close()
    server.drop(url)


async def test_a_newer_or_a_foreign_database_is_refused_as_it_is(server, url):
    for statement, remedy in (
        ("UPDATE meta SET value = '999' WHERE key = 'schema'", "newer version"),
        ("DROP TABLE meta CASCADE", "another program"),
    ):
        server.execute(statement, database=url.rpartition("/")[2])
        stores = PostgresStores(url, connections=2)
        with pytest.raises(UnfitStore, match=remedy):
            await stores.open()
        assert remedy in stores.failure
        await stores.close()


async def test_no_message_holds_the_password(server, url, capfd):
    server.execute("DROP ROLE IF EXISTS locked", "CREATE ROLE locked LOGIN PASSWORD 'right'")
    for password in ("s3cret-wrong", ""):
        wrong = url.replace("postgres@", f"locked:{password}@")
        stores = PostgresStores(wrong, connections=2)
        with pytest.raises(StoreUnavailable, match="password"):
            await stores.open()
        assert "s3cret" not in stores.failure + stores.place
        await stores.close()
    assert "s3cret" not in "".join(capfd.readouterr())
