"""What every SessionStore and JobQueue does together. Subclass where the fixtures give a backend."""

import asyncio

import pytest

from proxy.domain import Forgotten, NewJob, Outcome, QueueCounts, SessionState
from proxy.errors import Conflict
from tests.stores.making import (
    ANNA,
    APOLLO,
    BEN,
    NOW,
    always,
    contents,
    create,
    exchange,
    find,
    never,
    of,
    quote,
    store,
    talk,
)  # fmt: skip

WHOLE = Outcome("an answer", whole=True)


async def done(memories, job, *changes):
    await memories.apply(job.scope, changes, expect=await memories.stamp(job.scope), done=job)


class SessionContract:
    async def test_recent_gives_the_last_exchanges_oldest_first(self, sessions):
        for said in ("one", "two", "three"):
            await talk(sessions, said, f"re {said}")
        await talk(sessions, "elsewhere", session="s2")
        await sessions.begin(exchange("unanswered"))
        found = await sessions.recent(ANNA, "s1", 2)
        assert [(e.said, e.answer) for e in found] == [("two", "re two"), ("three", "re three")]

    async def test_a_session_belongs_to_one_user_and_project(self, sessions):
        await talk(sessions, "a secret")
        assert await sessions.recent(BEN, "s1", 9) == []
        assert await sessions.recent(APOLLO, "s1", 9) == []

    async def test_a_response_leads_to_its_session_for_its_user_only(self, sessions):
        begun = await sessions.begin(exchange(session="s7"))
        await sessions.complete(begun, Outcome("x", whole=True, response_id="resp_1"), never)
        assert await sessions.session_of(ANNA, "resp_1") == "s7"
        assert await sessions.session_of(BEN, "resp_1") is None
        assert await sessions.session_of(ANNA, "resp_2") is None

    async def test_the_same_request_again_is_the_same_exchange(self, sessions):
        first = await sessions.begin(exchange("hi", key="k"))
        again = await sessions.begin(exchange("hi", key="k"))
        assert again == first
        states = []
        for begun in (first, again):
            assert await sessions.complete(begun, WHOLE, lambda s: states.append(s))
        assert [s.pending for s in states] == [1]
        assert len(await sessions.recent(ANNA, "s1", 9)) == 1

    async def test_a_broken_answer_gives_way_to_a_whole_one(self, sessions):
        broken = await sessions.begin(exchange(key="k"))
        await sessions.complete(broken, Outcome("an ans", whole=False), never)
        again = await sessions.begin(exchange(key="k"))
        await sessions.complete(again, WHOLE, never)
        await sessions.complete(broken, Outcome("", whole=False), never)
        (found,) = await sessions.recent(ANNA, "s1", 9)
        assert (found.answer, found.whole) == ("an answer", True)

    async def test_an_aborted_exchange_leaves_nothing(self, sessions, memories):
        begun = await sessions.begin(exchange())
        await sessions.abort(begun)
        assert not await sessions.complete(begun, WHOLE, always)
        assert await memories.forget(of(ANNA)) == Forgotten()

    async def test_aborting_one_of_two_equal_requests_leaves_the_other(self, sessions):
        first = await sessions.begin(exchange(key="k"))
        await sessions.abort(await sessions.begin(exchange(key="k")))
        assert await sessions.complete(first, WHOLE, never)
        await sessions.abort(first)  # too late: it is answered
        assert len(await sessions.recent(ANNA, "s1", 9)) == 1

    async def test_the_trigger_sees_what_is_pending(self, sessions):
        seen: list[SessionState] = []
        await talk(sessions, explicit=True, at=NOW)
        await talk(sessions, personal=True, at=NOW + 5, trigger=lambda s: seen.append(s))
        (state,) = seen
        assert (state.scope, state.session_id, state.pending, state.last_at) == (ANNA, "s1", 2, NOW + 5)
        assert (state.explicit, state.personal) == (True, True)

    async def test_lone_surrogates_are_stored_as_replacement_characters(self, sessions):
        await talk(sessions, "bad \ud83d end")
        assert (await sessions.recent(ANNA, "s1", 1))[0].said == "bad \ufffd end"


