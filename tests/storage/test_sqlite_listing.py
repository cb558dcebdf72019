"""Lists and pages, both ways and in slices."""

import sqlite3

from proxy.domain.core import MemoryFilter
from proxy.storage.sql import memories
from tests.storage.making import ANNA, BEN, NOW, create, of, store


async def test_a_list_goes_both_ways_in_slices(stores, monkeypatch):
    monkeypatch.setattr(memories, "_SLICE", 3)
    await store(stores.memories, *(create(f"fact {n}", id=f"f{n}", archived=n % 4 == 1) for n in range(20)))
    await store(stores.memories, *(create(f"ben's {n}", BEN) for n in range(5)), scope=BEN)
    expected = [f"f{n}" for n in range(20) if n % 4 != 1]
    for oldest_first in (True, False):
        for limit in (1, 2, 3, 4, 7, 30):
            seen, after, more = [], None, True
            while more:
                page = await stores.memories.list(
                    of(ANNA), limit=limit, after=after, oldest_first=oldest_first, total=False
                )
                assert page.total is None
                seen += [m.id for m in page.items]
                after, more = seen[-1], page.has_more
            assert seen == (expected if oldest_first else expected[::-1])
    assert (await stores.memories.list(of(ANNA), limit=1)).total == 15
    whole = await stores.memories.list(MemoryFilter(tenant="acme", user=None, now=NOW), limit=99)
    assert (len(whole.items), whole.total) == (20, 20)
    assert (await stores.memories.list(of(ANNA, text="9"), limit=9)).total == 1


async def test_a_page_is_found_by_the_index_of_its_user(stores):
    with sqlite3.connect(stores.path) as connection:
        plan = connection.execute(
            "EXPLAIN QUERY PLAN SELECT m.content FROM memories m JOIN scopes s ON s.id = m.owner"
            " WHERE s.tenant = 'a' AND s.user = 'b' AND m.owner = 1 AND m.seq > 5 AND m.seq <= 9"
            " ORDER BY m.seq LIMIT 5"
        ).fetchall()
    connection.close()
    steps = " ".join(row[3] for row in plan)
    assert "memories_owner (owner=? AND rowid>? AND rowid<?)" in steps
    assert "TEMP B-TREE" not in steps
