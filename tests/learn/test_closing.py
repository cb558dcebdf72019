"""The worker's hooks for whole sessions, over a real store."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.domain.errors import CompletionFailed
from proxy.domain.judging import Asks
from proxy.domain.ports import CompletionRequest
from proxy.domain.session import Anchor, NewExchange, Outcome
from proxy.learn import session_notes
from proxy.learn.session_notes import NoteWriter
from proxy.learn.worker import Worker, WorkerConfig, WorkerTools
from proxy.storage.sqlite.stores import SqliteStores
from tests.learn.support import ANA, House, ScriptedCompleter
from tests.support.judge import ASKS_NOTHING, ScriptedJudge

SUMMARY = json.dumps({"summary": "The user planned a trip to Hawaii with Priya, on a budget of $10,000."})
STATE = json.dumps({"topic": "one two three"})
FACT = json.dumps({"facts": [{"type": "semantic", "content": "User travels with Priya.", "confidence": 0.9,
                              "evidence": "I am planning a trip to Hawaii with Priya."}]})  # fmt: skip
TALK = (
    "I am planning a trip to Hawaii with Priya.",
    "Please compare hotels on Maui for us.",
    "Our budget is $10,000 in all.",
)


class Silent(ScriptedCompleter):
    """A model that never gives the summary that it is asked for."""

    def __init__(self, *answers: str) -> None:
        super().__init__(*answers)
        self.asked = asyncio.Event()

    async def complete(self, request: CompletionRequest) -> str:
        if request.role == session_notes.SUMMARY_ROLE:
            self.asked.set()
            await asyncio.Event().wait()
        return await super().complete(request)


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[SqliteStores]:
    stores = SqliteStores(tmp_path)
    await stores.open()
    yield stores
    await stores.close()


def house(stores: SqliteStores, *answers: object) -> House:
    return House(stores, ScriptedCompleter(*answers))  # type: ignore[arg-type]


def asks(text: str) -> Asks:
    return replace(ASKS_NOTHING, rule=0.9 if "from now on" in text else 0.0)


JUDGE = ScriptedJudge(asks=asks)


def keeper(h: House, **changes: object) -> NoteWriter:
    made = NoteWriter(h.stores.notes, h.completer, lambda key, answer: f"{key}/{answer}", judge=JUDGE)
    return replace(made, **changes)  # type: ignore[arg-type]


def worker(h: House, keep: NoteWriter) -> Worker:
    """The house's worker with the hooks."""
    made = h.worker()
    tools = WorkerTools(
        h.stores.jobs, h.stores.sessions, made._tools.gate, h.completer,
        closing=keep.closing, state=keep.refresh,
    )  # fmt: skip
    config = WorkerConfig(policy=h.policy, pace=h.pace)
    return Worker(tools, config, clock=lambda: h.now, report=h.reports.append, jitter=lambda: 1.0)


async def work(h: House, keep: NoteWriter) -> None:
    """Do what is due, and what the sessions that have ended want then."""
    serving = worker(h, keep)
    while await serving.work_one() or await keep.close(h.now):
        pass


async def say(h: House, said: str, *, stateful: bool = False, anchors: tuple[Anchor, ...] = ()) -> None:
    h.count += 1
    new = NewExchange(
        id=f"ex_{h.count}", key=f"k{h.count}", scope=ANA, session_id="s-1", model="m", said=said, at=h.now,
        stateful=stateful, anchors=anchors,
    )  # fmt: skip
    begun = await h.stores.sessions.begin(new)
    await h.stores.sessions.complete(begun, Outcome("Fine.", whole=True), lambda state: None)


async def test_an_idle_session_is_summed_up_after_what_was_pending(stores: SqliteStores) -> None:
    h = house(stores, '{"facts": []}', SUMMARY)
    keep = keeper(h)
    for said in TALK:
        await say(h, said)
    assert await keep.close(h.now) == 0
    h.now += 601
    assert await keep.close(h.now) == 1
    await work(h, keep)
    (memory,) = await h.memories()
    assert (memory.type, memory.source) == ("episodic", "summary")
    assert [r.role for r in h.completer.requests] == ["memory_extraction", "memory_summary"]
    assert await keep.close(h.now + 10_000) == 0


async def test_a_poor_summary_is_asked_for_once_more(stores: SqliteStores) -> None:
    h = house(stores, '{"facts": []}', "The user asked some questions.", SUMMARY)
    keep = keeper(h)
    for said in TALK:
        await say(h, said)
    await stores.sessions.end(ANA, "s-1", h.now)
    await work(h, keep)
    assert len(await h.memories()) == 1


