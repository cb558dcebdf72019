"""What a model thinks before it answers is no part of the answer, in whatever notation it comes."""

import time

import pytest

from proxy.text.markup import without_thoughts


@pytest.mark.parametrize(
    "answer",
    [
        '<think>Let me see {"a": 1}</think>Yes.',
        "<Thinking>hm\n</Thinking>Yes.",
        "the template began it</think>Yes.",
        "[THINK]hm[/THINK]Yes.",
        "◁think▷hm◁/think▷Yes.",
        "<|begin_of_thought|>hm<|end_of_thought|>Yes.",
        "<|channel|>analysis<|message|>hm<|end|>Yes.",
        "\ufeffYes.\u200b",
        "Yes.<think>and it never stops",
    ],
)
def test_thoughts_are_removed_and_the_answer_stays(answer):
    assert without_thoughts(answer).strip() == "Yes."


def test_an_answer_that_speaks_of_thinking_stays_whole():
    said = "I think <b>so</b>: analysis of [THINKING] & <thinker>."
    assert without_thoughts(said) == said


@pytest.mark.parametrize("piece", ["<think>", "</think>", "<|channel|>analysis", "[THINK]", "<", "◁think▷"])
def test_a_hostile_answer_takes_no_long_time(piece):
    began = time.process_time()
    without_thoughts(piece * 20_000)
    assert time.process_time() - began < 2
