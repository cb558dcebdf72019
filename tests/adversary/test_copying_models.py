"""A model that copies what was said, dresses it up or invents stores no more than the user's own facts."""

import pytest

from proxy.background.extraction import extract
from proxy.background.extraction.doubt import judge_of
from proxy.background.safety.policy import DEFAULT
from proxy.domain import Candidate, Exchange
from tests.background.support import batch, exchange, facts

EX = exchange(
    "I'm typing this on the tram with one thumb. My sister Delyth drives the bus of our band. "
    "Imagine I lived in Monaco with nine butlers.\n\nCould you find me a recipe for leek soup?",
    "Leeks are rich in vitamin K. Noted!",
)


def read(texts: list[str], *exchanges: Exchange) -> list[Candidate]:
    """What is kept of an answer with these facts, which quotes nothing."""
    return list(extract.facts(facts(*texts), batch(*exchanges), []).candidates)


def kept_of(texts: list[str]) -> list[str]:
    judge = judge_of(DEFAULT, [EX])
    return [c.content for c in read(texts, EX) if c.confidence >= 0.6 and judge(c) is None]


FRONTS = ("User ", "The user said ", "User's note: ", "User mentioned that ", "User: ")


@pytest.mark.parametrize("front", FRONTS)
def test_a_subject_put_before_a_sentence_makes_no_fact_of_it(front: str) -> None:
    copied = [
        "I'm typing this on the tram with one thumb.",
        "Imagine I lived in Monaco with nine butlers.",
        "could you find me a recipe for leek soup?",
    ]
    assert kept_of([front + text for text in copied]) == []


@pytest.mark.parametrize("front", FRONTS)
def test_a_copied_fact_is_kept_in_the_users_own_words(front: str) -> None:
    kept = kept_of([front + "my sister Delyth drives the bus of our band."])
    assert kept == ["My sister Delyth drives the bus of our band."]


def test_a_first_person_sentence_that_nobody_said_is_no_fact() -> None:
    invented = ["I live alone on the mudflat", "User's note: I won the bus and moved to Lisbon"]
    assert kept_of(invented) == []


def test_a_code_that_nobody_gave_is_no_fact() -> None:
    invented = ["User's band uses the code Tq7x23FakeP2025", "User's bus has the number 8842 1190 7731"]
    assert kept_of(invented) == []


def test_a_fact_in_the_models_words_needs_no_evidence() -> None:
    told = "User's sister is called Delyth; she drives the bus of the user's band."
    assert kept_of([told]) == [told]


def test_a_dream_that_is_reworded_without_evidence_is_still_a_dream() -> None:
    (dreamt,) = read(["User lived in Monaco with nine butlers."], EX)
    doubt = judge_of(DEFAULT, [EX])(dreamt)
    assert doubt is not None
    assert doubt.reason == "hypothetical"
