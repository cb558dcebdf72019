"""More questions at once than one machine can search for in time."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from proxy.domain import Hit, Status
from proxy.errors import StoreUnavailable
from proxy.pipeline.places import Places
from proxy.pipeline.prepare import TURNS_AT_ONCE, prepare
from tests.pipeline.conftest import Shelf, memory, turn

BUDGET = Hit(memory("budget", "User's budget for the Hawaii trip is $7,500."), 0.6, 2.0)


@dataclass
class Slow(Shelf):
    """A shelf whose searches end when the test lets them."""

    under_way: list[str] = field(default_factory=list)
    may_end: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def search(self, scope, search):
        self.under_way.append(scope.user)
        await self.may_end.acquire()
        return await super().search(scope, search)


class Broken(Shelf):
    """A shelf that cannot be read."""

    async def search(self, scope, search):
        raise StoreUnavailable


class Untouched:
    """A wording that leaves the query as it is."""

    async def improve(self, turn, query, history, *, spent_s):
        return query


def asking(tools, user):
    asked = turn("What is my budget for the trip?")
    return asyncio.create_task(prepare(replace(asked, scope=replace(asked.scope, user=user)), tools))


async def settled():
    """Let every task run until it waits."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_of_a_burst_the_latest_is_next(tools):
    """It has the most time left: those that have waited longest would miss their deadline half done."""
    shelf = Slow([BUDGET])
    users = [f"u{i}" for i in range(3 * TURNS_AT_ONCE)]
    tasks = [asking(replace(tools, memories=shelf), user) for user in users]
    await settled()
    assert shelf.under_way == users[:TURNS_AT_ONCE]
    for _ in users:
        shelf.may_end.release()
        await settled()
    prepared = await asyncio.gather(*tasks)
    assert shelf.under_way[TURNS_AT_ONCE:] == users[TURNS_AT_ONCE:][::-1]
    assert {p.status for p in prepared} == {Status.INJECTED}


async def test_a_place_given_to_who_gives_up_at_that_moment_is_passed_on():
    places = Places(1)
    await places.__aenter__()
    stays, gives_up = (asyncio.create_task(places.__aenter__()) for _ in range(2))
    await settled()
    await places.__aexit__()  # the latest has it now, and has not run since
    gives_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gives_up
    await asyncio.wait_for(stays, 5)
    await places.__aexit__()
    await asyncio.wait_for(places.__aenter__(), 5)


async def test_who_gives_up_is_given_no_place():
    places = Places(1)
    await places.__aenter__()
    stays, gives_up = (asyncio.create_task(places.__aenter__()) for _ in range(2))
    await settled()
    gives_up.cancel()
    await places.__aexit__()  # before the latest knows that it is cancelled
    await asyncio.wait_for(stays, 5)
    with pytest.raises(asyncio.CancelledError):
        await gives_up


async def test_who_gave_up_waiting_is_not_searched_for(tools):
    shelf = Slow([BUDGET])
    tools = replace(tools, memories=shelf)
    first = [asking(tools, f"u{i}") for i in range(TURNS_AT_ONCE)]
    gives_up, stays = asking(tools, "late"), asking(tools, "later")
    await settled()
    gives_up.cancel()
    for _ in range(TURNS_AT_ONCE + 1):
        shelf.may_end.release()
    await asyncio.gather(*first, stays)
    with pytest.raises(asyncio.CancelledError):
        await gives_up
    assert "later" in shelf.under_way
    assert "late" not in shelf.under_way


async def test_a_search_that_fails_gives_its_turn_back(tools):
    tools = replace(tools, memories=Broken([BUDGET]))
    for _ in range(TURNS_AT_ONCE + 1):
        with pytest.raises(StoreUnavailable):
            await asking(tools, "u")


async def test_where_a_model_may_be_asked_nobody_waits_for_another_turns_model(tools):
    shelf = Slow([BUDGET])
    users = [f"u{i}" for i in range(2 * TURNS_AT_ONCE)]
    tasks = [asking(replace(tools, memories=shelf, wording=Untouched()), user) for user in users]
    await settled()
    assert shelf.under_way == users
    for _ in users:
        shelf.may_end.release()
    await asyncio.gather(*tasks)
