"""Find exchanges that tell a memory which is being forgotten, though no row links the two: no model has
read them yet, or the fact was said again where the memory was told or shown.

Where one memory is named, only such exchanges go; where a whole kind is forgotten, everything that is not
read yet goes.
"""

from collections.abc import Iterator
from typing import Any

from proxy.storage.sql.connection import Connection
from proxy.storage.told import Told, Verdicts

_THESE = "(SELECT CAST(value AS INTEGER) FROM json_each(:these))"
_WORDS = f"SELECT content FROM memories WHERE seq IN {_THESE}"
_QUOTES = f"SELECT span FROM evidence WHERE memory IN {_THESE}"
_MAY_TELL = """
    SELECT x.seq, n.project, n.name, x.said, x.answer, x.explicit = 1 OR x.personal = 1
    FROM sessions n JOIN exchanges x ON x.session = n.id
    WHERE n.owner = :owner AND x.seq <= :exchanges AND (x.extraction <> 'done' OR n.id IN (
        SELECT e.session FROM json_each(:seen) seen
        CROSS JOIN exchanges e ON e.seq = CAST(seen.value AS INTEGER)))
"""


def told_besides(
    tx: Connection, ours: dict[str, Any], verdicts: Verdicts
) -> Iterator[tuple[str, int, tuple[str | None, str]]]:
    """Yield "exchanges" where the user's words tell one of `:these` memories, "answers" where only the answer
    does; the exchange's number; its session. `:seen`: exchanges of sessions that are looked through."""
    told = Told(_column(tx, _WORDS, ours), _column(tx, _QUOTES, ours), verdicts)
    for seq, project, name, said, answer, personal in tx.execute(_MAY_TELL, ours):
        if told.is_in(said, personal=bool(personal)):
            yield "exchanges", seq, (project, name)
        elif told.is_in(answer, personal=False):
            yield "answers", seq, (project, name)


def _column(tx: Connection, query: str, ours: dict[str, Any]) -> list[str]:
    return [text for (text,) in tx.execute(query, ours)]
