"""From a query to its vector: an imagined answer may lead, and must not lead astray."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from proxy.domain import Hit, Search
from proxy.pipeline.recall.retrieve import LINK_LENGTH, LIST_LENGTH, pooled, retrieve
from proxy.pipeline.recall.rewrite import Query
from tests.pipeline.conftest import MODEL, NOW, SCOPE, Shelf, memory


def unit(*components: float) -> bytes:
    values = np.array(components, np.float32)
    return (values / np.linalg.norm(values)).astype(np.float32).tobytes()


class Axes:
    """An embedder of three words."""

    def __init__(self, question: str = "question") -> None:
        self.model = MODEL
        self.known = {question: unit(1, 0, 0), "near": unit(1, 1, 0), "far": unit(0, 0, 1)}

    async def embed_query(self, text: str) -> bytes:
        return (await self.embed([text]))[0]

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        return [self.known[text] for text in texts]

    def begin(self, text: str) -> None: ...

    def understands(self, text: str) -> bool:
        return text in self.known


async def searched(query: Query) -> list[float]:
    shelf = Shelf()
    await retrieve(query, SCOPE, None, now=NOW, memories=shelf, embedder=Axes())
    return np.frombuffer(shelf.asked[0].vector, np.float32).tolist()


async def test_an_imagined_answer_moves_the_search_towards_itself():
    alone, led = await searched(Query("question", ())), await searched(Query("question", (), "near"))
    assert alone == [1, 0, 0]
    assert led[1] > 0
    assert np.linalg.norm(led) == pytest.approx(1.0)


@pytest.mark.parametrize("imagined", ["far", "not understood", ""])
async def test_an_imagined_answer_to_something_else_is_left_out(imagined):
    assert await searched(Query("question", (), imagined)) == [1, 0, 0]


def test_opposite_vectors_have_no_mean_and_leave_the_first():
    assert pooled(unit(1, 0), unit(-1, 0), least=0.2) == unit(1, 0)


ABOUT_HER = Query("When does my sister land?", ("sister", "land"))
SISTER = Hit(memory("sister", "User's sister is called Marta."), 0.4, 2.0)
OTHERS = [Hit(memory(f"m{n}", f"Fact {n}."), 0.1, 0.5) for n in range(LIST_LENGTH)]


async def looked_for(query: Query, hits: list[Hit], types: tuple[str, ...] | None = None):
    shelf = Shelf(hits)
    found = await retrieve(query, SCOPE, types, now=NOW, memories=shelf, embedder=Axes())
    return found, shelf.asked


async def test_where_the_hits_are_all_that_there_is_nothing_is_looked_up():
    embedder = Axes()
    embedder.known[ABOUT_HER.text] = unit(1, 0, 0)
    lands = Hit(memory("lands", "Marta is there at 18:40."), 0.2, 0.0)
    shelf = Shelf([SISTER, lands])
    found = await retrieve(ABOUT_HER, SCOPE, None, now=NOW, memories=shelf, embedder=embedder)
    assert set(found.links) == {"sister", "lands"}
    assert len(shelf.asked) == 1


async def test_a_name_is_looked_up_among_the_same_memories_that_the_question_may_see():
    _, (first, second) = await looked_for(ABOUT_HER, [SISTER, *OTHERS], ("semantic",))
    assert (second.terms, second.types, second.now) == (("marta",), first.types, NOW)
    assert second.limit < first.limit


async def test_a_question_without_a_role_is_one_search():
    _, asked = await looked_for(Query("When do we land?", ("land",)), [SISTER, *OTHERS])
    assert len(asked) == 1


@dataclass
class Few(Shelf):
    """A user's few memories, as ports.Snapshot: None once somebody forgot something."""

    forgot: bool = False

    def search(self, search: Search) -> list[Hit] | None:
        self.asked.append(search)
        return None if self.forgot else self.hits


FLIGHT = Hit(memory("flight", "Her plane lands at 18:40."), 0.5, 0.0)


async def test_few_memories_are_searched_at_once_and_so_is_what_they_lead_to():
    shelf, few = Shelf(), Few([FLIGHT] * LIST_LENGTH)
    found = await retrieve(
        ABOUT_HER, SCOPE, None, now=NOW, memories=shelf, embedder=Axes(ABOUT_HER.text), few=few
    )
    assert found.hits[0] == FLIGHT
    assert [search.limit for search in few.asked] == [LIST_LENGTH, LINK_LENGTH]
    assert shelf.asked == []


async def test_what_was_forgotten_while_the_model_read_is_not_found():
    few, left = Few([FLIGHT], forgot=True), Hit(memory("left", "Her sister has a dog."), 0.3, 0.0)
    axes = Axes(ABOUT_HER.text)
    found = await retrieve(ABOUT_HER, SCOPE, None, now=NOW, memories=Shelf([left]), embedder=axes, few=few)
    assert found.hits == (left,)
