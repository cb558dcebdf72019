"""The quota of one user, and which memories are evicted at it. Runs inside the writer's transaction.

`scopes` says what a user has; triggers keep it. Everything counts, the history too. Under `evict` the
changes are applied and the weakest of the others are erased: the history first, then what has expired, then
by importance x weight x confidence, then who was used least lately. Under `refuse` nothing is
evicted: a change that does not fit is left out. A memory that supersedes may then take the place of the one
it supersedes, which stays in its history; otherwise a full memory could only become stale."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

from proxy.domain.changes import (
    Change,
    Edit,
    Release,
    Settle,
    Supersede,
)
from proxy.domain.core import Quota
from proxy.storage.sql import rows
from proxy.storage.sql.changes import STORING, Writer
from proxy.storage.sql.database import Connection

_MOST_AT_ONCE = 1000  # evictions beyond what the changes need: after a quota was lowered, others wait too

# Word for word those of the index `memories_weakest`, which spares the sort.
_CLOSED = "(CASE WHEN superseded_by IS NOT NULL OR archived = 1 THEN 1 ELSE 0 END)"
_WEAKEST_FIRST = "(importance * weight * confidence), (coalesce(last_accessed, created_at)), seq"
_OTHERS = f"""
    SELECT seq, id, superseded_by, length(CAST(content AS BLOB)) FROM memories
    WHERE owner = :owner AND written < :version AND {_CLOSED} ="""
_IN_THIS_ORDER = (
    f"{_OTHERS} 1 ORDER BY {_WEAKEST_FIRST}",
    f"{_OTHERS} 0 AND expires_at <= :now ORDER BY {_WEAKEST_FIRST}",
    f"{_OTHERS} 0 AND (expires_at IS NULL OR expires_at > :now) ORDER BY {_WEAKEST_FIRST}",
)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a user has, or a change adds."""

    memories: int = 0
    content_bytes: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.memories + other.memories, self.content_bytes + other.content_bytes)


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of the changes. `changed`: a search may return something else now."""

    changed: bool
    refused: tuple[str, ...] = ()
    evicted: int = 0


def apply_within(quota: Quota, writer: Writer, changes: Sequence[Change]) -> Result:
    """Apply the changes, and leave the user no further above the quota than before, nor above it at all
    where the policy is to evict."""
    # Where others make room, only what is new together can be too much.
    present = Usage() if quota.evict else _usage(writer)
    if fits(quota, sum(map(growth, changes), present)):
        result = Result(changed=sum(map(writer.apply, changes)) > 0)
    else:
        result = _one_by_one(quota, writer, changes)
    evicted = _make_room(quota, writer, changes) if quota.evict else 0
    return Result(result.changed or evicted > 0, result.refused, result.evicted + evicted)


def _usage(writer: Writer) -> Usage:
    query = "SELECT memories, content_bytes FROM scopes WHERE id = ?"
    return Usage(*writer.tx.execute(query, (writer.owner,)).fetchone())


def _usage_of_new(writer: Writer) -> Usage:
    """Return what the changes applied so far have written."""
    query = """
        SELECT count(*), coalesce(sum(length(CAST(content AS BLOB))), 0) FROM memories
        WHERE owner = ? AND changed = ? AND written = ?"""
    return Usage(*writer.tx.execute(query, (writer.owner, writer.version, writer.version)).fetchone())


# ---------------------------------------------------------------- where not everything fits
def _one_by_one(quota: Quota, writer: Writer, changes: Sequence[Change]) -> Result:
    """Apply the changes that fit, and let a new memory that does not displace the one it supersedes."""
    changed, displaced = False, 0
    refused: list[str] = []
    measure = _usage_of_new if quota.evict else _usage
    for change in sorted(changes, key=lambda change: isinstance(change, Release)):
        if refused and isinstance(change, Release):
            continue  # there was no room for the candidate's memory: it stays in quarantine
        before = measure(writer)
        writer.tx.execute("SAVEPOINT change")
        different = writer.apply(change)
        fits = not grown_too_far(quota, before, measure(writer))
        if not fits and isinstance(change, Supersede) and not quota.evict:
            fits = writer.displace(change) and not grown_too_far(quota, before, measure(writer))
            displaced += fits
        if fits:
            changed |= different
        else:
            writer.tx.execute("ROLLBACK TO change")
            refused += [change.memory.id] if isinstance(change, STORING) else []
        writer.tx.execute("RELEASE change")
    return Result(changed, tuple(refused), displaced)


# ---------------------------------------------------------------- eviction
def _make_room(quota: Quota, writer: Writer, changes: Sequence[Change]) -> int:
    """Erase the weakest that these changes did not write, until the rest fits; return how many."""
    usage = _usage(writer)
    if fits(quota, usage):
        return 0
    now = time_of(changes)  # what expires before the last change has expired
    parameters = {"owner": writer.owner, "version": writer.version, "now": now}
    most = _MOST_AT_ONCE + len(changes)
    evicted: list[tuple[int, str, str | None]] = []
    with closing(_weakest_first(writer.tx, parameters)) as candidates:
        for seq, id_, superseded_by, size in candidates:
            evicted.append((seq, id_, superseded_by))
            usage += Usage(-1, -size)
            if fits(quota, usage) or len(evicted) == most:
                break
    writer.erase(evicted)
    return len(evicted)


def _weakest_first(tx: Connection, asked: dict[str, float]) -> Generator[tuple[int, str, str | None, int]]:
    for query in _IN_THIS_ORDER:
        with closing(tx.execute(query, asked)) as found:
            yield from found


# ---------------------------------------------------------------- the rule
def fits(quota: Quota, usage: Usage) -> bool:
    too_many = quota.memories and usage.memories > quota.memories
    too_much = quota.content_bytes and usage.content_bytes > quota.content_bytes
    return not (too_many or too_much)


def grown_too_far(quota: Quota, before: Usage, after: Usage) -> bool:
    """True for growth beyond the quota. Who is above it already may still shrink, or stay."""
    too_many = quota.memories and after.memories > max(quota.memories, before.memories)
    too_much = quota.content_bytes and after.content_bytes > max(quota.content_bytes, before.content_bytes)
    return bool(too_many or too_much)


def growth(change: Change) -> Usage:
    """Return the most that the change can add."""
    if not isinstance(change, STORING):
        return Usage()
    size = len(rows.storable(change.memory.content).encode())
    return Usage(0 if isinstance(change, Edit) else 1, size)


def time_of(changes: Sequence[Change]) -> float:
    """Return the time of the last change; 0 for none."""
    stored = [change.memory.updated_at for change in changes if isinstance(change, STORING)]
    others = [change.at for change in changes if not isinstance(change, (*STORING, Release, Settle))]
    return max(stored + others, default=0.0)
