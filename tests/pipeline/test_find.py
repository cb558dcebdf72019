"""Finding: parts of a question side by side, the gate by part, and a plan's words."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

from proxy.domain import Hit, Scope, Search
from proxy.pipeline.prepare import prepare
from proxy.pipeline.prepare import search as search_memories
from proxy.pipeline.recall import find
from tests.pipeline.conftest import Scripted, memory, turn

RENT = Hit(memory("rent", "User pays 900 for the flat."), 0.5, 0.0)
OTHERS = [
    Hit(memory(f"o{i}", f"User knows that Iain likes dish{i} of month{i}."), 0.45 - i / 100, 0.0)
    for i in range(12)
]


@dataclass
class Library:
    """Memories found by what the vector was made of: a phrase of the question, to hits."""

    shelves: dict[str, list[Hit]]
    asked: list[Search] = field(default_factory=list)

    async def snapshot(self, scope: Scope) -> None:
        return None

    async def search(self, scope: Scope, search: Search) -> Sequence[Hit]:
        self.asked.append(search)
        text = (search.vector or b"").decode()
        return [hit for phrase, hits in self.shelves.items() if phrase in text for hit in hits]


class Readable(Scripted):
    """An embedder whose vectors can be read."""

    async def embed_query(self, text):
        return (await self.embed([text]))[0]

    async def embed(self, texts):
        self.embedded += texts
        return [text.encode() for text in texts]


async def test_each_part_of_a_question_gets_its_best_in(tools):
    # To the whole question, a dozen memories of Iain are nearer than the rent.
    library = Library({"Iain": OTHERS, "flat": [RENT]})
    asked = replace(tools, memories=library, embedder=Readable())
    prepared = await prepare(turn("What does Iain like to eat, and what do we pay for the flat?"), asked)
    assert "rent" in prepared.memory_ids[:3]
    assert "o0" in prepared.memory_ids[:3]
    assert len(library.asked) == 3


async def test_one_question_is_one_search(tools):
    library = Library({"flat": [RENT]})
    await prepare(turn("What do we pay for the flat?"), replace(tools, memories=library, embedder=Readable()))
    assert len(library.asked) == 1


async def test_one_question_is_searched_in_the_task_that_asks(tools):
    searchers = []

    class Here(Library):
        async def search(self, scope: Scope, search: Search) -> Sequence[Hit]:
            searchers.append(asyncio.current_task())
            return await super().search(scope, search)

    asked = replace(tools, memories=Here({"flat": [RENT]}), embedder=Readable())
    await search_memories(turn("?").scope, "What do we pay for the flat?", asked, limit=3)
    assert searchers == [asyncio.current_task()]


async def test_the_rules_read_the_question_while_the_model_does(tools, monkeypatch):
    order = []

    class Slow(Readable):
        async def embed(self, texts):
            order.append("model")
            return await super().embed(texts)

    monkeypatch.setattr(find, "aims_of", lambda text: order.append("aims") or ())
    monkeypatch.setattr(find, "named_times", lambda text, now: order.append("times") or ())
    asked = replace(tools, memories=Library({"flat": [RENT]}), embedder=Slow())
    await search_memories(turn("?").scope, "What do we pay for the flat?", asked, limit=3)
    assert order[-1] == "model"
    assert {"aims", "times"} <= set(order)


async def test_the_memories_are_read_once_and_while_the_model_does(tools):
    order = []

    class Asked(Readable):
        def begin(self, text):
            order.append("model begins")

        async def embed(self, texts):
            order.append("vector")
            return await super().embed(texts)

    class Few(Library):
        async def snapshot(self, scope: Scope) -> SimpleNamespace:
            order.append("memories")
            return SimpleNamespace(search=lambda search: [RENT])

    library = Few({})
    for text, parts in (
        ("What do we pay for the flat?", 0),
        ("What does Iain eat, and what is the rent?", 2),
    ):
        order.clear()
        asked = replace(tools, memories=library, embedder=Asked())
        (rent,) = await search_memories(turn("?").scope, text, asked, limit=3)
        assert rent.memory.id == "rent"
        assert order == ["model begins", "memories", "vector", *["vector"] * parts]
    assert library.asked == []


async def test_a_part_whose_name_is_not_in_memory_closes_its_own_gate_alone(tools):
    library = Library({"Iain": OTHERS, "flat": [RENT]})
    asked = replace(tools, memories=library, embedder=Readable())
    prepared = await prepare(turn("What do we pay for the flat, and when is Iain's birthday?"), asked)
    assert prepared.memory_ids == ("rent",)


async def test_what_the_whole_found_may_be_of_the_part_that_memory_does_not_know(tools):
    library = Library({"Iain": OTHERS, "flat": [RENT]})
    asked = replace(tools, memories=library, embedder=Readable())
    long = "I am filling in the forms for the city and the insurance of the household again, and both ask: "
    prepared = await prepare(turn(f"{long}what do we pay for the flat, and when is Iain's birthday?"), asked)
    assert prepared.memory_ids == ("rent",)


async def test_a_whole_question_whose_name_is_not_in_memory_finds_nothing(tools):
    asked = replace(tools, memories=Library({"Iain": OTHERS}), embedder=Readable())
    prepared = await prepare(turn("When is Iain's birthday?"), asked)
    assert prepared.reason == "not_in_memory"


async def test_the_question_of_a_paste_is_what_is_searched(tools):
    library = Library({"flat": [RENT]})
    paste = "The clerk asked where my ledger was. Why was it green? " * 900
    for text in (f"What do we pay for the flat?\n\n{paste}", f"{paste}\n\nWhat do we pay for the flat?"):
        prepared = await prepare(turn(text), replace(tools, memories=library, embedder=Readable()))
        assert prepared.memory_ids == ("rent",)
    assert {search.vector for search in library.asked} == {b"What do we pay for the flat?"}
