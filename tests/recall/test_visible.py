"""What the conversation already shows."""

import pytest

from proxy.domain.core import Evidence, Message
from proxy.recall.pack import unseen
from tests.recall.conftest import memory


def shown(one, *texts):
    return not unseen([one], [Message("user", t) for t in texts], memory=lambda m: m)


def test_the_same_words_are_visible():
    assert shown(memory("m", "User is vegan."), "Profile: user is vegan. Suggest dinner.")


def test_the_span_that_it_was_learnt_from_is_visible():
    learnt = memory("m", "User does not eat animal products.", evidence=(Evidence("s", "e", "I'm vegan"),))
    assert shown(learnt, "Well, I’m vegan, so no cheese.".replace("’", "'"))
    assert not shown(learnt, "Suggest a dinner")


def test_a_short_span_proves_nothing():
    learnt = memory("m", "User wants an aisle seat on flights.", evidence=(Evidence("s", "e", "yes"),))
    assert not shown(learnt, "yes please book it")


def test_most_of_the_words_in_one_message_are_visible():
    fact = memory("m", "User's flatmate Bea is coeliac and eats gluten free.")
    assert shown(fact, "My flatmate Bea is coeliac, she eats gluten free stuff only")
    assert not shown(fact, "My flatmate Bea is coming", "something gluten free", "coeliac eats")


def test_another_value_is_not_visible():
    fact = memory("m", "Budget for the Portugal trip is 6,200 dollars including flights.")
    assert not shown(fact, "Our budget for the Portugal trip is 7,500 dollars including flights.")
    assert shown(fact, "Our budget for the Portugal trip is $6,200 dollars including flights.")


@pytest.mark.parametrize(
    ("content", "question"),
    [
        ("User prefers an aisle seat.", "So do I prefer an aisle seat?"),
        ("用户对芒果严重过敏。", "你好。用户对芒果严重过敏吗?"),
    ],
)
def test_a_question_shows_nothing(content, question):
    assert not shown(memory("m", content), question)


def test_what_stands_before_a_question_still_counts():
    assert shown(memory("m", "User is vegan."), "The user is vegan. What can be cooked?")


def test_an_empty_conversation_hides_nothing():
    assert not shown(memory("m", "User is vegan."))


def test_a_question_alone_shows_nothing():
    learnt = memory("m", "User is vegan.", evidence=(Evidence("s", "e", "Am I vegan"),))
    assert not shown(learnt, "Am I vegan?", "Is user is vegan?")


def test_a_question_with_a_title_shows_nothing_either():
    fact = memory("m", "User's only dentist in Leeds since 2019 is Dr. Ohm.")
    assert not shown(fact, "Is it true that my only dentist in Leeds since 2019 is Dr. Ohm?")
    assert shown(fact, "My only dentist in Leeds since 2019 is Dr. Ohm. Is he good?")


def test_abbreviations_without_end_cost_no_time(benchmark_ms):
    said = [Message("user", "z. B. " * 2_600 + "what? Yes.")]
    vegan = [memory("m", "User is vegan.")]
    assert benchmark_ms(lambda: unseen(vegan, said, memory=lambda m: m)) < 25


def test_questions_by_the_hundred_leave_statements_between_them():
    assert shown(memory("m", "User is vegan."), "User is vegan. Is that so? " + "Why is it? It is. " * 200)


def test_a_conversation_that_folding_makes_long_is_soon_read(benchmark_ms):
    vegan = [memory("m", "User is vegan.")]
    said = [Message("user", "ﷺ" * 16_000)]
    assert benchmark_ms(lambda: unseen(vegan, said, memory=lambda m: m)) < 30
