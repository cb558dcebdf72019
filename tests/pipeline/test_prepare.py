"""The read path as a whole: what becomes of a turn."""

import asyncio
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from proxy.domain import Hit, Level, MemoryOptions, Message, Status
from proxy.errors import StoreUnavailable
from proxy.notes import Anchor, SessionNotes
from proxy.observe import REMIND_S, Seldom
from proxy.pipeline.decision.restraint import Restraint
from proxy.pipeline.prepare import LINES, prepare, search, unshown
from proxy.pipeline.recall.wording import Wording
from tests.pipeline.conftest import NOW, SCOPE, Past, Scripted, Shelf, memory, turn
from tests.stores.recording import recorded

BUDGET = Hit(memory("budget", "User's budget for the Portugal trip is $6,200."), 0.5, 3.0)


async def test_a_relevant_memory_is_injected(tools):
    prepared = await prepare(turn("What can we spend?"), replace(tools, memories=Shelf([BUDGET])))
    assert prepared.status is Status.INJECTED
    assert prepared.memory_ids == ("budget",)
    assert "$6,200" in prepared.block
    assert 0 < prepared.tokens <= tools.budget_tokens
    assert prepared.level is Level.FULL


async def test_a_greeting_reaches_neither_embedder_nor_store(tools):
    prepared = await prepare(turn("hi there"), tools)
    assert (prepared.status, prepared.reason) == (Status.SKIPPED, "greeting")
    assert tools.embedder.embedded == []
    assert tools.memories.asked == []


async def test_a_conversation_may_begin_without_memories_where_an_operator_wants_that(tools):
    kept = replace(tools, memories=Shelf([BUDGET]), restraint=Restraint(skip_first_turn=True))
    first = await prepare(turn("What can we spend in Portugal?"), kept)
    assert (first.status, first.reason) == (Status.SKIPPED, "first_turn")
    assert kept.memories.asked == []
    assert (await prepare(turn("Hi", "Hello!", "What can we spend in Portugal?"), kept)).memory_ids
    named = replace(turn("What can we spend in Portugal?"), named=True, standalone=True)
    assert (await prepare(named, kept)).reason == "first_turn"
    later = replace(kept, sessions=Past(["I am off to Porto"]))
    assert (await prepare(named, later)).memory_ids
    assert (
        await prepare(replace(turn("What can we spend in Portugal?"), continues="resp_1"), kept)
    ).memory_ids


async def test_short_messages_may_stay_without_memories(tools):
    kept = replace(tools, memories=Shelf([BUDGET]), restraint=Restraint(min_query_chars=16))
    short = await prepare(turn("Portugal budget?  "), replace(kept, restraint=Restraint(min_query_chars=17)))
    assert (short.status, short.reason) == (Status.SKIPPED, "short_query")
    assert (await prepare(turn("Portugal budget?"), kept)).memory_ids
    assert (await prepare(turn(""), kept)).reason == "no_query"


async def test_the_model_begins_with_what_it_will_be_asked_for_and_nothing_else(tools):
    question = "What can we spend on the hotel in Portugal?"
    for text in (question, "How much?", "hi there", "A long story. " * 30):
        await prepare(turn("I am off to Porto", "Nice!", text), tools)
    assert tools.embedder.begun[0] == question
    understood = filter(tools.embedder.understands, tools.embedder.begun)
    assert set(understood) == set(tools.embedder.embedded)


async def test_the_store_begins_while_the_model_reads_and_not_for_a_greeting(tools):
    for text in ("hi there", "How much did the hotel in Portugal cost?"):
        await prepare(turn(text), tools)
    assert tools.memories.begun == [SCOPE]


async def test_what_the_store_reads_is_called_off_with_the_request(tools):
    tools.memories.is_slow = True
    waiting = asyncio.create_task(prepare(turn("How much did the hotel in Portugal cost?"), tools))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not tools.memories.reading.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert tools.memories.reading.cancelled()


async def test_a_user_without_memories_is_told_apart_from_a_poor_match(tools):
    none = await prepare(turn("What can we spend?"), tools)
    poor = [replace(BUDGET, cosine=0.01, bm25=0.0)]
    weak = await prepare(turn("What can we spend?"), replace(tools, memories=Shelf(poor)))
    assert (none.status, none.reason) == (Status.NONE, "no_memories")
    assert (weak.status, weak.reason) == (Status.NONE, "below_threshold")


@pytest.mark.parametrize(
    ("type_", "confidence", "shown"),
    [("preference", 0.7, ()), ("preference", 0.71, ("aisle",)), ("semantic", 0.6, ("aisle",))],
)
async def test_a_preference_told_with_a_doubt_steers_nobody(tools, type_, confidence, shown):
    told = replace(memory("aisle", "User prefers aisle seats."), type=type_, confidence=confidence)
    shelf = replace(tools, memories=Shelf([Hit(told, 0.6, 3.0)]))
    prepared = await prepare(turn("Which seats do I prefer?"), shelf)
    assert prepared.memory_ids == shown
    assert prepared.reason == (None if shown else "doubted")


