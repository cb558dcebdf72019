"""Clear the way for a memory that is stored anew while an older one with the same id or words is being
forgotten.

The older one is erased at once, with every row that depends on it, before its portion's turn.
"""

from collections.abc import Sequence
from dataclasses import replace

from proxy.domain.core import Change, Create, Edit, Memory, Supersede
from proxy.domain.errors import Conflict
from proxy.storage.redis import orders
from proxy.storage.redis.doomed import find
from proxy.storage.redis.erasing import erase
from proxy.storage.redis.layout import MemoryRow, said_key, storable
from proxy.storage.redis.target import Target
from proxy.storage.redis.unit import Unit


async def make_way(unit: Unit, changes: Sequence[Change]) -> None:
    """Erase what is being forgotten and would keep out what the changes are about to store.

    Raises Conflict for an Edit that would turn a memory from before a forget into one that it covers."""
    new = [change.memory for change in changes if isinstance(change, Create | Supersede | Edit)]
    if not new or not orders.are_standing(unit):
        return
    for token, order in (await orders.standing(unit)).items():
        target = orders.target_of(unit.scope, order)
        if only := await _in_the_way(unit, target, new):
            doomed = await find(unit, replace(target, project=None, type=None, only=only))
            await erase(unit, doomed)
            await orders.add(unit, token, doomed.counts)
        for change in changes:
            if isinstance(change, Edit) and await _would_be_covered(unit, target, change.memory):
                raise Conflict("what the memory would become is being forgotten")


async def _in_the_way(unit: Unit, target: Target, new: Sequence[Memory]) -> frozenset[str]:
    said: dict[str, str] = await unit.table("said").many(
        said_key(
            memory.scope.project and storable(memory.scope.project), storable(memory.type), memory.content
        )
        for memory in new
    )
    ids = {storable(memory.id) for memory in new} | set(said.values())
    rows: dict[str, MemoryRow] = await unit.table("memories").many(ids)
    line = await orders.with_newer(unit, rows)
    return frozenset(id_ for id_ in rows if orders.is_reached(target, id_, line))


async def _would_be_covered(unit: Unit, target: Target, edited: Memory) -> bool:
    row: MemoryRow | None = await unit.table("memories").get(storable(edited.id))
    if row is None or not target.reaches(row):
        return False
    project = edited.scope.project
    return target.covers({**row, "project": project and storable(project), "type": storable(edited.type)})
