"""A real store of keys, in a directory of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.storage.sqlite.stores import SqliteStores


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[SqliteStores]:
    made = SqliteStores(tmp_path / "data")
    await made.open()
    yield made
    await made.close()
