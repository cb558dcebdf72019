"""The gate closes where what is near a question does not answer it, and only where that can be said."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from proxy.domain import Hit, MemoryOptions, Ranked
from proxy.pipeline.prepare import prepare, search, unshown
from proxy.pipeline.recall.answerable import NEAREST, answer_odds, told
from proxy.pipeline.recall.rewrite import Query
from proxy.ports import Told
from proxy.reasons import Reason
from tests.pipeline.conftest import SCOPE, Past, Scripted, Shelf, memory, turn

QUESTION = "When does Joan's flight to Leeds leave?"
FLIGHT = Hit(memory("flight", "User's wife Joan flies to Leeds on 3 May with Loganair."), 0.6, 3.0, b"flight")
DOG = Hit(memory("dog", "User's dog is called Bramble."), 0.2, 0.0, b"dog")


@dataclass
class Reader:
    """Says what the test wrote down of any memories, and keeps what it read."""

    odds: float
    read: list[tuple[str, bytes, Sequence[Told]]] = field(default_factory=list)
    glossed: list[bool] = field(default_factory=list)

    async def log_odds(
        self, question: str, vector: bytes, memories: Sequence[Told], *, glossed: bool
    ) -> float:
        self.read.append((question, vector, memories))
        self.glossed.append(glossed)
        return self.odds


class Polyglot(Scripted):
    def understands(self, text: str) -> bool:
        return True


@pytest.fixture
def doubtful(tools):
    """A read path whose reader finds no answer in anything."""
    return replace(tools, memories=Shelf([FLIGHT, DOG]), answerability=Reader(-0.1))


async def test_what_is_near_and_does_not_answer_is_not_shown(doubtful):
    prepared = await prepare(turn(QUESTION), doubtful)
    assert prepared.reason is Reason.UNANSWERED
    assert prepared.memory_ids == ()
    ((question, vector, memories),) = doubtful.answerability.read
    assert (question, vector) == (QUESTION, b"vector")
    assert [(each.content, each.vector) for each in memories] == [
        (hit.memory.content, hit.vector) for hit in (FLIGHT, DOG)
    ]


DINNER = "Dinner for six hungry blokes on Friday, no fuss"
GLUTEN = Hit(memory("gluten", "User feeds the shearers; one can't have gluten."), 0.2, 0.0, b"gluten")


@pytest.mark.parametrize(("odds", "shown"), [(1.6, True), (1.4, False), (-0.1, False)])
async def test_a_little_too_far_is_shown_where_it_surely_answers(tools, odds, shown):
    shelf = replace(tools, memories=Shelf([GLUTEN]), answerability=Reader(odds))
    prepared = await prepare(turn(DINNER), shelf)
    assert prepared.reason is (None if shown else Reason.BELOW_THRESHOLD)
    assert prepared.memory_ids == (("gluten",) if shown else ())


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("Write a haiku about fog on a lake.", GLUTEN),  # the form says that it is nobody's
        (DINNER, replace(GLUTEN, cosine=0.17)),  # much too far
        (DINNER, replace(GLUTEN, vector=None)),  # nothing is known of it
    ],
)
async def test_what_is_no_question_of_the_user_s_stays_without_memories(tools, text, hit):
    shelf = replace(tools, memories=Shelf([hit]), answerability=Reader(9.0))
    prepared = await prepare(turn(text), shelf)
    assert prepared.memory_ids == ()


async def test_a_threshold_of_the_request_s_own_is_taken_at_its_word(tools):
    shelf = replace(tools, memories=Shelf([GLUTEN]), answerability=Reader(9.0))
    options = MemoryOptions(read=True, write=True, types=None, limit=10, threshold=0.3)
    prepared = await prepare(turn(DINNER, options=options), shelf)
    assert prepared.reason is Reason.BELOW_THRESHOLD


async def test_where_something_seems_to_answer_all_that_is_near_is_shown(doubtful):
    prepared = await prepare(turn(QUESTION), replace(doubtful, answerability=Reader(0.1)))
    assert prepared.memory_ids == ("flight", "dog")


async def test_without_a_reader_the_gate_is_as_it_was_and_no_vectors_are_asked_for(doubtful):
    prepared = await prepare(turn(QUESTION), replace(doubtful, answerability=None))
    assert prepared.memory_ids == ("flight", "dog")
    assert [asked.vectors for asked in doubtful.memories.asked] == [0]


async def test_the_nearest_are_asked_for_with_their_vectors(doubtful):
    await prepare(turn(QUESTION), doubtful)
    assert [asked.vectors for asked in doubtful.memories.asked] == [NEAREST]


TALK = [
    Hit(memory("move", "Ingrid: I moved to the harbour, fourth floor."), 0.3, 0.0, b"move"),
    Hit(memory("bike", "Tomas: Ha. I sold my motorbike last Friday."), 0.6, 0.0, b"bike"),
    Hit(memory("exam", "Tomas: I failed the exam again."), 0.5, 0.0, b"exam"),
]


async def seems_unanswered(reader: Reader, hits: Sequence[Hit], limit: int, others: set[str]) -> bool:
    ranked = [Ranked(hit.memory, 0.5, "") for hit in sorted(hits, key=lambda hit: -(hit.cosine or 0.0))]
    query = Query("When did Ingrid sell it?", ("sell",))
    odds = await answer_odds(reader, b"vector", query, hits, ranked[:limit], others=others, glossed=False)
    return odds is not None and odds < 0


async def test_what_another_tells_of_himself_is_not_read():
    reader = Reader(0.1)
    assert not await seems_unanswered(reader, TALK, 3, {"bike", "exam"})
    ((_, _, memories),) = reader.read
    assert [each.content for each in memories] == [TALK[0].memory.content]


async def test_where_only_another_tells_of_it_nothing_answers():
    assert await seems_unanswered(Reader(0.1), TALK, 2, {"bike", "exam"})


async def test_of_those_with_a_vector_the_nearest_are_read():
    many = [Hit(memory(f"m{n}", f"User owns {n} kites."), 0.2 + n / 100, 0.0, b"v") for n in range(20)]
    reader = Reader(0.1)
    assert not await seems_unanswered(reader, many, 4, set())
    ((_, _, memories),) = reader.read
    assert [each.content for each in memories] == [f"User owns {n} kites." for n in range(19, 7, -1)]


async def test_a_threshold_of_the_requests_own_is_taken_at_its_word(doubtful):
    options = MemoryOptions(read=True, write=True, types=None, limit=10, threshold=0.1)
    prepared = await prepare(turn(QUESTION, options=options), doubtful)
    assert prepared.memory_ids == ("flight", "dog")
    assert doubtful.answerability.read == []


async def test_a_search_lists_what_is_near_and_says_what_a_chat_would_not_be_shown(doubtful):
    assert {each.memory.id for each in await search(SCOPE, QUESTION, doubtful, limit=5)} == {"flight", "dog"}
    assert await unshown(SCOPE, QUESTION, doubtful, limit=5) is Reason.UNANSWERED


@pytest.mark.parametrize(
    ("texts", "changes", "read"),
    [
        (("Which airline?",), {}, True),
        (("Joan flies to Leeds.", "How nice!", "Which airline takes her?"), {}, False),
        (("Which airline takes her?",), {"continues": "resp_1"}, False),
        (
            ("Joan flies to Leeds.", "How nice!", "On what day in May does Joan fly over to Leeds?"),
            {},
            True,
        ),
    ],
)
async def test_a_short_question_in_the_middle_of_a_conversation_may_lean_on_it(
    doubtful, texts, changes, read
):
    prepared = await prepare(turn(*texts, **changes), doubtful)
    assert bool(doubtful.answerability.read) is read
    assert (prepared.reason is Reason.UNANSWERED) is read


@pytest.mark.parametrize(("past", "read"), [(Past(), True), (Past(["Joan flies to Leeds."]), False)])
async def test_so_may_one_of_a_session_that_the_store_remembers(doubtful, past, read):
    asked = turn("Which airline takes Joan?", standalone=True)
    await prepare(asked, replace(doubtful, sessions=past))
    assert bool(doubtful.answerability.read) is read


async def test_several_questions_in_one_message_are_not_read_as_one(doubtful):
    both = "What is my dog called, and when does Joan's flight to Leeds leave?"
    assert (await prepare(turn(both), doubtful)).memory_ids
    assert doubtful.answerability.read == []


@pytest.mark.parametrize(
    "unread",
    [
        Hit(memory("fresh", "Joan's flight to Leeds will leave at 7:10."), None, 9.0),  # no vector yet
        Hit(memory("fresh", "Joan's flight to Leeds will leave at 7:10."), 0.65, 9.0),  # not of the nearest
    ],
)
async def test_what_is_found_by_its_words_and_cannot_be_read_speaks_for_itself(doubtful, unread):
    prepared = await prepare(turn(QUESTION), replace(doubtful, memories=Shelf([unread, FLIGHT])))
    assert "fresh" in prepared.memory_ids
    assert doubtful.answerability.read == []


async def test_what_a_link_leads_to_answers_only_with_what_it_leads_from(doubtful):
    hits = [
        Hit(memory("sister", "User's sister is called Marta."), 0.4, 1.0, b"sister"),
        Hit(memory("lands", "Marta lands at Gatwick at 18:40."), 0.3, 1.0, b"lands"),
    ]
    prepared = await prepare(
        turn("When does my sister's flight land?"), replace(doubtful, memories=Shelf(hits))
    )
    assert set(prepared.memory_ids) == {"sister", "lands"}


@pytest.mark.parametrize(
    ("question", "content", "glossed"),
    [
        ("When does Joan's flight to Leeds leave?", "User's wife Joan flies to Leeds on 3 May.", False),
        ("¿Cuándo sale el vuelo de Joan a Leeds?", "User's wife Joan flies to Leeds on 3 May.", True),
        (
            "When does Joan's flight to Leeds leave?",
            "La mujer del usuario, Joan, vuela a Leeds en mayo.",
            True,
        ),
    ],
)
async def test_either_side_in_another_language_is_read_word_by_word(doubtful, question, content, glossed):
    reader, hit = Reader(-0.1), Hit(memory("flight", content), 0.6, 3.0, b"flight")
    asked = replace(doubtful, answerability=reader, memories=Shelf([hit]), embedder=Polyglot())
    await prepare(turn(question), asked)
    assert reader.glossed == [glossed]


def test_what_memories_hold_of_the_words_counts_rare_ones_more():
    contents = ["Joan lives in Leeds.", "Joan flies to Leeds.", "Joan has a boat in Leeds.", "Nothing."]
    leeds, flies, boat, nothing = told(("joan", "flies", "leeds"), [b""] * 4, contents)
    assert (leeds.terms, boat.terms, nothing.terms, nothing.weight) == (2 / 3, 2 / 3, 0, 0)
    assert flies.terms == pytest.approx(1)
    assert leeds.weight < 0.5 < flies.weight


async def test_nothing_near_at_all_says_so(tools):
    prepared = await prepare(turn(QUESTION), replace(tools, answerability=Reader(-1)))
    assert prepared.reason is Reason.NO_MEMORIES


async def test_what_would_be_shown_first_is_read_first(doubtful):
    near = Hit(memory("near", "User's wife Joan likes Leeds."), 0.65, 0.0, b"near")
    found = await prepare(turn(QUESTION), replace(doubtful, memories=Shelf([DOG, near, FLIGHT])))
    assert found.reason is Reason.UNANSWERED
    ((_, _, memories),) = doubtful.answerability.read
    assert [each.vector for each in memories] == [b"flight", b"near", b"dog"]
