"""The query is chosen by structure alone, in any language."""

import pytest

from proxy.recall.triage import MAX_TERMS, query_of, readable

LOG = "\n".join(f"12:0{n % 10} pump {n} reports pressure {n * 3} and temperature {n * 7}" for n in range(300))


@pytest.mark.parametrize("question", ["What does my contract say about this?", "我的合同是怎么说的？"])
@pytest.mark.parametrize("shape", ["{question}\n\n{paste}", "{paste}\n\n{question}"])
def test_the_line_around_a_paste_is_read(question, shape):
    assert readable(shape.format(question=question, paste=LOG)) == question


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


def test_the_message_before_is_searched_after_the_message_itself():
    query = query_of("And the hotel?", "We fly to Porto in May.")
    assert query.text == "We fly to Porto in May.\nAnd the hotel?"
    assert query.terms[0] == "hotel"
    assert "porto" in query.terms
