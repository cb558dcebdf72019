"""A model's rewritten question or search plan is used if it is sound and in time, and never costs more."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from proxy.domain.changes import Create
from proxy.domain.core import Hit, MemoryFilter, Scope, Stamp, Status
from proxy.domain.errors import CompletionFailed
from proxy.domain.ports import CompletionRequest
from proxy.recall.prepare import prepare
from proxy.recall.rewrite import (
    ANSWER_TTL_S,
    NO_PLAN,
    REWRITE_ROLE,
    QueryRewriter,
    SearchPlan,
    SearchPlanner,
    narrowed,
    read_plan,
    sound_question,
)
from proxy.recall.triage import query_of
from proxy.storage.sqlite import SqliteStores
from tests.recall.conftest import SCOPE, Shelf, memory, tools_with, turn
from tests.support.embedder import ScriptedEmbedder
from tests.support.judge import NEEDS_MEMORY, ScriptedJudge

EARLIER = "We plan our Portugal trip in May."
TALK = turn(EARLIER, "Lovely! Flights or hotel first?", "and how much?")
QUESTION = '{"question": "How much is the hotel of our Portugal trip?"}'
PLAN = (
    '{"search": true, "types": ["semantic"], "keywords": ["vacation", "cost"],'
    ' "hyde": "User\'s budget for the Portugal trip is $4,000."}'
)
BUDGET = Hit(memory("budget", "User's budget for the Portugal trip is $6,200."), 0.5, 3.0)
POEM = "Compose an ode to the bicycle, please."


@dataclass
class Model:
    """A completer with a scripted answer, or one that hangs or fails."""

    answer: str = QUESTION
    hangs: bool = False
    failing: bool = False
    asked: list[CompletionRequest] = field(default_factory=list)

    async def complete(self, request: CompletionRequest) -> str:
        self.asked.append(request)
        if self.hangs:
            await asyncio.Event().wait()
        if self.failing:
            raise CompletionFailed("status 500")
        return self.answer


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def improved(rewriter: QueryRewriter, of=TALK, *, spent_s: float = 0.0):
    history = [EARLIER] if len(of.messages) > 1 else []
    query = query_of(of.query, history[-1] if history else "")
    async with asyncio.timeout(20):
        return await rewriter.improve(of, query, history, spent_s=spent_s)


# ---------------------------------------------------------------- the question in full
async def test_a_vague_question_is_searched_in_full():
    model = Model()
    query = await improved(QueryRewriter(model, deadline_s=5))
    assert query.text == "How much is the hotel of our Portugal trip?"
    assert {"hotel", "portugal"} <= set(query.terms)
    assert "Flights or hotel first?" in model.asked[0].user
    assert model.asked[0].role == REWRITE_ROLE


async def test_the_model_gets_a_share_of_the_time_that_is_left():
    model = Model(hangs=True)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await improved(QueryRewriter(model, deadline_s=60.0), spent_s=59.9)
    assert loop.time() - began < 20
    await improved(QueryRewriter(model, deadline_s=1.0), spent_s=1.5)
    assert len(model.asked) == 1, "none is asked without time left"
    with pytest.raises(TimeoutError):  # the caller's own deadline is not swallowed
        async with asyncio.timeout(0.01):
            await improved(QueryRewriter(model, deadline_s=1000))


@pytest.mark.parametrize("answer", [QUESTION, '{"question": ""}'])
async def test_a_repeated_request_is_answered_from_the_cache_for_ten_minutes(answer):
    model, clock = Model(answer), Clock()
    rewriter = QueryRewriter(model, deadline_s=5, clock=clock)
    first = await improved(rewriter)
    assert await improved(rewriter, spent_s=100.0) == first, "even without any time left"
    assert len(model.asked) == 1
    clock.now += ANSWER_TTL_S + 1
    await improved(rewriter)
    assert len(model.asked) == 2


async def test_another_user_or_conversation_shares_no_cached_answer():
    model = Model()
    rewriter = QueryRewriter(model, deadline_s=5)
    others = (
        replace(TALK, scope=Scope("default", "u2")),
        replace(TALK, scope=Scope("other", "u1")),
        turn(EARLIER, "Which hotel?", TALK.query),
    )
    for of in (TALK, *others):
        await improved(rewriter, of)
    assert len(model.asked) == 4


async def test_the_endpoint_is_shown_redacted_messages_cut_between_words():
    model = Model()
    rewriter = QueryRewriter(model, deadline_s=5, redact=lambda text: text.replace("Ann", "[redacted]"))
    await improved(rewriter, turn("Ann " + "alpha " * 200 + "omega", "Well.", "and how much?"))
    shown = model.asked[0].user
    assert "[redacted] alpha" in shown
    assert "Ann" not in shown
    assert " … alpha " in shown
    assert "omega" in shown
    assert len(shown) < 1000


@pytest.mark.parametrize(
    "rewritten",
    [
        "The hotel costs $900 a night.",  # an answer
        "Is the hotel of our Portugal trip $900?",  # a new number
        "Is the Portugal hotel the Ritz in Lisbon?",  # new names
        "Which of these fine delicious recipes would Portugal cook?",  # mostly about something else
        None,
    ],
)
def test_a_rewritten_question_that_says_something_new_is_rejected(rewritten):
    shown = f"user: {EARLIER}\nassistant: Lovely! Flights or hotel first?"
    assert sound_question(rewritten, conversation=shown, question=TALK.query) is None


# ---------------------------------------------------------------- search plans
def with_plan(answer: str, memories, judge: ScriptedJudge | None = None):
    """Return tools with a planner whose model gives the answer."""
    tools = tools_with(memories, judge or ScriptedJudge())
    return replace(tools, planner=SearchPlanner(Model(answer), deadline_s=5))


@pytest.mark.parametrize(
    ("answer", "plan"),
    [
        ('```json\n{"search": "no"}\n```', SearchPlan(search=False)),
        ('<think>{"search": false}</think> {"search": true}', SearchPlan()),
        ('{"search": 1, "types": "Semantic, PREFERENCE"} ok', SearchPlan(types=("semantic", "preference"))),
        ("Certainly! I would search for the vacation.", None),
        ('{"facts": [{"type": "semantic", "content": "User likes tea", "confidence": 0.9}]}', None),
        ("{" * 20_000, None),
    ],
)
def test_a_plan_is_read_leniently(answer, plan):
    assert read_plan(answer) == plan


@pytest.mark.parametrize(
    ("asked", "planned_types", "searched"),
    [
        (None, (), None),
        (None, ("episodic",), ("episodic",)),
        (("semantic",), ("preference", "episodic"), ("preference",)),
        (("procedural",), ("episodic",), ("procedural",)),
    ],
)
def test_a_plan_narrows_the_types_of_the_request_and_never_widens_them(asked, planned_types, searched):
    assert narrowed(asked, SearchPlan(types=planned_types)) == searched


async def test_the_search_follows_the_plan():
    shelf = Shelf([BUDGET])
    tools = with_plan(PLAN, shelf)
    prepared = await prepare(turn("What can we spend?"), tools)
    assert prepared.memory_ids == ("budget",)
    (search,) = shelf.asked
    assert {"vacation", "cost"} <= set(search.terms)
    assert search.types == {"semantic", "preference"}
    embedded = {"What can we spend?", "User's budget for the Portugal trip is $4,000."}
    assert embedded <= set(tools.searcher.embedder.embedded)


async def test_a_plan_cancels_a_search_only_if_triage_is_not_sure():
    unsure = ScriptedJudge(needs=lambda _: replace(NEEDS_MEMORY, memory=0.6))
    shelf = Shelf([BUDGET])
    poem = await prepare(turn(POEM), with_plan('{"search": false}', shelf, unsure))
    assert (poem.status, poem.reason) == (Status.SKIPPED, "plan")
    assert shelf.asked == []
    assert (await prepare(turn(POEM), with_plan('{"search": false}', shelf))).memory_ids == ("budget",)


@pytest.mark.parametrize("model", [Model(hangs=True), Model(failing=True), Model(answer="As an AI …")])
async def test_a_late_failing_or_confused_model_changes_nothing(model):
    tools = tools_with(Shelf([BUDGET]), ScriptedJudge())
    models = replace(
        tools, planner=SearchPlanner(model, deadline_s=0.02), rewriter=QueryRewriter(model, deadline_s=0.02)
    )
    async with asyncio.timeout(20):
        assert (await prepare(TALK, models)).memory_ids == ("budget",)
        assert await improved(models.rewriter) == query_of(TALK.query, EARLIER)


async def test_a_memory_forgotten_elsewhere_while_the_model_plans_is_not_shown(tmp_path):
    ours, theirs = SqliteStores(tmp_path), SqliteStores(tmp_path)
    await ours.open()
    await theirs.open()
    budget = replace(BUDGET.memory, scope=SCOPE)
    await ours.memories.apply(SCOPE, [Create(budget, None)], expect=Stamp(0, 0))
    tools = tools_with(ours.memories, ScriptedJudge(), embedder=ScriptedEmbedder(failing=True))
    question = turn("What is the budget of the Portugal trip?")
    assert (await prepare(question, tools)).memory_ids == ("budget",)

    class ForgettingPlanner:
        async def plan(self, *_, **__):
            where = MemoryFilter(tenant=SCOPE.tenant, user=SCOPE.user)
            await theirs.memories.forget(where, "budget", by="test")
            return NO_PLAN

    assert (await prepare(question, replace(tools, planner=ForgettingPlanner()))).memory_ids == ()
    await ours.close()
    await theirs.close()
