"""From what was typed to what is searched."""

import pytest

from proxy.pipeline.recall.rewrite import MAX_PIECES, MAX_TERMS, is_vague, rewrite
from proxy.terms import terms

VAGUE = [
    "How much?",
    "And that one?",
    "continue",
    "那是哪天?",
    "谁的?",
    "¿cuánto?",
    "what about it?",
    "wie viel?",
    "いつ?",
]
CLEAR = [
    "What did the guesthouse in Porto cost per night?",
    "我女儿对什么水果过敏来着,买蛋糕要注意什么?",
    "When is the final art for the otter book due?",
]


@pytest.mark.parametrize("text", VAGUE)
def test_a_vague_question_takes_its_topic_from_the_history(text):
    query = rewrite(text, ["We booked a guesthouse in Porto."])
    assert "guesthouse" in query.text
    assert text in query.text
    assert "porto" in query.terms


@pytest.mark.parametrize("text", CLEAR)
def test_a_clear_question_is_searched_as_it_is(text):
    query = rewrite(text, ["We booked a guesthouse in Lisbon."])
    assert query.text == text
    assert set(query.terms) == set(terms(text))


def test_without_history_a_vague_question_stands_alone():
    assert rewrite("How much?", []).text == "How much?"


def test_what_was_asked_earlier_lends_its_words_and_is_not_asked_again():
    earlier = ["Where is the guesthouse in Porto, and when do we fly?"]
    assert len(rewrite(earlier[0], []).parts) == 2
    assert rewrite("How much?", earlier).parts == ()


def test_the_question_of_a_long_paste_is_what_is_embedded():
    paste = "Stack trace follows. " + "frame handler dispatch line " * 200
    query = rewrite(paste + "\nWhy does my importer time out?", [])
    assert query.text == "Why does my importer time out?"
    assert "importer" in query.terms


def test_code_in_a_paste_is_not_embedded():
    query = rewrite("Make this faster please\n```python\n" + "x = compute(y)\n" * 200 + "```", [])
    assert query.text == "Make this faster please"


@pytest.mark.parametrize("text", ["word " * 5000, "长" * 5000, "a?" * 5000, "```" + "x " * 5000])
def test_a_query_is_bounded(text):
    query = rewrite(text, [text, text])
    shown = query.text.replace("…", " ")
    pieces = shown.split() if shown.isascii() else shown.replace(" ", "").replace("\n", "")
    assert 0 < len(pieces) <= MAX_PIECES
    assert len(query.terms) <= MAX_TERMS


def test_the_newest_words_survive_the_bound_on_terms():
    history = [" ".join(f"old{i}" for i in range(100)), "We went to Porto."]
    found = rewrite("the cost?", history).terms
    assert found[0] == "cost"
    assert "porto" in found


def test_a_long_message_is_never_vague():
    assert not is_vague("it " * 100)


@pytest.mark.parametrize(
    "text", ["¿hasta cuándo era?", "und um wie viel Uhr?", "et c'était quand déjà ?", "那是多少?"]
)
def test_short_questions_without_a_topic_are_vague_in_other_languages(text):
    assert is_vague(text)


@pytest.mark.parametrize(
    "text",
    ["¿Cuánto cuesta el alquiler del local?", "Wann wird meine Schwester operiert?", "我女儿对什么水果过敏?"],
)
def test_questions_with_a_topic_are_not_vague_in_other_languages(text):
    assert not is_vague(text)


def test_the_question_of_a_long_message_is_whole_behind_a_title():
    told = "My importer reads a few thousand rows of an old ledger every night. " * 8
    assert rewrite(told + "What did Dr. Ohm say at 6 p.m. on Friday?", []).text == (
        "What did Dr. Ohm say at 6 p.m. on Friday?"
    )
