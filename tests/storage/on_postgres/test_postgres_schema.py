"""The tables over PostgreSQL: made once; those of another program or newer version are refused."""

import asyncio

import pytest

from proxy.domain.errors import StoreUnavailable, UnfitStore
from proxy.storage.postgres import PostgresStores


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
