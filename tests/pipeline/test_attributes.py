"""What memory tells of one person it does not tell of another."""

from dataclasses import replace

import pytest

from proxy.domain import Hit
from proxy.pipeline.prepare import prepare
from proxy.pipeline.recall.attributes import untold
from tests.pipeline.conftest import Shelf, lacks, memory, turn

WIFE = "User's wife is Nora Fell."


@pytest.mark.parametrize(
    ("question", "memories"),
    [
        ("What is my son's blood type?", ("User's son plays chess.", "User is blood group B.")),
        ("How old is Nora?", (WIFE, "User is 41 years old.")),
        ("豆豆的生日是哪天?", ("用户的儿子豆豆喜欢下棋。", "用户五月四日过生日。")),
        ("Wann hat meine Schwester Geburtstag?", ("Die Schwester des Nutzers heißt Ida.",)),
    ],
)
def test_what_is_told_of_somebody_else_is_untold(question: str, memories: tuple[str, ...]) -> None:
    assert lacks(untold, question, memories)


@pytest.mark.parametrize(
    ("question", "memories"),
    [
        ("How old is my wife?", (WIFE, "Nora Fell is 41.")),  # under her name
        ("How old is Nora?", (WIFE, "User's wife is 41.")),  # under her role
        ("How old is my wife?", ("User is 41.",)),  # nobody knows her: not this rule's
        ("How old am I?", (WIFE, "User is 41.")),
        ("Where does my wife work?", (WIFE, "User works at the harbour.")),  # told in too many ways
        ("Is my daughter allergic to anything?", ("User's daughter is Mimi.", "Mimi gets a rash from kiwi.")),
        # Of an allergy people tell in any words, and it must never be hidden.
        ("What is my son allergic to?", ("User's son ended up in A&E after a peanut.",)),
        ("What medication is my dad on?", ("User's dad plays darts.", "User's dad is on warfarin.")),
        ("¿Cuándo es el cumpleaños de mi madre?", ("La madre del usuario cumple años el 4 de junio.",)),
        ("When is my brother's birthday?", ("User's brother Ned: 9 March.",)),
        ("我儿子多大了?", ("用户的儿子今年九岁。",)),
        ("Wo wird mein Mädchen an die Uni gehen?", ("Die Tochter des Nutzers beginnt ihr Studium.",)),
        ("What should I buy for my wife's birthday?", (WIFE,)),
    ],
)
def test_what_is_told_of_the_person_under_any_name_is_not(question: str, memories: tuple[str, ...]) -> None:
    assert not lacks(untold, question, memories)


async def test_a_question_whose_answer_is_told_of_another_person_gets_nothing(tools):
    hits = [
        Hit(memory("wife", WIFE), 0.6, 0.0),
        Hit(memory("age", "User is 41 years old."), 0.5, 0.0),
    ]
    asked = replace(tools, memories=Shelf(hits))
    prepared = await prepare(turn("How old is my wife?"), asked)
    assert prepared.memory_ids == ()
    assert prepared.reason == "not_in_memory"
    prepared = await prepare(turn("How old am I?"), asked)
    assert "age" in prepared.memory_ids
