"""How the exchanges of a job are made safe to be shown."""

import pytest

from proxy.admit.safety import planted
from proxy.admit.safety.policy import DEFAULT, SafetyPolicy
from proxy.learn.extraction import transcript
from proxy.learn.extraction.grounding import sources
from proxy.learn.session import state
from tests.learn.support import exchange


def test_a_job_makes_each_of_its_texts_safe_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at them four times; to make them safe is most of the time that it takes."""
    cleaned: list[str] = []
    without_planted = planted.without_planted

    def counted(text: str) -> str:
        cleaned.append(text)
        return without_planted(text)

    monkeypatch.setattr(planted, "without_planted", counted)
    told = [exchange("I keep bees in Ulm.", "How many hives?"), exchange("Nine hives of them.", "Nine!")]
    transcript.conversation(told, DEFAULT)
    sources(told, DEFAULT)
    state.request(None, told, DEFAULT)
    assert len(cleaned) == len(set(cleaned)) == 4


def test_what_one_policy_lets_through_another_does_not() -> None:
    told = exchange("My address is anna@example.org.")
    strict = SafetyPolicy(pii={**DEFAULT.pii, "email": "redact"})
    open_ = SafetyPolicy(pii={**DEFAULT.pii, "email": "allow"})
    assert "anna@" in transcript.said(told, open_)
    assert "anna@" not in transcript.said(told, strict)
    assert "anna@" in transcript.said(told, open_)
