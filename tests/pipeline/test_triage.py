"""The rules' verdicts, remembered: the same message is judged once, another one by itself."""

import pytest

from proxy.domain import Scope
from proxy.pipeline.decision import triage
from proxy.pipeline.decision.expect import Expectation
from proxy.pipeline.decision.triage import LASTS_S, Triage
from tests.pipeline.conftest import turn


class Hours:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The messages that the rules looked at."""
    seen: list[str] = []
    decide = triage.decide

    def watched(one):
        seen.append(one.query)
        return decide(one)

    monkeypatch.setattr(triage, "decide", watched)
    return seen


def test_the_same_message_is_judged_once_for_everybody(asked):
    rules = Triage()
    first = rules.judge(turn("What is my budget?"))
    assert rules.judge(turn("  What is my budget?\n", scope=Scope("other", "u2"))) == first
    assert first.verdict.search
    assert first.expected is Expectation.STRONG
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (turn("What is the capital of the US?"), turn("What is the capital of the us?")),  # case says who
        (turn("Translate: a b"), turn("Translate:\n\na b")),
        (turn("ok"), turn("flights?", "Shall I look for an aisle seat?", "ok")),
        (turn("Who won?"), turn("Who won?", tool_forced=True)),
        (turn("x" * 5000 + "\nWhat is our plan?"), turn("x" * 5000 + "\nWhat is any plan?")),
        (turn("Why?\n" + "x" * 5000), turn("Why?\n" + "x" * 5001)),
    ],
)
def test_whatever_the_rules_look_at_makes_another_message(asked, one, other):
    rules = Triage()
    rules.judge(one)
    assert rules.judge(other) == Triage().judge(other)
    assert len(asked) == 3


def test_a_verdict_is_kept_for_a_day(asked):
    clock = Hours()
    rules = Triage(clock)
    rules.judge(turn("hi"))
    clock.now += LASTS_S - 1
    rules.judge(turn("hi"))
    assert len(asked) == 1
    clock.now += 1
    rules.judge(turn("hi"))
    assert len(asked) == 2


def test_pastes_that_differ_in_their_question_alone_are_two_messages():
    def pasted(question: str) -> str:
        return "2026-05-01 INFO worker ok\n" * 60 + question.ljust(60) + f"\n{'a' * 299}\n{'b' * 300}"

    rules = Triage()
    assert not rules.judge(turn(pasted("Please summarise this log."))).verdict.search
    assert rules.judge(turn(pasted("When is my sister's flight to Lisbon?"))).verdict.search


@pytest.mark.parametrize(
    "paste",
    [
        "lorem ipsum dolor " * 50_000 + "\nWhat is my budget?",
        "我们今天去公园玩了一下午。" * 8_000 + "我的预算是多少?",
        "was ist mein Schlüssel hier? wir haben das\n" + "ab" * 50_000,
        "哈" * 110 + "我的预算呢",
    ],
)
def test_no_message_keeps_the_rules_busy(paste, benchmark_ms):
    assert benchmark_ms(lambda: Triage().judge(turn(paste))) < 50


def test_what_is_remembered_is_bounded_and_holds_no_text(monkeypatch):
    monkeypatch.setattr(triage, "SIZE", 10)
    rules = Triage()
    for i in range(50):
        rules.judge(turn(f"Where is my umbrella{i}?"))
    assert len(rules._recent) == 10
    assert "umbrella" not in repr(rules._recent._kept)


@pytest.mark.parametrize(
    "text", ["What is my budget?", "我女儿对什么水果过敏?", "Wer hat das Telefon erfunden?"]
)
def test_a_verdict_takes_less_than_a_millisecond(text, benchmark_ms):
    rules = Triage()
    assert benchmark_ms(lambda: Triage().judge(turn(text))) < 5  # the rules themselves, on a busy machine
    rules.judge(turn(text))
    assert benchmark_ms(lambda: rules.judge(turn(text))) < 1
