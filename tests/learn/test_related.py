"""Over a real store: what of the memory is shown to the extraction model."""

from proxy.domain.core import Create, Scope, Search
from proxy.learn.extractor import MOST_RELATED, related
from tests.learn.support import ANA, NOON, House, batch, exchange, memory


async def store(house: House, *contents: str, scope: Scope = ANA) -> None:
    stamp = await house.stores.memories.stamp(scope)
    changes = [Create(memory(c, scope=scope), None) for c in contents]
    await house.stores.memories.apply(scope, changes, expect=stamp)


async def shown(house: House, *said: str) -> list[str]:
    pending = (exchange(text, seq=n) for n, text in enumerate(said, 1))
    return [m.content for m in await related(house.stores.memories, None, batch(*pending), NOON)]


async def test_each_statement_of_a_message_finds_its_own_neighbours(house: House) -> None:
    await store(
        house, *(f"User plays tennis with person {n}" for n in range(30)), "User's cat is called Miso"
    )
    said = "My cat is now called Momo. " + "I play tennis with person after person. " * 20
    assert "User's cat is called Miso" in await shown(house, said)


async def test_no_more_are_shown_than_a_prompt_should_hold_the_nearest_of_each_statement_first(
    house: House,
) -> None:
    things = ("tennis", "tea", "boats", "bees", "chess", "maps")
    await store(house, *(f"User has {thing} number {n}" for thing in things for n in range(8)))
    found = await shown(house, *(f"I like {thing}{' a lot' * n}" for n, thing in enumerate(things)))
    assert len(found) == MOST_RELATED
    assert {content.split()[2] for content in found[:6]} == set(things)


async def test_nothing_of_another_user_is_shown(house: House) -> None:
    await store(house, "User's cat is called Miso", scope=Scope("t", "bea"))
    assert await shown(house, "My cat is called Momo.") == []


async def test_a_silent_user_has_nothing_looked_up(house: House) -> None:
    await store(house, "User's cat is called Miso")
    assert await shown(house, "", "...") == []


async def test_the_store_is_read_once_for_all_statements_of_an_exchange(house: House, monkeypatch) -> None:
    await store(house, "User's cat is called Miso", "User plays tennis with Ugo")
    for _ in range(2):  # a user who comes back is held in memory
        await shown(house, "My cat is now called Momo.")
    searched: list[object] = []
    monkeypatch.setattr(house.stores.memories, "search", lambda *args: searched.append(args))
    found = await shown(house, "My cat is now called Momo. I play tennis with Vera these days.")
    assert set(found) == {"User's cat is called Miso", "User plays tennis with Ugo"}
    assert searched == []


async def test_where_somebody_forgets_meanwhile_the_store_is_asked(house: House, monkeypatch) -> None:
    await store(house, "User's cat is called Miso", "User plays tennis with Ugo")

    class Gone:
        def search(self, search: Search) -> None:
            return None

    async def gone(scope: Scope) -> Gone:
        return Gone()

    monkeypatch.setattr(house.stores.memories, "snapshot", gone)
    found = await shown(house, "My cat is now called Momo. I play tennis with Vera these days.")
    assert set(found) == {"User's cat is called Miso", "User plays tennis with Ugo"}
