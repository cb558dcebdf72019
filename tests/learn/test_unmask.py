"""What is found in a view of a text stands where the view says it does."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.admit.deobfuscation import readable, views
from proxy.admit.safety import REDACTED, clean

# Invented; in two pieces, so that scanners of this repository stay quiet.
HEAD, TAIL = "gh" + "p_Kq83nVb2Lk9Xw7T", "z5Rp1Ym4Hd6Jg8Sf0Ca"


@given(st.text(max_size=80))
def test_every_view_maps_each_character_to_its_place(text: str) -> None:
    for view in views(text):
        spans = [view.span(at, at + 1) for at in range(len(view.text))]
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert spans == sorted(spans)
        assert len(view.lowered()) == len(view.text)


def test_disguised_letters_and_digits_read_as_what_they_look_like() -> None:
    assert readable("\u0440assw\u043erd \uff11\uff12\u200b\u0663") == "password 123"


def test_words_of_another_alphabet_stay_in_it() -> None:
    assert readable("пароль Марии") == "пароль Марии"


def test_spaced_out_characters_are_drawn_together_in_a_second_view() -> None:
    text = "key: g h p _ A 1 b 2 c 3 end"
    first, second = views(text)
    assert first.text == text
    start = second.text.index("ghp_A1b2c3")
    assert text[slice(*second.span(start, start + 10))] == "g h p _ A 1 b 2 c 3"


@pytest.mark.parametrize(
    "between",
    [
        *("**", "*", "`", "``", "~~", "||", "<b>", "</b>", "<wbr>", "<span class='x'>", "\u200b", "\u00ad"),
        *("\\\n  ", "\n", "\n> ", "\r\n", " \n    ", "**\u200b*"),
    ],
)
def test_a_key_parted_by_markup_or_the_end_of_a_line_is_cut_out_whole(between: str) -> None:
    assert clean(f"It is {HEAD}{between}{TAIL} for CI.") == f"It is {REDACTED} for CI."


def test_escapes_of_markdown_do_not_hide_a_key() -> None:
    key = HEAD.replace("_", "\\_") + TAIL
    assert clean(f"It is {key} for CI.") == f"It is {REDACTED} for CI."


def test_of_two_parted_keys_what_stands_between_them_stays() -> None:
    text = f"First {HEAD}**{TAIL}**, then *AKIA*`{'Q7XW2N5PLT3DB6YZ'}` in the cloud."
    assert clean(text) == f"First {REDACTED}**, then *{REDACTED}` in the cloud."


@pytest.mark.parametrize("unit", ["a*", "a1**b", "a1\n", "abcdefgh12345678\n", "a1<b", "a1||", "a1\\-"])
def test_looking_for_parted_keys_takes_linear_time(unit: str) -> None:
    def cost(chars: int) -> float:
        text = (unit * chars)[:chars]
        began = time.thread_time()
        list(views(text))
        return time.thread_time() - began

    assert min(cost(160_000) for _ in range(3)) < 24 * max(cost(20_000), 0.002)  # 8; the square of it is 64
