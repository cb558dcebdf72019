"""The profile is offered in every conversation, from a real store."""

from dataclasses import replace

import numpy as np
import pytest

from proxy.domain.changes import Archive, Create, Pin
from proxy.domain.core import MemoryFilter, MemoryOptions, Scope, Stamp, Status
from proxy.domain.ports import Needs, ProfileScores
from proxy.recall.prepare import RecallTools, prepare
from proxy.storage.sqlite import SqliteStores
from tests.recall.conftest import NOW, SCOPE, memory, tools_with, turn
from tests.support.embedder import MODEL, ScriptedEmbedder
from tests.support.judge import SMALL_TALK, ScriptedJudge

RULE, TRAIT, FACT = (np.eye(3, dtype=np.float32)[n].tobytes() for n in range(3))
KINDS = {RULE: ProfileScores(0.9, 0.0), TRAIT: ProfileScores(0.0, 0.9), FACT: ProfileScores(0.0, 0.0)}
SPANISH = memory("spanish", "Always answer the user in Spanish.", type="preference")
COELIAC = memory("coeliac", "User is coeliac.", type="semantic")
CAR = memory("car", "User drives a blue Skoda.")
UNCLEAR = Needs(memory=0.4, small_talk=0.1, world=0.3, tool=0.1, self_contained=0.1)


class Counting(ScriptedJudge):
    """Counts how often a user's memories are classified."""

    sorted = 0

    def profile(self, vectors):
        self.sorted += 1
        return super().profile(vectors)


@pytest.fixture
async def stores(tmp_path):
    opened = SqliteStores(tmp_path)
    await opened.open()
    await opened.memories.stamp_model(MODEL)
    rows = [Create(SPANISH, RULE), Create(COELIAC, TRAIT), Create(CAR, FACT)]
    await opened.memories.apply(SCOPE, rows, expect=Stamp(0, 0))
    yield opened
    await opened.close()


def tools_over(stores, **scripted) -> RecallTools:
    judge = Counting(
        standing=KINDS.__getitem__, **{"help": lambda _, content: "Skoda" in content, **scripted}
    )
    return tools_with(stores.memories, judge, embedder=ScriptedEmbedder(lambda text: FACT))


async def test_small_talk_is_offered_the_rules_alone_and_says_so(stores):
    tools = tools_over(stores, needs=lambda _: SMALL_TALK)
    prepared = await prepare(turn("Good morning to you!"), tools)
    assert (prepared.status, prepared.reason) == (Status.INJECTED, "profile")
    assert prepared.memory_ids == ("spanish",)
    assert (await prepare(turn("x", tool_forced=True), tools)).memory_ids == ()


async def test_traits_are_offered_in_a_new_conversation_that_may_concern_the_users_life(stores):
    note = memory("note", "User wants no sugar.", type="reflective", source="reflection")
    await apply(stores, Create(note, TRAIT))  # inferred: never part of the profile
    tools = tools_over(stores, needs=lambda _: UNCLEAR)
    assert (await prepare(turn("Plan the whole of Saturday."), tools)).memory_ids == ("spanish", "coeliac")
    later = turn("Hello", "Hi!", "Plan the whole of Saturday.")
    assert (await prepare(later, tools)).memory_ids == ("spanish",)


async def test_the_requests_types_and_project_and_the_expiry_bound_the_profile(stores):
    other = Scope(SCOPE.tenant, SCOPE.user, "apollo")
    tabs = replace(memory("tabs", "Use tabs.", type="preference"), scope=other)
    old = memory("old", "Use emojis.", type="preference", expires_at=NOW - 1)
    await stores.memories.apply(other, [Create(tabs, RULE)], expect=await stores.memories.stamp(SCOPE))
    await apply(stores, Create(old, RULE))
    tools = tools_over(stores, needs=lambda _: SMALL_TALK)

    async def shown(project, *types):
        options = MemoryOptions(read=True, write=True, types=types or None, limit=10, threshold=None)
        asked = turn("Good morning to you!", scope=replace(SCOPE, project=project), options=options)
        return set((await prepare(asked, tools)).memory_ids)

    assert await shown("apollo") == {"spanish", "tabs"}
    assert await shown("gemini") == {"spanish"}
    assert await shown("gemini", "preference") == {"spanish"}
    assert await shown("gemini", "episodic") == set()


async def test_a_users_memories_are_sorted_once_until_they_change_or_something_is_forgotten(stores):
    tools = tools_over(stores, needs=lambda _: SMALL_TALK)
    judge = tools.searcher.judge
    for _ in range(3):
        await prepare(turn("Good morning to you!"), tools)
    assert judge.sorted == 1
    english = memory("english", "Use British spelling.", type="preference")
    await apply(stores, Create(english, RULE))
    assert (await prepare(turn("Good morning to you!"), tools)).memory_ids == ("english", "spanish")
    assert judge.sorted == 2
    await stores.memories.forget(MemoryFilter(tenant=SCOPE.tenant, user=SCOPE.user), "spanish", by="u")
    assert (await prepare(turn("Good morning to you!"), tools)).memory_ids == ("english",)
    await apply(stores, Pin("car", True, NOW))  # offered like a rule
    assert (await prepare(turn("Good morning to you!"), tools)).memory_ids == ("english", "car")


async def apply(stores, *changes):
    await stores.memories.apply(SCOPE, changes, expect=await stores.memories.stamp(SCOPE))


@pytest.mark.parametrize(("by", "found"), [("use", True), ("decay", True), ("user", False)])
async def test_what_lack_of_use_archived_answers_where_nothing_current_does(stores, by, found):
    await apply(stores, Archive(("car",), NOW, by))
    for searches in (True, False):
        tools = replace(tools_over(stores), searches_faded=searches)
        prepared = await prepare(turn("Which car do I drive these days?"), tools)
        assert ("car" in prepared.memory_ids) is (found and searches)
