"""The query is chosen by structure alone, in any language."""

import pytest

from proxy.recall.triage import MAX_TERMS, MAX_WORDS, leans, query_of, readable

LOG = "\n".join(f"12:0{n % 10} pump {n} reports pressure {n * 3} and temperature {n * 7}" for n in range(300))


@pytest.mark.parametrize("question", ["What does my contract say about this?", "我的合同是怎么说的？"])
@pytest.mark.parametrize("shape", ["{question}\n\n{paste}", "{paste}\n\n{question}"])
def test_the_line_around_a_paste_is_read(question, shape):
    assert readable(shape.format(question=question, paste=LOG)) == question


def test_the_ends_of_a_long_message_without_questions_are_read():
    read = readable(" ".join(f"word{n}" for n in range(500)))
    assert read.startswith("word0 word1")
    assert read.endswith("word498 word499")
    assert len(read.split()) <= MAX_WORDS + 1


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000, "🙂" * 200_000, "7 " * 400_000, "问" * 500_000, "?" * 300_000, "```" * 100_000,
        "\n" * 9,
    ],
)  # fmt: skip
def test_any_text_is_read_quickly(text, benchmark_ms):
    assert benchmark_ms(lambda: query_of(text)) < 60
    query = query_of(text)
    assert len(query.text) <= 4_100
    assert len(query.terms) <= MAX_TERMS


@pytest.mark.parametrize(("text", "short"), [
    ("How much?", True), ("那是哪天？", True), ("and the blue one?", True), ("", True),
    ("What did the blue one cost me?", False), ("我女儿对哪些食物过敏来着？", False),
])  # fmt: skip
def test_a_message_of_few_words_may_refer_to_the_one_before(text, short):
    assert leans(text) is short


def test_the_message_before_is_searched_after_the_message_itself():
    query = query_of("And the hotel?", "We fly to Porto in May.")
    assert query.text == "We fly to Porto in May.\nAnd the hotel?"
    assert query.terms[0] == "hotel"
    assert "porto" in query.terms
