"""Stores over a real PostgreSQL: one server for the tests of this process, a database for each test."""

from contextlib import asynccontextmanager, closing

import psycopg
import pytest

from proxy.storage.postgres import PostgresStores, database
from proxy.storage.postgres.connection import connect
from tests import postgres_server
from tests.storage.conftest import tell


@pytest.fixture(scope="session")
def server():
    if postgres_server.PROGRAMS is None:
        pytest.skip(postgres_server.MISSING)
    with postgres_server.running() as running:
        running.execute("CREATE DATABASE ours")
        with closing(connect(running.url("ours"))) as made:
            database.prepare(made, "the template")
        yield running


@pytest.fixture
def url(server):
    made = server.new_database("ours")
    yield made
    server.drop(made)


@pytest.fixture
async def stores(url, embedding):
    """Open stores of the backend under contract."""
    opened = PostgresStores(url, connections=4)
    await opened.open()
    await tell(opened, embedding)
    yield opened
    await opened.close()


@pytest.fixture
async def second(url, stores, embedding):
    """Another replica."""
    opened = PostgresStores(url, connections=4)
    await opened.open()
    await tell(opened, embedding)
    yield opened
    await opened.close()


@pytest.fixture
def stores_with_quota(server):
    """Open stores under a quota."""

    @asynccontextmanager
    async def opened(quota):
        made = server.new_database("ours")
        stores = PostgresStores(made, connections=4, quota=quota)
        await stores.open()
        try:
            yield stores
        finally:
            await stores.close()
            server.drop(made)

    return opened


@pytest.fixture
async def opened(url):
    """Open stores over one database, as several replicas would."""
    every = []

    async def open_one(limit):
        stores = PostgresStores(url, connections=4, quota=limit)
        await stores.open()
        every.append(stores)
        return stores

    yield open_one
    for stores in every:
        await stores.close()


@pytest.fixture
async def restarted(url, stores):
    """Ends the process, and opens the database in the next."""
    made = PostgresStores(url, connections=4)

    async def restart():
        await stores.close()
        await made.open()
        return made

    yield restart
    await made.close()


def rows_in(url: str) -> bytes:
    """Return all that the tables hold."""
    with psycopg.connect(url, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
        ).fetchall()
        found = []
        for (table,) in tables:
            for row in connection.execute(f"SELECT * FROM {table}".encode()):
                found += [v if isinstance(v, bytes) else str(v).encode() for v in row]
    return b"\n".join(found)


@pytest.fixture
def written(url):
    """Reads all that is in the database."""

    async def read():
        return rows_in(url)

    return read
