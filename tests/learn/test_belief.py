"""How sure a memory is: moved by what speaks for and against it, never certain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.admit.decision import ARCHIVED_BELOW, confirmed, decayed, is_inferred
from proxy.domain.core import Candidate, Evidence
from tests.learn.support import NOON, memory


def test_a_confirmation_is_weighed_as_bayes_says() -> None:
    assert confirmed(0.6) == pytest.approx(0.8 * 0.6 / (0.8 * 0.6 + 0.3 * 0.4))


@given(st.floats(0.01, 0.98))
def test_what_speaks_for_it_raises_and_what_speaks_against_it_lowers(confidence: float) -> None:
    against = decayed(memory("User likes jazz", confidence=confidence), NOON).confidence
    assert against < confidence < confirmed(confidence) <= 1


def test_no_number_of_confirmations_makes_it_certain() -> None:
    confidence = 0.6
    for _ in range(100):
        confidence = confirmed(confidence)
    assert confidence < 1
    assert confirmed(1.0) == 1.0, "what a person said by hand stays as sure as they said it"


def test_an_inferred_memory_decays_step_by_step_until_it_is_archived() -> None:
    one, steps = memory("User seems to like jazz", confidence=0.6), 0
    while not one.archived:
        one, steps = decayed(one, NOON), steps + 1
    assert steps == 6
    assert one.confidence < ARCHIVED_BELOW
    assert one.updated_at == NOON


def test_only_a_models_word_without_the_users_own_is_inferred() -> None:
    assert is_inferred(Candidate(type="preference", content="User likes jazz"))
    assert not is_inferred(Candidate(type="preference", content="User likes jazz", evidence="I love jazz"))
    assert not is_inferred(Candidate(type="preference", content="User likes jazz", source="api"))
    assert is_inferred(memory("User likes jazz", evidence=(Evidence("s-1", "ex_1"),)))
    assert not is_inferred(memory("User likes jazz", evidence=(Evidence("s-1", "ex_1", "I love jazz"),)))


def test_what_rests_on_the_assistants_words_is_inferred() -> None:
    span = "I'd go for jazz"
    told = Candidate(type="preference", content="User likes jazz", source="assistant", evidence=span)
    assert is_inferred(told)
    assert is_inferred(
        memory("User likes jazz", source="assistant", evidence=(Evidence("s-1", "ex_1", span),))
    )
