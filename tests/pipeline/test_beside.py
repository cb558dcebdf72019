"""What a question only mentions need not be in memory."""

from dataclasses import replace

import pytest

from proxy.domain import Hit
from proxy.pipeline.prepare import prepare
from proxy.pipeline.recall.beside import asked_part
from tests.pipeline.conftest import Shelf, memory, turn


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("Which restaurant did we eat at after the dentist?", "Which restaurant did we eat at ?"),
        ("After the dentist, where did we eat?", "where did we eat?"),
        ("Before the wedding where did I park", "where did I park"),
        ("Who waters the plants while we are at the wedding?", "Who waters the plants ?"),
        ("when is rent due, I want to time it with my bonus", "when is rent due"),
        ("What's my shoe size? They have skis in the sale.", "What's my shoe size?"),
        ("¿Dónde dejé las llaves después de la boda?", "¿Dónde dejé las llaves ?"),
        ("Où ai-je garé la voiture pendant le mariage ?", "Où ai-je garé la voiture ?"),
        ("婚礼之后我们住哪个酒店", "我们住哪个酒店"),
        ("The dentist asks whether I snore, what do I say?", "what do I say?"),
        ("Le dentiste me demande si je ronfle, je réponds quoi ?", "je réponds quoi ?"),
        ("Der Zahnarzt fragt, ob ich schnarche. Was sage ich?", "Was sage ich?"),
        ("El dentista quiere saber si ronco, ¿qué le digo?", "¿qué le digo?"),
        ("牙医问我打不打呼噜,怎么回?", "怎么回?"),
        ("贷款买车 银行让填年收入 我填多少合适", "我填多少合适"),
    ],
)
def test_what_stands_beside_is_cut(question: str, asked: str) -> None:
    assert asked_part(question).strip() == asked


@pytest.mark.parametrize(
    "question",
    [
        "How much did I pay for the narrowboat?",  # what was paid for is what is asked
        "For which company does my sister work?",
        "What is the phone number of my dentist?",
        "When is my flight to Lisbon?",
        "Tell me my blood type.",
        "我妹妹生日是几号",
    ],
)
def test_what_is_asked_for_is_left(question: str) -> None:
    assert asked_part(question) == question


async def test_a_memory_that_does_not_tell_what_is_merely_mentioned_is_shown(tools) -> None:
    home = memory("home", "User lives at 12 Elm Row.")
    shelf = replace(tools, memories=Shelf([Hit(home, 0.5, 0.0)]))
    prepared = await prepare(turn("Which address do I give the courier for my router?"), shelf)
    assert prepared.memory_ids == ("home",)
    prepared = await prepare(turn("Where is my router?"), shelf)
    assert prepared.reason == "not_in_memory"
