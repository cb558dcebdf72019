"""Fixtures of the write path: the real store, the real embedder, a scripted extraction model."""

import pytest

from proxy.models.load import load_embedder
from proxy.storage.sqlite import SqliteStores
from tests.learn.support import House, ScriptedCompleter


@pytest.fixture
async def house(tmp_path):
    """A write path without an embedder: words alone decide."""
    stores = SqliteStores(tmp_path / "data")
    await stores.open()
    yield House(stores, ScriptedCompleter())
    await stores.close()


@pytest.fixture(scope="session")
def embedder(tmp_path_factory):
    """The real embedding model."""
    loaded = load_embedder(tmp_path_factory.mktemp("models"))
    if loaded.embedder is None:
        pytest.skip(f"no embedding model here: {'; '.join(loaded.notes)}")
    yield loaded.embedder
    loaded.embedder.close()
