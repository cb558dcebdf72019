"""A model's plan of the search: read leniently, believed cautiously, and never waited for in vain."""

import asyncio
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from proxy.domain.core import Create, Hit, MemoryFilter, MemoryOptions, Stamp, Status
from proxy.domain.errors import CompletionFailed
from proxy.domain.ports import CompletionRequest
from proxy.recall.prepare import prepare
from proxy.recall.query import MAX_TERMS, query_of
from proxy.recall.rewrite import (
    MAX_KEYWORDS,
    NO_PLAN,
    PLAN_ROLE,
    SearchPlan,
    SearchPlanner,
    narrowed,
    planned,
    read_plan,
)
from proxy.storage.sqlite.stores import SqliteStores
from tests.recall.conftest import NOW, SCOPE, Scripted, Shelf, memory, tools_with, turn
from tests.support.judge import NEEDS_MEMORY, SMALL_TALK, ScriptedJudge

GOOD = (
    '{"search": true, "types": ["semantic"], "keywords": ["vacation", "cost"],'
    ' "hyde": "User\'s budget for the Portugal trip is $4,000."}'
)
BUDGET = Hit(memory("budget", "User's budget for the Portugal trip is $6,200."), 0.5, 3.0)
POEM = "Compose an ode to the bicycle, please."


@dataclass
class Model:
    """A completer that answers what the test wrote down, or hangs, or fails."""

    answer: str = GOOD
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


class Floats(Scripted):
    """An embedder whose vectors are vectors: all the same."""

    async def embed_query(self, text):
        return (await self.embed([text]))[0]

    async def embed(self, texts):
        self.embedded += texts
        return [np.array([1, 0, 0], np.float32).tobytes() for _ in texts]


def with_plan(answer: str, memories, judge: ScriptedJudge | None = None):
    """Return tools with a planner whose model gives the answer."""
    tools = tools_with(memories, judge or ScriptedJudge(), embedder=Floats())
    return replace(tools, planner=SearchPlanner(Model(answer), deadline_s=5))


# ---------------------------------------------------------------- reading
@pytest.mark.parametrize(
    ("answer", "plan"),
    [
        (
            GOOD,
            SearchPlan(
                types=("semantic",),
                keywords=("vacation", "cost"),
                imagined="User's budget for the Portugal trip is $4,000.",
            ),
        ),
        ('{"search": false}', SearchPlan(search=False)),
        ('```json\n{"search": "no"}\n```', SearchPlan(search=False)),
        ('<think>{"search": false}</think> {"search": true}', SearchPlan()),
        (
            'Sure! {"search": 1, "types": "Semantic, PREFERENCE"} Done.',
            SearchPlan(types=("semantic", "preference")),
        ),
        ('{"search": true, "types": ["diary", 7, null]}', SearchPlan()),
        (
            '{"search": true, "keywords": ["", " a ", "x\\ny", 3, "' + "z" * 99 + '"]}',
            SearchPlan(keywords=("a",)),
        ),
        ('{"search": true, "hyde": "What do you mean?"}', SearchPlan()),
        ('{"search": true, "types": {}, "keywords": {}, "hyde": 5}', SearchPlan()),
    ],
)
def test_a_plan_is_read_however_it_is_wrapped(answer, plan):
    assert read_plan(answer) == plan


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Certainly! I would search for the vacation.",
        '{"facts": [{"type": "semantic", "content": "User likes tea", "confidence": 0.9}]}',
        '{"question": "What is it?"}',
        '{"search": "vacation budget"}',
        '{"search": null}',
        '{"search": tru',
        '{"search": ' * 2000,
        "{" * 20_000,
        "[true, false]",
        "<think>never ends",
    ],
)
def test_anything_else_is_no_plan(answer):
    assert read_plan(answer) is None


def test_a_plan_has_bounds():
    words = ", ".join(f'"word{i}"' for i in range(99))
    plan = read_plan(f'{{"search": true, "keywords": [{words}]}}')
    assert plan is not None
    assert len(plan.keywords) == MAX_KEYWORDS


# ---------------------------------------------------------------- applying
def test_the_words_of_a_plan_are_looked_up_and_do_not_count_as_the_question_s():
    query = planned(query_of("What can we spend?"), SearchPlan(keywords=("vacation costs", "spend")))
    assert "vacation" in query.extra
    assert not {"vacation"} & set(query.terms)
    assert not set(query.extra) & set(query.terms)


def test_no_more_is_looked_up_than_without_a_plan():
    long = query_of(" ".join(f"word{i}" for i in range(60)))
    query = planned(long, SearchPlan(keywords=("vacation",)))
    assert len(query.terms) + len(query.extra) <= MAX_TERMS


