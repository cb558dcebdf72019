"""Things with one name that memory does not hold."""

import pytest

from proxy.pipeline.recall.named import missing
from tests.pipeline.conftest import lacks

ABOUT_IAIN = ["User's partner Iain cannot eat garlic.", "Iain is 190 cm tall."]


@pytest.mark.parametrize(
    "asked",
    [
        "When is Iain's birthday?",
        "Wann hat Iain Geburtstag?",
        "Iain 的生日是哪天?",
        "¿Cuándo es el cumpleaños de Iain?",
    ],
)
def test_a_birthday_that_nobody_told_is_missing(asked: str) -> None:
    assert lacks(missing, asked, ABOUT_IAIN)


@pytest.mark.parametrize(
    "told",
    [
        "Iain's birthday is on 4 May.",
        "Iain was born on 4 May 1990.",
        "伊恩的生日是五月四日。",
        "Iain hat am 4. Mai Geburtstag.",
    ],
)
def test_a_birthday_is_there_under_any_of_its_names_in_any_language(told: str) -> None:
    assert not lacks(missing, "When is Iain's birthday?", [*ABOUT_IAIN, told])


def test_things_of_many_names_are_never_missing() -> None:
    assert not lacks(missing, "Where is my place?", ABOUT_IAIN)
    assert not lacks(missing, "Which part do I take when we perform?", ABOUT_IAIN)


def test_a_way_of_doing_something_is_no_thing() -> None:
    assert not lacks(missing, "How do I reset the password?", ABOUT_IAIN)


def test_a_statement_asks_for_nothing() -> None:
    assert not lacks(missing, "I told you my birthday.", ABOUT_IAIN)


def test_a_long_message_asks_for_more_than_a_name() -> None:
    long = "I'm filling in the form for the gym and it wants all sorts of things from me, my size and so on. "
    assert not lacks(missing, long + "What is Iain's birthday?", ABOUT_IAIN)


def test_one_told_of_several_asked_is_enough() -> None:
    assert not lacks(missing, "What's Iain's birthday and blood type?", ["Iain was born in May."])


def test_what_the_landlord_gets_is_told_by_the_rent() -> None:
    assert not lacks(missing, "What do we pay the landlord?", ["User's rent is £900 a month."])


@pytest.mark.parametrize(
    "told",
    ["User parks in spot B14.", "The family parked on level 3.", "El usuario aparcó en la calle Mayor."],
)
def test_where_one_parks_is_told_of_the_car(told: str) -> None:
    assert not lacks(missing, "Where is my car?", [*ABOUT_IAIN, told])
    assert lacks(missing, "Where is my car?", [*ABOUT_IAIN, "User walks the dog in the park."])


def test_a_second_question_that_nothing_answers_does_not_hide_what_answers_the_first() -> None:
    told = ["User bought a laptop for $900 on 3 May."]
    assert not lacks(missing, "What did I pay for my laptop, and is it still under warranty?", told)
    assert lacks(missing, "Which warranty do I have for my laptop?", told)
