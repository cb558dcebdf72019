"""Stores over SQLite and a real PostgreSQL for one suite: a module, or a class in it, names its ENGINES."""

import sqlite3
from contextlib import closing

import psycopg
import pytest

from proxy.storage.postgres import PostgresStores, database
from proxy.storage.postgres.database import connect
from proxy.storage.sql import erasure, forget
from proxy.storage.sqlite import SqliteStores
from tests import postgres_server, redis_server


def on_disk(directory):
    """Return all that the files hold."""
    while True:
        try:
            return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
        except FileNotFoundError:  # renamed in the meantime
            continue


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
        return on_disk(self.directory)


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


@pytest.fixture
async def opened(engine, embedding):
    """Opens the stores of one more process, or replica."""
    every = []

    async def open_one(**options):
        every.append(await engine.open(**options))
        if embedding is not None:
            await every[-1].memories.stamp_model(embedding)
        return every[-1]

    yield open_one
    for stores in every:
        await stores.close()


@pytest.fixture
async def stores(opened):
    return await opened()


@pytest.fixture
async def second(opened, stores):
    """Another process, or replica."""
    return await opened()


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


def part(name):
    """A fixture: one of the stores' ports."""

    @pytest.fixture
    def of_stores(stores):
        return getattr(stores, name)

    return of_stores


quarantine, keys, memories, sessions = map(part, ("quarantine", "keys", "memories", "sessions"))
notes, jobs, chains, conversations = map(part, ("notes", "jobs", "chains", "conversations"))


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