@pytest.mark.parametrize(
    ("asked", "planned_types", "searched"),
    [
        (None, (), None),
        (None, ("episodic",), ("episodic",)),
        (("semantic",), ("preference", "episodic"), ("preference",)),
        (("procedural",), ("episodic",), ("procedural",)),
    ],
)
def test_a_plan_narrows_what_the_request_allows_and_never_widens_it(asked, planned_types, searched):
    assert narrowed(asked, SearchPlan(types=planned_types)) == searched


async def test_the_search_follows_the_plan():
    shelf = Shelf([BUDGET])
    planned_tools = with_plan(GOOD, shelf)
    prepared = await prepare(turn("What can we spend?"), planned_tools)
    assert prepared.memory_ids == ("budget",)
    (search,) = shelf.asked
    assert {"vacation", "cost"} <= set(search.terms)
    assert search.types == {"semantic", "preference"}
    embedded = planned_tools.searcher.embedder.embedded
    assert {"What can we spend?", "User's budget for the Portugal trip is $4,000."} <= set(embedded)


async def test_where_the_planned_kinds_hold_nothing_all_are_searched():
    class Typed(Shelf):
        async def search(self, scope, search):
            self.asked.append(search)
            return self.hits if search.types is None else []

    shelf = Typed([BUDGET])
    answer = '{"search": true, "types": ["episodic"]}'
    prepared = await prepare(turn("What can we spend?"), with_plan(answer, shelf))
    assert prepared.memory_ids == ("budget",)
    assert [search.types for search in shelf.asked] == [{"episodic"}, None]


async def test_a_plan_calls_off_a_search_only_if_triage_is_not_sure():
    unsure = ScriptedJudge(needs=lambda _: replace(NEEDS_MEMORY, memory=0.6))
    shelf = Shelf([BUDGET])
    poem = await prepare(turn(POEM), with_plan('{"search": false}', shelf, unsure))
    assert (poem.status, poem.reason) == (Status.SKIPPED, "plan")
    assert shelf.asked == []
    assert (await prepare(turn(POEM), with_plan('{"search": false}', shelf))).memory_ids == ("budget",)


async def test_what_triage_skips_asks_no_model():
    model = Model()
    tools = tools_with(Shelf(), ScriptedJudge(needs=lambda _: SMALL_TALK))
    await prepare(turn("hi there"), replace(tools, planner=SearchPlanner(model, deadline_s=5)))
    assert model.asked == []


@pytest.mark.parametrize("model", [Model(hangs=True), Model(failing=True), Model(answer="As an AI …")])
async def test_a_model_that_is_late_or_broken_or_confused_changes_nothing(model):
    tools = tools_with(Shelf([BUDGET]), ScriptedJudge())
    async with asyncio.timeout(20):
        prepared = await prepare(turn(POEM), replace(tools, planner=SearchPlanner(model, deadline_s=0.02)))
    assert prepared.memory_ids == ("budget",)


async def test_with_no_time_left_no_model_is_asked():
    model = Model()
    assert await SearchPlanner(model, deadline_s=0.1).plan(turn("How much?"), (), spent_s=0.2) == NO_PLAN
    assert model.asked == []


async def test_the_model_is_asked_once_in_its_own_role_about_the_whole_conversation():
    model = Model()
    planner = SearchPlanner(model, deadline_s=5, redact=lambda text: text.replace("Ann", "[redacted]"))
    talk = turn("Ann and I plan Portugal.", "When?", "How much is it?")
    first = await planner.plan(talk, (), spent_s=0)
    assert await planner.plan(talk, (), spent_s=0) == first == read_plan(GOOD)
    (request,) = model.asked
    assert request.role == PLAN_ROLE
    assert "plan Portugal" in request.user
    assert "[redacted] and I" in request.user


async def test_the_request_s_own_types_stay_the_bound_of_the_fallback():
    options = MemoryOptions(read=True, write=False, types=("procedural",), limit=5, threshold=None)
    shelf = Shelf([])
    await prepare(turn("What can we spend?", options=options, at=NOW), with_plan(GOOD, shelf))
    assert {search.types for search in shelf.asked} == {frozenset({"procedural"})}


async def test_what_another_process_forgets_while_the_model_plans_is_not_shown(tmp_path):
    ours, theirs = SqliteStores(tmp_path), SqliteStores(tmp_path)
    await ours.open()
    await theirs.open()
    kept = replace(BUDGET.memory, scope=SCOPE)
    await ours.memories.apply(SCOPE, [Create(kept, None)], expect=Stamp(0, 0))
    asked = tools_with(ours.memories, ScriptedJudge(), embedder=Scripted(failing=True))
    question = turn("What is the budget of the Portugal trip?")
    assert (await prepare(question, asked)).memory_ids == ("budget",)

    class Plans:
        async def plan(self, *_, **__):
            where = MemoryFilter(tenant=SCOPE.tenant, user=SCOPE.user)
            await theirs.memories.forget(where, "budget", by="test")
            return NO_PLAN

    assert (await prepare(question, replace(asked, planner=Plans()))).memory_ids == ()
    await ours.close()
    await theirs.close()
