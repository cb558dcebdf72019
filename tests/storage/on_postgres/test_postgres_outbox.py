import pytest

from proxy.storage.postgres import PostgresStores
from tests.storage.contract_outbox import OutboxContract, another, fallbacks, index, stores

__all__ = ["another", "fallbacks", "index", "stores"]


@pytest.fixture
def made(url):
    return lambda indexed: PostgresStores(url, connections=4, indexed=indexed)


class TestPostgresOutbox(OutboxContract):
    """Over PostgreSQL."""