async def test_what_is_visible_is_not_injected(tools):
    shelf = replace(tools, memories=Shelf([BUDGET]))
    said = "Our budget for the Portugal trip is $6,200. Where do we sleep?"
    assert (await prepare(turn(said), shelf)).reason == "already_visible"


@pytest.mark.parametrize("embedder", [None, Scripted(failing=True)])
async def test_without_embeddings_the_words_are_searched(tools, embedder):
    broken = replace(tools, memories=Shelf([BUDGET]), embedder=embedder)
    prepared = await prepare(turn("What is my Portugal budget?"), broken)
    assert prepared.memory_ids == ("budget",)
    assert prepared.level is Level.LEXICAL


async def test_a_language_that_the_model_does_not_know_is_searched_by_words(tools):
    shelf = Shelf([Hit(memory("mango", "用户的女儿对芒果过敏"), 0.9, 2.0)])
    prepared = await prepare(turn("我女儿能吃芒果蛋糕吗?"), replace(tools, memories=shelf))
    assert prepared.memory_ids == ("mango",)
    assert prepared.level is Level.LEXICAL
    assert shelf.asked[0].vector is None


async def test_a_broken_store_is_the_callers_to_handle(tools):
    class Broken(Shelf):
        async def search(self, scope, search):
            raise StoreUnavailable

    with pytest.raises(StoreUnavailable):
        await prepare(turn("What can we spend?"), replace(tools, memories=Broken()))


async def test_a_vague_question_is_embedded_with_its_topic(tools):
    await prepare(turn("We plan Portugal in May.", "Lovely!", "How much?"), tools)
    assert "Portugal" in tools.embedder.embedded[0]


async def test_a_vague_question_without_history_asks_the_session(tools):
    past = replace(tools, sessions=Past(["We plan Portugal in May."]))
    await prepare(turn("How much?"), past)
    assert "Portugal" in tools.embedder.embedded[0]


async def test_a_broken_session_store_leaves_the_question_alone(tools):
    shelf = replace(tools, memories=Shelf([BUDGET]), sessions=Past(broken=True))
    assert (await prepare(turn("How much?"), shelf)).status is Status.INJECTED


async def test_what_every_turn_has_to_do_without_is_logged_once_a_minute(tools, monkeypatch):
    lines, clock = recorded(monkeypatch, lambda facts: facts), [0.0]
    tools = replace(tools, seldom=Seldom(lambda: clock[0]))
    away = replace(tools, sessions=Past(broken=True), notes=Notebook(broken=True))
    for clock[0] in range(0, round(REMIND_S) + 1, 10):
        await prepare(turn("How much?", named=True), away)
    events = ["memory.history_unavailable", "memory.notes_unavailable"]
    assert sorted(event for event, facts in lines if not facts) == events
    assert sorted(event for event, facts in lines if facts == {"left_out": 5}) == events
    assert len(lines) == 4


async def test_a_broken_embedder_is_logged_once_a_minute_and_an_absent_one_never(tools, monkeypatch):
    lines, clock = recorded(monkeypatch, lambda facts: facts), [0.0]
    tools = replace(tools, memories=Shelf([BUDGET]), seldom=Seldom(lambda: clock[0]))
    for clock[0] in range(0, round(REMIND_S) + 1, 10):
        await prepare(turn("What is my budget?"), replace(tools, embedder=Scripted(failing=True)))
        await prepare(turn("What is my budget?"), replace(tools, embedder=None))
    event = "memory.embedding_failed"
    assert [line for line in lines if line[0] == event] == [(event, {}), (event, {"left_out": 5})]


async def test_history_lends_at_most_the_last_messages(tools):
    await prepare(turn("oldest", "a", "older", "a", "old", "a", "recent", "a", "How much?"), tools)
    assert "oldest" not in tools.embedder.embedded[0]
    assert "recent" in tools.embedder.embedded[0]


async def test_the_request_narrows_types_and_limit(tools):
    hits = [Hit(memory(f"m{i}", f"Topic number{i}"), 0.5, 0.0) for i in range(9)]
    shelf = Shelf(hits)
    options = MemoryOptions(read=True, write=True, types=("semantic",), limit=2, threshold=None)
    prepared = await prepare(turn("What can we spend?", options=options), replace(tools, memories=shelf))
    assert len(prepared.memory_ids) == 2
    assert shelf.asked[0].types == {"semantic", "preference"}


async def test_a_budget_too_small_says_so(tools):
    small = replace(tools, memories=Shelf([BUDGET]), budget_tokens=5)
    assert (await prepare(turn("What can we spend?"), small)).reason == "over_budget"


async def test_search_ranks_without_deciding(tools):
    shelf = replace(tools, memories=Shelf([BUDGET]))
    (found,) = await search(SCOPE, "hi", shelf, limit=5)
    assert found.memory.id == "budget"
    assert found.why.startswith("dense .50")


