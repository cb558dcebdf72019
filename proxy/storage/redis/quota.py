"""The quota of one user, and which memories are evicted at it. Runs inside a unit of work.

The user's counters say what there is. Everything counts, the history too. Under `evict` the changes are
applied and the weakest of the others are erased: the history first, then what has expired, then by
importance x weight x confidence, then who was used least lately. Under `refuse` nobody goes: a change that
does not fit is left out. A memory that supersedes may then take the place of the one it supersedes, whose
words go to its history; otherwise a full memory could only go stale.
"""

from collections.abc import AsyncIterator, Sequence

from proxy.domain.core import Change, Create, Edit, Release, Supersede
from proxy.domain.oversight import Quota
from proxy.storage.redis import lapsing, weakest, words
from proxy.storage.redis.changes import Writer
from proxy.storage.redis.layout import MemoryRow
from proxy.storage.redis.rows import Rows, size_of
from proxy.storage.usage import Result, Usage, fits, grown_too_far, growth, latest

_MOST_AT_ONCE = 1000  # evictions beyond what the changes need: after a quota was lowered, others wait too


async def apply_within(quota: Quota, writer: Writer, changes: Sequence[Change]) -> Result:
    """Apply the changes, and leave the user no further above the quota than before, nor above it at all
    where the policy is to evict."""
    # Where others make room, only what is new together can be too much.
    present = Usage() if quota.evict else _usage(writer)
    if fits(quota, sum(map(growth, changes), present)):
        result = Result(changed=sum([await writer.apply(change) for change in changes]) > 0)
    else:
        result = await _one_by_one(quota, writer, changes)
    evicted = await _make_room(quota, writer, changes) if quota.evict else 0
    return Result(result.changed or evicted > 0, result.refused, result.evicted + evicted)


def _usage(writer: Writer) -> Usage:
    unit = writer.rows.unit
    return Usage(unit.number("memories"), unit.number("content_bytes"))


async def _usage_of_new(writer: Writer) -> Usage:
    """Return what the changes applied so far have written."""
    found = (await writer.rows.many(writer.written)).values()
    ours = [row for row in found if row["written"] == writer.version]
    return Usage(len(ours), sum(map(size_of, ours)))


# ---------------------------------------------------------------- where not everything fits
async def _one_by_one(quota: Quota, writer: Writer, changes: Sequence[Change]) -> Result:
    """Apply the changes that fit, and let a new memory that does not displace the one it supersedes."""
    changed, displaced = False, 0
    refused: list[str] = []

    async def measured() -> Usage:
        return await _usage_of_new(writer) if quota.evict else _usage(writer)

    for change in sorted(changes, key=lambda change: isinstance(change, Release)):
        if refused and isinstance(change, Release):
            continue  # what became of the held candidate may be what found no place: it stays held
        before, point = await measured(), writer.rows.unit.savepoint()
        different = await writer.apply(change)
        fits = not grown_too_far(quota, before, await measured())
        if not fits and isinstance(change, Supersede) and not quota.evict:
            fits = await writer.displace(change) and not grown_too_far(quota, before, await measured())
            displaced += fits
        if fits:
            changed |= different
        else:
            writer.rows.unit.rollback(point)
            refused += [change.memory.id] if isinstance(change, Create | Supersede | Edit) else []
    return Result(changed, tuple(refused), displaced)


# ---------------------------------------------------------------- eviction
async def _make_room(quota: Quota, writer: Writer, changes: Sequence[Change]) -> int:
    """Erase the weakest that these changes did not write, until the rest fits; return how many."""
    usage = _usage(writer)
    if fits(quota, usage):
        return 0
    now = latest(changes)
    most = _MOST_AT_ONCE + len(changes)
    doomed: dict[str, str | None] = {}
    async for memory_id, row in _weakest_first(writer.rows, now):
        if row["written"] == writer.version:
            continue
        doomed[memory_id] = row["superseded_by"]
        usage += Usage(-1, -size_of(row))
        if fits(quota, usage) or len(doomed) == most:
            break
    await writer.rows.fetch(doomed)
    await writer.erase(doomed)
    return len(doomed)


async def _weakest_first(rows: Rows, now: float) -> AsyncIterator[tuple[str, MemoryRow]]:
    """Yield the memories in the order in which they go."""
    async for memory_id, row in _in_order(rows, is_current=False):
        yield memory_id, row
    current = await rows.many(await lapsing.until(rows.unit, now))
    expired = {memory_id: row for memory_id, row in current.items() if words.is_counted(row)}
    for memory_id in sorted(expired, key=lambda each: weakest.member(each, expired[each])):
        yield memory_id, expired[memory_id]
    async for memory_id, row in _in_order(rows, is_current=True):
        if memory_id not in expired:
            yield memory_id, row


async def _in_order(rows: Rows, *, is_current: bool) -> AsyncIterator[tuple[str, MemoryRow]]:
    """Yield the current memories, or the others, the weakest first: those that the unit has changed in
    between the committed ones."""
    changed = {
        weakest.member(memory_id, row)
        for memory_id, row in (await rows.many(rows.changed)).items()
        if words.is_counted(row) == is_current
    }
    async for some in weakest.walk(rows.unit, is_current=is_current):
        committed = [each for each in some if weakest.id_of(each) not in rows.changed]
        ours = {each for each in changed if some and each < some[-1]}
        changed -= ours
        for memory_id, row in (await rows.many(map(weakest.id_of, sorted([*committed, *ours])))).items():
            yield memory_id, row
    for memory_id, row in (await rows.many(map(weakest.id_of, sorted(changed)))).items():
        yield memory_id, row
