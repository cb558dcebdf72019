"""The embedding models that the stored vectors were made with, each a generation; the last is the store's.

While the memories are embedded anew, vectors of two generations lie side by side. Whoever reads is given
those of its own model and none of another's, so that the rest is found by its words.
"""

from dataclasses import dataclass

from proxy.domain.errors import WrongModel
from proxy.domain.ports import EmbeddingModel
from proxy.storage.sql.connection import Connection

FIRST = 0
NO_MODEL = -1  # the generation of memories that were stored without a model at hand


@dataclass(frozen=True, slots=True)
class Held:
    """What one process may do with vectors: make those of `generation`, compare those of `generations`."""

    generation: int
    dimension: int | None  # None: no model was ever named
    generations: tuple[int, ...]


def made_with_another(name: str, dimension: int, model: EmbeddingModel) -> WrongModel:
    """Return the error of a store that holds vectors of another model than the configured one."""
    return WrongModel(
        f"the memories were embedded with {name} ({dimension} dimensions), the configured model is"
        f" {model.name} ({model.dimension}): run `memory-proxy reembed` with the configuration that you"
        " serve with (it can be interrupted and continues), or set embedding.model back"
    )


def unknown_to(newest: str, name: str) -> WrongModel:
    """Return the error of a store that got another model while this process ran."""
    return WrongModel(f"the store holds vectors of {newest}, not of {name}")


def stamp(tx: Connection, model: EmbeddingModel) -> None:
    """Name the model in the store, or raise WrongModel if vectors of another one are there."""
    last = newest(tx)
    if last is not None and last[1:] == (model.name, model.dimension):
        return
    if last is not None and _holds_vectors(tx):
        raise made_with_another(last[1], last[2], model)
    begin(tx, model)


def begin(tx: Connection, model: EmbeddingModel) -> int:
    """Make the model the store's from now on, and return its generation."""
    last = newest(tx)
    generation = FIRST if last is None else last[0] + 1
    tx.execute("INSERT INTO embeddings VALUES (?, ?, ?)", (generation, model.name, model.dimension))
    return generation


def held(tx: Connection, model: EmbeddingModel | None) -> Held:
    """Return what a process with this model may do. One that named none is taken to use the store's.

    Raises WrongModel if the store knows nothing of the model: it was replaced under the process.
    """
    last = newest(tx)
    if last is None:
        return Held(FIRST, None, (FIRST,))
    name, dimension = (model.name, model.dimension) if model else last[1:]
    rows = tx.execute(
        "SELECT generation FROM embeddings WHERE name = ? AND dimension = ? ORDER BY generation",
        (name, dimension),
    ).fetchall()
    if not rows:
        raise unknown_to(last[1], name)
    generations = tuple(generation for (generation,) in rows)
    return Held(generations[-1], dimension, generations)


def newest(tx: Connection) -> tuple[int, str, int] | None:
    """Return generation, name and dimension of the store's model, None before any was named."""
    row: tuple[int, str, int] | None = tx.execute(
        "SELECT generation, name, dimension FROM embeddings ORDER BY generation DESC LIMIT 1"
    ).fetchone()
    return row


def _holds_vectors(tx: Connection) -> bool:
    return tx.execute("SELECT 1 FROM vectors WHERE embedding IS NOT NULL LIMIT 1").fetchone() is not None
