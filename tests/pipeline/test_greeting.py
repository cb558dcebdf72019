"""Greetings in any wording, and what only begins like one."""

import pytest

from proxy.pipeline.greeting import LONGEST, is_greeting
from proxy.wordlists import sections


@pytest.mark.parametrize(
    "text",
    [
        "hey there, hope you're well!",
        "Happy Thursday! How's everything going?",
        "thanks a ton for the help, have a wonderful evening 🌙",
        "🙏🙏",
        "大家早，祝各位工作顺利！",
        "¡Buenas! Espero que estés genial",
        "Guten Morgen, ich hoffe, du hattest ein gutes Wochenende",
        "Coucou, passe une belle journée",
    ],
)
def test_greetings_wishes_and_thanks_are_greetings(text: str) -> None:
    assert is_greeting(text)


@pytest.mark.parametrize(
    "text",
    [
        "hey there, hope you remember the boat",
        "hope my parcel arrives",
        "Good restaurants?",
        "Thanks! And when is it?",
        "go on",
        "yes",
        "你好，预算是多少？",
        "快乐农场项目进展如何？",
        "Buen restaurante",
        "123",
    ],
)
def test_what_says_or_asks_more_is_not(text: str) -> None:
    assert not is_greeting(text)


def test_no_word_is_slow_however_often_it_is_said(benchmark_ms) -> None:
    """Twenty times 哈 kept the whole process busy for seconds: 哈哈 and 哈哈哈 are words, too."""
    for words in (*sections("greetings").values(), *sections("courtesies").values()):
        for word in words:
            for gap in ("", " "):
                said = ((word + gap) * LONGEST)[: LONGEST - 4] + "Tom"
                assert benchmark_ms(lambda said=said: is_greeting(said)) < 20, word
