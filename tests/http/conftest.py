import pytest

from proxy.storage.sqlite import SqliteStores
from tests.e2e.conftest import house, models_dir

__all__ = ["house", "models_dir"]


@pytest.fixture
async def stores(tmp_path):
    """Stores in a directory of their own."""
    made = SqliteStores(tmp_path / "data")
    await made.open()
    yield made
    await made.close()
