"""Every backend, for tests that must come to the same over each of them: import the fixture."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.storage.sqlite import SqliteStores

__all__ = ["BACKENDS", "place"]

BACKENDS = ("sqlite",)


class Place:
    """Where the stores of one test keep everything."""

    def __init__(self, backend: str, directory: Path) -> None:
        self.backend, self.directory = backend, directory

    @property
    def settings(self) -> dict[str, dict[str, object]]:
        """The settings for it, without the directory."""
        return {}

    @asynccontextmanager
    async def stores(self) -> AsyncIterator[SqliteStores]:
        """Open the stores of one process."""
        made = SqliteStores(self.directory)
        await made.open()
        try:
            yield made
        finally:
            await made.close()

    async def written(self) -> bytes:
        """Return all that is stored there now."""
        return b"".join(p.read_bytes() for p in self.directory.rglob("memory.db*") if p.is_file())


@pytest.fixture(params=BACKENDS)
async def place(request, tmp_path):
    """An empty place of each backend."""
    return Place(request.param, tmp_path / "data")