async def test_a_session_that_goes_on_is_summed_up_anew_in_place_of_the_first(stores: SqliteStores) -> None:
    later = SUMMARY.replace("planned a trip to Hawaii", "planned and booked a trip to Hawaii, Maui first,")
    h = house(stores, '{"facts": []}', SUMMARY, '{"facts": []}', later)
    keep = keeper(h)
    for said in TALK:
        await say(h, said)
    await stores.sessions.end(ANA, "s-1", h.now)
    await work(h, keep)
    h.now += 100
    await say(h, "We booked it, Maui first.")
    await stores.sessions.end(ANA, "s-1", h.now)
    await work(h, keep)
    assert [m.content for m in await h.memories()] == [json.loads(later)["summary"]]
    assert len(await h.memories(all=True)) == 2


async def test_a_model_that_fails_costs_no_fact_and_the_summary_comes_later(stores: SqliteStores) -> None:
    h = house(stores, FACT, CompletionFailed("down"), CompletionFailed("down"), SUMMARY)
    keep = keeper(h)
    for said in TALK:
        await say(h, said)
    await stores.sessions.end(ANA, "s-1", h.now)
    await work(h, keep)
    assert len(await h.memories()) == 1
    for _ in range(2):  # the failure is that of the summary's job, which waits
        h.now += 10
        await work(h, keep)
    assert {m.type for m in await h.memories()} == {"semantic", "episodic"}


async def test_facts_do_not_wait_for_a_summary_that_never_comes(stores: SqliteStores) -> None:
    h = house(stores, FACT)
    h.completer = Silent(FACT)
    keep = keeper(h)
    for said in TALK:
        await say(h, said)
    await stores.sessions.end(ANA, "s-1", h.now)
    working = asyncio.create_task(work(h, keep))
    async with asyncio.timeout(60):
        await h.completer.asked.wait()
    stored = await h.contents()
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    assert stored == ["User travels with Priya."]


async def test_what_is_said_after_the_end_is_extracted_before_the_session_is_summed_up(
    stores: SqliteStores,
) -> None:
    h = house(stores)
    keep = keeper(h)
    for said in TALK:
        await say(h, said)
    await stores.sessions.end(ANA, "s-1", h.now)
    await worker(h, keep).work_one()
    assert await keep.close(h.now) == 1
    await say(h, "We fly in May.")
    await stores.sessions.end(ANA, "s-1", h.now)  # widens the closing job, which has facts to read again
    h.completer.answers += ['{"facts": []}', SUMMARY]
    await work(h, keep)
    roles = [r.role for r in h.completer.requests]
    assert roles == ["memory_extraction", "memory_extraction", "memory_summary"]
    assert "We fly in May." in h.completer.requests[-1].user
    assert await keep.close(h.now) == 0


async def test_no_summaries_where_they_are_switched_off(stores: SqliteStores) -> None:
    h = house(stores)
    keep = keeper(h, summaries=False)
    for said in TALK:
        await say(h, said)
    await stores.sessions.end(ANA, "s-1", h.now)
    await work(h, keep)
    assert [r.role for r in h.completer.requests] == ["memory_extraction"]


# ---------------------------------------------------------------- state
async def test_a_wanted_state_is_kept_with_the_marks_of_what_it_may_stand_for(stores: SqliteStores) -> None:
    h = house(stores, '{"facts": []}', STATE)
    keep = keeper(h, step_turns=3)
    await say(h, "one two three", stateful=True)
    await say(h, "Answer in Chinese from now on.")
    await say(h, "four five six")
    await stores.sessions.end(ANA, "s-1", h.now)
    await work(h, keeper(h, step_turns=3, summaries=False))
    standing = await keep.notes.standing(ANA, "s-1")
    assert standing is not None
    assert standing.state == {"topic": "one two three"}
    # What the user has set for the conversation stays in the user's own message.
    assert standing.covered == {"k1/Fine.", "k3/Fine."}


async def test_garbage_leaves_the_old_state_and_is_asked_again(stores: SqliteStores) -> None:
    h = house(stores, "All right.", STATE)
    keep = keeper(h, step_turns=1)
    await say(h, "one two three", stateful=True)
    await stores.sessions.end(ANA, "s-1", h.now)
    job = await stores.jobs.claim(h.now, 60)
    assert job is not None
    batch = await stores.jobs.batch(job, limit=9, context=0)
    await keep.refresh(job, batch)
    assert await keep.notes.standing(ANA, "s-1") is None
    await keep.refresh(job, batch)
    assert await keep.notes.standing(ANA, "s-1") is not None


async def test_a_state_that_nobody_wants_costs_no_call(stores: SqliteStores) -> None:
    h = house(stores, '{"facts": []}')
    for said in TALK:
        await say(h, said)
    await stores.sessions.end(ANA, "s-1", h.now)
    await work(h, keeper(h, step_turns=1, summaries=False))
    assert len(h.completer.requests) == 1
