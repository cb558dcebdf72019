"""How the exchanges of a job are made safe to be shown."""

import pytest

from proxy.admit import safety
from proxy.admit.safety import DEFAULT, SafetyPolicy
from proxy.learn import llm_io, session_notes
from proxy.learn.grounding import sources
from tests.learn.support import exchange


def test_a_job_makes_each_of_its_texts_safe_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at them four times; to make them safe is most of the time that it takes."""
    cleaned: list[str] = []
    without_planted = safety.without_planted

    def counted(text: str) -> str:
        cleaned.append(text)
        return without_planted(text)

    monkeypatch.setattr(safety, "without_planted", counted)
    told = [exchange("I keep bees in Ulm.", "How many hives?"), exchange("Nine hives of them.", "Nine!")]
    llm_io.conversation(told, DEFAULT)
    sources(told, DEFAULT)
    session_notes.state_request(None, told, DEFAULT)
    assert len(cleaned) == len(set(cleaned)) == 4


def test_what_one_policy_lets_through_another_does_not() -> None:
    told = exchange("My address is anna@example.org.")
    strict = SafetyPolicy(pii={**DEFAULT.pii, "email": "redact"})
    open_ = SafetyPolicy(pii={**DEFAULT.pii, "email": "allow"})
    assert "anna@" in llm_io.user_text(told, open_)
    assert "anna@" not in llm_io.user_text(told, strict)
    assert "anna@" in llm_io.user_text(told, open_)
