import pytest

from proxy.stores.sqlite import SqliteStores

pytest.register_assert_rewrite(
    "tests.stores.contract_chains", "tests.stores.contract_memories", "tests.stores.contract_sessions"
)


@pytest.fixture
async def stores(tmp_path):
    """Open stores of the backend under contract."""
    opened = SqliteStores(tmp_path)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def memories(stores):
    return stores.memories


@pytest.fixture
def sessions(stores):
    return stores.sessions


@pytest.fixture
def jobs(stores):
    return stores.jobs


@pytest.fixture
def chains(stores):
    return stores.chains


@pytest.fixture
def conversations(stores):
    return stores.conversations
