"""BM25 statistics of a user's memories, counted as they are written.

Memories count that are neither superseded nor archived, in groups of one type and one project, so that
whatever a search leaves out leaves the counts, too. One that has expired still counts; `lapsing` finds it,
and a search takes it off. Nothing here depends on other users.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.storage.redis import lapsing
from proxy.storage.redis.layout import MemoryRow, storable
from proxy.storage.redis.table import Table
from proxy.storage.redis.unit import Unit
from proxy.storage.vector_index import Wanted

# BM25, Robertson & Zaragoza 2009. b below the usual 0.75: facts are one sentence, length says little.
K1, B = 1.2, 0.4


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of the memories that a search is about: how many, their mean length, and how many hold each term."""

    total: int
    mean: float
    holding: Mapping[str, int]

    @property
    def idf(self) -> dict[str, float]:
        """Return the weight of each term that anybody holds."""
        return {
            term: math.log1p((self.total - held + 0.5) / (held + 0.5))
            for term, held in self.holding.items()
            if held > 0
        }


def is_counted(row: MemoryRow) -> bool:
    """True of a memory that is neither superseded nor archived."""
    return row["superseded_by"] is None and not row["archived"]


def has_expired(row: MemoryRow, now: float) -> bool:
    return row["expires_at"] is not None and row["expires_at"] <= now


def is_wanted(row: MemoryRow, wanted: Wanted) -> bool:
    """True of a memory that the search may return."""
    return is_counted(row) and not has_expired(row, wanted.now) and wanted.admits(row["type"], row["project"])


def bm25(row: MemoryRow, idf: Mapping[str, float], mean: float) -> float:
    """Return the memory's score for the terms that `idf` weighs; 0 if it holds none of them."""
    words = row["terms"].split()
    norm = K1 * (1 - B) + (K1 * B / mean) * len(words)
    counts = Counter(word for word in words if word in idf)
    return sum(idf[term] * (K1 + 1) * count / (count + norm) for term, count in counts.items())


async def count(unit: Unit, row: MemoryRow, sign: int) -> None:
    """Count a memory in (+1), or out (-1), with its terms as the row has them."""
    words = row["terms"].split()
    number = await _count_group(unit, row, sign, len(words))
    table = unit.table("words")
    for term, groups in (await _rows(unit, sorted(set(words)))).items():
        held = groups.get(number, 0) + sign
        left = {**groups, number: held} if held > 0 else {n: c for n, c in groups.items() if n != number}
        if left:
            table.put(term, left)
        else:
            table.drop(term)


def needed(unit: Unit, terms: Sequence[str]) -> tuple[tuple[Table, Iterable[str] | None], ...]:
    """Return what `statistics` reads, for Unit.fetch."""
    asked = {storable(term) for term in terms}
    return (
        (unit.table("words"), asked),
        (unit.table("groups"), None),
        (unit.table("lapsing"), (lapsing.DAYS,)),
    )


async def statistics(unit: Unit, terms: Sequence[str], wanted: Wanted) -> Statistics:
    """Return what BM25 needs for a search of these terms."""
    asked = {storable(term) for term in terms}
    words, groups = unit.table("words"), unit.table("groups")
    await unit.fetch(*needed(unit, terms))
    admitted: dict[str, tuple[int, int]] = {}
    for name, (number, memories, length) in (await groups.all()).items():
        if wanted.admits(*_group_of(name)):
            admitted[number] = (memories, length)
    total = sum(memories for memories, _ in admitted.values())
    length = sum(length for _, length in admitted.values())
    holding = {
        term: sum(held for number, held in of_term.items() if number in admitted)
        for term, of_term in (await words.many(asked)).items()
    }
    for row in await _lapsed(unit, wanted):
        row_words = row["terms"].split()
        total, length = total - 1, length - len(row_words)
        for term in holding.keys() & set(row_words):
            holding[term] -= 1
    return Statistics(total, max(length / total, 1.0) if total else 1.0, holding)


async def how_many(unit: Unit, wanted_type: frozenset[str] | None, project: str | None, now: float) -> int:
    """Return how many current memories there are, of exactly the project where one is named."""
    await unit.fetch((unit.table("groups"), None), (unit.table("lapsing"), (lapsing.DAYS,)))

    def admits(type: str, of: str | None) -> bool:
        return (wanted_type is None or type in wanted_type) and (project is None or of == project)

    groups = (await unit.table("groups").all()).items()
    total = sum(int(memories) for name, (_, memories, _) in groups if admits(*_group_of(name)))
    lapsed = await _lapsed(unit, Wanted(None, None, now))
    return total - sum(admits(row["type"], row["project"]) for row in lapsed)


async def _lapsed(unit: Unit, wanted: Wanted) -> list[MemoryRow]:
    """Return those of the memories wanted that still count and have expired."""
    ids = await lapsing.until(unit, wanted.now)
    rows: dict[str, MemoryRow] = await unit.table("memories").many(ids) if ids else {}
    return [
        row
        for row in rows.values()
        if is_counted(row) and has_expired(row, wanted.now) and wanted.admits(row["type"], row["project"])
    ]


async def _rows(unit: Unit, terms: Sequence[str]) -> dict[str, dict[str, int]]:
    found = await unit.table("words").many(terms)
    return {term: found.get(term, {}) for term in terms}


async def _count_group(unit: Unit, row: MemoryRow, sign: int, length: int) -> str:
    """Count the memory in its group, and return the group's number."""
    table, name = unit.table("groups"), _group_name(row)
    found: Any = await table.get(name)
    number, memories, total = found or (str(unit.next()), 0, 0)
    if memories + sign > 0:
        table.put(name, (number, memories + sign, total + sign * length))
    else:
        table.drop(name)
    return str(number)


def _group_name(row: MemoryRow) -> str:
    project = row["project"]
    return row["type"] + "\0" + ("" if project is None else "1" + project)


def _group_of(name: str) -> tuple[str, str | None]:
    type_, _, project = name.partition("\0")
    return type_, project[1:] if project else None
