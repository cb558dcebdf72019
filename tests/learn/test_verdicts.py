"""What the statement head's judgement makes of a candidate."""

from typing import Any

import pytest

from proxy.domain.core import Candidate
from proxy.learn.extractor import judged
from proxy.learn.grounding import Grounded
from tests.support.judge import ScriptedJudge, stated

FACT = Candidate(type="semantic", content="User lives in Ghent (stated 2026-01-11)", confidence=0.95)


async def verdict(literal: bool = True, **changes: Any) -> tuple[list[Candidate], list[str], dict[str, int]]:
    result = await judged(
        ScriptedJudge(statement=lambda *_: stated(**changes)), [Grounded(FACT, "I live in Ghent.", literal)]
    )
    return list(result.stored), [reason for _, reason in result.held], dict(result.dropped)


async def test_what_follows_from_the_users_words_is_kept() -> None:
    assert await verdict() == ([FACT], [], {})


@pytest.mark.parametrize(
    "sense",
    ["hypothetical", "fiction", "sarcastic", "transient", "instruction", "forget", "off_record"],
)
async def test_what_was_not_meant_as_a_lasting_fact_is_dropped(sense: str) -> None:
    assert await verdict(sense=sense) == ([], [], {sense: 1})


async def test_facts_about_others_and_about_nobody_are_dropped() -> None:
    assert await verdict(user=0.05, other=0.9) == ([], [], {"other_person": 1})
    assert await verdict(user=0.05, other=0.1, impersonal=0.85) == ([], [], {"nobody": 1})


async def test_what_may_follow_waits_for_review_and_what_does_not_is_dropped() -> None:
    assert await verdict(sense="quoted") == ([], ["quoted"], {})
    assert await verdict(follows=0.4) == ([], ["doubtful"], {})
    assert await verdict(follows=0.2) == ([], [], {"not_said": 1})


async def test_hedged_is_never_sure() -> None:
    (fact,), _, _ = await verdict(sense="hedged")
    assert fact.confidence == 0.6


async def test_a_rule_is_a_preference_and_an_ask_to_remember_is_explicit() -> None:
    (rule,), _, _ = await verdict(sense="rule")
    assert (rule.type, rule.source, rule.importance) == ("preference", "explicit", 0.8)
    (asked,), _, _ = await verdict(sense="remember")
    assert (asked.type, asked.source) == ("semantic", "explicit")


async def test_the_head_reads_the_content_without_the_dates_that_were_resolved_for_it() -> None:
    read: list[str] = []
    judge = ScriptedJudge(statement=lambda _, candidate: (read.append(candidate), stated())[1])
    await judged(judge, [Grounded(FACT, "I live in Ghent.")])
    assert read == ["User lives in Ghent"]


async def test_without_a_judge_only_literal_evidence_counts() -> None:
    spoken, reworded = Grounded(FACT, "I live in Ghent.", True), Grounded(FACT, "Ghent is home.")
    result = await judged(None, [spoken, reworded])
    assert (result.stored, dict(result.dropped)) == ((FACT,), {"no_judge": 1})
