"""Search of users with many memories by an external index (see outbox.py).

The index proposes; what is found, and with which scores, comes from the rows in one transaction: an erased or
superseded memory is never found, whatever the index still holds. What the index was not sent yet is read from
the outbox before the index is asked, so that a memory which arrives in between is in one of the two.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.domain.core import Scope, Search
from proxy.storage.sql.connection import Connection
from proxy.storage.sql.forgetting.pending import hidden
from proxy.storage.sql.outbox import target_of, waiting_of
from proxy.storage.sql.owners import Owner
from proxy.storage.sql.rows import as_json
from proxy.storage.vectors.candidates import CandidateIndex, IndexUnavailable, Query
from proxy.storage.vectors.exact.index import Found, Row, UserIndex, build

_MOST_WAITING = 2_000  # a user with more in the outbox is searched exactly
_LATEST = 1_000  # memories of a user with many that the profile is taken from
_ROWS = """
    SELECT m.seq, m.type, m.project, m.expires_at, 1,
           iif(v.generation IN (SELECT CAST(value AS INTEGER) FROM json_each(:generations)),
               v.embedding, NULL), v.terms
    FROM memories m JOIN vectors v ON v.memory = m.seq
    WHERE m.owner = :owner AND m.superseded_by IS NULL AND m.archived = 0
"""
# With the two memories stored before each: a memory's score has a share of theirs (exact/index.py).
_BEFORE = """(SELECT m.seq FROM memories m WHERE m.owner = :owner AND m.seq < {}.seq
    AND m.superseded_by IS NULL AND m.archived = 0 ORDER BY m.seq DESC LIMIT 1)"""
_PROPOSED = f"""
    WITH proposed (seq) AS (SELECT CAST(value AS INTEGER) FROM json_each(:seqs)),
         once (seq) AS (SELECT {_BEFORE.format("proposed")} FROM proposed),
         twice (seq) AS (SELECT {_BEFORE.format("once")} FROM once)
    {_ROWS} AND m.seq IN (SELECT seq FROM proposed UNION SELECT seq FROM once UNION SELECT seq FROM twice)
    {{hidden}} ORDER BY m.seq
"""
_ADMITTED = """
    SELECT count(*) FROM memories m
    WHERE m.owner = :owner AND m.superseded_by IS NULL AND m.archived = 0
    AND (m.expires_at IS NULL OR m.expires_at > :now)
    AND (:project IS NULL OR m.project IS NULL OR m.project = :project)
    AND (:types IS NULL OR m.type IN (SELECT value FROM json_each(:types)))
"""
_COUNTS = 1_000  # that are remembered
_NEWEST = _ROWS + "{hidden} ORDER BY m.seq DESC LIMIT :most"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to ask the index for, and what to search exactly in addition."""

    owner: Owner
    admitted: int  # how many memories the search admits, which says how rare a word is
    collections: Sequence[int]
    compared: Sequence[int]
    waiting: Sequence[int]


class Indexed:
    """The index, and from how many memories on a user is searched by it."""

    def __init__(
        self, index: CandidateIndex, *, exact_up_to: int, fell_back: Callable[[], None] = lambda: None
    ) -> None:
        """`fell_back` is called for each search that is exact because the index is down."""
        self.index = index
        self._exact_up_to, self._fell_back = exact_up_to, fell_back
        self._counts: dict[tuple[Owner, str | None, frozenset[str] | None], int] = {}

    def has_many(self, tx: Connection, owner: Owner) -> bool:
        """True for a user with too many memories to read them all in one search."""
        (memories,) = tx.execute("SELECT memories FROM scopes WHERE id = ?", (owner.id,)).fetchone()
        return int(memories) > self._exact_up_to

    def plan(
        self, tx: Connection, owner: Owner, project: str | None, search: Search, compared: Sequence[int]
    ) -> Plan | None:
        """Return how to search by the index; None: exactly."""
        target = target_of(tx, self.index.name) if self.has_many(tx, owner) else None
        waiting = waiting_of(tx, owner.id, _MOST_WAITING + 1) if target else []
        if target is None or not target.generations or len(waiting) > _MOST_WAITING:
            return None
        admitted = self._admitted(tx, owner, project, search)
        return Plan(owner, admitted, target.generations, compared, waiting)

    def _admitted(self, tx: Connection, owner: Owner, project: str | None, search: Search) -> int:
        """Count once for each version of the user's memories: of many that takes milliseconds."""
        key = (owner, project, search.types)
        if (known := self._counts.get(key)) is not None:
            return known
        types = None if search.types is None else as_json(sorted(search.types))
        wanted = {"owner": owner.id, "now": search.now, "project": project, "types": types}
        (count,) = tx.execute(_ADMITTED, wanted).fetchone()
        if len(self._counts) >= _COUNTS:
            self._counts = {}  # replaced, not emptied: other threads read it
        self._counts[key] = int(count)
        return int(count)

    async def propose(self, plan: Plan, scope: Scope, search: Search) -> Sequence[int] | None:
        """Return the memories to look at, by number; None where the index cannot say."""
        query = Query(
            plan.owner.id, scope.project, search.types, search.now, search.vector, search.terms,
            search.limit, plan.compared,
        )  # fmt: skip
        try:
            near = await self.index.search(query, plan.collections)
        except IndexUnavailable:
            self._fell_back()
            return None
        return list({*near, *plan.waiting})


def found_among(
    tx: Connection, plan: Plan, proposed: Sequence[int], project: str | None, search: Search
) -> list[Found]:
    """Return what a search finds among those proposed memories that are the user's and current."""
    owner = plan.owner
    these = {"owner": owner.id, "seqs": as_json(proposed), "generations": as_json(plan.compared)}
    rows = tx.execute(_PROPOSED.format(hidden=hidden(tx)), these).fetchall()
    ours = set(proposed)
    # Of the others only the words count.
    read = [Row(*row) if row[0] in ours else Row(*row)._replace(vector=None) for row in rows]
    index = build(read, owner.stamp, total=plan.admitted)
    return [item for item in index.search(project, search) if item.seq in ours]


def newest(tx: Connection, owner: Owner, compared: Sequence[int]) -> UserIndex:
    """Return an index of the user's latest memories."""
    these = {"owner": owner.id, "generations": as_json(compared), "most": _LATEST}
    rows = tx.execute(_NEWEST.format(hidden=hidden(tx)), these).fetchall()
    return build([Row(*row) for row in reversed(rows)], owner.stamp)
