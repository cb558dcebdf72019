"""The write path over the real store: said, extracted, admitted, once."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from proxy.domain.core import Applied, Change, MemoryFilter, Scope, Stamp
from proxy.domain.errors import (
    CompletionFailed,
    CompletionRefused,
    CredentialNeeded,
    EmbeddingFailed,
    StoreUnavailable,
)
from proxy.domain.judging import Relation
from proxy.domain.ports import Embedder
from proxy.domain.session import Job
from proxy.learn.triggers import TriggerPolicy
from proxy.learn.worker import HAND_ON_EVERY_S, WorkerPace
from proxy.storage.sql.memories import SqlMemories
from tests.learn.support import ANA, NOON, House, asked, facts, stated_or_asked
from tests.support.judge import SAME, ScriptedJudge, one_value

BOB = Scope("t", "bob")
HAWAII = "User's budget for the Hawaii trip is $10,000"


async def test_what_was_said_is_remembered_and_counted(house: House) -> None:
    house.completer.answers = [facts(HAWAII, "User is rich", confidence=0.9)]
    await house.say("We said $10,000 all in for the Hawaii trip. We are rich.")
    assert await house.worker().work_one()
    assert await house.contents() == [HAWAII, "User is rich"]
    (report,) = house.reports
    assert (report.outcome, report.created, report.superseded) == ("extracted", 2, 0)
    assert not await house.worker().work_one()
    assert len(house.completer.requests) == 1


async def test_a_batch_costs_one_call(house: House) -> None:
    house.policy = TriggerPolicy(batch_size=4)
    for n in range(4):
        await house.say(f"I own boat number {n}.")
    while await house.worker().work_one():
        pass
    assert len(house.completer.requests) == 1
    assert "boat number 0" in house.completer.requests[0].user


async def test_a_changed_fact_supersedes_across_sessions(house: House, embedder: Embedder) -> None:
    house.embedder, house.judge = embedder, ScriptedJudge(relation=one_value)
    house.completer.answers = [facts(HAWAII), facts("User's budget for the Hawaii trip is now $15,000")]
    await house.say("$10,000 for the Hawaii trip")
    await house.worker().work_one()
    house.now += 100
    await house.say("the Hawaii trip: now $15,000", session="s-2")
    await house.worker().work_one()
    assert await house.contents() == ["User's budget for the Hawaii trip is now $15,000"]
    old, new = await house.memories(all=True)
    assert old.superseded_by == new.id
    known = house.completer.requests[1].user.split("<context>")[0]
    assert f"[{old.id}]" in known


async def test_the_models_replaces_reaches_a_memory_that_shares_no_word(house: House) -> None:
    unsure = Relation(same=0.1, changed=0.4, apart=0.5)
    house.judge = ScriptedJudge(relation=lambda old, new: unsure)
    house.completer.answers = [facts("User works at Tidewell")]
    await house.say("I work at Tidewell")
    await house.worker().work_one()
    (old,) = await house.memories()
    house.now += 100
    house.completer.answers = [facts("User is between jobs", replaces=old.id)]
    await house.say("I left Tidewell, between jobs.")
    await house.worker().work_one()
    assert await house.contents() == ["User is between jobs"]


async def test_a_crash_between_extraction_and_apply_loses_and_doubles_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    async def killed(*args: Any, **kwargs: Any) -> None:
        raise Killed

    house.completer.answers = [facts(HAWAII), facts(HAWAII)]
    await house.say("$10,000 for the Hawaii trip")
    with monkeypatch.context() as patch:
        patch.setattr(house.stores.memories, "apply", killed)
        with pytest.raises(Killed):
            await house.worker().work_one()
    assert await house.contents() == []
    house.now += house.pace.lease_seconds + 1
    assert await house.worker().work_one()
    assert await house.contents() == [HAWAII]


async def test_an_applied_job_whose_acknowledgement_was_lost_stores_nothing_twice(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = SqlMemories.apply

    async def unheard(self: SqlMemories, *args: Any, **kwargs: Any) -> None:
        await apply(self, *args, **kwargs)
        raise StoreUnavailable("cut off after the commit")

    house.completer.answers = [facts(HAWAII), facts(HAWAII)]
    await house.say("$10,000 for the Hawaii trip")
    with monkeypatch.context() as patch:
        patch.setattr(SqlMemories, "apply", unheard)
        await house.worker().work_one()
    house.now += 1000
    while await house.worker().work_one():
        pass
    assert await house.contents() == [HAWAII]
    assert len(house.completer.requests) == 1


async def test_a_worker_that_was_too_slow_leaves_the_job_to_the_one_who_has_it(house: House) -> None:
    house.completer.go_on.clear()
    await house.say("$10,000 for the Hawaii trip")
    slow = asyncio.create_task(house.worker().work_one())
    async with asyncio.timeout(60):
        await house.completer.reached.wait()
    house.now += house.pace.lease_seconds + 1
    theirs = await house.stores.jobs.claim(house.now, house.pace.lease_seconds)
    house.completer.answers = [facts(HAWAII)] * 3
    house.completer.go_on.set()
    assert await slow
    assert [r.outcome for r in house.reports] == ["lost"]
    assert len(house.completer.requests) == 1
    assert await house.contents() == []
    assert theirs is not None
    assert (await house.stores.jobs.counts()).running == 1
    assert len((await house.stores.jobs.batch(theirs, limit=9, context=0)).pending) == 1


async def test_what_is_forgotten_during_extraction_stays_forgotten(house: House) -> None:
    house.completer.answers = [facts(HAWAII), facts(HAWAII)]
    house.completer.go_on.clear()
    await house.say("$10,000 for the Hawaii trip")
    working = asyncio.create_task(house.worker().work_one())
    await asyncio.wait_for(house.completer.reached.wait(), 5)
    await house.stores.memories.forget(MemoryFilter(tenant="t", user="ana"), by="test")
    house.completer.go_on.set()
    await working
    assert await house.memories(all=True) == []
    while await house.worker().work_one():
        pass
    assert await house.memories(all=True) == []


async def test_a_forget_during_extraction_throws_away_what_was_extracted_before_it(house: House) -> None:
    house.completer.answers = [facts("User's dog is called Rex"), facts("User has a dog, Rex"), facts(HAWAII)]
    await house.say("My dog is called Rex.")
    await house.worker().work_one()
    (dog,) = await house.memories()
    await house.say("$10,000 for the Hawaii trip")
    house.completer.reached.clear()
    house.completer.go_on.clear()
    working = asyncio.create_task(house.worker().work_one())
    await asyncio.wait_for(house.completer.reached.wait(), 5)
    await house.stores.memories.forget(MemoryFilter(tenant="t", user="ana"), dog.id, by="test")
    house.completer.go_on.set()
    await working
    assert await house.contents() == [HAWAII]
    assert "Rex" not in house.completer.requests[2].user


async def test_two_sessions_at_once_store_one_fact_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process writes between this one's search and its apply; the stamp makes it look again."""
    apply, raced = SqlMemories.apply, False

    async def overtaken(
        self: SqlMemories,
        scope: Scope,
        changes: Sequence[Change],
        *,
        expect: Stamp,
        done: Job | None = None,
    ) -> Applied:
        nonlocal raced
        if not raced:
            raced = True
            twins = [replace(c, memory=replace(c.memory, id="mem_other", evidence=())) for c in changes]  # type: ignore[call-arg, union-attr]
            await apply(self, scope, twins, expect=expect)
        return await apply(self, scope, changes, expect=expect, done=done)

    monkeypatch.setattr(SqlMemories, "apply", overtaken)
    house.completer.answers = [facts(HAWAII)]
    await house.say("$10,000 for the Hawaii trip")
    await house.worker().work_one()
    assert [m.id for m in await house.memories()] == ["mem_other"]
    assert house.reports[0].confirmed == 1


