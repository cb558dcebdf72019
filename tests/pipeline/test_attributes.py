"""What memory tells of one person it does not tell of another."""

from dataclasses import replace

import pytest

from proxy.domain import Hit
from proxy.pipeline.attributes import untold
from proxy.pipeline.prepare import prepare
from tests.pipeline.conftest import Shelf, lacks, memory, turn

WIFE = "User's wife is Nora Fell."


@pytest.mark.parametrize(
    ("question", "memories"),
    [
        ("What is my son allergic to?", ("User's son plays chess.", "User is allergic to latex.")),
        ("How old is Nora?", (WIFE, "User is 41 years old.")),
        ("豆豆对什么食物过敏?", ("用户的儿子豆豆喜欢下棋。", "用户对花生过敏。")),
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
        ("What is my son allergic to?", ("User's son cannot eat nuts.",)),
        ("我儿子多大了?", ("用户的儿子今年九岁。",)),
        ("Wo wird mein Mädchen an die Uni gehen?", ("Die Tochter des Nutzers beginnt ihr Studium.",)),
        ("What should I buy for my wife's birthday?", (WIFE,)),
    ],
)
def test_what_is_told_of_the_person_under_any_name_is_not(question: str, memories: tuple[str, ...]) -> None:
    assert not lacks(untold, question, memories)


async def test_such_a_question_gets_nothing(tools):
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
