"""Re-embed the memories with another model, some hundred at a time, while requests go on.

The new model is the store's from the first moment; what has none of its vectors yet is found by its words.
A process killed in the middle leaves nothing to mend: what is still to do is told by the rows themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.domain.errors import WrongModel
from proxy.domain.ports import EmbeddingModel
from proxy.storage.sql import model, rows
from proxy.storage.sql.connection import Connection, Database

# Of nobody: rows of a user whose memories are being forgotten as a whole.
_STALE = """
    FROM scopes s JOIN memories m ON m.owner = s.id JOIN vectors v ON v.memory = m.seq
    WHERE s.user IS NOT NULL AND v.generation <> :generation
"""
# One user after another, so that each has memories of two kinds for as short as can be.
_NEXT = f"""
    SELECT m.owner, m.seq, m.written, m.content {_STALE}
    AND (s.id > :owner OR (s.id = :owner AND m.seq > :seq)) ORDER BY s.id, m.seq LIMIT :limit
"""


@dataclass(frozen=True, slots=True)
class Stale:
    """A memory that waits for a vector of the new model. `written` tells whether it was changed since."""

    owner: int
    seq: int
    written: int
    content: str


class SqlVectors:
    """The vectors of all users, for `memory-proxy reembed`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, embedding: EmbeddingModel, *, anew: bool = False) -> int:
        """Make the model the store's and return its generation: the last one, where it is this model's
        already and not all is to be done `anew`."""

        def work(tx: Connection) -> int:
            last = model.newest(tx)
            if last is not None and not anew and last[1:] == (embedding.name, embedding.dimension):
                return last[0]
            return model.begin(tx, embedding)

        return await self._database.write(work)

    async def count(self, generation: int) -> int:
        """Return how many memories have no vector of the generation."""

        def work(tx: Connection) -> int:
            (count,) = tx.execute(f"SELECT count(*) {_STALE}", {"generation": generation}).fetchone()
            return int(count)

        return await self._database.read(work)

    async def stale(self, generation: int, after: Stale | None, limit: int) -> list[Stale]:
        """Return the next memories that have no vector of the generation, in a fixed order."""
        place = {
            "generation": generation,
            "owner": after.owner if after else -1,
            "seq": after.seq if after else -1,
            "limit": limit,
        }
        return await self._database.read(lambda tx: [Stale(*row) for row in tx.execute(_NEXT, place)])

    async def put(self, generation: int, made: Sequence[tuple[Stale, bytes | None]]) -> int:
        """Store the vectors, durable on return, and return how many; None for what the model does not
        understand. What was changed or forgotten since it was read is left as it is.

        Raises WrongModel if the store has another model by now.
        """

        def work(tx: Connection) -> int:
            last = model.newest(tx)
            if last is None or last[0] != generation:
                raise WrongModel("the memories are being embedded with yet another model")
            return _put(tx, generation, made)

        count = await self._database.write(work)
        await self._database.checkpoint()
        return count


def _put(tx: Connection, generation: int, made: Sequence[tuple[Stale, bytes | None]]) -> int:
    owners = {stale.owner for stale, _ in made}
    versions = dict(
        tx.execute(
            "UPDATE scopes SET version = version + 1"
            " WHERE id IN (SELECT CAST(value AS INTEGER) FROM json_each(?))"
            " RETURNING id, version",
            (rows.as_json(owners),),
        ).fetchall()
    )
    count = 0
    for stale, vector in made:
        # Written anew: an index that knows the memory takes its vector to be the one that it has.
        found = tx.execute(
            "UPDATE memories SET changed = :version, written = :version WHERE seq = :seq AND written = :read",
            {"version": versions.get(stale.owner), "seq": stale.seq, "read": stale.written},
        )
        if found.rowcount:
            tx.execute(
                "UPDATE vectors SET embedding = ?, generation = ? WHERE memory = ?",
                (vector, generation, stale.seq),
            )
            count += 1
    return count
