"""What models were found to take, shared by the processes of one data directory. See ports.FormStore."""

import json
import sqlite3
from collections.abc import Mapping

from proxy.stores.damage import legible
from proxy.stores.sqlite.database import Database

_KEY = "forms"  # of `meta`: one JSON object


class SqliteForms:
    """A thousand short rows at most, in one row of the file: they change seldom."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> Mapping[str, str]:
        """As FormStore says."""
        return await self._database.read(rows_of)

    async def save(self, rows: Mapping[str, str], most: int) -> None:
        """As FormStore says."""

        def work(tx: sqlite3.Connection) -> None:
            found = {**rows_of(tx), **rows}
            kept = sorted(found, key=lambda key: -json.loads(found[key])["until"])[:most]
            keep = "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
            tx.execute(keep, (_KEY, json.dumps({key: found[key] for key in kept})))

        await self._database.write(work)


def rows_of(tx: sqlite3.Connection) -> dict[str, str]:
    """Return all rows. Raises DamagedRow."""
    row = tx.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    with legible():
        return dict(json.loads(row[0])) if row else {}
