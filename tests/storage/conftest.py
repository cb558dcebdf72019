"""Stores over SQLite and a real PostgreSQL for one suite: a module, or a class in it, names its ENGINES."""

import sqlite3
from contextlib import asynccontextmanager, closing

import psycopg
import pytest

from proxy.storage.postgres import PostgresStores, database
from proxy.storage.postgres.connection import connect
from proxy.storage.sql import erasure, forget
from proxy.storage.sqlite import SqliteStores
from tests import postgres_server, redis_server


class Sqlite:
    """A data directory, which several processes may use."""

    name = "sqlite"

    def __init__(self, directory):
        self.directory = self.address = directory

    def make(self, **options):
        return SqliteStores(self.directory, **options)

    async def open(self, **options):
        stores = self.make(**options)
        await stores.open()
        return stores

    def rows(self, query):
        with closing(sqlite3.connect(self.directory / "memory.db")) as connection:
            return connection.execute(query).fetchall()

    def written(self):
        """Return all that is on the disk."""
        return b"".join(path.read_bytes() for path in self.directory.rglob("*") if path.is_file())


class Postgres(Sqlite):
    """A database, which several replicas may use."""

    name = "postgres"

    def __init__(self, url):
        self.url = self.address = url

    def make(self, **options):
        return PostgresStores(self.url, connections=4, **options)

    def rows(self, query):
        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchall()

    def written(self):
        """Return all that the tables hold."""
        return rows_in(self.url)


def rows_in(url):
    with psycopg.connect(url, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
        ).fetchall()
        found = []
        for (table,) in tables:
            for row in connection.execute(f"SELECT * FROM {table}".encode()):
                found += [v if isinstance(v, bytes) else str(v).encode() for v in row]
    return b"\n".join(found)


def pytest_generate_tests(metafunc):
    if "engine" in metafunc.fixturenames and "on_postgres" not in metafunc.module.__name__:
        engines = getattr(metafunc.cls, "ENGINES", None) or getattr(metafunc.module, "ENGINES", ("sqlite",))
        metafunc.parametrize("engine", engines, indirect=True)


@pytest.fixture(scope="session")
def server():
    """One server for the tests of this process, with a database `ours` to copy."""
    if postgres_server.PROGRAMS is None:
        pytest.skip(postgres_server.MISSING)
    with postgres_server.running() as running:
        running.execute("CREATE DATABASE ours")
        with closing(connect(running.url("ours"))) as made:
            database.prepare(made, "the template")
        yield running


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    """A server of Redis for the tests of a module."""
    if redis_server.PROGRAM is None:
        pytest.skip(redis_server.MISSING)
    with redis_server.running(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(scope="session")
def reused(server):
    return server.new_database("ours")


@pytest.fixture
def url(reused):
    """An empty database. One is emptied again and again: to make another takes a second."""
    yield reused
    with psycopg.connect(reused, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = current_schema() AND table_name <> 'meta'"
        ).fetchall()
        names = ", ".join(name for (name,) in tables)
        connection.execute(f"TRUNCATE {names} RESTART IDENTITY CASCADE")
        connection.execute("DELETE FROM meta WHERE key NOT IN ('application', 'schema')")


@pytest.fixture
def engine(request, tmp_path):
    match request.param:
        case "postgres":
            return Postgres(request.getfixturevalue("url"))
        case "sqlite":
            return Sqlite(tmp_path)
        case name:
            from tests.storage.indexed import Indexing

            return Indexing(tmp_path, is_behind=name == "behind")


@pytest.fixture
def embedding():
    """The model that the stores are opened with; None: none is named."""
    return


async def tell(stores, embedding):
    """Name the model, if there is one."""
    if embedding is not None:
        await stores.memories.stamp_model(embedding)


@pytest.fixture
async def stores(engine, embedding):
    opened = await engine.open()
    await tell(opened, embedding)
    yield opened
    await opened.close()


@pytest.fixture
async def second(engine, stores, embedding):
    """Another process, or replica."""
    opened = await engine.open()
    await tell(opened, embedding)
    yield opened
    await opened.close()


@pytest.fixture
async def restarted(engine, stores):
    """Ends the process; returns the stores of the next one."""
    made = engine.make()

    async def restart():
        await stores.close()
        await made.open()
        return made

    yield restart
    await made.close()


@pytest.fixture
async def opened(engine):
    """Opens the stores of one more process under a quota."""
    every = []

    async def open_one(quota):
        every.append(await engine.open(quota=quota))
        return every[-1]

    yield open_one
    for stores in every:
        await stores.close()


@pytest.fixture
def with_quota(opened):
    """Opens memories under a quota."""

    @asynccontextmanager
    async def open_one(quota):
        yield (await opened(quota)).memories

    return open_one


@pytest.fixture
def written(engine):
    """Reads all that is stored."""

    async def read():
        return engine.written()

    return read


@pytest.fixture
def quarantine(stores):
    return stores.quarantine


@pytest.fixture
def keys(stores):
    return stores.keys


@pytest.fixture
def memories(stores):
    return stores.memories


@pytest.fixture
def sessions(stores):
    return stores.sessions


@pytest.fixture
def notes(stores):
    return stores.notes


@pytest.fixture
def jobs(stores):
    return stores.jobs


@pytest.fixture
def chains(stores):
    return stores.chains


@pytest.fixture
def conversations(stores):
    return stores.conversations


# ---------------------------------------------------------------- forgets
@pytest.fixture
def in_portions(monkeypatch):
    """Every forget is a large one, erased in portions of two rows."""
    monkeypatch.setattr(forget, "_MOST_AT_ONCE", 0)
    monkeypatch.setattr(erasure, "_WEIGHT", 1 / 2)


@pytest.fixture(params=["at once", "in portions"])
def mode(request):
    """How forgets are carried out."""
    if request.param == "in portions":
        request.getfixturevalue("in_portions")


@pytest.fixture
def gate(stores):
    """Stops the next forget of `stores` after each portion until it may continue."""
    from tests.storage.forgetting_support import Gate  # after it is registered

    return Gate(stores)


@pytest.fixture
def break_off(stores):
    """Lets the process die in the next forget of `stores`, after so many portions."""
    from tests.storage import forgetting_support as support  # after it is registered

    def after(portions=1):
        if portions:
            support.break_off(stores, portions)
        else:
            stores.memories.forgetting._carry_out = lambda *_: support.crash()

    return after
