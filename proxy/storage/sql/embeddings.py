"""The embedding models that the stored vectors were made with, each a generation; the last is the store's.

While the memories are embedded again, vectors of two generations lie side by side. A reader gets those of its
own model and none of another's, so that the rest is found by its words. Re-embedding takes some hundred at a
time, while requests are served. A killed process leaves nothing to repair: the rows show what is still to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from proxy.domain.errors import WrongModel
from proxy.domain.ports import EmbeddingModel
from proxy.storage.sql import rows
from proxy.storage.sql.database import Connection, Store, column, reads, value, writes

FIRST = 0
NO_MODEL = -1  # the generation of memories that were stored without a model at hand


@dataclass(frozen=True, slots=True)
class Generations:
    """What one process may do with vectors: make those of `generation`, compare those of `generations`."""

    generation: int
    dimension: int | None  # None: no model was ever named
    generations: tuple[int, ...]


def stamp_model(tx: Connection, model: EmbeddingModel) -> None:
    """Name the model in the store, or raise WrongModel if vectors of another one are there."""
    last = newest_model(tx)
    if last is not None and last[1:] == (model.name, model.dimension):
        return
    if last and tx.execute("SELECT 1 FROM vectors WHERE embedding IS NOT NULL LIMIT 1").fetchone():
        raise WrongModel(
            f"the memories were embedded with {last[1]} ({last[2]} dimensions), the configured model is"
            f" {model.name} ({model.dimension}): run `memory-proxy reembed` with the configuration that you"
            " serve with (it can be interrupted and continues), or set embedding.model back"
        )
    add_model(tx, model)


def add_model(tx: Connection, model: EmbeddingModel) -> int:
    """Make the model the store's from now on, and return its generation."""
    last = newest_model(tx)
    generation = FIRST if last is None else last[0] + 1
    tx.execute("INSERT INTO embeddings VALUES (?, ?, ?)", (generation, model.name, model.dimension))
    return generation


def generations_of(tx: Connection, model: EmbeddingModel | None) -> Generations:
    """Return what a process with this model may do. One that named none is taken to use the store's.

    Raises WrongModel if the store does not know the model: it was replaced under the process."""
    last = newest_model(tx)
    if last is None:
        return Generations(FIRST, None, (FIRST,))
    name, dimension = (model.name, model.dimension) if model else last[1:]
    query = "SELECT generation FROM embeddings WHERE name = ? AND dimension = ? ORDER BY generation"
    if not (generations := column(tx, query, (name, dimension))):
        raise WrongModel(f"the store holds vectors of {last[1]}, not of {name}")
    return Generations(generations[-1], dimension, generations)


def newest_model(tx: Connection) -> tuple[int, str, int] | None:
    """Return generation, name and dimension of the store's model, None before any was named."""
    query = "SELECT generation, name, dimension FROM embeddings ORDER BY generation DESC LIMIT 1"
    row: tuple[int, str, int] | None = tx.execute(query).fetchone()
    return row


# ---------------------------------------------------------------- memory-proxy reembed
# A user without a name is being forgotten as a whole.
_STALE = """
    FROM scopes s JOIN memories m ON m.owner = s.id JOIN vectors v ON v.memory = m.seq
    WHERE s.user IS NOT NULL AND v.generation <> :generation"""
# One user after another, so that each has memories of two kinds for as short as can be.
_NEXT = f"""
    SELECT m.owner, m.seq, m.written, m.content {_STALE}
    AND (s.id > :owner OR (s.id = :owner AND m.seq > :seq)) ORDER BY s.id, m.seq LIMIT :limit"""


@dataclass(frozen=True, slots=True)
class Stale:
    """A memory that waits for a vector of the new model. `written` shows whether it was changed since."""

    owner: int
    seq: int
    written: int
    content: str


class SqlVectors(Store):
    """The vectors of all users, for `memory-proxy reembed`."""

    @writes
    def begin(self, tx: Connection, embedding: EmbeddingModel, *, all_again: bool = False) -> int:
        """Make the model the store's and return its generation: the last one, where it is this model's
        already and not all is to be done `all_again`."""
        last = newest_model(tx)
        if last is not None and not all_again and last[1:] == (embedding.name, embedding.dimension):
            return last[0]
        return add_model(tx, embedding)

    @reads
    def count(self, tx: Connection, generation: int) -> int:
        """Return how many memories have no vector of the generation."""
        return int(value(tx, f"SELECT count(*) {_STALE}", {"generation": generation}))

    @reads
    def stale(self, tx: Connection, generation: int, after: Stale | None, limit: int) -> list[Stale]:
        """Return the next memories that have no vector of the generation, in a fixed order."""
        owner, seq = (after.owner, after.seq) if after else (-1, -1)
        asked = {"generation": generation, "owner": owner, "seq": seq, "limit": limit}
        return [Stale(*row) for row in tx.execute(_NEXT, asked)]

    async def put(self, generation: int, made: Sequence[tuple[Stale, bytes | None]]) -> int:
        """Store the vectors, durable on return, and return how many; None for what the model does not
        understand. What was changed or forgotten since it was read is left as it is.

        Raises WrongModel if the store has another model already."""
        count = await self._database.write(partial(_put, generation=generation, made=made))
        await self._database.checkpoint()
        return count


def _put(tx: Connection, *, generation: int, made: Sequence[tuple[Stale, bytes | None]]) -> int:
    last = newest_model(tx)
    if last is None or last[0] != generation:
        raise WrongModel("the memories are being embedded with yet another model")
    raised = f"UPDATE scopes SET version = version + 1 WHERE id IN {rows.seqs_in('?')} RETURNING id, version"
    owners = (rows.as_json({stale.owner for stale, _ in made}),)
    versions = dict(tx.execute(raised, owners).fetchall())
    count = 0
    for stale, vector in made:
        # As if rewritten: an index that knows the memory takes its vector to be the one that it has.
        found = tx.execute(
            "UPDATE memories SET changed = :version, written = :version WHERE seq = :seq AND written = :read",
            {"version": versions.get(stale.owner), "seq": stale.seq, "read": stale.written},
        )
        if found.rowcount:
            count += 1
            filled = "UPDATE vectors SET embedding = ?, generation = ? WHERE memory = ?"
            tx.execute(filled, (vector, generation, stale.seq))
    return count
