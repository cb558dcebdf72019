"""Memories told of people by their names: the name that all of them bear must not drown what is asked."""

import numpy as np
import pytest

from proxy.domain import Hit
from proxy.errors import EmbeddingFailed
from proxy.pipeline.decision.expect import Expectation
from proxy.pipeline.recall.answerable import NEAREST
from proxy.pipeline.recall.byname import as_asked_by, beginning, leaning, told_of, told_of_others
from proxy.pipeline.recall.find import Finder, Wanted
from proxy.pipeline.recall.rank import Asked, Ranking, rank
from proxy.pipeline.recall.retrieve import retrieve
from proxy.pipeline.recall.rewrite import Query
from tests.pipeline.conftest import NOW, SCOPE, Shelf, memory
from tests.pipeline.test_rank import OPEN
from tests.pipeline.test_retrieve import Axes, unit

TALK = [
    "Ingrid: Hey Tomas! I finally moved to the harbour, fourth floor.",
    "Tomas: Wow, Ingrid! Does the lift work?",
    "Ingrid: It does. My parrot hated the van.",
    "Tomas: Ha. I sold my motorbike last Friday.",
]
FACTS = ["Ingrid moved to the harbour.", "Ingrid's parrot hates vans.", "Tomas sold his motorbike."]
AS_A_USER = ["My sister Ingrid moved to the harbour.", "I sold a motorbike.", "Ingrid keeps a parrot."]
OF_A_USER = ["User's sister Ingrid moved to the harbour.", "User sold a motorbike.", "Ingrid keeps a parrot."]


@pytest.mark.parametrize("contents", [TALK, FACTS])
def test_a_name_that_many_memories_begin_with_is_whom_they_are_told_of(contents):
    assert told_of("What animal does Ingrid keep?", contents) == ("Ingrid",)
    assert told_of("Ingrid's new flat?", contents) == ("Ingrid",)
    assert told_of("Have Ingrid and Tomas met?", contents) == ("Ingrid", "Tomas")


@pytest.mark.parametrize(
    ("question", "contents"),
    [
        ("What animal does Ingrid keep?", OF_A_USER),  # somebody of a user's world
        ("What animal does Ingrid keep?", AS_A_USER),
        ("What animal does Ingrid keep?", [*FACTS[:1], *(f"Bruno ate {n} figs." for n in range(9))]),
        ("What animal do I keep?", TALK),
        ("What does Tom ride?", TALK),  # not Tomas
        ("¿Qué animal tiene Ingrid en su casa?", TALK),
        ("The rent?", ["The rent is 900.", "The cat is grey."]),
        ("What animal does Ingrid keep?", []),
    ],
)
def test_other_questions_are_searched_as_they_are(question, contents):
    assert told_of(question, contents) == ()


def test_the_question_is_put_as_by_the_one_it_names():
    assert as_asked_by(("Ingrid",), "What did Ingrid's parrot do?") == "What did my parrot do?"
    assert as_asked_by(("Tomas",), "Does Tomas’ boss know Tomasina?") == "Does my boss know Tomasina?"
    assert as_asked_by(("Ingrid",), "When did Ingrid move?") == "When did I move?"


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (TALK[0], "Ingrid"),
        ("- Jean-Luc likes figs", "Jean-Luc"),
        ("Ingridsen ran", "Ingridsen"),
        ("12 figs", ""),
    ],
)
def test_what_a_memory_begins_with(content, name):
    assert beginning(content) == name


@pytest.mark.parametrize(
    ("names", "contents", "apart"),
    [
        (("Ingrid",), TALK, [0, 0, 0, 1]),  # "Wow, Ingrid!" may tell of her, "I sold my motorbike" does not
        (("Tomas",), TALK, [0, 0, 1, 0]),
        (("Ingrid", "Tomas"), TALK, [0, 0, 0, 0]),
        (("Ingrid",), [*FACTS, "Tomas plays the harp."], [0, 0, 1, 1]),
        (("Ingrid",), [*FACTS, "Tomas drives Ingrid to work."], [0, 0, 1, 0]),
        (("Ingrid",), [*TALK, "Tomas: How is your parrot?"], [0, 0, 0, 1, 0]),
        (("Ingrid",), FACTS, [0, 0, 0]),  # what begins once may be any word
        (("Ingrid",), [*FACTS, "The flat is cold.", "The lift is not."], [0, 0, 0, 0, 0]),
        (("Ana",), ["Ana swims.", "Anabel runs.", "Anabel reads."], [0, 1, 1]),
    ],
)
def test_what_is_told_of_another_and_says_nothing_of_those_named(names, contents, apart):
    assert told_of_others(names, contents) == [bool(each) for each in apart]


