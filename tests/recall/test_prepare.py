"""The read path as a whole, over scripted models and stores."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from proxy.domain.core import Hit, Level, Memory, MemoryOptions, Message, Scope, Status
from proxy.domain.errors import EmbeddingFailed, StoreUnavailable
from proxy.domain.ports import Needs
from proxy.domain.session import Anchor, SessionNotes
from proxy.recall.prepare import LINES, RecallTools, prepare
from proxy.telemetry import REMIND_S, ThrottledLog
from tests.recall.conftest import NOW, Past, Shelf, memory, tools_with, turn
from tests.storage.recording import recorded
from tests.support.embedder import ScriptedEmbedder
from tests.support.judge import SMALL_TALK, ScriptedJudge

BUDGET = Hit(memory("budget", "User's budget for the Portugal trip is $6,200."), 0.5, 3.0)
ASKED = "What can we spend on the hotel?"


def holding(*hits: Hit, judge: ScriptedJudge | None = None, **searcher) -> RecallTools:
    return tools_with(Shelf(list(hits)), judge or ScriptedJudge(), **searcher)


def broken(*_) -> None:
    raise EmbeddingFailed


@dataclass
class Line:
    """A timeline in which every memory superseded the same values."""

    values: list[Memory]
    broken: bool = False

    async def earlier(self, scope: Scope, ids: Sequence[str]) -> dict[str, list[Memory]]:
        if self.broken:
            raise StoreUnavailable
        return dict.fromkeys(ids, self.values)


# ---------------------------------------------------------------- triage
async def test_a_relevant_memory_is_injected():
    tools = holding(BUDGET)
    prepared = await prepare(turn(ASKED), tools)
    assert (prepared.status, prepared.reason) == (Status.INJECTED, None)
    assert prepared.memory_ids == ("budget",)
    assert "$6,200" in prepared.block
    assert 0 < prepared.tokens <= tools.budget.memory_tokens
    assert prepared.level is Level.FULL


@pytest.mark.parametrize(
    ("strongest", "reason"),
    [
        ("small_talk", "greeting"),
        ("world", "general_fact"),
        ("tool", "tool_answers"),
        ("self_contained", "self_contained"),
    ],
)
async def test_a_message_that_needs_no_memory_is_not_searched_and_the_reason_says_why(strongest, reason):
    needs = {"memory": 0.49, "small_talk": 0.1, "world": 0.1, "tool": 0.1, "self_contained": 0.1}
    tools = holding(BUDGET, judge=ScriptedJudge(needs=lambda _: Needs(**{**needs, strongest: 0.3})))
    prepared = await prepare(turn("Tell me about the weather in the mountains."), tools)
    assert (prepared.status, prepared.reason) == (Status.SKIPPED, reason)
    assert tools.searcher.memories.asked == []


async def test_a_forced_tool_and_a_message_without_words_are_skipped_unread(judge, tools):
    assert (await prepare(turn(ASKED, tool_forced=True), tools)).reason == "tool_forced"
    assert (await prepare(turn("   "), tools)).reason == "no_query"
    assert judge.read_texts == []


async def test_a_short_message_is_read_with_the_users_message_before_it(judge, tools):
    await prepare(turn("We plan Portugal in May.", "Lovely!", "How much?"), tools)
    assert judge.read_texts[-1] == "We plan Portugal in May.\nHow much?"
    assert {"portugal"} <= set(tools.searcher.memories.asked[0].terms)
    await prepare(turn("How much?"), replace(tools, sessions=Past(["We plan Spain."])))
    assert judge.read_texts[-1] == "We plan Spain.\nHow much?"
    await prepare(turn("We plan Portugal in May.", "Lovely!", "How much did the whole hotel cost us?"), tools)
    assert judge.read_texts[-1] == "How much did the whole hotel cost us?"


# ---------------------------------------------------------------- search
async def test_the_reason_distinguishes_no_memories_from_memories_that_do_not_help():
    none = await prepare(turn(ASKED), holding())
    useless = await prepare(turn(ASKED), holding(BUDGET, judge=ScriptedJudge(help=lambda *_: 0.49)))
    far = await prepare(turn(ASKED), tools_with(Shelf([replace(BUDGET, cosine=0.1)]), None))
    assert (none.status, none.reason) == (Status.NONE, "no_memories")
    assert (useless.status, useless.reason) == (Status.NONE, "unanswered")
    assert far.reason == "below_threshold"
    said = "Our budget for the Portugal trip is $6,200. Where do we sleep?"
    assert (await prepare(turn(said), holding(BUDGET))).reason == "already_visible"
    tools = holding(BUDGET)
    small = replace(tools, budget=replace(tools.budget, memory_tokens=5))
    assert (await prepare(turn(ASKED), small)).reason == "over_budget"


async def test_a_request_s_own_threshold_replaces_the_judge():
    near, far = BUDGET, Hit(memory("far", "User likes tea."), 0.39, 2.0)
    options = MemoryOptions(read=True, write=False, types=None, limit=10, threshold=0.4)
    tools = holding(near, far, judge=ScriptedJudge(help=broken))
    assert (await prepare(turn(ASKED, options=options), tools)).memory_ids == ("budget",)
    both = holding(near, far, least_cosine=0.4)  # the server's least cosine, in addition to the judge
    assert (await prepare(turn(ASKED), both)).memory_ids == ("budget",)


# ---------------------------------------------------------------- what fails
@pytest.mark.parametrize(
    ("judge", "embedder", "level"),
    [
        (ScriptedJudge(needs=broken), ScriptedEmbedder(), Level.UNJUDGED),
        (ScriptedJudge(help=broken), ScriptedEmbedder(), Level.UNJUDGED),
        (ScriptedJudge(), ScriptedEmbedder(failing=True), Level.LEXICAL),
    ],
)
async def test_a_failing_model_lowers_the_level_and_memories_are_still_found(judge, embedder, level):
    tools = tools_with(Shelf([BUDGET]), judge, embedder=embedder)
    prepared = await prepare(turn("What is my Portugal budget?"), tools)
    assert (prepared.memory_ids, prepared.level) == (("budget",), level)


class Away(Shelf):
    """A store that cannot begin to read."""

    async def snapshot(self, scope, sort=None):
        raise StoreUnavailable


class Stuck(Shelf):
    """A store that never answers."""

    async def snapshot(self, scope, sort=None):
        await asyncio.Event().wait()


@pytest.mark.parametrize("store", [Away(), Stuck()])
async def test_small_talk_is_not_degraded_by_a_store_that_fails_or_hangs(store):
    tools = tools_with(store, ScriptedJudge(needs=lambda _: SMALL_TALK))
    async with asyncio.timeout(5):
        prepared = await prepare(turn("Good morning to you!"), replace(tools, patience_s=0.01))
    assert (prepared.status, prepared.reason, prepared.level) == (Status.SKIPPED, "greeting", Level.SESSION)


async def test_failing_notes_and_history_are_logged_once_a_minute(monkeypatch):
    lines, clock = recorded(monkeypatch, lambda facts: facts), [0.0]
    tools = replace(holding(BUDGET), seldom=ThrottledLog(lambda: clock[0]))
    away = replace(tools, sessions=Past(broken=True), notes=Notebook(broken=True))
    for clock[0] in range(0, round(REMIND_S) + 1, 10):
        assert (await prepare(turn("How much?", named=True), away)).memory_ids == ("budget",)
    events = ["memory.history_unavailable", "memory.notes_unavailable"]
    assert sorted(event for event, facts in lines if not facts) == events
    assert sorted(event for event, facts in lines if facts == {"left_out": 5}) == events
    assert len(lines) == 4


# ---------------------------------------------------------------- the session's notes
ANCHOR = Anchor("language", "Answer in Chinese.", NOW)


@dataclass
class Notebook:
    """The same notes for every session; records the requests."""

    anchors: tuple[Anchor, ...] = (ANCHOR,)
    broken: bool = False
    asked: list[dict[str, object]] = field(default_factory=list)

    async def notes(self, scope, session_id, **asked):
        self.asked.append(asked)
        if self.broken:
            raise StoreUnavailable
        return SessionNotes(self.anchors)


class Broken(Shelf):
    """A store that fails to search."""

    async def search(self, scope, search):
        raise StoreUnavailable


async def test_an_anchor_is_injected_without_memories():
    tools = holding(judge=ScriptedJudge(needs=lambda _: SMALL_TALK))
    assert (await prepare(turn(ASKED), tools)).reason == "greeting"
    prepared = await prepare(turn(ASKED, named=True), replace(tools, notes=Notebook()))
    assert (prepared.status, prepared.reason, prepared.memory_ids) == (Status.INJECTED, "session", ())


async def test_notes_are_injected_if_memories_cannot_be_read():
    away = tools_with(Broken(), ScriptedJudge())
    with pytest.raises(StoreUnavailable):
        await prepare(turn("What can we spend?", named=True), replace(away, notes=Notebook(())))
    prepared = await prepare(turn("What can we spend?", named=True), replace(away, notes=Notebook()))
    assert (prepared.status, prepared.level) == (Status.INJECTED, Level.SESSION)
    assert "Answer in Chinese." in prepared.block


async def test_an_unnamed_session_returns_only_anchors_of_its_own_request(tools):
    notebook = Notebook((ANCHOR, Anchor("length", "Keep it short.", NOW)))
    noted = replace(tools, notes=notebook)
    guessed = turn("hello", "good day", "and now?")
    assert (await prepare(guessed, noted)).block == ""
    assert notebook.asked == []
    compressed = replace(guessed, left_out=(Message("user", "Answer in Chinese. Thanks!"),))
    block = (await prepare(compressed, noted)).block
    assert ("Answer in Chinese." in block, "Keep it short." in block) == (True, False)
    await prepare(turn("and now?", named=True, standalone=True), noted)
    assert notebook.asked == [{"lines": 0}, {"lines": LINES}]


# ---------------------------------------------------------------- the past
async def test_a_question_about_a_past_time_is_shown_what_held_then_in_the_users_zone():
    asked = datetime(2027, 5, 12, 10, tzinfo=UTC).timestamp()
    began, ended = (datetime(2027, 3, day, 22, tzinfo=UTC).timestamp() for day in (9, 30))
    old = memory("old", "User's budget for the trip is $5,000.", valid_from=began, valid_to=ended)
    for question, zone, is_shown in (
        ("What was my budget in March?", "UTC", True),
        ("What was my budget last week?", "UTC", False),
        ("What was my budget on 2027-03-31?", "UTC", False),
        ("What was my budget on 2027-03-31?", "Asia/Tokyo", True),  # it was the 31st there
        ("What is my budget?", "UTC", False),
    ):
        tools = replace(holding(BUDGET), timeline=Line([old]))
        prepared = await prepare(turn(question, at=asked, timezone=zone), tools)
        assert ("[was " in prepared.block, "old" in prepared.memory_ids) == (is_shown, is_shown), question
        assert prepared.memory_ids[0] == "budget"
    tools = replace(holding(BUDGET), timeline=Line([old], broken=True))
    prepared = await prepare(turn("What was my budget in March?", at=asked), tools)
    assert prepared.memory_ids == ("budget",)


@dataclass
class Named:
    """Memories that share a name with any other, and what they name."""

    linked_: list[Memory] = field(default_factory=list)

    async def knows(self, scope, names, *, now):
        return "Mara" in names

    async def linked(self, scope: Scope, ids: Sequence[str], *, now: float, limit: int) -> list[Memory]:
        return self.linked_[:limit]


async def test_a_name_in_the_best_memory_leads_to_another_that_helps_with_both():
    flight, figs = memory("flight", "Mara flies on Monday."), memory("figs", "Mara likes figs.")
    sister = Hit(memory("sister", "User's sister is Mara."), 0.5, 0.0)

    def help_(message, content):
        return 0.9 if "sister" in content or ("is Mara" in message and "flies" in content) else 0.1

    named = Named([flight, figs])
    tools = replace(holding(sister, judge=ScriptedJudge(help=help_)), entities=named, follows_links=True)
    question = turn("When does my sister fly?")
    assert (await prepare(question, tools)).memory_ids == ("sister", "flight")
    assert (await prepare(question, replace(tools, follows_links=False))).memory_ids == ("sister",)
    narrow = replace(question, options=replace(question.options, types=("episodic",)))
    assert "flight" not in (await prepare(narrow, tools)).memory_ids
