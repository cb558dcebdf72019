"""Relative dates, in every language that we resolve."""

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.text.dates import anchored, expiry, local_time, past_period
from tests.support.examples import examples

THURSDAY = datetime(2026, 2, 26, 10, tzinfo=UTC)
CORPUS = Path(__file__).parent / "relative_dates.txt"
RECALLED = [row.split("\t") for row in CORPUS.read_text("utf-8").splitlines() if not row.startswith("#")]
WORDS = [word for _, _, text in RECALLED for word in text.split()]


def added(text: str, said: datetime, type_: str = "semantic") -> list[str]:
    """Return the notes in parentheses that were added to the text, whose words stay as they are."""
    dated = anchored(text, type_, said)
    notes = [note for note in re.findall(r" \(([^()]*)\)", dated) if f" ({note})" not in text]
    for note in notes:
        dated = dated.replace(f" ({note})", "", 1)
    assert dated == text
    return notes


@pytest.mark.parametrize("language", sorted({language for language, _, _ in RECALLED}))
def test_relative_dates_of_every_language_are_resolved(language):
    """Said on Thursday 2026-03-05 at 21:00, where it is 6 March in UTC already."""
    said = datetime(2026, 3, 5, 21, tzinfo=ZoneInfo("America/Los_Angeles"))
    special = {"-": [], "?": ["stated 2026-03-05"]}
    wrong = [
        (text, found, meant)
        for spoken, meant, text in RECALLED
        if spoken == language and (found := added(text, said)) != special.get(meant, [meant])
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("content", "dated"),
    [
        ("User speaks at next year's conference.", "User speaks at next year's (2027) conference."),
        ("User leads tomorrow’s demo.", "User leads tomorrow’s (2026-02-27) demo."),
        ("User speaks at next year's (2027) conference.", None),
        ("User speaks at next year (2027)'s conference.", None),
        ("User leaves tomorrow, 27 February 2026.", None),
        ("Nächstes Jahr (2027) zieht der Nutzer um.", None),
        ("用户明天（2月27日）签约。", None),
    ],
)
def test_a_date_is_placed_where_it_reads_well_and_once(content, dated):
    once = anchored(content, "semantic", THURSDAY)
    assert once == (dated or content)
    assert anchored(once, "semantic", THURSDAY + timedelta(days=400)) == once


@pytest.mark.parametrize(
    ("at", "zone"), [(-1e30, "-12:00"), (0.0, "Europe/Berlin"), (1e30, "Pacific/Kiritimati")]
)
def test_no_time_and_no_count_is_too_odd(at, zone):
    """In the years 1 and 9999 some days are outside of the calendar: text that names them stays as it is."""
    odd = ("in 999 years", "999 years ago", "vor 999 Wochen", "半年后", "in 0 days")
    for text in (*(text for _, _, text in RECALLED), *odd):
        assert anchored(text, "semantic", local_time(at, zone))


@settings(max_examples=examples(50))
@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_a_text_keeps_its_words_and_is_resolved_once(text):
    once = anchored(text, "semantic", THURSDAY)
    assert anchored(once, "semantic", THURSDAY + timedelta(days=3)) == once


def test_a_long_text_takes_no_seconds():
    for text in ("a" * 4_000, "1 " * 2_000, "in " * 1_300, "用户" * 2_000, "周一" * 2_000):
        began = time.perf_counter()
        anchored(text, "semantic", THURSDAY)
        assert time.perf_counter() - began < 2


@pytest.mark.parametrize("last", ["2026-05-05", "5 May 2026", "May 5, 2026"])
def test_a_rule_with_a_last_day_ends_when_that_day_is_over(last):
    end = expiry(f"User wants answers in French until {last}.", "preference", "UTC")
    assert end == datetime(2026, 5, 6, tzinfo=UTC).timestamp()


# ---------------------------------------------------------------- questions
ASKED = datetime(2027, 5, 12, 10)


@pytest.mark.parametrize(
    ("question", "period"),
    [
        ("What did I say about Lisbon in March?", "2027-03-01 2027-04-01"),
        ("what changed since last week?", "2027-05-03 2027-05-10"),
        ("What was my budget on 2027-03-05?", "2027-03-05 2027-03-06"),
        ("Between January and April, what did I spend?", "2027-01-01 2027-05-01"),
        ("¿Qué dije sobre Lisboa en marzo de 2026?", "2026-03-01 2026-04-01"),
        ("Was wog ich vor drei Monaten?", "2027-02-01 2027-03-01"),
        ("où habitais-je l'année dernière ?", "2026-01-01 2027-01-01"),
        ("2026年3月我住在哪里", "2026-03-01 2026-04-01"),
        ("지난주에 무엇이 바뀌었어?", "2027-05-03 2027-05-10"),
        ("Что я говорил о Лиссабоне в марте?", "2027-03-01 2027-04-01"),
        ("ماذا قلت عن لشبونة في مارس؟", "2027-03-01 2027-04-01"),
        ("How much goes home this month?", None),
        ("Wer gibt hier frei?", None),  # "hier" is French for yesterday
        ("What should I do today?", None),
        ("May I have some mayo on Mars?", None),
        ('Is my plan from "last week" still good?', None),
    ],
)
def test_a_question_names_the_past_time_that_it_asks_about(question, period):
    found = past_period(question, ASKED)
    assert (found and " ".join(day.isoformat() for day in found)) == period
