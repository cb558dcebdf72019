"""The form in which texts are compared and searched."""

import pytest

from proxy.text.words import fold, simplified, terms


def test_no_text_becomes_more_than_six_times_as_long():
    planes = range(0x30000)  # no later one has decompositions
    every = (chr(code) for code in planes if not 0xD800 <= code < 0xE000)
    assert max(len(fold(char)) for char in every) == 6  # 18 of "ﷺ", which a text may hold alone


@pytest.mark.parametrize(
    ("text", "folded"),
    [("Straße", "stras"), ("㎯㎯", "rad∕s"), ("ΐΐΐΐΐΐ", "ιιιιι"), ("ÉÉÉÉÉÉÉ", "eeeee"), ("USER is", "user ")],
)
def test_a_bound_holds_for_what_folding_makes_of_a_text(text, folded):
    assert fold(text, 5) == folded
    assert fold(text).startswith(folded)


PAIRS = [
    ("用戶對青黴素過敏", "用户对青霉素过敏"),
    ("我太太的車子保險什麼時候到期？", "我太太的车子保险什么时候到期？"),
    ("下個月要去臺北出差", "下个月要去台北出差"),
]


@pytest.mark.parametrize(("traditional", "simple"), PAIRS)
def test_both_are_one_text_for_search(traditional, simple):
    assert simplified(traditional) == simple == simplified(simple)
    assert terms(traditional) == terms(simple)


def test_places_in_the_one_are_places_in_the_other():
    every = "".join(map(chr, range(0x3400, 0xA000)))
    assert len(simplified(every)) == len(every)
    assert simplified(simplified(every)) == simplified(every)
