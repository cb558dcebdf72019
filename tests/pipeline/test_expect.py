"""What the form of a question promises."""

import pytest

from proxy.pipeline.decision.expect import Expectation, expectation


@pytest.mark.parametrize(
    "text",
    [
        "When do we fly?",
        "What's the limit on my card?",
        "And that one?",
        "我的车停在哪?",
        "¿Cuánto pago por mi piso?",
        "Wo verdiene ich mein Geld?",
        "Où est ma voiture ?",
        "welchen Grad hat Mama und wo wohnt sie",
        "when is mum's birthday",
        "老妈血压多少",
        "Give me the basics: when do we leave, and what may we spend?",
    ],
)
def test_what_is_about_the_user_is_expected(text: str) -> None:
    assert expectation(text) is Expectation.STRONG


@pytest.mark.parametrize(
    "text",
    [
        "Where did the runaways end up?",
        "How do I export a mix?",
        "提测应该找谁?",
        "¿Quién atiende las mesas?",
        "Auf welche Schule kommen die beiden nun?",
        "Qui apporte le poisson maintenant ?",
    ],
)
def test_what_speaks_of_known_things_is_half_expected(text: str) -> None:
    assert expectation(text) is Expectation.SOME


@pytest.mark.parametrize(
    "text",
    [
        "Write a haiku about fog on a lake.",
        "What's the difference between a mutex and a semaphore?",
        "写一首关于秋雨的绝句。",
        "帮我写一首关于冬天的诗",
        "为什么天空是蓝色的?",
        "Schreib einen Vierzeiler über einen Hamster.",
        "Escribe un poema corto sobre un faro.",
    ],
)
def test_what_anybody_could_ask_promises_nothing(text: str) -> None:
    assert expectation(text) is Expectation.NONE


@pytest.mark.parametrize(
    "text", ["How long do you boil quinoa?", "¿Quién es el papa?", "Dinner for six blokes on Friday, no fuss"]
)
def test_most_forms_say_nothing_either_way(text: str) -> None:
    assert expectation(text) is Expectation.UNSAID


def test_this_means_the_paste_that_comes_with_it() -> None:
    paste = "\n\n2026-04-01 02:11:22 WARN pool-2 connection 127 idle, closing" * 12
    assert expectation("Why are these connections closed?" + paste) is Expectation.NONE
    assert expectation("Why are these connections closed?") is Expectation.STRONG
    assert expectation("Explain what the server does." + paste) is Expectation.NONE
    assert expectation("What does the server do?" + paste) is Expectation.NONE
    assert expectation("What does the server do?") is Expectation.SOME


def test_a_paste_with_a_personal_instruction_is_still_about_the_user() -> None:
    paste = "\n\nThe lighthouse was built in 1871 after three colliers were lost." * 12
    assert expectation("Shorten this the way I like it." + paste) is Expectation.STRONG
