"""Everything in this folder runs over PostgreSQL, each test in a database of its own, which it may damage."""

import pytest

from tests.storage.conftest import Postgres


@pytest.fixture
def url(server):
    made = server.new_database("ours")
    yield made
    server.drop(made)


@pytest.fixture
def engine(url):
    return Postgres(url)
