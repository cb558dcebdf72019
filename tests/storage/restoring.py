"""A data directory, a backup of it, and what is done to both."""

from contextlib import asynccontextmanager
from pathlib import Path

from proxy.storage.sqlite import SqliteStores, backup
from proxy.storage.sqlite.restore import Restore
from tests.storage.making import ANNA, NOW, contents


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""


class House:
    """A data directory, a backup of it, and what is done to both."""

    def __init__(self, root: Path) -> None:
        self.root, self.data_dir, self.copy = root, root / "data", root / "copy"

    @asynccontextmanager
    async def open(self):
        stores = SqliteStores(self.data_dir)
        await stores.open()
        try:
            yield stores
        finally:
            await stores.close()

    def back_up(self) -> backup.Manifest:
        return backup.write(self.data_dir / "memory.db", self.copy, silent, now=NOW)

    def restore(self, **options):
        with self.copy.open("rb") as opened:
            return Restore(self.data_dir, silent, **options).run(opened, "copy")

    async def remembered(self, scope=ANNA, words="tea rum gin") -> set[str]:
        async with self.open() as stores:
            return await contents(stores.memories, words, scope)

    def files(self) -> set[str]:
        """The names in the data directory, without those of locks and of what was set aside."""
        names = {p.name for p in self.data_dir.iterdir()}
        return {n for n in names if "before-restore" not in n} - {"run", "memory.opening"}

    def bytes(self) -> bytes:
        """All that the restored database holds."""
        return (self.data_dir / "memory.db").read_bytes()
