"""What the user typed, in messages as real clients send them (client_messages.toml)."""

import re
import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.authorship import split

CASES = tomllib.loads(Path(__file__).with_name("client_messages.toml").read_text())


def cases(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", CASES[kind], ids=lambda case: case.get("name"))


@cases("wrapped")
def test_what_a_client_puts_around_the_words_is_not_the_users(case):
    found = split(case["message"])
    assert (found.typed, found.wrapped) == (case["typed"], True)


@cases("clients_only")
def test_a_message_that_a_client_wrote_holds_no_words_of_the_users(case):
    assert split(case["message"]).is_clients


@cases("pasted")
def test_what_the_user_pastes_is_not_the_users_words(case):
    found = split(case["message"])
    assert (found.typed, found.pasted, found.is_clients) == (case["typed"], True, False)


@cases("typed")
def test_words_that_look_like_a_wrapping_stay_the_users(case):
    typed = re.sub(r"\s*</?question>\s*", " ", case["message"])
    assert split(case["message"]).typed.split() == typed.split()


HARD = st.sampled_from(
    ["<a>", "</a>", "<user_query>", "</user_query>", "<b", "```", "\n", "\n\n", "> ", "{", "}", '{"a": 1}',
     "[", "]", "[x y]", "[/x]", "<!-- ", " -->", "--- END a", "--- a ---", "From: ", "To: ", "I live in Rome",
     "水", "İ", " ", '"""', ":\n---\n"]
)  # fmt: skip


@given(st.lists(HARD, max_size=14).map("".join))
def test_any_text_is_split_and_nothing_is_made_up(text):
    found = split(text)
    rest = iter("".join(text.split()))
    assert all(char in rest for char in "".join(found.typed.split()))
    assert split(text) == found


@pytest.mark.parametrize(
    "unit",
    ["<a1>", "<x>", "<a ", "[{", '{"a":', "> q\n", "```\n", "<!--", "<!-- a -->", "{\n", "--- END a\n",
     "END ", "<b>x</b>", "[ab]x", "a:\n", "\n", "word ", "<user_query>", "</search_results>\n", "水<源>",
     ":\n---\n", ":\n", "### Task:\nRespond to the user query using the provided context\n\n# a\n<x>\n",
     "Context:\nQuestion:\n", '"""', "'''a", "<<<", "1/1/26, 9:12 - a: b\n", "@:"],
)  # fmt: skip
def test_a_megabyte_takes_milliseconds(unit):
    text = unit * (1_000_000 // len(unit))
    began = time.process_time()
    split(text)
    assert time.process_time() - began < 5  # a quadratic step would take minutes
