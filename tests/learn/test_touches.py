"""Accesses are counted together, and none is counted twice or lost while the store is away."""

from collections import Counter

import pytest

from proxy.domain.core import Scope
from proxy.domain.errors import StoreUnavailable
from proxy.learn.recorder import MOST_SCOPES, AccessCounts

ANNA, BEN = Scope("t", "anna"), Scope("t", "ben")
NOW = 1_000.0


class Memories:
    """Keeps what it is told; away as often as it is set to be."""

    def __init__(self) -> None:
        self.told: list[tuple[Scope, list[str], float]] = []
        self.away = 0
        self.meanwhile = lambda: None

    async def touch(self, scope: Scope, ids: list[str], at: float) -> None:
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away")
        self.meanwhile()
        self.told.append((scope, sorted(ids), at))


@pytest.fixture
def memories() -> Memories:
    return Memories()


@pytest.fixture
def touches(memories: Memories) -> AccessCounts:
    return AccessCounts(memories, lambda: NOW)  # type: ignore[arg-type]


async def test_accesses_of_a_user_are_one_write_and_each_is_counted(touches, memories):
    touches.note(ANNA, ("a", "b"))
    touches.note(BEN, ("c",))
    touches.note(ANNA, ("a",))
    await touches.write()
    assert sorted(memories.told, key=str) == [(ANNA, ["a", "a", "b"], NOW), (BEN, ["c"], NOW)]
    await touches.write()
    assert len(memories.told) == 2


async def test_what_could_not_be_written_is_written_later(touches, memories):
    touches.note(ANNA, ("a",))
    touches.note(BEN, ("c",))
    memories.away = 1
    with pytest.raises(StoreUnavailable):
        await touches.write()
    for scope in (ANNA, BEN):
        touches.note(scope, ("b",))
    await touches.write()
    counted = Counter((scope, id_) for scope, ids, _ in memories.told for id_ in ids)
    assert counted == Counter([(ANNA, "a"), (ANNA, "b"), (BEN, "b"), (BEN, "c")])


async def test_what_comes_during_a_write_is_not_lost(touches, memories):
    touches.note(ANNA, ("a",))

    def once() -> None:
        memories.meanwhile = lambda: None
        touches.note(ANNA, ("a", "b"))

    memories.meanwhile = once
    await touches.write()
    assert memories.told == [(ANNA, ["a"], NOW), (ANNA, ["a", "b"], NOW)]


async def test_a_store_that_stays_away_does_not_fill_the_memory(touches, memories):
    for number in range(MOST_SCOPES + 5):
        touches.note(Scope("t", str(number)), ("a",))
    touches.note(Scope("t", "0"), ("b",))
    await touches.write()
    assert len(memories.told) == MOST_SCOPES
    assert (Scope("t", "0"), ["a", "b"], NOW) in memories.told
