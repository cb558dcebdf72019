"""Documents into passages: where they are cut, what leads to them, and that nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.learn.documents import MOST, PASSAGES_A_SECTION, TARGET, split

LINES = st.sampled_from(
    [
        "# One", "## Two ##", "### ", "Under", "=====", "---", "", "   ", "```", "~~~~", "- item", "text",
        "word " * 60, "\t# code", "> quoted", "| a | b |", "...", "长" * 500, "x" * 3000, "#no heading",
    ]
)  # fmt: skip


def paths(text: str) -> list[tuple[str, ...]]:
    return [passage.headings for passage in split(text, "markdown")]


@given(st.lists(LINES, max_size=40), st.sampled_from(["\n", "\r\n"]), st.sampled_from(["markdown", "text"]))
def test_the_tiles_joined_are_the_document_and_offsets_find_the_text(lines, end, format):
    text = end.join(lines)
    passages = split(text, format)
    if passages:
        assert "".join(p.tile for p in passages) == text
    for passage in passages:
        start, stop = passage.offsets
        assert text[start:stop] == passage.text != ""


def test_a_passage_carries_the_headings_that_lead_to_it():
    text = "# Book\n\nIntro.\n\n## Part\n\nA.\n\n### Chapter\n\nB.\n\n## Other\n\nC.\n"
    assert paths(text) == [("Book",), ("Book", "Part"), ("Book", "Part", "Chapter"), ("Book", "Other")]


def test_underlined_headings_are_headings_too():
    assert paths("Book\n====\n\nA.\n\nPart\n----\n\nB.\n") == [("Book",), ("Book", "Part")]


@pytest.mark.parametrize(
    "text",
    [
        "```\n# no heading\n```\n",
        "~~~ sh\n```\n# no heading\n~~~\n",
        "- item\n---\n",
        "two lines\nof text\n---\n",
        "| a |\n---\n",
        "    # code\n",
        "---\ntitle: x\n---\nText.\n",
        "#hashtag\n",
    ],
)
def test_what_only_looks_like_a_heading_is_text(text):
    assert paths(text) == [()]


def test_a_heading_after_code_is_one_again():
    assert paths("# A\n\n```\n# x\n```\n\n# B\n\ntext\n") == [("A",), ("B",)]


@pytest.mark.parametrize(
    "code",
    [
        "```npm i thing```",
        "- ```sh\n  # no heading\n  ```",
        "10. ```sh\n    npm i\n    ```",
        "* 1. ~~~\n     # no heading\n     ~~~",
        "````md\n```\n# no heading\n```\n````",
        "```\n    ```\n# no heading\n```",
    ],
)
def test_code_ends_where_markdown_ends_it(code):
    found = split(f"# One\n\n{code}\n\n# Two\n\ntext\n", "markdown")
    assert [passage.headings for passage in found] == [("One",), ("Two",)]


@pytest.mark.parametrize(
    ("title", "told"),
    [
        ("max_output_tokens, _new_ in __v2__", "max_output_tokens, new in v2"),
        ("`__init__` of `Vec<T>` and ``a`b``", "__init__ of Vec<T> and a`b"),
        (r"1\. What snake\_case is", "1. What snake_case is"),
        ("What ~~was~~ is in ~/.config", "What was is in ~/.config"),
    ],
)
def test_a_heading_keeps_the_names_that_it_holds(title, told):
    (passage,) = split(f"## {title}\n\ntext\n", "markdown")
    assert passage.headings == (told,)


def test_a_heading_is_told_without_markup_and_brackets():
    (passage,) = split("## **Rolling** [back](http://x) `now` [!]\n\ntext\n", "markdown")
    assert passage.headings == ("Rolling back now (!)",)


def test_a_heading_without_text_leads_to_what_is_below_it_and_makes_no_passage():
    (passage,) = split("# A\n\n## B\n\ntext\n", "markdown")
    assert (passage.headings, passage.text) == (("A", "B"), "text")


def test_a_document_of_headings_alone_has_no_passages():
    assert split("# A\n\n## B\n", "markdown") == ()


def test_blank_lines_before_a_long_paragraph_are_no_passage():
    (first, *_) = split("\n\n" + "word " * 500, "text")
    assert first.text.startswith("word")


def test_a_long_section_is_cut_between_paragraphs():
    paragraphs = [f"{number}" + " word" * 50 for number in range(8)]
    passages = split("# A\n\n" + "\n\n".join(paragraphs), "markdown")
    assert len(passages) > 1
    assert all(p.headings == ("A",) for p in passages)
    assert [line for p in passages for line in p.text.split("\n\n")] == paragraphs
    assert all(len(p.text) <= TARGET for p in passages)


def test_a_short_rest_joins_the_passage_before_it():
    (passage,) = split("# A\n\n" + "word " * 139 + "\n\nEnd.\n", "markdown")
    assert passage.text.endswith("End.")


def test_code_is_kept_whole_as_far_as_it_can_be_shown():
    code = "```\n" + "\n\n".join(f"step({n})" for n in range(60)) + "\n```\n"
    passages = split("# A\n\n" + "word " * 100 + "\n\n" + code, "markdown")
    assert [p.text for p in passages][-1] == code.strip()


@pytest.mark.parametrize(
    "text", ["x" * 5000, "A sentence of words. " * 300, "一句话。" * 900, "line\n" * 900]
)
def test_nothing_is_too_long_to_be_shown(text):
    passages = split(text, "text")
    assert len(passages) > 2
    assert all(len(p.text) <= MOST for p in passages)
    if "一" in text:
        assert all(len(p.text) <= MOST // 3 for p in passages)


def test_a_text_without_headings_is_searched_as_several_sections():
    passages = split("\n\n".join("word " * 130 for _ in range(2 * PASSAGES_A_SECTION + 1)), "text")
    assert [p.section for p in passages] == [n // PASSAGES_A_SECTION for n in range(len(passages))]


def test_markdown_means_nothing_to_plain_text():
    (passage,) = split("# One\n\ntext", "text")
    assert (passage.headings, passage.text) == ((), "# One\n\ntext")


def test_a_line_of_hashes_takes_no_time():
    assert len(split("# " + "# " * 200_000, "markdown")) > 100


def test_a_long_line_is_cut_between_sentences_not_behind_an_abbreviation():
    sentence = "My dentist is Dr. Ohm of No. 5, St. James Street, i.e. the 3.5 acre one at 6 p.m. on Friday. "
    passages = split(sentence * 60, "text")
    assert len(passages) > 2
    assert all(passage.text.strip().endswith("Friday.") for passage in passages)