@pytest.mark.parametrize(
    "text",
    ["hi", "What can we spend?", "What is the capital of France?", "What is my passport number?",
     "User's budget is 10,000 dollars.", "Write a haiku about trams"],
)  # fmt: skip
async def test_what_a_search_says_of_a_turn_is_what_becomes_of_it(tools, text):
    shelf = replace(tools, memories=Shelf([BUDGET]))
    prepared = await prepare(turn(text), shelf)
    assert await unshown(SCOPE, text, shelf, limit=10) == prepared.reason


async def test_what_a_search_says_of_a_turn_costs_no_model_and_is_no_turn(tools):
    def asked(*_, **__):
        raise AssertionError

    shelf = replace(tools, memories=Shelf([BUDGET]), planner=SimpleNamespace(plan=asked), stage=asked)
    assert await unshown(SCOPE, "What can we spend?", shelf, limit=10) is None


async def test_a_store_that_is_away_is_said_of_a_search_too(tools):
    class Away(Shelf):
        async def search(self, scope, search):
            raise StoreUnavailable

    with pytest.raises(StoreUnavailable):
        await unshown(SCOPE, "What can we spend?", replace(tools, memories=Away()), limit=10)


# ---------------------------------------------------------------- the session's notes
ANCHOR = Anchor("language", "Answer in Chinese.", NOW)


@dataclass
class Notebook:
    """Notes of any session; keeps what it was asked."""

    anchors: tuple[Anchor, ...] = (ANCHOR,)
    broken: bool = False
    asked: list[dict[str, object]] = field(default_factory=list)

    async def notes(self, scope, session_id, **asked):
        self.asked.append(asked)
        if self.broken:
            raise StoreUnavailable
        return SessionNotes(self.anchors)


class Broken(Shelf):
    """A store of memories that is away."""

    async def search(self, scope, search):
        raise StoreUnavailable


async def test_an_anchor_stands_before_the_memories_and_outlives_a_short_budget(tools):
    noted = replace(tools, memories=Shelf([BUDGET]), notes=Notebook())
    prepared = await prepare(turn("What can we spend?", named=True), noted)
    assert prepared.block.index("Answer in Chinese.") < prepared.block.index("$6,200")
    assert prepared.memory_ids == ("budget",)
    full = prepared.tokens
    short = await prepare(turn("What can we spend?", named=True), replace(noted, budget_tokens=full - 1))
    assert "Answer in Chinese." in short.block
    assert short.memory_ids == ()
    assert short.tokens <= full - 1


@pytest.mark.parametrize(
    ("said", "reason"), [("hi there", "greeting"), ("What can we spend?", "no_memories")]
)
async def test_an_anchor_is_injected_where_no_memory_is(tools, said, reason):
    assert (await prepare(turn(said), tools)).reason == reason
    prepared = await prepare(turn(said, named=True), replace(tools, notes=Notebook()))
    assert (prepared.status, prepared.reason, prepared.memory_ids) == (Status.INJECTED, "session", ())


async def test_where_memories_are_away_the_session_is_left(tools):
    away = replace(tools, memories=Broken())
    with pytest.raises(StoreUnavailable):
        await prepare(turn("What can we spend?", named=True), replace(away, notes=Notebook(())))
    prepared = await prepare(turn("What can we spend?", named=True), replace(away, notes=Notebook()))
    assert (prepared.status, prepared.level) == (Status.INJECTED, Level.SESSION)
    assert "Answer in Chinese." in prepared.block


async def test_notes_that_are_away_cost_no_memory(tools):
    away = replace(tools, memories=Shelf([BUDGET]), notes=Notebook(broken=True))
    assert (await prepare(turn("What can we spend?", named=True), away)).memory_ids == ("budget",)


async def test_a_session_that_is_a_guess_gives_back_only_anchors_of_its_own_request(tools):
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


@dataclass
class Model:
    """A completer that says the same to everything."""

    answer: str
    asked: int = 0

    async def complete(self, request) -> str:
        self.asked += 1
        return self.answer


async def test_a_vague_question_is_searched_as_a_model_says_it_in_full(tools):
    model = Model('{"question": "How much is the hotel of our Portugal trip?"}')
    wording = replace(tools, wording=Wording(model, deadline_s=5))
    await prepare(turn("We plan our Portugal trip.", "Hotel first?", "How much?"), wording)
    assert tools.embedder.embedded == ["How much is the hotel of our Portugal trip?"]


@pytest.mark.parametrize("said", [("hi there",), ("How much?",), ("We plan Portugal.", "Nice.", "thanks!")])
async def test_no_model_is_asked_where_nothing_is_searched_or_nothing_was_said_before(tools, said):
    model = Model("What about our Portugal trip?")
    await prepare(turn(*said), replace(tools, wording=Wording(model, deadline_s=5)))
    assert model.asked == 0


async def test_a_model_gets_no_more_time_than_the_request_has_left(tools):
    model = Model('{"question": "How much is the hotel of our Portugal trip?"}')
    late = replace(tools, wording=Wording(model, deadline_s=0.15), clock=lambda: NOW + 0.2)
    await prepare(turn("We plan our Portugal trip.", "Hotel first?", "How much?"), late)
    assert model.asked == 0
    assert "We plan our Portugal trip." in tools.embedder.embedded[0], "the rules' query"
