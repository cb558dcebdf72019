"""SessionStore and JobQueue."""

import pytest

from proxy.domain.core import ForgetCounts
from proxy.domain.errors import Conflict, NotFound
from proxy.domain.session import Outcome, QueueCounts, SessionInfo
from tests.storage.making import ANNA, APOLLO, BEN, NOW, contents, create, forgotten, of
from tests.storage.talking import always, exchange, never, talk

ENGINES = ("sqlite", "postgres")

WHOLE = Outcome("an answer", whole=True)


async def done(memories, job, *changes):
    await memories.apply(job.scope, changes, expect=await memories.stamp(job.scope), done=job)


class TestSession:
    async def test_a_session_and_its_responses_belong_to_one_user_and_project(self, sessions):
        await talk(sessions, "a secret", response_id="resp_1")
        assert await sessions.recent(BEN, "s1", 9) == await sessions.recent(APOLLO, "s1", 9) == []
        assert await sessions.session_of(ANNA, "resp_1") == "s1"
        assert await sessions.session_of(BEN, "resp_1") is None
        assert await sessions.session_of(ANNA, "resp_2") is None

    async def test_an_exchange_is_in_the_zone_of_its_request_else_in_the_last_known(self, sessions):
        assert await sessions.timezone(ANNA) is None
        for said, zone in (("one", None), ("two", "Asia/Tokyo"), ("three", None), ("four", "+05:30")):
            new = exchange(said, timezone=zone, default_timezone="Europe/Berlin")
            await sessions.complete(await sessions.begin(new), WHOLE, never)
        found = await sessions.recent(ANNA, "s1", 9)
        assert [e.timezone for e in found] == ["Europe/Berlin", "Asia/Tokyo", "Asia/Tokyo", "+05:30"]
        assert await sessions.timezone(ANNA) == await sessions.timezone(APOLLO) == "+05:30"
        assert await sessions.timezone(BEN) is None

    @pytest.mark.parametrize(
        ("elsewhere", "is_retry"), [("One coffee, no, three.", False), ("Two coffees.", True)]
    )
    async def test_without_history_it_is_not_a_retry_if_something_else_was_said_elsewhere(
        self, sessions, elsewhere, is_retry
    ):
        for name, whole in (("whole", True), ("broken off", False)):
            first = await talk(sessions, "Two coffees.", key=name, standalone=True, whole=whole, session=name)
            await talk(sessions, "Two of them!", scope=BEN)
            await talk(sessions, elsewhere, standalone=True, session=f"beside {name}")
            again = exchange("Two coffees.", key=name, standalone=True, session=name, at=NOW + 5)
            assert ((await sessions.begin(again)).id == first.id) is is_retry

    async def test_the_first_words_of_an_unnamed_conversation_may_begin_another(self, sessions):
        def opens(at):
            return exchange("I live in Berlin.", key="k1", standalone=True, unnamed=True, at=NOW + at)

        first = await sessions.begin(opens(0))
        await sessions.complete(first, WHOLE, never)
        await talk(sessions, "Now a joke.", key="k2")
        assert await sessions.begin(opens(3_599)) == first
        second = await sessions.begin(opens(3_600))
        assert second != first
        await sessions.complete(second, WHOLE, never)
        assert await sessions.begin(opens(3_601)) == second
        await talk(sessions, "I moved to Rome.", session="s2")
        assert await sessions.begin(opens(3_602)) not in (first, second)

    async def test_the_same_request_again_is_the_same_exchange_and_a_broken_answer_gives_way(self, sessions):
        first = await sessions.begin(exchange("hi", key="k"))
        await sessions.complete(first, Outcome("an ans", whole=False), never)
        again = await sessions.begin(exchange("hi", key="k"))
        assert again == first
        states = []
        for begun in (first, again):
            assert await sessions.complete(begun, WHOLE, lambda s: states.append(s))
        assert [s.pending for s in states] == [1]
        await sessions.complete(first, Outcome("", whole=False), never)  # gives no way to a broken one
        (found,) = await sessions.recent(ANNA, "s1", 9)
        assert (found.answer, found.whole) == ("an answer", True)

    async def test_an_answer_continues_only_its_own_beginning_in_the_same_session(self, sessions):
        one = await talk(sessions, "one", key="k1", whole=False, response_id="r1")
        assert await sessions.resume(ANNA, "s1", None, "r0") is None
        two = await talk(sessions, "two", key="k2", whole=False, response_id="r2")
        for scope, session in ((BEN, "s1"), (APOLLO, "s1"), (ANNA, "s2"), (ANNA, "")):
            await talk(
                sessions, "else", key="k0", whole=False, scope=scope, session=session, response_id="r0"
            )
            for which in ((None, "r1"), (None, "r2"), ("k1", None), ("k2", None), ("k", None)):
                assert await sessions.resume(scope, session, *which) is None
        for which, found in ((("k1",), one), ((None,), two), ((None, "r1"), one), (("k2", "r1"), two)):
            assert (
                await sessions.resume(ANNA, "s1", *which) == found
            )  # its own request says so, else the last
        await talk(sessions, "three", key="k3", whole=False)
        assert await sessions.resume(ANNA, "s1", "k0", "r1") is None
        assert await sessions.complete(one, Outcome("One is done.", whole=True), never)
        assert next(e.answer for e in await sessions.recent(ANNA, "s1", 3)) == "One is done."
        for which in (("k1", None), (None, "r1")):
            assert await sessions.resume(ANNA, "s1", *which) is None  # it has ended

    async def test_an_aborted_exchange_leaves_nothing(self, sessions, memories):
        begun = await sessions.begin(exchange())
        await sessions.abort(begun)
        assert not await sessions.complete(begun, WHOLE, always)
        assert await forgotten(memories, of(ANNA)) == ForgetCounts()


