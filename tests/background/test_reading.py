"""What is read out of a statement: its values by kind, its names, whose it is, what it says of a change."""

import pytest

from proxy.background.write_gate.change_words import Cue
from proxy.background.write_gate.compare import Relation, relate
from proxy.background.write_gate.reading import read


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("User pays £6,500 in three parts", ["money", "count"]),
        ("Training is on Tuesday at 18:30", ["weekday", "time"]),
        ("Launch is on 21 April 2026", ["date"]),
        ("The launch is on 2026-04-21 at the latest", ["date"]),
        ("Atlas runs Kubernetes 1.29", ["version"]),
        ("User swims twice a week", ["every"]),
        ("上线窗口是每周四 21:00", ["weekday", "time"]),
        ("用户每周游泳三次", ["every", "count:次"]),
        ("房租每月 6200 元", ["every", "money"]),
        ("截止日期是 4 月 30 日", ["date"]),
        ("El alquiler es de 700 euros desde el 3 de mayo de 2026", ["money", "date"]),
        ("Das Training ist donnerstags um 19 Uhr", ["weekday", "time"]),
    ],
)
def test_values_are_told_apart_by_kind(text: str, kinds: list[str]) -> None:
    assert [kind for kind, _ in read(text).values] == kinds


def test_when_a_fact_was_noted_is_no_value_of_it() -> None:
    assert read("User lives in Ghent (stated 2026-01-02).").values == ()
    assert read("OrderHub 用 Kafka(2025-11-10 时)。").values == ()


def test_the_reason_is_not_what_a_clause_is_about() -> None:
    (claim,) = read("Lantern was postponed to June because the vendor was late").claims
    assert claim.cue is Cue.MOVED
    assert claim.before == {"lantern"}
    assert "vendor" not in claim.after


def test_since_when_it_holds_is_not_the_value() -> None:
    claim = next(c for c in read("User's laptop is a MacBook since 28 May 2026").claims if c.cue is Cue.NOW)
    assert claim.kinds == ()


def test_whose_fact_it_is() -> None:
    assert read("User's sister Nadia is a nurse").kin == {"sister"}
    assert read("User lives in Ghent").holder == "user"
    assert read("Lantern's launch is in May").holder == "lantern"
    assert read("用户的哥哥住在长沙").kin == {"哥哥"}


def test_no_statement_however_long_is_slow_to_read() -> None:
    read("now " * 20_000)
    read("User no longer " + "a, " * 20_000)


def test_a_name_behind_a_title_is_a_name_and_one_that_begins_a_sentence_is_not() -> None:
    assert {"ohm", "smith"} <= read("User's dentist is Dr. Ohm, then came J. R. Smith").names
    assert "it" not in read("User has a cat. It is old").names


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("User flies to Rome next Friday (2026-06-05)", "User flies to Rome next Friday (2026-06-12)"),
        ("User owns knives (set of six)", "User owns knives (set of eight)"),
        ("User has a course (starts 2026-05-01)", "User has a course (starts 2026-09-01)"),
        ("The report for Mara (due 2026-05-01)", "The report for Mara (due 2026-06-01)"),
    ],
)
def test_what_stands_in_parentheses_and_is_no_note_is_part_of_the_fact(old: str, new: str) -> None:
    for cosine in (None, 0.9, 0.97):
        assert relate(old, new, cosine, near=0.8) is not Relation.SAME