class QueueContract:
    async def test_a_job_reads_the_pending_exchanges_and_some_before(self, sessions, jobs, memories):
        await talk(sessions, "old", trigger=always)
        job = await jobs.claim(NOW, 60)
        await jobs.batch(job, limit=9, context=9)
        await done(memories, job)
        await talk(sessions, "new one")
        await talk(sessions, "new two", trigger=always)
        job = await jobs.claim(NOW, 60)
        batch = await jobs.batch(job, limit=9, context=1)
        assert [e.said for e in batch.pending] == ["new one", "new two"]
        assert [e.said for e in batch.context] == ["old"]
        assert batch.stamp == await memories.stamp(ANNA)

    async def test_a_finished_job_is_gone_and_its_exchanges_with_it(self, sessions, jobs, memories):
        await talk(sessions, trigger=always)
        job = await jobs.claim(NOW, 60)
        assert (job.attempts, job.session_id, job.scope, job.leased_until) == (1, "s1", ANNA, NOW + 60)
        await jobs.batch(job, limit=9, context=0)
        await done(memories, job, create("a fact"))
        assert await jobs.counts() == QueueCounts()
        assert await sessions.sweep(NOW, always) == 0
        with pytest.raises(Conflict):
            await done(memories, job, create("twice"))
        assert await contents(memories, "fact twice") == {"a fact"}

    async def test_what_a_batch_could_not_hold_is_read_next(self, sessions, jobs, memories):
        for said in "abc":
            await talk(sessions, said, trigger=always)
        read = []
        while job := await jobs.claim(NOW, 60):
            batch = await jobs.batch(job, limit=2, context=0)
            read.append([e.said for e in batch.pending])
            await done(memories, job)
        assert read == [["a", "b"], ["c"]]

    async def test_an_answer_that_ends_while_the_job_runs_is_not_lost(self, sessions, jobs, memories):
        slow = await sessions.begin(exchange("slow"))
        await talk(sessions, "quick", trigger=always)
        job = await jobs.claim(NOW, 60)
        assert [e.said for e in (await jobs.batch(job, limit=9, context=0)).pending] == ["quick"]
        await sessions.complete(slow, WHOLE, always)
        await done(memories, job)
        job = await jobs.claim(NOW, 60)
        assert [e.said for e in (await jobs.batch(job, limit=9, context=0)).pending] == ["slow"]

    async def test_a_queued_job_is_widened_and_takes_the_more_urgent_lane(self, sessions, jobs):
        await talk(sessions, trigger=lambda s: NewJob(s.session_id, s.last_seq, 2))
        await talk(sessions, trigger=lambda s: NewJob(s.session_id, s.last_seq, 1))
        assert (await jobs.counts()).queued == 1
        job = await jobs.claim(NOW, 60)
        assert job.lane == 1
        assert len((await jobs.batch(job, limit=9, context=0)).pending) == 2

    async def test_a_new_session_makes_the_others_of_the_user_due(self, sessions, jobs):
        await talk(sessions, session="s1")
        await talk(sessions, scope=BEN, session="b1")
        await sessions.begin(exchange(session="s2"))
        job = await jobs.claim(NOW, 60)
        assert (job.session_id, job.lane) == ("s1", 2)
        assert await jobs.claim(NOW, 60) is None

    async def test_a_user_has_one_job_running_at_a_time(self, sessions, jobs, memories):
        for session in ("s1", "s2"):
            await talk(sessions, session=session, trigger=always)
        job = await jobs.claim(NOW, 60)
        assert await jobs.claim(NOW, 60) is None
        await done(memories, job)
        assert await jobs.claim(NOW, 60) is not None

    async def test_urgent_lanes_go_first_and_users_take_turns(self, sessions, jobs, memories):
        for n in range(3):
            await talk(sessions, scope=ANNA, session=f"a{n}", trigger=always)
        await talk(sessions, scope=BEN, session="b0", trigger=always)
        await talk(sessions, scope=ANNA, session="a9", explicit=True, trigger=always)
        order = []
        while job := await jobs.claim(NOW, 60):
            order.append(job.session_id)
            await jobs.batch(job, limit=9, context=0)
            await done(memories, job)
        assert order == ["a9", "b0", "a0", "a1", "a2"]

    async def test_a_lease_that_ran_out_is_given_to_the_next_and_taken_from_the_first(
        self, sessions, jobs, memories
    ):
        await talk(sessions, trigger=always)
        first = await jobs.claim(NOW, 10)
        assert await jobs.claim(NOW + 9, 10) is None
        second = await jobs.claim(NOW + 10, 10)
        assert (second.id, second.attempts) == (first.id, 2)
        assert (await jobs.batch(first, limit=9, context=0)).pending == ()
        await jobs.retry(first, at=NOW, reason="late", dead=True)
        with pytest.raises(Conflict):
            await done(memories, first, create("from the first"))
        await jobs.batch(second, limit=9, context=0)
        await done(memories, second, create("from the second"))
        assert await contents(memories, "first second") == {"from the second"}

    async def test_a_retried_job_is_due_at_its_time_with_what_came_meanwhile(self, sessions, jobs):
        await talk(sessions, trigger=always)
        job = await jobs.claim(NOW, 60)
        await talk(sessions, trigger=always)
        await jobs.retry(job, at=NOW + 30, reason="timeout")
        assert await jobs.counts() == QueueCounts(queued=1, oldest_at=NOW)
        assert await jobs.claim(NOW + 29, 60) is None
        again = await jobs.claim(NOW + 30, 60)
        assert again.attempts == 2
        assert len((await jobs.batch(again, limit=9, context=0)).pending) == 2

    async def test_a_dead_letter_is_counted_and_not_offered_again(self, sessions, jobs):
        await talk(sessions, trigger=always)
        job = await jobs.claim(NOW, 60)
        await jobs.batch(job, limit=9, context=0)
        await jobs.retry(job, at=NOW, reason="refused", dead=True)
        assert await jobs.counts() == QueueCounts(dead=1)
        assert await sessions.sweep(NOW, always) == 0
        await talk(sessions, "next", trigger=always)
        job = await jobs.claim(NOW, 60)
        assert [e.said for e in (await jobs.batch(job, limit=9, context=0)).pending] == ["next"]

    async def test_a_job_waits_for_a_credential_until_its_user_comes_back(self, sessions, jobs):
        await talk(sessions, trigger=always)
        await jobs.wait_for_credential(await jobs.claim(NOW, 60))
        assert await jobs.counts() == QueueCounts(waiting=1)
        await jobs.wake(BEN)
        await talk(sessions, scope=BEN)
        assert await jobs.claim(NOW, 60) is None
        await talk(sessions, trigger=always)  # the user's next request brings one
        job = await jobs.claim(NOW, 60)
        assert job.attempts == 1
        assert len((await jobs.batch(job, limit=9, context=0)).pending) == 2

    async def test_a_sweep_offers_sessions_without_a_queued_job(self, sessions, jobs):
        await talk(sessions, session="s1")
        await talk(sessions, scope=BEN, session="s2", trigger=always)
        await sessions.begin(exchange(session="s3", scope=APOLLO))
        offered = []

        def trigger(state):
            offered.append((state.scope, state.session_id, state.pending))
            return always(state)

        # Opening s3 has queued s1 already: only what nobody queued is offered.
        assert await sessions.sweep(NOW, trigger) == 0
        assert (offered, (await jobs.counts()).queued) == ([], 2)
        await talk(sessions, session="s1-later", scope=BEN, key="x")
        assert await sessions.sweep(NOW, trigger) == 1
        assert offered == [(BEN, "s1-later", 1)]

    async def test_jobs_claimed_at_once_go_to_one_worker_each(self, sessions, jobs):
        for n in range(5):
            await talk(sessions, scope=type(ANNA)("acme", f"u{n}"), trigger=always)
        claimed = await asyncio.gather(*(jobs.claim(NOW, 60) for _ in range(8)))
        ids = [job.id for job in claimed if job]
        assert len(ids) == len(set(ids)) == 5