async def test_users_do_not_meet(house: House) -> None:
    house.completer.answers = [facts(HAWAII), facts(HAWAII)]
    await house.say("$10,000 for the Hawaii trip")
    await house.say("$10,000 for the Hawaii trip", scope=BOB)
    while await house.worker().work_one():
        pass
    (ana,), (bob,) = await house.memories(), await house.memories(BOB)
    assert ana.scope == ANA
    assert bob.scope == BOB
    assert HAWAII not in house.completer.requests[1].user


async def test_a_failing_model_is_asked_again_later_and_at_last_no_more(house: House) -> None:
    house.pace = WorkerPace(max_attempts=5)
    house.completer.answers = [CompletionFailed("429")] * 5
    await house.say("$10,000 for the Hawaii trip")
    pauses = []
    for _ in range(5):
        before = house.now
        while not await house.worker().work_one():
            house.now += 1
        pauses.append(house.now - before)
    assert pauses == [0, 2, 4, 8, 16]
    assert [r.outcome for r in house.reports] == ["retried"] * 4 + ["dead"]
    assert (await house.stores.jobs.counts()).dead == 1
    house.now += 10_000
    assert not await house.worker().work_one()


async def test_a_refused_prompt_is_a_dead_letter_at_once(house: House) -> None:
    house.completer.answers = [CompletionRefused("400")]
    await house.say("I live in Ghent.")
    await house.worker().work_one()
    assert house.reports[0].outcome == "dead"