class TestQueue:
    async def test_a_job_reads_the_pending_exchanges_and_some_before(self, sessions, jobs, memories):
        await talk(sessions, "old", trigger=always)
        job = await jobs.claim(NOW, 60)
        await jobs.batch(job, limit=9, context=9)
        await done(memories, job)
        for said in ("new one", "new two", "new three"):
            await talk(sessions, said, trigger=always)
        for pending, context in ((["new one", "new two"], ["old"]), (["new three"], ["new two"])):
            job = await jobs.claim(NOW, 60)
            batch = await jobs.batch(job, limit=2, context=1)
            assert [e.said for e in batch.pending] == pending
            assert [e.said for e in batch.context] == context
            assert batch.stamp == await memories.stamp(ANNA)
            await done(memories, job)
        assert await jobs.claim(NOW, 60) is None

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

    async def test_an_answer_that_ends_while_the_job_runs_is_not_lost(self, sessions, jobs, memories):
        slow = await sessions.begin(exchange("slow"))
        await talk(sessions, "quick", trigger=always)
        job = await jobs.claim(NOW, 60)
        assert [e.said for e in (await jobs.batch(job, limit=9, context=0)).pending] == ["quick"]
        await sessions.complete(slow, WHOLE, always)
        await done(memories, job)
        job = await jobs.claim(NOW, 60)
        assert [e.said for e in (await jobs.batch(job, limit=9, context=0)).pending] == ["slow"]

    async def test_urgent_lanes_go_first_and_users_take_turns(self, sessions, jobs, memories):
        for n in range(3):
            await talk(sessions, scope=ANNA, session=f"a{n}", trigger=always)
        await talk(sessions, scope=BEN, session="b0", trigger=always)
        await talk(sessions, session="a9", trigger=always)
        await talk(sessions, session="a9", explicit=True, trigger=always)  # widens the job, and hastens it
        assert (await jobs.counts()).queued == 5
        order = []
        while job := await jobs.claim(NOW, 60):
            order.append(job.session_id)
            pending = (await jobs.batch(job, limit=9, context=0)).pending
            assert len(pending) == (2 if job.session_id == "a9" else 1)
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

    async def test_a_retried_job_is_due_at_its_time_with_what_came_since(self, sessions, jobs):
        await talk(sessions, trigger=always)
        job = await jobs.claim(NOW, 60)
        await talk(sessions, trigger=always)
        await jobs.retry(job, at=NOW + 30, reason="timeout")
        assert await jobs.counts() == QueueCounts(queued=1, oldest_at=NOW, queued_by_lane=(0, 1, 0))
        assert await jobs.claim(NOW + 29, 60) is None
        again = await jobs.claim(NOW + 30, 60)
        assert again.attempts == 2
        assert len((await jobs.batch(again, limit=9, context=0)).pending) == 2

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