class ForgetConversationsContract:
    async def test_a_user_is_forgotten_with_sessions_and_jobs(self, sessions, jobs, memories):
        begun = await talk(sessions, trigger=always)
        job = await jobs.claim(NOW, 60)
        batch = await jobs.batch(job, limit=9, context=0)
        streaming = await sessions.begin(exchange())
        await store(memories, create("a fact", evidence=quote(begun)))
        assert await memories.forget(of(ANNA)) == Forgotten(memories=1, exchanges=2, sessions=1, jobs=1)
        assert not await sessions.complete(streaming, WHOLE, always)
        assert (await jobs.batch(job, limit=9, context=0)).pending == ()
        with pytest.raises(Conflict):
            await memories.apply(ANNA, [create("late")], expect=batch.stamp, done=job)
        await jobs.retry(job, at=NOW, reason="conflict")
        assert await jobs.counts() == QueueCounts()

    async def test_a_project_is_forgotten_with_its_own_sessions(self, sessions, memories):
        await talk(sessions, scope=APOLLO)
        await talk(sessions, scope=ANNA)
        # Opening the second session has queued a job for the first.
        assert await memories.forget(of(APOLLO)) == Forgotten(exchanges=1, sessions=1, jobs=1)
        assert len(await sessions.recent(ANNA, "s1", 9)) == 1

    async def test_a_memory_takes_the_exchanges_it_came_from(self, sessions, memories):
        told, other = await talk(sessions, "I am vegan and 40"), await talk(sessions, "I like tea")
        await store(
            memories,
            create("vegan", id="a", evidence=quote(told, "I am vegan")),
            create("forty", id="b", evidence=quote(told, "I am vegan and 40")),
            create("tea", id="c", evidence=quote(other, "I like tea")),
        )
        assert await memories.forget(of(ANNA), "a") == Forgotten(memories=1, exchanges=1)
        assert [e.said for e in await sessions.recent(ANNA, "s1", 9)] == ["I like tea"]
        assert (await memories.get(of(ANNA), "b")).evidence == quote(told)
        assert (await memories.get(of(ANNA), "c")).evidence == quote(other, "I like tea")

    async def test_evidence_cannot_reach_another_users_exchange(self, sessions, memories):
        bens = await talk(sessions, "Ben's words", scope=BEN)
        await store(memories, create("forged", id="a", evidence=quote(bens)))
        assert await memories.forget(of(ANNA), "a") == Forgotten(memories=1)
        assert len(await sessions.recent(BEN, "s1", 9)) == 1

    async def test_an_unrelated_exchange_survives_the_forgetting_of_a_memory(self, sessions, memories):
        streaming = await sessions.begin(exchange())
        await store(memories, create("tea", id="a"))
        await memories.forget(of(ANNA), "a")
        assert await sessions.complete(streaming, WHOLE, never)
        assert await find(memories, "tea") == []


class ConversationContract(SessionContract, QueueContract, ForgetConversationsContract):
    """All of it."""
