"""The past of memories: what was current at a moment, what happened, and what was said before."""

import random
from dataclasses import replace

import pytest

from proxy.domain.changes import Confirm, Edit
from proxy.domain.core import MemoryFilter, Scope
from proxy.domain.errors import NotFound
from proxy.storage.sql import memories
from tests.storage.making import ANNA, APOLLO, BEN, NOW, create, forgotten, memory, of, store, supersede

ENGINES = ("sqlite", "postgres")
DAY = 86_400.0


def at(day):
    return {"created_at": NOW + day * DAY, "updated_at": NOW + day * DAY, "valid_from": NOW + day * DAY}


async def said(memories, where, **more):
    return [one.content for one in (await memories.list(where, limit=50, **more)).items]


async def events(stores, scope=ANNA, **fields):
    return await stores.timeline.events(of(scope, **fields), limit=50)


@pytest.fixture
async def weighed(stores):
    """One value that changed twice, and a correction by hand on day 5."""
    await store(
        stores.memories,
        create("Weighs 80 kg", id="w1", **at(0)),
        supersede("w1", "Weighs 78 kg", id="w2", **at(2)),
        supersede("w2", "Weighs 75 kg", id="w3", **at(4)),
        create("Likes jazz", id="jazz", **at(1)),
        create("Guest until day 5", id="guest", expires_at=NOW + 5 * DAY, **at(3)),
    )
    corrected = memory("Loves jazz", id="jazz", **at(1), archived=True)
    await store(stores.memories, Edit(replace(corrected, updated_at=NOW + 5 * DAY), None))
    return stores


class TestAsOf:
    async def test_lists_what_was_current_then_in_its_wording_of_then(self, weighed):
        expected = {
            -1: [],
            0: ["Weighs 80 kg"],
            1: ["Likes jazz", "Weighs 80 kg"],
            2: ["Weighs 78 kg", "Likes jazz"],
            4: ["Weighs 75 kg", "Guest until day 5", "Likes jazz"],
            6: ["Weighs 75 kg"],
        }
        for day, contents in expected.items():
            where = of(ANNA, as_of=NOW + day * DAY)
            assert await said(weighed.memories, where) == contents
            assert (await weighed.memories.list(where, limit=1)).total == len(contents)
        then = of(ANNA, as_of=NOW + 4 * DAY, text="likes")
        assert await said(weighed.memories, then) == ["Likes jazz"]
        assert await said(weighed.memories, of(BEN, as_of=NOW + 4 * DAY)) == []

    async def test_since_and_until_select_by_when_it_became_true(self, weighed):
        where = of(ANNA, since=NOW + DAY, until=NOW + 4 * DAY, include_inactive=True)
        assert await said(weighed.memories, where) == ["Guest until day 5", "Weighs 78 kg", "Loves jazz"]
        assert (await said(weighed.memories, where, oldest_first=True))[:2] == ["Loves jazz", "Weighs 78 kg"]

    async def test_pages_hold_all_in_order_of_time_however_they_were_stored(self, memories):
        days = [*range(9), 3, 3]
        random.Random(7).shuffle(days)
        await store(memories, *(create(f"fact {n}", id=f"f{n}", **at(day)) for n, day in enumerate(days)))
        seen, after = [], None
        while True:
            page = await memories.list(of(ANNA, as_of=NOW + 7 * DAY), limit=2, after=after)
            seen += page.items
            if not page.has_more:
                break
            after = seen[-1].id
        times = [one.valid_from for one in seen]
        assert (len({one.id for one in seen}), times) == (10, sorted(times, reverse=True))


class TestTimeline:
    @pytest.mark.parametrize("scope", [ANNA, APOLLO])
    async def test_pages_hold_every_event_once(self, weighed, scope, monkeypatch):
        monkeypatch.setattr(memories, "_EVENTS_SLICE", 2)  # a project's events lie apart
        await store(weighed.memories, create("Uses Rust", APOLLO, id="rust", **at(3)))
        await store(weighed.memories, Confirm("rust", NOW + 4 * DAY, 1.0))
        ids, after = [], None
        while page := await weighed.timeline.events(of(scope), limit=2, after=after):
            ids += [one.id for one in page]
            after = ids[-1]
        assert ids == [one.id for one in await events(weighed, scope)]
        assert len(set(ids)) == len(ids) == (10 if scope == ANNA else 2)

    async def test_events_come_with_what_they_changed_and_neither_anothers_nor_forgotten_ones(self, weighed):
        found = [(e.memory_id, e.event.action, e.event.content, e.became) for e in await events(weighed)]
        assert found[0] == ("jazz", "archived", "Likes jazz", "Loves jazz")
        assert ("w2", "superseded", "Weighs 78 kg", "Weighs 75 kg") in found
        week = await events(weighed, since=NOW + 4 * DAY, until=NOW + 5 * DAY)
        assert {(e.memory_id, e.event.action) for e in week} == {("w3", "created"), ("w2", "superseded")}
        assert await events(weighed, BEN) == []
        with pytest.raises(NotFound):
            await weighed.timeline.events(of(BEN), limit=1, after="w1:0")
        await forgotten(weighed.memories, of(ANNA), "w3")
        assert {e.memory_id for e in await events(weighed)} == {"jazz", "guest"}
        for cursor in ("w1:0", "jazz:9", "jazz", "jazz:x"):
            with pytest.raises(NotFound):
                await weighed.timeline.events(of(ANNA), limit=1, after=cursor)
        assert await weighed.timeline.events(MemoryFilter(tenant="acme", user=None), limit=1) == []


class TestEarlier:
    async def test_returns_the_line_of_superseded_values_of_ones_own(self, weighed):
        found = await weighed.timeline.earlier(ANNA, ["w3", "jazz", "nothing"])
        assert {id_: [one.content for one in line] for id_, line in found.items()} == {
            "w3": ["Weighs 78 kg", "Weighs 80 kg"]
        }
        assert await weighed.timeline.earlier(BEN, ["w3"]) == {}
        assert await weighed.timeline.earlier(Scope("other", "anna"), ["w3"]) == {}
