"""One block for one tool loop, until the user speaks again or forgets."""

from dataclasses import dataclass, replace

import pytest

from proxy.domain.core import Message, Prepared, Stamp, Status
from proxy.domain.errors import StoreUnavailable
from proxy.http.intercept import ToolLoops
from tests.recall.conftest import turn

ASKED = replace(turn("When does it leave?"), may_loop=True)
STEP = (Message("assistant", ""), Message("tool", "7:30"))


@dataclass
class Memories:
    """Only stamps, and the clock."""

    generation: int = 0
    away: bool = False
    asked: int = 0
    now: float = 0.0

    async def stamp(self, scope):
        self.asked += 1
        if self.away:
            raise StoreUnavailable
        return Stamp(self.generation, self.asked)


class Made:
    """Prepares another block each time."""

    count = 0

    async def __call__(self):
        self.count += 1
        return Prepared(status=Status.INJECTED, block=f"block {self.count}")


def step(of, number=1):
    return replace(of, messages=of.messages + STEP * number)


@pytest.fixture
def memories():
    return Memories()


@pytest.fixture
def loops(memories):
    return ToolLoops(memories, lambda: memories.now)


async def test_a_forget_deletes_all_blocks_of_the_user(loops, memories):
    made = Made()
    other = replace(turn("Where is it?"), may_loop=True)
    await loops.prepared(ASKED, made)
    await loops.prepared(other, made)
    memories.generation = 1
    assert (await loops.prepared(step(ASKED), made)).block == "block 3"
    memories.generation = 0  # even if the stamp were the old one again
    assert (await loops.prepared(step(other), made)).block == "block 4"


async def test_a_forget_while_a_block_is_made_discards_it(loops, memories):
    async def forgotten_then():
        memories.generation = 1
        await loops.prepared(step(replace(ASKED, session_id="other")), Made())
        return Prepared(status=Status.INJECTED, block="old")

    await loops.prepared(ASKED, forgotten_then)
    assert (await loops.prepared(step(ASKED), Made())).block == "block 1"


async def test_users_sessions_and_options_share_no_block(loops):
    await loops.prepared(ASKED, Made())
    for other in (
        replace(ASKED, scope=replace(ASKED.scope, user="bob")),
        replace(ASKED, scope=replace(ASKED.scope, project="apollo")),
        replace(ASKED, session_id="other"),
        replace(ASKED, options=replace(ASKED.options, types=("semantic",))),
    ):
        made = Made()
        await loops.prepared(step(other), made)
        assert made.count == 1


async def test_without_tools_or_store_no_block_is_cached(loops, memories):
    made = Made()
    plain = replace(ASKED, may_loop=False)
    await loops.prepared(plain, made)
    await loops.prepared(step(plain), made)
    assert (made.count, memories.asked) == (2, 0)
    memories.away = True
    await loops.prepared(ASKED, made)
    await loops.prepared(step(ASKED), made)
    assert made.count == 4
