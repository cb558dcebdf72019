import pytest

from proxy.storage.sqlite import SqliteStores
from tests.storage.contract_outbox import OutboxContract, another, fallbacks, index, stores

__all__ = ["another", "fallbacks", "index", "stores"]


@pytest.fixture
def made(tmp_path):
    return lambda indexed: SqliteStores(tmp_path, indexed=indexed)


class TestSqliteOutbox(OutboxContract):
    """Over SQLite."""
