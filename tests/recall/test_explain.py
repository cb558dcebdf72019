"""Search and explanations for the memory API, over scripted models and stores."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from proxy.domain.core import Hit, MemoryOptions
from proxy.domain.errors import StoreUnavailable
from proxy.recall.explain import explain, unshown
from proxy.recall.prepare import RecallTools, prepare
from tests.recall.conftest import SCOPE, Shelf, memory, tools_with, turn
from tests.support.judge import NEEDS_MEMORY, SMALL_TALK, ScriptedJudge

BUDGET = Hit(memory("budget", "Our budget for the Portugal trip is $6,200."), 0.5, 3.0)
ASKED = "What can we spend on the hotel?"


def hit(id: str, content: str, cosine: float = 0.5, **changes) -> Hit:
    return Hit(memory(id, content, **changes), cosine, 0.0)


def holding(*hits: Hit, **judge) -> RecallTools:
    return tools_with(Shelf(list(hits)), ScriptedJudge(**judge))


def reasons(explanation) -> dict[str, str | None]:
    return {one.memory.id: one.left_out for one in explanation.weighed}


async def test_each_memory_is_shown_or_has_its_own_reason():
    hits = [
        BUDGET, hit("again", "the Portugal trip"), hit("tea", "User likes tea."),
        hit("doubt", "User prefers hostels.", type="preference", confidence=0.5),
        hit("seen", "User sleeps badly near the station, always."), hit("long", "Breakfast " * 300),
        hit("far", "User owns a boat.", 0.1), hit("cat", "User has a cat."),
    ]  # fmt: skip
    tools = holding(*hits, help=lambda _, text: 0.01 if "tea" in text else 0.9 if "cat" in text else 0.95)
    tools = replace(tools, searcher=replace(tools.searcher, least_cosine=0.2))
    options = MemoryOptions(read=True, write=True, types=None, limit=4, threshold=None)
    asked = turn("User sleeps badly near the station, always.", "Noted.", ASKED, options=options)
    explanation = await explain(asked, tools)
    assert reasons(explanation) == {
        "budget": None, "again": "repeated", "tea": "unanswered", "doubt": "doubted",
        "far": "below_threshold", "seen": "already_visible", "long": "over_budget", "cat": None,
    }  # fmt: skip
    assert explanation.prepared == await prepare(asked, tools)
    assert [one.memory.id for one in explanation.weighed[:2]] == list(explanation.prepared.memory_ids)
    few = await explain(replace(asked, options=replace(options, limit=1)), tools)
    assert reasons(few)["cat"] == "over_limit"


async def test_a_message_that_needs_no_memory_shows_what_a_search_would_have_found():
    explanation = await explain(turn("Good morning!"), holding(BUDGET, needs=lambda _: SMALL_TALK))
    assert explanation.prepared.reason == "greeting"
    assert reasons(explanation) == {"budget": "not_searched"}


async def test_an_explanation_and_a_search_call_no_external_model():
    def asked(*_, **__):
        raise AssertionError

    tools = replace(holding(BUDGET), planner=SimpleNamespace(plan=asked), stage=asked)
    assert await unshown(SCOPE, ASKED, tools, limit=10) is None
    assert (await explain(turn(ASKED), tools)).prepared.memory_ids == ("budget",)
    for read in (unshown(SCOPE, ASKED, broken(), limit=10), explain(turn(ASKED), broken())):
        with pytest.raises(StoreUnavailable):
            await read


class Broken(Shelf):
    """A store that fails to search."""

    async def search(self, scope, search):
        raise StoreUnavailable


def broken() -> RecallTools:
    return tools_with(Broken(), ScriptedJudge())


@pytest.mark.parametrize("needs", [NEEDS_MEMORY, SMALL_TALK])
@pytest.mark.parametrize("helps", [0.9, 0.1])
async def test_unshown_gives_the_reason_that_a_conversation_would_get(needs, helps):
    tools = holding(BUDGET, needs=lambda _: needs, help=lambda *_: helps)
    assert await unshown(SCOPE, ASKED, tools, limit=10) == (await prepare(turn(ASKED), tools)).reason
