"""The embedding model that the stored vectors were made with."""

import json
import sqlite3

from proxy.errors import WrongModel
from proxy.ports import EmbeddingModel

_KEY = "embedding_model"


def stamp(tx: sqlite3.Connection, model: EmbeddingModel) -> None:
    """Name the model in the store, or raise WrongModel if vectors of another one are there."""
    found = _read(tx)
    if found == (model.name, model.dimension):
        return
    if found is not None and _holds_vectors(tx):
        raise WrongModel(
            f"the memories were embedded with {found[0]} ({found[1]} dimensions), the configured model is"
            f" {model.name} ({model.dimension}): set embedding.model back, or use a new data directory"
        )
    tx.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (_KEY, json.dumps([model.name, model.dimension])),
    )


def dimension(tx: sqlite3.Connection) -> int | None:
    """Return the dimension of the stored vectors, None before any model was named."""
    found = _read(tx)
    return found[1] if found else None


def _read(tx: sqlite3.Connection) -> tuple[str, int] | None:
    row = tx.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    if row is None:
        return None
    name, size = json.loads(row[0])
    return str(name), int(size)


def _holds_vectors(tx: sqlite3.Connection) -> bool:
    return tx.execute("SELECT 1 FROM vectors WHERE embedding IS NOT NULL LIMIT 1").fetchone() is not None
