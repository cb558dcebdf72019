import json
import time
from pathlib import Path

import pytest

from proxy.learn.llm_io import MAX_READ, Unreadable, read_facts

FACT = '{"type": "semantic", "content": "User lives in Ghent", "confidence": 0.9}'
CORPUS = Path(__file__).parent / "corpus"
EXPECTED = json.loads((CORPUS / "expected.json").read_text("utf-8"))


def test_every_answer_of_the_corpus_says_what_it_holds() -> None:
    assert {file.stem for file in CORPUS.glob("*.txt")} == set(EXPECTED)
    assert len(EXPECTED) >= 120


@pytest.mark.parametrize("name", EXPECTED)
def test_of_a_malformed_answer_the_whole_facts_are_read_and_nothing_else(name: str) -> None:
    answer = (CORPUS / f"{name}.txt").read_bytes().decode("utf-8")
    if EXPECTED[name] == "unreadable":
        with pytest.raises(Unreadable):
            read_facts(answer)
        return
    assert [[f.type, f.content] for f in read_facts(answer)] == EXPECTED[name]


READABLE = [name for name in EXPECTED if EXPECTED[name] not in ("unreadable", [])]
# Broken off before the end of thoughts that nothing opened, they are no thoughts.
NOT_TO_CUT = ("think-only-closed",)


@pytest.mark.parametrize("name", [name for name in READABLE if name not in NOT_TO_CUT])
def test_an_answer_that_breaks_off_anywhere_yields_no_fact_that_it_does_not_hold(name: str) -> None:
    answer = (CORPUS / f"{name}.txt").read_bytes().decode("utf-8")
    whole = {tuple(fact) for fact in EXPECTED[name]}
    for end in range(0, len(answer), 3):
        try:
            read = read_facts(answer[:end])
        except Unreadable:
            continue
        assert {(f.type, f.content) for f in read} <= whole, answer[:end]


@pytest.mark.parametrize(
    "answer",
    [
        *("[" * 100_000, '{"a":' * 20_000, '{"a":"' + 'x" ' * 33_000, "[ # a\n" * 15_000, '["a", ' * 14_000),
        *("<think>" * 14_000, "<type>" * 16_000, "type: x\n" * 12_000, "[/*" * 30_000, '["' + '\\"' * 49_000),
    ],
    ids=lambda a: a[:8],
)
def test_a_hostile_answer_is_refused_in_bounded_time(answer: str) -> None:
    began = time.thread_time()
    with pytest.raises(Unreadable):
        read_facts(answer)
    assert time.thread_time() - began < 5  # seconds of work: some 0.4 here


def test_unknown_types_are_dropped_and_the_rest_kept() -> None:
    answer = f'{{"facts": [{{"type": "rumour", "content": "User may be a spy"}}, {FACT}]}}'
    assert [f.content for f in read_facts(answer)] == ["User lives in Ghent"]


def test_a_flood_of_facts_is_read_up_to_a_bound() -> None:
    assert len(read_facts("[" + ",".join([FACT] * (MAX_READ + 9)) + "]")) == MAX_READ


@pytest.mark.parametrize(
    ("given", "read"),
    [
        *(("0.9", 0.9), ('"0.7"', 0.7), ('"90%"', 0.9), ("85", 0.85), ("1", 1.0), ("-3", 0.0)),
        *(("8", 0.8), ("10", 1.0), ('"9"', 0.9), ('"9/10"', 0.9), ('"1%"', 0.01), ("100", 1.0)),
        *(('"high"', 0.9), ('"stated"', 0.95), ("null", 0.8), ("true", 0.8), ("[]", 0.8), ("NaN", 0.8)),
        *(("1" + "0" * 400, 1.0), ("-1" + "0" * 400, 0.0), ("Infinity", 1.0)),
    ],
)
def test_confidence_is_read_in_every_notation(given: str, read: float) -> None:
    (fact,) = read_facts(f'[{{"type": "semantic", "content": "User lives in Ghent", "confidence": {given}}}]')
    assert fact.confidence == pytest.approx(read)


def test_tags_outside_the_list_and_references_to_nothing_are_dropped() -> None:
    (fact,) = read_facts(
        '[{"type": "semantic", "content": "User lives in Ghent",'
        ' "tags": ["home", "xyz", 3], "replaces": "null"}]'
    )
    assert fact.tags == ("home",)
    assert fact.replaces is None
