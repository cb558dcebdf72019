from contextlib import asynccontextmanager

import pytest

from proxy.storage.sql import erasure, forget
from proxy.storage.sqlite import SqliteStores


@pytest.fixture
def embedding():
    """The model that the stores are told of when they are opened; None: of none."""
    return


async def tell(stores, embedding):
    """Name the model, if there is one."""
    if embedding is not None:
        await stores.memories.stamp_model(embedding)


@pytest.fixture
async def stores(tmp_path, embedding):
    """Open stores of the backend under contract."""
    opened = SqliteStores(tmp_path)
    await opened.open()
    await tell(opened, embedding)
    yield opened
    await opened.close()


@pytest.fixture
def stores_with_quota(tmp_path):
    """Open stores under a quota."""

    @asynccontextmanager
    async def opened(quota):
        stores = SqliteStores(tmp_path / "limited", quota=quota)
        await stores.open()
        try:
            yield stores
        finally:
            await stores.close()

    return opened


@pytest.fixture
def with_quota(stores_with_quota):
    """Open memories under a quota."""

    @asynccontextmanager
    async def opened(quota):
        async with stores_with_quota(quota) as stores:
            yield stores.memories

    return opened


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


@pytest.fixture
def in_portions(monkeypatch):
    """Whoever has anything is forgotten in portions, of two rows."""
    monkeypatch.setattr(forget, "_MOST_AT_ONCE", 0)
    monkeypatch.setattr(erasure, "_WEIGHT", 1 / 2)


@pytest.fixture
def gate_of():
    """Makes what stops the next forget of stores, portion by portion."""
    from tests.storage.forgetting_support import Gate  # after it is registered

    return Gate


@pytest.fixture
def break_off():
    """Ends the next forget of stores after so many portions."""
    from tests.storage.forgetting_support import break_off  # after it is registered

    return break_off


@pytest.fixture
def written(tmp_path):
    """Reads all that is in the data directory."""
    from tests.storage.forgetting_support import on_disk  # after it is registered

    async def read():
        return on_disk(tmp_path)

    return read


@pytest.fixture
async def second(tmp_path, stores, embedding):
    opened = SqliteStores(tmp_path)
    await opened.open()
    await tell(opened, embedding)
    yield opened
    await opened.close()
