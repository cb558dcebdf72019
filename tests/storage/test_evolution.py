"""How memories change over time, in the stores: archive, restore, pin, and whose visit is due."""

import pytest

from proxy.domain.core import Archive, Pin, Restore
from proxy.domain.errors import Duplicate, NotFound
from proxy.domain.evolution import NEVER
from tests.storage.making import ANNA, BEN, NOW, contents, create, of, store, supersede

ENGINES = ("sqlite", "postgres")
LEASE_S = 300.0


class TestArchive:
    async def test_an_archived_memory_is_found_again_once_it_is_restored(self, memories):
        await store(memories, create("drinks tea", id="a", weight=0.1))
        await store(memories, Archive(("a", "absent"), NOW + 1, "decay"))
        assert await contents(memories, "tea") == set()
        archived = await memories.get(of(ANNA), "a")
        assert (archived.archived, archived.archived_by) == (True, "decay")
        await store(memories, Restore("a", NOW + 2))
        assert await contents(memories, "tea") == {"drinks tea"}
        restored = await memories.get(of(ANNA), "a")
        assert (restored.archived_by, restored.weight, restored.updated_at) == (None, 1.0, NOW + 2)
        events = (await memories.history(of(ANNA), ["a"]))["a"]
        assert [(e.action, e.by) for e in events[1:]] == [("archived", "decay"), ("restored", "user")]

    async def test_what_is_pinned_is_archived_by_its_owner_alone(self, memories):
        await store(memories, create("drinks tea", id="a"), Pin("a", True, NOW))
        await store(memories, Archive(("a",), NOW + 1, "use"))
        assert await contents(memories, "tea") == {"drinks tea"}
        await store(memories, Archive(("a",), NOW + 1, "user"))
        assert await contents(memories, "tea") == set()

    async def test_what_is_superseded_or_anothers_is_not_archived(self, memories):
        await store(memories, create("tea", id="a"), supersede("a", "cocoa", id="b"))
        await store(memories, create("chess", BEN, id="c"), scope=BEN)
        await store(memories, Archive(("a", "c"), NOW + 1, "decay"))
        assert not (await memories.get(of(ANNA), "a")).archived
        assert await contents(memories, "chess", BEN) == {"chess"}

    async def test_a_memory_is_not_restored_if_another_already_states_it(self, memories):
        await store(memories, create("tea", id="a"), Archive(("a",), NOW, "user"), create("tea", id="b"))
        with pytest.raises(Duplicate):
            await store(memories, Restore("a", NOW + 1))

    @pytest.mark.parametrize("change", [Restore("c", NOW), Pin("c", True, NOW)])
    async def test_an_absent_or_foreign_memory_is_not_found(self, memories, change):
        await store(memories, create("chess", BEN, id="c"), scope=BEN)
        with pytest.raises(NotFound):
            await store(memories, change)


class TestVisits:
    async def test_a_user_is_due_after_a_change_and_leased_to_one_process(self, stores, second):
        await store(stores.memories, create("tea"))
        assert await stores.evolution.claim(NOW, LEASE_S) is None
        lease = await stores.evolution.claim(NOW + 60, LEASE_S)
        assert lease is not None
        assert (lease.scope, lease.own) == (ANNA, {})
        assert await second.evolution.claim(NOW + 60, LEASE_S) is None
        await stores.evolution.release(lease, NOW + 60, NEVER)
        assert await second.evolution.claim(NOW + 9e9, LEASE_S) is None

    async def test_a_visit_whose_process_died_is_due_again_when_its_lease_ends(self, stores, second):
        await store(stores.memories, create("tea"))
        assert await stores.evolution.claim(NOW + 60, LEASE_S) is not None
        assert await second.evolution.claim(NOW + 60 + LEASE_S, LEASE_S) is not None

    async def test_a_change_during_a_visit_makes_the_user_due_again(self, stores):
        await store(stores.memories, create("tea"))
        lease = await stores.evolution.claim(NOW + 60, LEASE_S)
        await store(stores.memories, create("cocoa", created_at=NOW + 61, updated_at=NOW + 61))
        await stores.evolution.release(lease, NOW + 62, NEVER)
        again = await stores.evolution.claim(NOW + 100, LEASE_S)
        assert again is not None
        assert again.last_at == NOW + 62

    async def test_a_clock_that_is_set_back_does_not_hold_a_lease_for_long(self, stores):
        await store(stores.memories, create("tea"))
        lease = await stores.evolution.claim(NOW + 9e6, LEASE_S)
        await store(stores.memories, create("cocoa"))
        assert lease is not None
        assert await stores.evolution.claim(NOW + 60, LEASE_S) is not None

    async def test_own_settings_are_the_users_until_everything_is_forgotten(self, stores):
        await stores.evolution.set_own(ANNA, {"half_life_days": 7}, NOW)
        assert await stores.evolution.own(ANNA) == {"half_life_days": 7}
        assert await stores.evolution.own(BEN) == {}
        await stores.memories.forget(of(ANNA, include_inactive=True), by="test")
        assert await stores.evolution.own(ANNA) == {}
