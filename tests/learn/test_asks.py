"""What a message asks memory for, by the heads; without them, or if they fail, nothing."""

from proxy.domain.errors import EmbeddingFailed
from proxy.domain.judging import Asks, Reading
from proxy.learn.triggers import NOTHING, intent_of
from tests.support.judge import SMALL_TALK, ScriptedJudge

RULE = Asks(remember=0.1, forget=0.0, off_record=0.0, rule=0.8)


async def test_a_rule_and_an_ask_to_remember_are_explicit() -> None:
    rule = await intent_of(ScriptedJudge(asks=lambda _: RULE), "Answer in Welsh from now on.")
    assert (rule.is_rule, rule.is_explicit) == (True, True)
    asks = Asks(remember=0.6, forget=0.0, off_record=0.0, rule=0.2)
    asked = await intent_of(ScriptedJudge(asks=lambda _: asks), "Remember my cat.")
    assert (asked.is_rule, asked.is_explicit) == (False, True)


async def test_small_talk_and_questions_state_nothing_personal() -> None:
    assert (await intent_of(ScriptedJudge(), "I moved to Ghent.")).personal
    assert not (await intent_of(ScriptedJudge(), "Where do I live?")).personal
    assert not (await intent_of(ScriptedJudge(needs=lambda _: SMALL_TALK), "Hi there!")).personal


async def test_without_a_judge_nothing_is_asked_for() -> None:
    class Failing(ScriptedJudge):
        async def read(self, text: str, *, closely: bool = False) -> Reading:
            raise EmbeddingFailed("no")

    assert (await intent_of(None, "Remember my cat.")).asks == NOTHING
    assert (await intent_of(Failing(), "Remember my cat.")).asks == NOTHING
    assert (await intent_of(None, "My cat is called Miso.")).personal