async def test_a_job_without_a_credential_waits_for_its_user(house: House) -> None:
    house.completer.answers = [CredentialNeeded("401"), facts(HAWAII)]
    await house.say("$10,000 for the Hawaii trip")
    await house.worker().work_one()
    assert house.reports[0].outcome == "waiting"
    house.now += 10_000
    assert not await house.worker().work_one()
    await house.stores.jobs.wake(ANA)
    assert await house.worker().work_one()
    assert await house.contents() == [HAWAII]


async def test_a_young_job_without_a_credential_is_left_to_who_has_one(house: House) -> None:
    house.shared = True
    house.completer.answers = [CredentialNeeded("401"), facts(HAWAII)]
    await house.say("$10,000 for the Hawaii trip")
    await house.worker().work_one()
    assert house.reports[0].outcome == "handed_on"
    assert not await house.worker().work_one()
    house.now += HAND_ON_EVERY_S
    assert await house.worker().work_one()
    assert await house.contents() == [HAWAII]


async def test_a_job_that_nobody_has_a_credential_for_waits_in_the_end(house: House) -> None:
    house.shared = True
    house.completer.answers = [CredentialNeeded("401")] * 20
    await house.say("$10,000 for the Hawaii trip")
    while not house.reports or house.reports[-1].outcome == "handed_on":
        await house.worker().work_one()
        house.now += HAND_ON_EVERY_S
    assert house.reports[-1].outcome == "waiting"
    assert len(house.reports) < 15


async def test_an_unreadable_answer_is_asked_for_once_more_and_then_skipped(house: House) -> None:
    house.completer.answers = ["Sorry, no.", "I cannot do that."]
    await house.say("$10,000 for the Hawaii trip")
    await house.worker().work_one()
    assert house.reports[0].outcome == "unreadable"
    assert await house.contents() == []
    house.now += 10_000
    assert not await house.worker().work_one()
    assert len(house.completer.requests) == 2


async def test_what_the_user_asked_to_be_remembered_is_kept_whatever_the_model_answers(house: House) -> None:
    house.completer.answers = ["Sorry, no.", "I cannot do that."]
    await house.say("I went to the market. Please remember that my locker is number 4471.")
    await house.worker().work_one()
    assert house.reports[0].outcome == "unreadable"
    (kept,) = await house.contents()
    assert "4471" in kept
    assert "market" not in kept


