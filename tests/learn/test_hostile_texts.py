"""No text keeps a rule of the write path busy: `re` holds all threads up, and no deadline ends it.

Each text here is one that a pattern, or a loop around it, once took far longer over; the comments say how
long. Times are of the machine's work, and the bounds some five times what it takes now.
"""

import asyncio
import json
import time
from contextlib import suppress

import pytest

from proxy.admit.safety import DEFAULT, SafetyPolicy, cleaned, redact
from proxy.domain.core import Candidate, Scope
from proxy.domain.session import Exchange
from proxy.learn import llm_io
from proxy.learn.documents import split
from proxy.learn.grounding import _invents, ground, sources
from proxy.learn.llm_io import objects
from proxy.text.sentences import sentences, without_inner_stops

FACT = '{"type": "semantic", "content": "User likes tea."}'


def exchange(said: str) -> Exchange:
    return Exchange(
        seq=1,
        id="e1",
        scope=Scope("default", "u1"),
        session_id="s1",
        model="m",
        said=said,
        answer="Fine.",
        at=1_780_000_000.0,
        whole=True,
    )


@pytest.mark.parametrize("stops", [".", "?!"])
def test_a_run_of_stops_costs_no_time(stops, benchmark_ms):
    text = stops * (8_000 // len(stops)) + "x"
    assert benchmark_ms(lambda: sentences(text)) < 50  # 400 ms where each stop is looked at anew


@pytest.mark.parametrize(
    "text",
    [
        "a. " * 2_700,
        "Dr. " * 2_000,
        "z. B. " * 1_300,
        "a.a.a.a. " * 900,
        "am 3. " * 1_300,
        "\".'" * 2_700 + "x",
        "." + " " * 8_000 + "x",
        "J." * 4_000 + " x",
        "A" * 8_000 + ". b",
        "…" * 8_000 + "x",
    ],
    ids=lambda text: text[:6],
)
def test_stops_without_end_are_each_judged_by_what_is_near(text, benchmark_ms):
    assert benchmark_ms(lambda: sentences(text)) < 200  # 40 ms; pysbd takes a second for the first
    assert benchmark_ms(lambda: without_inner_stops(text)) < 200


def test_abbreviations_behind_words_for_passwords_cost_no_time(benchmark_ms):
    assert benchmark_ms(lambda: redact("password of Dr. J. R. Ohm " * 300)) < 600


def test_a_table_of_heads_is_read_once(benchmark_ms):
    text = "| password | a |\n" * 900
    assert benchmark_ms(lambda: redact(text)) < 600  # 2 s: 200 rows below each row


def test_what_stands_below_each_of_many_heads_is_still_found():
    text = (
        "| password | a |\n|---|---|\n"
        + "| Kiebitz!83 | b |\n" * 3
        + "\n| a | password |\n| b | Mirlo2023 |\n"
    )
    redacted = redact(text)
    assert "Kiebitz" not in redacted
    assert "Mirlo" not in redacted


def test_a_word_for_passwords_repeated_costs_no_time(benchmark_ms):
    text = "password " * 2_000
    assert benchmark_ms(lambda: redact(text)) < 300  # 480 ms; a tenth of that, on the event loop, for 1,200


def test_a_title_of_blanks_costs_no_time(benchmark_ms):
    text = ("# #" + "\t" * 950 + "x\n") * 20
    assert benchmark_ms(lambda: split(text, "markdown")) < 60  # 290 ms


@pytest.mark.parametrize(
    ("line", "heading"),
    [
        ("# a", "a"),
        ("#\ta \t ", "a"),
        ("## a ##", "a"),
        ("# a #b", "a #b"),
        ("# a # #", "a #"),
        ("#  ##", "##"),
        ("# a#", "a#"),
    ],
)
def test_a_title_is_what_stands_between_the_marks(line, heading):
    assert split(f"{line}\ntext\n", "markdown")[0].headings == (heading,)


@pytest.mark.parametrize(
    "answer",
    [
        "\n" * 20_000,  # minutes
        f"[{FACT}," + "{/*}," * 19_000,  # a minute
        f'[{FACT}, {{"content": "' + '"' + "\n" * 20_000 + "x",  # 3 s
        (f"[{FACT},{{x}}" + "\n" * 3_800 + "y") * 24,  # 16 s
    ],
    ids=["blank lines", "comments", "a string's end", "broken elements"],
)
def test_no_answer_of_the_model_keeps_its_reader_busy(answer, benchmark_ms):
    def reading() -> None:
        with suppress(llm_io.Unreadable):
            llm_io.read_facts(answer)

    assert benchmark_ms(reading) < 1_000


def test_values_are_looked_for_in_a_bounded_part_of_an_answer(benchmark_ms):
    answer = '["' + '\\n{"' * 25_000
    assert benchmark_ms(lambda: list(objects(answer))) < 4_000  # 200 times the answer: 8 s


def test_a_fact_of_a_chapter_s_length_is_none():
    elements = [{"type": "semantic", "content": "a tea " * 1_500}, json.loads(FACT)]
    assert [c.content for c in llm_io.read_facts(json.dumps(elements))] == ["User likes tea."]


@pytest.mark.parametrize("repeated", ["1-", "coffee tea "])
def test_a_long_fact_without_a_quote_is_soon_grounded(repeated, benchmark_ms):
    given = sources([exchange("I like coffee and tea. Ok. Fine. " * 180)], DEFAULT)
    content = "I like coffee and tea. " + repeated * (7_900 // len(repeated))
    fact = Candidate(type="preference", content=content, confidence=0.9)
    assert benchmark_ms(lambda: asyncio.run(ground([fact], given, []))) < 500


def test_a_long_rule_holds_no_code(benchmark_ms):
    given = sources([exchange("I like coffee and tea.")], DEFAULT)
    assert benchmark_ms(lambda: _invents("-" * 8_000, given[0])) < 250  # 530 ms


@pytest.mark.parametrize("sign", ["区", "路", "中", "市中"])
def test_looking_for_addresses_takes_time_in_proportion_to_the_text(sign: str) -> None:
    # 13 s: every sign was tried as the end of a district, and as a part of its name.
    policy = SafetyPolicy(pii={"address": "redact"})
    began = time.process_time()
    assert cleaned(sign * (100_000 // len(sign)), policy) == sign * (100_000 // len(sign))
    assert time.process_time() - began < 3
    said = "我住在北京市朝阳区建国路88号5单元"
    assert redact(said, policy) == "[redacted address]"
