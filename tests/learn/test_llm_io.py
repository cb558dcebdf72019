"""Answers of models, however broken, and what models are shown of a conversation."""

import json
import time
from contextlib import suppress
from pathlib import Path

import pytest

from proxy.admit.safety import DEFAULT, SafetyPolicy
from proxy.learn import llm_io
from proxy.learn.llm_io import MAX_READ, Unreadable, read_facts
from tests.learn.support import exchange

FACT = '{"type": "semantic", "content": "User lives in Ghent", "confidence": 0.9}'
CORPUS = Path(__file__).parent / "corpus"
EXPECTED = json.loads((CORPUS / "expected.json").read_text("utf-8"))
ANSWERS = {file.stem: file.read_bytes().decode("utf-8") for file in CORPUS.glob("*.txt")}


def found_in(answer):
    try:
        return [[fact.type, fact.content] for fact in read_facts(answer)]
    except Unreadable:
        return "unreadable"


def test_whole_facts_of_a_malformed_answer_are_read_and_nothing_else():
    assert {name: found_in(answer) for name, answer in ANSWERS.items()} == EXPECTED


def test_an_answer_that_is_cut_off_anywhere_yields_no_fact_that_it_does_not_hold():
    # Cut off before the end of thoughts that nothing opened, they are not recognised as thoughts.
    for name in EXPECTED.keys() - {"think-only-closed"}:
        whole = {tuple(fact) for fact in EXPECTED[name]} if EXPECTED[name] != "unreadable" else set()
        for end in range(0, len(ANSWERS[name]) if whole else 0, 5):
            with suppress(Unreadable):
                found = {(f.type, f.content) for f in read_facts(ANSWERS[name][:end])}
                assert found <= whole, ANSWERS[name][:end]


HOSTILE = (
    *("[" * 100_000, '{"a":' * 20_000, '{"a":"' + 'x" ' * 33_000, "[ # a\n" * 15_000, '["a", ' * 14_000),
    *("<think>" * 14_000, "<type>" * 16_000, "type: x\n" * 12_000, "[/*" * 30_000, '["' + '\\"' * 49_000),
    *("\n" * 20_000, f"[{FACT}," + "{/*}," * 19_000, f'[{FACT}, {{"content": "' + '"' + "\n" * 20_000 + "x"),
    (f"[{FACT},{{x}}" + "\n" * 3_800 + "y") * 24,
)


def test_a_hostile_answer_is_read_in_bounded_time():
    for answer in HOSTILE:
        began = time.thread_time()
        found_in(answer)
        assert time.thread_time() - began < 5, answer[:20]  # some 0.4 s


def test_unknown_types_and_chapters_are_dropped_and_a_flood_is_bounded():
    rumour = '{"type": "rumour", "content": "User may be a spy"}'
    chapter = json.dumps({"type": "semantic", "content": "a tea " * 1_500})
    assert [f.content for f in read_facts(f'{{"facts": [{rumour}, {chapter}, {FACT}]}}')] == [
        "User lives in Ghent"
    ]
    assert len(read_facts("[" + ",".join([FACT] * (MAX_READ + 9)) + "]")) == MAX_READ


def test_confidence_is_read_in_every_notation():
    for given, expected in (
        *(("0.9", 0.9), ('"0.7"', 0.7), ('"90%"', 0.9), ("85", 0.85), ("1", 1.0), ("-3", 0.0)),
        *(("8", 0.8), ("10", 1.0), ('"9"', 0.9), ('"9/10"', 0.9), ('"1%"', 0.01), ("100", 1.0)),
        *(('"high"', 0.9), ('"stated"', 0.95), ("null", 0.8), ("true", 0.8), ("[]", 0.8), ("NaN", 0.8)),
        *(("1" + "0" * 400, 1.0), ("-1" + "0" * 400, 0.0), ("Infinity", 1.0)),
    ):
        (fact,) = read_facts(f'[{{"type": "semantic", "content": "User is old", "confidence": {given}}}]')
        assert fact.confidence == pytest.approx(expected), given


def test_names_that_the_fact_neither_has_nor_quotes_are_dropped():
    names = '["person:Mara Lind=Mari=Zoe", "place:Rome", "animal:Mara", "Mara", 3, "Person: mara  lind"]'
    fact = '{"type": "semantic", "content": "User\'s sister is Mara Lind.", "evidence": "my sister Mari"'
    (read,) = read_facts(f'[{fact}, "names": {names}}}]')
    assert read.tags == ("person:Mara Lind=Mari", "person:mara lind")


# ---------------------------------------------------------------- what models are shown
def test_a_text_is_shown_as_the_policy_of_the_moment_allows():
    address = exchange("My address is anna@example.org.")
    for policy, shown in (("allow", True), ("redact", False), ("allow", True)):
        text = llm_io.user_text(address, SafetyPolicy(pii={**DEFAULT.pii, "email": policy}))
        assert ("anna@" in text) is shown