async def test_a_secret_that_the_user_asked_to_be_remembered_is_not_kept_so(house: House) -> None:
    house.completer.answers = ["Sorry, no.", "I cannot do that."]
    await house.say("Please remember that my password is Kiebitz!83.")
    await house.worker().work_one()
    assert "Kiebitz" not in "".join(await house.contents())


async def test_a_bug_costs_its_job_and_not_the_worker(house: House) -> None:
    house.completer.answers = [ZeroDivisionError("a bug"), facts(HAWAII)]
    await house.say("$10,000 for the Hawaii trip")
    assert await house.worker().work_one()
    assert house.reports[0].outcome == "retried"
    house.now += 10
    assert await house.worker().work_one()
    assert await house.contents() == [HAWAII]


class BrokenEmbedder:
    """An embedder whose model cannot be run."""

    def __init__(self, embedder: Embedder) -> None:
        self.model = embedder.model

    async def embed_query(self, text: str) -> bytes:
        return (await self.embed([text]))[0]

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        raise EmbeddingFailed("no")

    def begin(self, text: str) -> None: ...

    def understands(self, text: str) -> bool:
        return True


async def test_a_memory_is_stored_without_a_vector_rather_than_lost(house: House, embedder: Embedder) -> None:
    house.embedder = BrokenEmbedder(embedder)
    house.completer.answers = [facts(HAWAII)] * 5
    await house.say("$10,000 for the Hawaii trip")
    for _ in range(5):
        house.now += 1000
        await house.worker().work_one()
    assert await house.contents() == [HAWAII]


async def test_without_a_model_the_users_statements_are_stored_as_said(house: House) -> None:
    house.mode = "verbatim"
    await house.say("I'm allergic to peanuts. What can I eat?")
    await house.worker().work_one()
    (memory,) = await house.memories()
    assert (memory.content, memory.source) == ("I'm allergic to peanuts.", "verbatim")
    assert house.completer.requests == []


async def test_no_secret_reaches_the_model_or_the_store(house: House) -> None:
    house.completer.answers = [facts("User's database password is Heron!Mud88", "User lives in Ghent")]
    await house.say("I live in Ghent. My database password is Heron!Mud88, remember it")
    await house.worker().work_one()
    assert "Heron!Mud88" not in house.completer.requests[0].user
    assert await house.contents() == ["User lives in Ghent"]
    assert house.reports[0].dropped == {"secret": 1}


async def test_a_hedged_guess_is_not_stored(house: House) -> None:
    house.completer.answers = [facts("User may be lactose intolerant", confidence=0.4)]
    await house.say("I might be lactose intolerant")
    await house.worker().work_one()
    assert await house.contents() == []
    assert house.reports[0].dropped == {"confidence": 1}


async def test_shutdown_extracts_what_no_trigger_had_asked_for(house: House) -> None:
    house.policy = TriggerPolicy(batch_size=10)
    house.completer.answers = [facts(HAWAII)]
    await house.say("$10,000 for the Hawaii trip")
    assert not await house.worker().work_one()
    await house.worker().drain(5)
    assert await house.contents() == [HAWAII]


async def test_shutdown_does_not_wait_for_a_stuck_model_and_keeps_the_job(house: House) -> None:
    house.completer.answers = [facts(HAWAII)]
    await house.say("$10,000 for the Hawaii trip")
    house.completer.go_on.clear()
    await asyncio.wait_for(house.worker().drain(0.05), 5)
    house.completer.go_on.set()
    assert await house.worker().work_one()  # at once: the lease was given back
    assert await house.contents() == [HAWAII]


