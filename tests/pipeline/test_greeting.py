"""Greetings in any wording, and what only begins like one."""

import pytest

from proxy.pipeline.greeting import is_greeting


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
