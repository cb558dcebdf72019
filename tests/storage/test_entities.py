"""Entities: what memories name, merged by name and alias, and erased with the last memory that names it."""

from dataclasses import replace

import pytest

from proxy.domain.changes import Edit
from proxy.domain.core import MemoryFilter, Scope
from proxy.domain.errors import NotFound
from tests.storage.making import ANNA, APOLLO, BEN, NOW, create, forgotten, memory, of, store, supersede

ENGINES = ("sqlite", "postgres")


async def listed(stores, scope=ANNA, **fields):
    return {one.name: one for one in await stores.entities.list(of(scope, **fields), limit=50)}


async def naming(stores, entity, scope=ANNA):
    page = await stores.entities.memories(of(scope), entity.id, limit=50)
    return [one.id for one in page.items]


@pytest.fixture
async def named(stores):
    await store(
        stores.memories,
        create("User's sister is Mara Lind.", id="sister", tags=("family", "person:Mara Lind=Mara")),
        create("User flies with Mara to Porto on Monday.", id="flight"),
        create("Mara likes figs.", id="figs"),
        create("User reads 「心」 in Porto.", id="book"),
        create("Works on Hermes.", APOLLO, id="work"),
    )
    return stores


async def test_memories_that_name_the_same_share_an_entity(named):
    found = await listed(named)
    assert found.keys() == {"Mara", "Porto", "心", "Hermes"}
    mara, porto = found["Mara"], found["Porto"]
    assert (mara.kind, mara.aliases, mara.memories) == ("person", ("Mara Lind",), 3)
    first = await named.entities.memories(of(ANNA), mara.id, limit=2)
    rest = await named.entities.memories(of(ANNA), mara.id, limit=2, after=first.items[-1].id)
    assert [[one.id for one in page.items] for page in (first, rest)] == [["figs", "flight"], ["sister"]]
    (one,) = await named.entities.list(of(ANNA), limit=1)
    assert len(await named.entities.list(of(ANNA), limit=9, after=one.id)) == 3
    assert (mara.linked, porto.memories) == ((porto.id,), 2)
    assert set(porto.linked) == {mara.id, found["心"].id}
    assert (await listed(named, APOLLO)).keys() == {"Hermes"}


async def test_two_users_with_the_same_words_share_nothing(named):
    await store(named.memories, create("User flies with Mara to Porto.", BEN, id="his"), scope=BEN)
    mine, his = await listed(named), await listed(named, BEN)
    assert {one.id for one in mine.values()}.isdisjoint(one.id for one in his.values())
    assert await naming(named, his["Mara"], BEN) == ["his"]
    for scope in (BEN, Scope("other", "anna")):
        with pytest.raises(NotFound):
            await named.entities.memories(of(scope), mine["Mara"].id, limit=5)
        with pytest.raises(NotFound):
            await named.entities.list(of(scope), limit=5, after=mine["Mara"].id)
    assert await named.entities.linked(BEN, ["sister"], now=NOW, limit=9) == []
    assert await named.entities.knows(ANNA, ["Stranger", "mara"], now=NOW)
    assert not await named.entities.knows(BEN, ["Lind"], now=NOW)
    assert await named.entities.list(MemoryFilter(tenant="acme", user=None), limit=5) == []


async def test_what_is_superseded_or_corrected_no_longer_names_it(named):
    await store(named.memories, supersede("flight", "User flies to Faro.", id="faro"))
    await store(named.memories, Edit(memory("User reads a book.", id="book"), None))
    found = await listed(named)
    assert found.keys() == {"Mara", "Faro", "Hermes"}
    assert await naming(named, found["Mara"]) == ["figs", "sister"]


async def test_a_forget_erases_names_with_the_last_memory_that_has_them(named, engine):
    await forgotten(named.memories, of(ANNA), "sister")
    mara = (await listed(named))["Mara"]
    assert (mara.aliases, mara.memories) == ((), 2)
    await forgotten(named.memories, of(ANNA), "flight")
    await forgotten(named.memories, of(ANNA), "book")
    assert (await listed(named)).keys() == {"Hermes"}  # "Mara" is left only where it may be no name
    await forgotten(named.memories, of(ANNA))
    assert not await named.entities.knows(ANNA, ["Mara"], now=NOW)
    for table in ("entities", "mentions"):
        assert engine.rows(f"SELECT * FROM {table}") == []


async def test_one_link_is_followed_unless_the_name_is_everywhere(named):
    linked = await named.entities.linked(ANNA, ["sister"], now=NOW, limit=9)
    assert [one.id for one in linked] == ["figs", "flight"]
    assert await named.entities.linked(replace(ANNA, project="none"), ["work"], now=NOW, limit=9) == []
    await store(named.memories, *(create(f"Saw Mara, time {n}.") for n in range(12)))
    assert await named.entities.linked(ANNA, ["sister"], now=NOW, limit=9) == []
