"""Traditional Chinese is met by simplified, and the other way."""

import pytest

from proxy.text.terms import simplified, terms

PAIRS = [
    ("用戶對青黴素過敏", "用户对青霉素过敏"),
    ("我太太的車子保險什麼時候到期？", "我太太的车子保险什么时候到期？"),
    ("下個月要去臺北出差", "下个月要去台北出差"),
]


@pytest.mark.parametrize(("traditional", "simple"), PAIRS)
def test_both_are_one_text_for_search(traditional: str, simple: str) -> None:
    assert simplified(traditional) == simple == simplified(simple)
    assert terms(traditional) == terms(simple)


def test_places_in_the_one_are_places_in_the_other() -> None:
    every = "".join(map(chr, range(0x3400, 0xA000)))
    assert len(simplified(every)) == len(every)
    assert simplified(simplified(every)) == simplified(every)


@pytest.mark.parametrize("text", ["Where do I live?", "東京に住んでいます", "서울", ""])
def test_other_scripts_are_left_alone(text: str) -> None:
    assert simplified(text) in (text, "东京に住んでいます")  # Kanji are signs, too: on both sides of a search