def hits() -> list[Hit]:
    return [Hit(memory(f"m{n}", content), 0.4, 0.0) for n, content in enumerate(TALK)]


async def asked_with(embedder: Axes, found: list[Hit]) -> tuple[list[bytes], tuple[str, ...]]:
    shelf = Shelf(found)
    told = await retrieve(
        Query("Where did Ingrid move?", ()), SCOPE, None, now=NOW, memories=shelf, embedder=embedder
    )
    return [one.vector for one in shelf.asked], told.subjects


async def test_such_a_question_is_searched_again_nearer_to_its_form_in_the_first_person():
    embedder = Axes("Where did Ingrid move?")
    embedder.known["Where did I move?"] = unit(0, 1, 0)
    (first, second), subjects = await asked_with(embedder, hits())
    assert first == unit(1, 0, 0)
    named, own, _ = np.frombuffer(second, np.float32)
    assert own > named > 0
    assert subjects == ("Ingrid",)


async def test_memories_of_a_user_are_searched_once():
    of_user = [Hit(memory(f"u{n}", content), 0.4, 0.0) for n, content in enumerate(OF_A_USER)]
    vectors, subjects = await asked_with(Axes("Where did Ingrid move?"), of_user)
    assert (vectors, subjects) == ([unit(1, 0, 0)], ())


async def test_a_second_vector_that_fails_leaves_the_first():
    class Tired(Axes):
        async def embed_query(self, text: str) -> bytes:
            if text not in self.known:
                raise EmbeddingFailed("tired")
            return self.known[text]

    vectors, _ = await asked_with(Tired("Where did Ingrid move?"), hits())
    assert set(vectors) == {unit(1, 0, 0)}


def test_the_vector_between_is_a_unit_vector():
    mixed = np.frombuffer(leaning(unit(1, 0), unit(0, 1)), np.float32)
    assert np.linalg.norm(mixed) == pytest.approx(1.0)


def test_of_near_equals_the_one_told_of_whom_the_question_names_comes_first():
    found = [Hit(memory("said_to", TALK[1]), 0.42, 0.0), Hit(memory("said_by", TALK[0]), 0.41, 0.0)]
    found += [Hit(memory("far", "Tomas: Bye."), 0.1, 0.0)]

    def first(*named: str) -> str:
        return rank(found, Asked(subjects=named), OPEN, limit=3, now=NOW)[0].memory.id

    assert first() == "said_to"
    assert first("Ingrid") == "said_by"
    assert first("Tomas") == "said_to"
    assert first("Ingrid", "Tomas") == "said_to"  # both are meant


@pytest.mark.parametrize(("told", "shown"), [(TALK, 4), (OF_A_USER, 0)])
async def test_the_name_of_one_of_whom_memory_is_told_opens_the_gate(told, shown):
    question = "How tall is the tower that Ingrid climbed?"
    embedder = Axes(question)
    embedder.known["How tall is the tower that I climbed?"] = unit(0, 1, 0)
    shelf = Shelf([Hit(memory(f"m{n}", content), 0.2, 0.0) for n, content in enumerate(told)])
    finder = Finder(shelf, embedder, Ranking(), lambda: NOW)
    wanted = Wanted(SCOPE, None, 10, None, expected=Expectation.NONE)
    found = await finder.find(Query(question, ()), wanted, began=NOW)
    assert len(found.ranked) == shown


async def test_what_another_tells_of_himself_is_found_and_not_taken_for_an_answer():
    question = "When did Ingrid sell the motorbike?"
    embedder = Axes(question)
    embedder.known["When did I sell the motorbike?"] = unit(0, 1, 0)
    told = [*TALK, "Tomas: My sister bought it."]
    found = [
        Hit(memory(f"m{n}", content), 0.2 + n / 10, 0.0, unit(0, 0, 1)) for n, content in enumerate(told)
    ]

    class Reader:
        async def log_odds(self, question, vector, memories, *, glossed):
            self.read = [each.content for each in memories]
            return 1.0

    shelf, reader = Shelf(found), Reader()
    finder = Finder(shelf, embedder, Ranking(), lambda: NOW, answerability=reader)
    finding = await finder.find(Query(question, ()), Wanted(SCOPE, None, 10, None, typed=question), began=NOW)
    assert len(finding.ranked) == len(told)
    assert sorted(reader.read) == sorted(TALK[:3])
    assert [asked.vectors for asked in shelf.asked] == [NEAREST, 2 * NEAREST]
