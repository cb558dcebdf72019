"""What is found in a view of a text stands where the view says it does."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.background.unmask import readable, views


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
