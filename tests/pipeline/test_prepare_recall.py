"""What the settings of retrieval, and the second half of the gate, do to a turn."""

from dataclasses import replace

from proxy.domain import Hit, MemoryOptions, Status
from proxy.pipeline.prepare import prepare
from proxy.pipeline.recall.rank import Ranking
from tests.pipeline.conftest import Shelf, memory, turn

IAIN = Hit(memory("iain", "User's partner Iain cannot eat garlic."), 0.45, 2.0)
BORN = Hit(memory("born", "Iain was born on 4 May 1990."), 0.3, 1.0)


async def test_a_thing_with_one_name_that_no_memory_names_closes_the_gate(tools):
    prepared = await prepare(turn("When is Iain's birthday?"), replace(tools, memories=Shelf([IAIN])))
    assert (prepared.status, prepared.reason) == (Status.NONE, "not_in_memory")


async def test_a_memory_that_names_it_opens_the_gate(tools):
    shelf = replace(tools, memories=Shelf([IAIN, BORN]))
    prepared = await prepare(turn("When is Iain's birthday?"), shelf)
    assert "born" in prepared.memory_ids


async def test_a_threshold_of_the_requests_own_is_taken_at_its_word(tools):
    asked = MemoryOptions(read=True, write=False, types=None, limit=10, threshold=0.4)
    shelf = replace(tools, memories=Shelf([IAIN]))
    prepared = await prepare(turn("When is Iain's birthday?", options=asked), shelf)
    assert prepared.memory_ids == ("iain",)


async def test_each_list_can_be_switched_off(tools):
    shelf = Shelf([IAIN])
    await prepare(turn("What can't Iain eat?"), replace(tools, memories=shelf, ranking=Ranking(dense=False)))
    await prepare(
        turn("What can't Iain eat?"), replace(tools, memories=shelf, ranking=Ranking(lexical=False))
    )
    words_alone, vector_alone = shelf.asked
    assert words_alone.vector is None
    assert words_alone.terms
    assert vector_alone.vector is not None
    assert vector_alone.terms == ()
