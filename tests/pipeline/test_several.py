"""Several questions in one message: taken apart, and each with its best memory shown."""

import pytest

from proxy.domain import Ranked
from proxy.pipeline.recall.several import HEADS, MAX_PARTS, merged, questions_of
from tests.pipeline.conftest import memory

APART = [
    (
        "What's my budget, and who is my dentist?",
        ("What's my budget", "who is my dentist?"),
    ),
    ("When do we fly and where do we sleep?", ("When do we fly", "where do we sleep?")),
    ("Who approves changes here? And who signs?", ("Who approves changes here?", "who signs?")),
    (
        "Can I ship on a Friday, and how much traffic goes to a canary?",
        ("Can I ship on a Friday", "how much traffic goes to a canary?"),
    ),
    (
        "Tell me what Bea can't have, and which treats the dog gets.",
        ("Tell me what Bea can't have", "which treats the dog gets."),
    ),
    (
        "Note pour le médecin : ce qui provoque mes crises et ce qu'il me faut le soir",
        ("ce qui provoque mes crises", "ce qu'il me faut le soir"),
    ),
    ("Which came first, my new job or our move?", ("my new job", "our move")),
    ("¿Quién trae el pescado y a cuánto está el menú?", ("Quién trae el pescado", "a cuánto está el menú?")),
    (
        "Wann ziehen wir um und auf welche Schule kommen die Kinder?",
        ("Wann ziehen wir um", "auf welche Schule kommen die Kinder?"),
    ),
    ("Où vit ma sœur et quand part mon frère ?", ("Où vit ma sœur", "quand part mon frère ?")),
    ("铺子现在叫什么名字,哪天休息?", ("铺子现在叫什么名字", "哪天休息")),
    ("What are my Portugal budget and my seat?", ("my Portugal budget", "my seat")),
    ("List my rent, my niece's name and my fee.", ("my rent", "my niece's name", "my fee")),
    ("Dime mi alquiler y mi socia.", ("mi alquiler", "mi socia")),
    ("Nenne mir meine Probe und meine Tabletten.", ("meine Probe", "meine Tabletten")),
    ("我的装修预算和我的药物过敏是什么?", ("我的装修预算", "我的药物过敏是什么")),
    ("房租多少钱,还有那个工作最后去了没有?", ("房租多少钱", "那个工作最后去了没有")),
]
ONE = [
    "What did I say about the house and the garden?",
    "Which seat do I like, window or aisle?",
    "I moved to Madison and like it.",
    "¿Qué pagos cambian, como siempre, en abril?",
    "Was sagt Solveig, wenn Milch im Haus ist?",
    "Quel train ou quel bus ?",
    "我和我太太的房租是多少?",
    "帮我写一个小函数,语言和方式按我平时的规矩来。",
    "Does my sister like my garden?",
    "hi",
    "",
    "???",
    "How much, and when?",  # names no topic
]


@pytest.mark.parametrize(("text", "parts"), APART)
def test_questions_are_taken_apart(text, parts):
    assert questions_of(text) == parts


@pytest.mark.parametrize("text", ONE)
def test_one_question_stays_whole(text):
    assert questions_of(text) == ()


def test_a_part_that_leans_on_the_one_before_takes_its_words_along():
    _, second = questions_of("Who moved our furniture to Madison, and what did we pay them?")
    assert second == "Who moved our furniture to Madison\nwhat did we pay them?"


def test_a_part_that_needs_no_memory_is_left_out():
    assert questions_of("What is the capital of France? And who is my dentist?") == ("who is my dentist?",)


def test_no_more_than_a_few_parts_are_searched():
    text = " ".join(f"Where is my umbrella number {i}?" for i in range(10))
    assert len(questions_of(text)) == MAX_PARTS


@pytest.mark.parametrize(
    "text",
    ["what and " * 5000, "¿" * 9000, "什么," * 4000, "and, " * 100, ", " * 240, "my a, " * 80, "我和" * 240],
)
def test_a_hostile_message_costs_no_time(text, benchmark_ms):
    assert benchmark_ms(lambda: questions_of(text)) < 20


# ---------------------------------------------------------------- merging
def listed(*names: str) -> list[Ranked]:
    return [Ranked(memory(name, name), 1 - i / 10, "") for i, name in enumerate(names)]


def ids(found: list[Ranked]) -> list[str]:
    return [one.memory.id for one in found]


def test_the_best_of_the_whole_and_of_every_part_come_first():
    found = merged(listed("w1", "w2"), [listed("a1", "a2"), listed("b1", "b2")], 10)
    assert ids(found) == ["w1", "w2", "a1", "b1", "a2", "b2"]


def test_a_memory_that_several_lists_found_is_shown_once():
    assert ids(merged(listed("x", "y"), [listed("x", "z"), listed("x", "q")], 10)) == ["x", "y", "z", "q"]


def test_behind_the_best_of_each_the_whole_goes_on():
    whole, part = [f"w{i}" for i in range(8)], [f"a{i}" for i in range(8)]
    found = ids(merged(listed(*whole), [listed(*part)], 9))
    assert found == ["w0", "w1", "w2", "a0", "a1", "a2", "w3", "w4", "w5"]
    assert HEADS == 3


def test_the_limit_holds_and_a_short_limit_still_has_the_best_of_each():
    assert ids(merged(listed("w1", "w2"), [listed("a1"), listed("b1")], 3)) == ["w1", "a1", "b1"]
