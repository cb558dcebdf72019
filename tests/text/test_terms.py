"""The form in which texts are compared."""

import sys

import pytest

from proxy.text.terms import fold, terms


def test_no_text_becomes_more_than_six_times_as_long() -> None:
    every = (chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    assert max(len(fold(char)) for char in every) == 6  # 18 of "ﷺ", which a text may hold alone


def test_a_ligature_is_found_beside_itself_and_its_short_form() -> None:
    assert terms("محمد ﷺ") == terms("محمد ﷵ")


@pytest.mark.parametrize(
    ("text", "folded"),
    [("Straße", "stras"), ("㎯㎯", "rad∕s"), ("ΐΐΐΐΐΐ", "ιιιιι"), ("ÉÉÉÉÉÉÉ", "eeeee"), ("USER is", "user ")],
)
def test_a_bound_holds_for_what_folding_makes_of_a_text(text: str, folded: str) -> None:
    assert fold(text, 5) == folded
    assert fold(text).startswith(folded)
