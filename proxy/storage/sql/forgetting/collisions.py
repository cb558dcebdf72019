"""Clear the way for a memory that is stored anew while an older one with the same id or words is being
forgotten.

The older one is erased at once, with every row that depends on it, before its portion's turn.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from proxy.domain.core import Change, Create, Edit, Memory, Supersede
from proxy.domain.errors import Conflict
from proxy.storage.sql import receipts, rows
from proxy.storage.sql.connection import Connection
from proxy.storage.sql.forgetting import pending
from proxy.storage.sql.forgetting.affected import MATCH, find
from proxy.storage.sql.forgetting.erase import erase_all
from proxy.storage.sql.forgetting.pending import Order
from proxy.storage.sql.forgetting.target import Target

# By an index each. What superseded a memory is being forgotten with it: the walk goes from `w` upwards.
_IN_THE_WAY = """
    SELECT w.seq FROM memories w
    WHERE {} AND w.seq <= :memories AND EXISTS (
        WITH RECURSIVE line (seq, id, project, type, superseded_by) AS (
            SELECT w.seq, w.id, w.project, w.type, w.superseded_by
            UNION
            SELECT n.seq, n.id, n.project, n.type, n.superseded_by
            FROM line JOIN memories n ON n.id = line.superseded_by AND n.owner = :owner
        )
        SELECT 1 FROM line m WHERE {match})
"""
_SAME_ID = _IN_THE_WAY.format("w.id = :new_id AND w.owner = :owner", match=MATCH)
_SAME_WORDS = _IN_THE_WAY.format(
    "w.owner = :owner AND coalesce(w.project, '') = :new_project AND w.type = :new_type"
    " AND w.digest = :new_digest AND w.superseded_by IS NULL AND w.archived = 0",
    match=MATCH,
)


def make_way(tx: Connection, owner: int, changes: Sequence[Change]) -> None:
    """Erase what is being forgotten and would keep out what the changes are about to store.

    Raises Conflict for an Edit that would turn a memory from before a forget into one that it covers."""
    new = [change.memory for change in changes if isinstance(change, Create | Supersede | Edit)]
    if not new or not tx.execute("SELECT 1 FROM forgets WHERE owner = ?", (owner,)).fetchone():
        return
    for order in pending.standing(tx):
        if order.target.owner != owner:
            continue
        if seqs := tuple(_in_the_way(tx, order, new)):
            these = find(tx, replace(order.target, only=seqs))
            receipts.add(tx, order.receipt, erase_all(tx, owner, these))
        for change in changes:
            if isinstance(change, Edit) and _would_be_covered(tx, order.target, change.memory):
                raise Conflict("what the memory would become is being forgotten")


def _would_be_covered(tx: Connection, target: Target, edited: Memory) -> bool:
    row = tx.execute(
        "SELECT seq FROM memories WHERE id = ? AND owner = ?", (rows.storable(edited.id), target.owner)
    ).fetchone()
    if row is None or row[0] > target.bounds.memories or not target.is_of_many:
        return False
    of_project = target.project in (None, edited.scope.project)
    return of_project and (target.types is None or edited.type in target.types)


def _in_the_way(tx: Connection, order: Order, new: Iterable[Memory]) -> Iterable[int]:
    for memory in new:
        asked = order.target.parameters() | {
            "new_id": rows.storable(memory.id),
            "new_project": memory.scope.project or "",
            "new_type": memory.type,
            "new_digest": rows.digest(memory.content),
        }
        for query in (_SAME_ID, _SAME_WORDS):
            yield from (seq for (seq,) in tx.execute(query, asked))
