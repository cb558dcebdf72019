"""The network that says from vectors whether a memory answers a question."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from proxy.embedtext import embed_text
from proxy.pipeline.recall.answerable import told
from proxy.pipeline.recall.rewrite import as_it_is
from proxy.stores.models.catalog import MINILM
from proxy.stores.models.embedder import OnnxEmbedder
from proxy.stores.models.head import AnswerabilityHead, head_of
from proxy.stores.models.load import load_embedder

# The trip of somebody whom no training data knows; other questions ask for what nobody said.
FACTS = (
    "User's mother-in-law Hedda is coming by night train from Vienna on 6 November 2026, arriving at 8:52.",
    "User's car, a grey Dacia, failed its inspection on 2026-10-02 because of the rear brakes.",
    "User pays the childminder Rosie 640 euros a month for three afternoons.",
    "User has a peanut allergy and carries an adrenaline pen.",
    "User's landlord, Mr. Okafor, wants the balcony repainted before Easter.",
)
ANSWERED = (
    "What time does Hedda arrive?",
    "Why did the Dacia fail its inspection?",
    "How much do we pay Rosie a month?",
    "Is there anything I must not eat?",
    "What does the landlord want done by Easter?",
)
UNANSWERED = (
    "What is Hedda's phone number?",
    "How many kilometres has the Dacia done?",
    "What is Rosie's surname?",
    "What is the name of my allergist?",
    "How much is our rent?",
)


@pytest.fixture(scope="module")
def embedder(models_dir: Path) -> OnnxEmbedder:
    loaded = load_embedder(models_dir)
    assert loaded.embedder is not None
    return loaded.embedder


@pytest.fixture(scope="module")
def head() -> AnswerabilityHead:
    found = head_of(MINILM)
    assert found is not None
    return found


def odds(head: AnswerabilityHead, embedder: OnnxEmbedder, question: str, facts: Sequence[str]) -> float:
    async def vectors() -> tuple[bytes, list[bytes]]:
        return await embedder.embed_query(question), await embedder.embed([embed_text(f) for f in facts])

    asked, made = asyncio.run(vectors())
    return head.see(asked, told(as_it_is(question).terms, made, facts)).total - head.bar("english")


@pytest.mark.parametrize("around", ["{}", "{} Keep it under 123 characters.", "Good evening! {}"])
@pytest.mark.parametrize("question", ANSWERED)
def test_a_question_that_a_memory_answers_passes(head, embedder, question: str, around: str) -> None:
    assert odds(head, embedder, around.format(question), FACTS) > 0


def test_questions_about_what_memory_knows_little_of_stand_below_those_it_answers(head, embedder) -> None:
    answered = [odds(head, embedder, question, FACTS) for question in ANSWERED]
    unanswered = [odds(head, embedder, question, FACTS) for question in UNANSWERED]
    assert np.mean(answered) > np.mean(unanswered) + 2
    assert sum(each < 0 for each in unanswered) >= 3


def test_without_its_answer_a_question_stands_lower(head, embedder) -> None:
    for question, fact in zip(ANSWERED, FACTS, strict=True):
        rest = [other for other in FACTS if other != fact]
        assert odds(head, embedder, question, rest) < odds(head, embedder, question, FACTS)


def test_the_order_of_the_memories_does_not_matter(head, embedder) -> None:
    forwards, backwards = (odds(head, embedder, ANSWERED[0], facts) for facts in (FACTS, FACTS[::-1]))
    assert forwards == pytest.approx(backwards, abs=1e-4)


def test_nothing_answers_where_there_is_nothing(head) -> None:
    assert head.see(np.ones(384, np.float32).tobytes(), []).total == float("-inf")


def test_what_speaks_for_each_memory_is_in_their_order(head, embedder) -> None:
    asked = asyncio.run(embedder.embed_query(ANSWERED[1]))
    made = asyncio.run(embedder.embed([embed_text(fact) for fact in FACTS]))
    seen = head.see(asked, told(as_it_is(ANSWERED[1]).terms, made, FACTS))
    assert np.argmax(seen.scores) == np.argmax(seen.cosines) == 1
    assert seen.cosines[1] == pytest.approx(
        np.frombuffer(made[1], np.float32) @ np.frombuffer(asked, np.float32)
    )


def test_a_model_whose_vectors_it_was_not_trained_on_has_none() -> None:
    assert head_of("multilingual-e5-small") is None