async def test_what_is_claimed_for_a_worker_that_is_gone_goes_back(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, claimed, go_on = house.stores.jobs, asyncio.Event(), asyncio.Event()
    claim = jobs.claim

    async def slowly(now: float, lease_s: float, *, upto_lane: int) -> Job | None:
        job = await claim(now, lease_s, upto_lane=upto_lane)
        claimed.set()
        await go_on.wait()
        return job

    monkeypatch.setattr(jobs, "claim", slowly)
    house.completer.answers = [facts(HAWAII)]
    await house.say("$10,000 for the Hawaii trip")
    await _cancelled_in_a_claim(house, claimed, go_on)
    assert await house.worker().work_one()  # at once, not when the lease ends
    assert await house.contents() == [HAWAII]


async def test_a_claim_that_fails_does_not_keep_a_worker_that_is_to_go(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    claiming, go_on = asyncio.Event(), asyncio.Event()

    async def failing(now: float, lease_s: float, *, upto_lane: int) -> Job | None:
        claiming.set()
        await go_on.wait()
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(house.stores.jobs, "claim", failing)
    await _cancelled_in_a_claim(house, claiming, go_on)


async def _cancelled_in_a_claim(house: House, reached: asyncio.Event, go_on: asyncio.Event) -> None:
    """Cancel a worker while its claim is under way, and let that go on."""
    working = asyncio.create_task(house.worker().work_one())
    await reached.wait()
    working.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await working


async def test_the_running_worker_serves_a_job_as_soon_as_it_is_woken(house: House) -> None:
    house.pace = WorkerPace(poll_seconds=3600, sweep_seconds=3600)
    stored = asyncio.Event()
    house.reports = _Signalling(stored)
    worker = house.worker()
    running = asyncio.create_task(worker.run())
    house.completer.answers = [facts(HAWAII)]
    await house.say("$10,000 for the Hawaii trip")
    worker.wake.set()
    await asyncio.wait_for(stored.wait(), 5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await house.contents() == [HAWAII]


async def test_the_sweep_queues_a_personal_statement_after_its_pause(house: House) -> None:
    house.policy = TriggerPolicy(batch_size=10, personal_idle_seconds=15)
    await house.say("I live in Ghent.")
    house.now = NOON + 14
    assert await house.worker().sweep() == 0
    house.now = NOON + 15
    assert await house.worker().sweep() == 1


async def test_the_report_says_how_long_it_took_from_said_to_stored(house: House) -> None:
    house.completer.answers = [facts(HAWAII)]
    await house.say("Remember that the Hawaii trip may cost $10,000.")
    house.now += 7
    await house.worker().work_one()
    (report,) = house.reports
    assert (report.lane, report.since_said_s) == (1, 7)


async def test_a_job_that_the_end_of_the_process_cut_off_has_used_up_no_attempt(house: House) -> None:
    await house.say("$10,000 for the Hawaii trip")
    house.completer.go_on.clear()
    for _ in range(3):
        working = asyncio.create_task(house.worker().work_one())
        await asyncio.wait_for(house.completer.reached.wait(), 5)
        house.completer.reached.clear()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
    job = await house.stores.jobs.claim(house.now, 60)
    assert job is not None
    assert job.attempts == 1


class _Signalling(list[Any]):
    """A list of reports that tells when it gets its first."""

    def __init__(self, event: asyncio.Event) -> None:
        super().__init__()
        self._event = event

    def append(self, report: Any) -> None:
        super().append(report)
        self._event.set()


async def test_what_was_asked_for_is_kept_in_the_user_s_words_until_the_model_answers(
    house: House, embedder: Embedder
) -> None:
    house.embedder, house.judge = (
        embedder,
        ScriptedJudge(asks=asked, statement=stated_or_asked, relation=lambda old, new: SAME),
    )
    house.completer.answers = [CompletionFailed("no answer within 30 s"), facts(HAWAII)]
    await house.say("Please remember that my budget for the Hawaii trip is $10,000. I also like tea.")
    await house.worker().work_one()
    (kept,) = await house.memories()
    assert (kept.source, "$10,000" in kept.content) == ("explicit", True)
    house.now += 100
    await house.worker().work_one()
    assert [report.outcome for report in house.reports] == ["retried", "extracted"]
    assert len(await house.memories()) == 1