class TestEnd:
    async def test_an_ended_session_is_extracted_at_once(self, sessions, jobs):
        for _ in range(2):
            await talk(sessions)
        await talk(sessions, session="s2")
        job = await jobs.claim(NOW, 60)  # opening s2 made s1 due
        await jobs.retry(job, at=NOW + 900, reason="timeout")
        assert await jobs.claim(NOW, 60) is None
        assert await sessions.end(ANNA, "s1", NOW) == 2
        job = await jobs.claim(NOW, 60)
        assert (job.session_id, job.lane) == ("s1", 2)
        assert len((await jobs.batch(job, limit=9, context=0)).pending) == 2
        assert await sessions.end(ANNA, "s2", NOW) == 1

    async def test_a_session_is_ended_by_its_user_in_its_project_or_in_any(self, sessions, jobs):
        await talk(sessions, scope=APOLLO)
        zeus = type(ANNA)("acme", "anna", "zeus")
        for stranger in (BEN, type(ANNA)("other", "anna"), zeus):
            assert await sessions.end(stranger, "s1", NOW) == 0
        assert await sessions.end(APOLLO, "s1", NOW) == 1
        await talk(sessions, scope=zeus)
        await talk(sessions, scope=ANNA)
        assert await sessions.end(ANNA, "s1", NOW) == 3

    async def test_an_answer_that_ends_after_its_session_is_extracted_too(self, sessions, jobs):
        begun = await sessions.begin(exchange("last words"))
        assert await sessions.end(ANNA, "s1", NOW) == 1
        assert await jobs.claim(NOW, 60) is None
        await sessions.complete(begun, WHOLE, never)
        job = await jobs.claim(NOW, 60)
        assert [e.said for e in (await jobs.batch(job, limit=9, context=0)).pending] == ["last words"]

    async def test_sessions_are_listed_the_last_used_first(self, sessions):
        assert list(await sessions.sessions(ANNA, limit=9)) == []
        for n, session in enumerate(("a", "b", "c")):
            await talk(sessions, session=session, at=NOW + n)
        await talk(sessions, session="a", at=NOW + 9, scope=ANNA)
        await sessions.begin(exchange(session="a", at=NOW + 10))
        first = await sessions.sessions(ANNA, limit=1)
        rest = await sessions.sessions(ANNA, limit=9, after=first[0].id)
        assert [s.id for s in (*first, *rest)] == ["a", "c", "b"]
        assert first[0] == SessionInfo(
            id="a", scope=ANNA, last_at=NOW + 10, exchanges=3, pending=3, cursor="a"
        )
        await talk(sessions, scope=APOLLO, session="p")
        assert [(s.id, s.scope) for s in await sessions.sessions(APOLLO, limit=9)] == [("p", APOLLO)]
        for stranger, cursor in ((ANNA, "nothing"), (BEN, "a"), (type(ANNA)("other", "anna"), "a")):
            with pytest.raises(NotFound):
                await sessions.sessions(stranger, limit=9, after=cursor)
            assert stranger == ANNA or not list(await sessions.sessions(stranger, limit=9))


async def dead_letter(sessions, jobs, *, reason="refused", **fields):
    """Let a session's extraction fail for good."""
    await talk(sessions, trigger=always, **fields)
    job = await jobs.claim(NOW, 60)
    await jobs.batch(job, limit=9, context=0)
    await jobs.retry(job, at=NOW, reason=reason, dead=True)
    return job


class TestOverseeing:
    async def test_a_tenants_or_users_jobs_are_not_anothers(self, sessions, jobs):
        await dead_letter(sessions, jobs)
        await dead_letter(sessions, jobs, scope=BEN)
        mine, bens = await jobs.list("acme", None, state=None, limit=9)
        assert await jobs.list("acme", "anna", state=None, limit=9) == [mine]
        assert await jobs.list("other", None, state=None, limit=9) == []
        foreign = [("acme", "anna", bens.id), ("other", None, mine.id), ("acme", None, "x")]
        for tenant, user, cursor in foreign:
            with pytest.raises(NotFound):
                await jobs.list(tenant, user, state=None, limit=9, after=cursor)
        for tenant, user in [("acme", "ben"), ("other", None), ("other", "anna")]:
            assert await jobs.revive(tenant, user, mine.id) == 0
        assert (await jobs.counts()).dead == 2

    async def test_only_dead_letters_are_revived_one_or_all(self, sessions, jobs):
        letters = [await dead_letter(sessions, jobs, session=f"s{n}") for n in range(3)]
        await talk(sessions, session="s9", trigger=always)
        (queued,) = await jobs.list("acme", "anna", state="queued", limit=9)
        in_other_digits = letters[0].id.translate({48 + n: 0x660 + n for n in range(10)})
        for job_id in (queued.id, "0", "x", "-1", "9" * 30, in_other_digits, ""):
            assert await jobs.revive("acme", "anna", job_id) == 0
        assert await jobs.revive("acme", "anna", letters[1].id) == 1
        assert await jobs.revive("acme", "anna") == 2
        infos = await jobs.list("acme", "anna", state="queued", limit=9)
        assert [(info.attempts, info.exchanges, info.reason) for info in infos] == [(0, 1, "")] * 4
        assert await jobs.list("acme", "anna", state="queued", limit=9, after=infos[1].id) == infos[2:]
        assert await jobs.revive("acme", None) == 0
        assert await jobs.counts() == QueueCounts(queued=4, oldest_at=NOW, queued_by_lane=(0, 4, 0))
