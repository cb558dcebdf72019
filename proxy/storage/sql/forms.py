"""What models were found to take, shared by the processes of one data directory. See ports.FormStore."""

import json
from collections.abc import Mapping

from proxy.domain.ports import latest_forms
from proxy.storage.sql import owners
from proxy.storage.sql.connection import Connection, Database

_KEY = "forms"  # of `meta`: one JSON object


class SqlForms:
    """A thousand short rows at most, in one row of the file: they change seldom."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> Mapping[str, str]:
        """As FormStore says."""
        return await self._database.read(rows_of)

    async def save(self, rows: Mapping[str, str], most: int) -> None:
        """As FormStore says."""

        def work(tx: Connection) -> None:
            found = {**rows_of(tx, lock=True), **rows}
            latest = {key: found[key] for key in latest_forms(found)[:most]}
            keep = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            tx.execute(keep, (_KEY, json.dumps(latest)))

        await self._database.write(work)


def rows_of(tx: Connection, *, lock: bool = False) -> dict[str, str]:
    """Return all rows; none where they cannot be read, since all of it can be learnt again."""
    row = owners.shared_row(tx, _KEY, lock=lock)
    try:
        found = json.loads(row[0]) if row else {}
    except (ValueError, TypeError):
        return {}
    return (
        {key: value for key, value in found.items() if isinstance(value, str)}
        if isinstance(found, dict)
        else {}
    )
