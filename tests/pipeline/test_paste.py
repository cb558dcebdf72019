"""Around a long paste: what the user says, told from what the paste says."""

import pytest

from proxy.pipeline.decision.decide import decide
from proxy.pipeline.decision.expect import Expectation, expectation
from proxy.pipeline.decision.paste import own_words
from proxy.pipeline.recall.rewrite import rewrite
from tests.pipeline.conftest import turn

PROSE = "The clerk asked where my ledger was. Why was it green? I do not know, said the mayor. "
LOG = "2026-04-01 02:11:22 WARN pool-2 connection 127 idle for 210 s, closing\n"
MAIL = "Hi all,\n\nthanks for the call. I will send my notes by Friday.\n\nBest,\nTom\n\n"
PASTES = [
    PROSE * 600,
    LOG * 700,
    MAIL * 700,
    "```python\n" + "for row in my_rows:\n    print(row)\n" * 1500 + "```",
    "我的账本在哪儿?他们问。为什么门是绿色的?" * 2500,
]
QUESTION = "What is my budget for the trip?"


@pytest.mark.parametrize("paste", PASTES)
@pytest.mark.parametrize(
    "around", ["{q}\n\n{p}", "{p}\n\n{q}", "{p}\n{q}\n\nThanks!", "{q}\n{p}\n\nThanks in advance!"]
)
def test_a_question_before_or_after_50_000_characters_is_found(paste, around, benchmark_ms):
    text = around.format(p=paste, q=QUESTION)
    assert own_words(text) == QUESTION
    assert rewrite(text, ()).text == QUESTION
    assert expectation(text) is Expectation.STRONG
    assert decide(turn(text)).search
    assert benchmark_ms(lambda: (decide(turn(text)), expectation(text), rewrite(text, ()))) < 50


def test_a_question_at_the_end_of_the_last_line_is_found():
    assert own_words(f"{PROSE * 600} And what is my budget for the trip?").endswith(QUESTION[8:])


@pytest.mark.parametrize("paste", PASTES)
@pytest.mark.parametrize(
    "task",
    [
        "Summarise this in three bullet points.",
        "What is wrong here?",
        "Translate this into French.",
        "Erkläre diesen Text.",
        "¿Qué dice este texto?",
        "总结一下。",
    ],
)
def test_a_task_about_the_paste_alone_is_not_searched(paste, task):
    assert decide(turn(f"{paste}\n\n{task}")).reason == "self_contained"
    assert decide(turn(f"{task}\n\n{paste}")).reason == "self_contained"


@pytest.mark.parametrize(
    "task",
    [
        "Does this fit our plan?",
        "Does this fit the Atlas policy?",
        "Review this in the usual way.",
        "Compare this with what we said last time.",
        "Check this again.",
        "Convert this into the template.",
        "Passt das zu unserem Plan?",
        "Who should approve a change like that one?",
    ],
)
def test_a_task_that_needs_more_than_the_paste_is_searched(task):
    assert decide(turn(f"{PASTES[1]}\n{task}")).search


def test_what_a_paste_asks_is_not_asked_by_the_user():
    text = "Explain what goes wrong.\n\n" + PROSE * 20
    assert own_words(text) == "Explain what goes wrong."
    assert expectation(text) is Expectation.NONE
    assert "ledger" not in rewrite(text, ()).terms


def test_the_end_of_a_fence_is_no_question():
    assert own_words("Please look.\n```\n" + "a?\n" * 400 + "```") == "Please look."


@pytest.mark.parametrize("text", [QUESTION, PROSE * 3, "", PROSE * 600 + "The end.", "Hello.\n" * 200])
def test_without_a_paste_or_without_a_question_there_is_nothing_of_the_users_own(text):
    assert own_words(text) == ""


@pytest.mark.parametrize("text", ["?\n" * 30_000, "why " * 20_000, "```\n" * 20_000, "。" * 60_000])
def test_a_hostile_paste_costs_no_time(text, benchmark_ms):
    assert benchmark_ms(lambda: own_words(text)) < 20


@pytest.mark.parametrize("blank", [" ", "\n", "\t \r\n"])
def test_blank_space_around_a_message_is_no_paste(blank):
    assert own_words(blank * 2_000) == ""
    assert own_words(f"{blank * 2_000}{QUESTION}{blank * 2_000}") == ""


def test_a_question_in_the_line_of_the_paste_is_whole_behind_a_title():
    paste = "The ledger is read every night and a few rows are lost in it. " * 30
    asked = "When does Dr. Ohm open on the 3rd?"
    assert own_words(f"{asked} {paste}") == asked
    assert own_words(f"{paste} {asked}") == asked
