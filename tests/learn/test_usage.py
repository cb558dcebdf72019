"""Which memories an answer used: what it shares with them, and what the judge says about its sentences."""

import pytest

from proxy.domain.changes import AnsweredExchange, EvolutionPolicy, ShownMemory, Visit
from proxy.domain.core import Memory, Scope
from proxy.learn.evolution import Shared, UseJudge, UseStep, is_used, shared
from tests.support.judge import ScriptedJudge

ANNA, NOW = Scope("acme", "anna"), 1_000.0


def memory(id_, content):
    return Memory(
        id=id_, scope=ANNA, type="semantic", content=content, source="api", created_at=NOW, updated_at=NOW,
        valid_from=NOW,
    )  # fmt: skip


def exchange(said, answer, *contents):
    shown = tuple(ShownMemory(memory(f"m{n}", content)) for n, content in enumerate(contents))
    return AnsweredExchange(1, ANNA, said, answer, NOW, shown)


class Store:
    def __init__(self, *waiting):
        self.waiting, self.recorded = list(waiting), []

    async def answered(self, scope, limit):
        return self.waiting[:limit]

    async def record_use(self, exchange, verdict, policy, at):
        self.recorded.append(verdict)
        self.waiting.remove(exchange)
        return {} if verdict is None else {"used": sorted(verdict.used)}


class TestShared:
    @pytest.mark.parametrize(
        ("content", "said", "answer", "specific"),
        [
            ("The user's manager is Priya Nair.", "Write to my boss", "Hi Priya, …", 1),
            ("The budget is $12,000.", "What is left?", "Of your 12000 dollars …", 1),
            ("The budget is $12,000.", "Is $12,000 enough?", "Yes, 12,000 will do.", 0),
            ("Der Flug ist LH1858.", "Welcher Flug?", "Es ist LH1858.", 2),
            ("用户的航班是CA1858，下午3点20分起飞。", "我的航班是几点？", "下午3点20分", 2),
            ("The user lives in Lyon.", "Where to eat?", "Try Lyonnais food.", 0),
        ],
    )
    def test_names_and_numbers_count_that_the_question_has_not(self, content, said, answer, specific):
        (found,) = shared([content], said, answer)
        assert found.specific == specific


def test_the_less_is_shared_the_more_must_agree_in_meaning():
    assert is_used(0.2, Shared(1, 0, missing=False))
    assert is_used(0.5, Shared(0, 1, missing=False))
    assert is_used(0.8, Shared(0, 0, missing=False))
    assert not is_used(0.8, Shared(0, 0, missing=True))
    assert not is_used(0.05, Shared(1, 1, missing=False))
    assert is_used(None, Shared(1, 0, missing=False))


async def test_a_memory_that_helps_little_with_the_message_loses_nothing():
    said = exchange(
        "Write to my boss", "Hi there!", "The user's manager is Priya Nair.", "The user likes tea."
    )
    judge = ScriptedJudge(help=lambda text, memory: 0.6 if "boss" in text and "manager" in memory else 0.1)
    verdict = await UseJudge(judge).verdict(said)
    assert (verdict.used, verdict.spared) == (frozenset(), {"m1"})


@pytest.mark.parametrize("policy", [EvolutionPolicy(use=False), EvolutionPolicy(enabled=False)])
async def test_what_is_switched_off_is_settled_without_a_judgement(policy):
    store = Store(exchange("Write to my boss", "Hi Priya!", "The user's manager is Priya Nair."))
    assert (await UseStep(store, UseJudge(None)).run(Visit(ANNA, NOW, policy))).ids == {}
    assert store.recorded == [None]


async def test_a_dry_run_judges_and_records_nothing():
    store = Store(exchange("Write to my boss", "Hi Priya!", "Her name is Priya Nair.", "The user is 40."))
    counts = await UseStep(store, UseJudge(None)).run(Visit(ANNA, NOW, EvolutionPolicy(), dry_run=True))
    assert counts.ids == {"used": ["m0"], "unused": ["m1"]}
    assert store.recorded == []
