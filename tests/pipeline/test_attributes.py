"""What memory tells of one person it does not tell of another."""

from dataclasses import replace

import pytest

from proxy.domain import Hit
from proxy.pipeline.attributes import is_untold
from proxy.pipeline.prepare import prepare
from tests.pipeline.conftest import Shelf, memory, turn

WIFE = "User's wife is Nora Fell."


@pytest.mark.parametrize(
    ("question", "memories"),
    [
        ("Where does my wife work?", (WIFE, "User works at the harbour.")),
        ("What is my son allergic to?", ("User's son plays chess.", "User is allergic to latex.")),
        ("How old is Nora?", (WIFE, "User is 41 years old.")),
        ("顾晴在哪家公司上班?", ("用户的妻子顾晴喜欢爬山。", "用户在一家银行上班。")),
        ("豆豆对什么食物过敏?", ("用户的儿子豆豆喜欢下棋。", "用户对花生过敏。")),
        (
            "Wo arbeitet meine Schwester?",
            ("Die Schwester des Nutzers heißt Ida.", "Der Nutzer arbeitet bei Voss."),
        ),
    ],
)
def test_what_is_told_of_somebody_else_is_untold(question: str, memories: tuple[str, ...]) -> None:
    assert is_untold(question, memories)


@pytest.mark.parametrize(
    ("question", "memories"),
    [
        ("Where does my wife work?", (WIFE, "Nora Fell works at the harbour.")),  # under her name
        ("Where does my wife work?", ("User's wife is a nurse.",)),
        ("Where does my wife work?", ("User works at the harbour.",)),  # nobody knows her: not this rule's
        ("Where do I work?", (WIFE, "User works at the harbour.")),
        ("What is my son allergic to?", ("User's son cannot eat nuts.",)),
        ("我儿子多大了?", ("用户的儿子今年九岁。",)),
        ("Wo wird mein Mädchen an die Uni gehen?", ("Die Tochter des Nutzers beginnt ihr Studium.",)),
        ("What should I buy where my wife works?", (WIFE,)),
    ],
)
def test_what_is_told_of_the_person_under_any_name_is_not(question: str, memories: tuple[str, ...]) -> None:
    assert not is_untold(question, memories)


async def test_such_a_question_gets_nothing(tools):
    hits = [
        Hit(memory("wife", WIFE), 0.6, 0.0),
        Hit(memory("work", "User works at the harbour."), 0.5, 0.0),
    ]
    asked = replace(tools, memories=Shelf(hits))
    prepared = await prepare(turn("Where does my wife work?"), asked)
    assert prepared.memory_ids == ()
    assert prepared.reason == "not_in_memory"
    prepared = await prepare(turn("Where do I work?"), asked)
    assert "work" in prepared.memory_ids
