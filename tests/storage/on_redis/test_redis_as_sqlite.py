"""The same steps over Redis and over SQLite, at random, by two replicas that die and come back: whatever one
answers, the other answers."""

import os
import random
from dataclasses import dataclass, field, replace

import pytest

from proxy.domain.core import Job, NewJob, Outcome, Scope
from proxy.domain.errors import LeaseLost, NotFound
from proxy.domain.oversight import JobInfo
from proxy.storage.redis import queue
from proxy.storage.redis.instance import Instance
from proxy.storage.redis.jobs import RedisJobs
from proxy.storage.redis.rows import Rows, row_of
from proxy.storage.redis.sessions import RedisSessions
from proxy.storage.redis.unit import Units
from proxy.storage.sqlite import SqliteStores
from tests.storage.making import ANNA, APOLLO, BEN, NOW, create, exchange, store
from tests.storage.on_redis.shared_support import by_rows, shared

SEEDS = range(int(os.environ.get("TWIN_SEEDS", "12")))
STEPS = int(os.environ.get("TWIN_STEPS", "150"))
SCOPES = (ANNA, APOLLO, BEN, Scope("other", "anna"))
LEASE_S = 40.0


class OverSqlite:
    """Two replicas that share a file."""

    def __init__(self, directory):
        self._directory, self._open = directory, []

    async def start(self):
        self._open = [await self._opened(), await self._opened()]

    async def _opened(self):
        stores = SqliteStores(self._directory)
        await stores.open()
        return stores

    async def die(self, n):
        await self._open[n].close()
        self._open[n] = await self._opened()

    async def close(self):
        for stores in self._open:
            await stores.close()

    def sessions(self, n):
        return self._open[n].sessions

    def jobs(self, n):
        return self._open[n].jobs

    async def remember(self, scope, id_):
        fact = create(f"fact {id_}", scope, id=id_)
        await store(self._open[0].memories, fact, scope=scope)

    async def finish(self, n, job):
        memories = self._open[n].memories
        await memories.apply(job.scope, [], expect=await memories.stamp(job.scope), done=job)


class OverRedis:
    """Two replicas that share a Redis."""

    def __init__(self, redis):
        self._redis, self._open = redis, []

    async def start(self):
        self._open = [await self._opened(), await self._opened()]

    async def _opened(self):
        instance, units = Instance(self._redis), Units(self._redis)
        await instance.start()
        return instance, RedisSessions(units, instance), RedisJobs(units, instance), units

    async def die(self, n):
        await self._open[n][0].close()
        self._open[n] = await self._opened()

    async def close(self):
        for instance, *_ in self._open:
            await instance.close()

    def sessions(self, n):
        return self._open[n][1]

    def jobs(self, n):
        return self._open[n][2]

    async def remember(self, scope, id_):
        async def work(unit):
            memory = create(f"fact {id_}", scope, id=id_).memory
            row = row_of(memory, seq=1, version=1, vector=None, generation=-1)
            await Rows(unit).put(id_, row)

        await self._open[0][3].write(scope, work)

    async def finish(self, n, job):
        async def work(unit):
            await queue.finish(unit, job)

        await self._open[n][3].write(job.scope, work)


@dataclass
class Twin:
    """One of the two, with what it gave names to."""

    over: OverSqlite | OverRedis
    begun: list = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    named: dict[str, int] = field(default_factory=dict)
    """Jobs by their own ids, in the order in which they were first seen."""
    asked: list = field(default_factory=list)

    def number(self, id_):
        return self.named.setdefault(id_, len(self.named))

    def info(self, info: JobInfo):
        return replace(info, id=str(self.number(info.id)))

    def trigger(self, kind, session=None):
        def decide(state):
            self.asked.append(replace(state, last_seq=0))
            wanted = {"never": False, "always": True, "explicit": state.explicit, "some": state.pending > 2,
                      "one": (state.scope, state.session_id) == session}[kind]  # fmt: skip
            lane = 1 if state.explicit else 3 if state.personal else 2
            return NewJob(state.session_id, state.last_seq, lane) if wanted else None

        return decide


class Steps:
    """Each is drawn once and done to both; it returns what can be compared."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self.now, self._count, self.is_over = chance, NOW, 0, False
        self._before = 0.0

    def draw(self):
        """Return a step's name, and the step."""
        names = [name for name in dir(self) if name.startswith("do_")]
        weights = [getattr(self, name).__defaults__[0] for name in names]
        name = self._chance.choices(names, weights)[0]
        return name, getattr(self, name)()

    def do_begin(self, weight=12):
        c, n = self._chance, self._replica()
        self._count += 1
        self.now += c.choice((0, 1, 70))
        new = exchange(
            c.choice(("one", "two", "bad \ud83d")), c.choice(SCOPES), session=self._session(),
            id=f"x{self._count}", key=c.choice("abcd"), standalone=c.random() < 0.5,
            explicit=c.random() < 0.2, personal=c.random() < 0.2, at=self.now,
        )  # fmt: skip

        async def step(twin):
            twin.begun.append(await twin.over.sessions(n).begin(new))
            return twin.begun[-1].id, twin.begun[-1].generation

        return step

    def do_complete(self, weight=14):
        c, n, which = self._chance, self._replica(), self._chance.random()
        outcome = Outcome(
            c.choice(("an answer", "another", "")), whole=c.random() < 0.7,
            response_id=c.choice((None, "resp_1", "resp_2")),
            recalled=c.choice(((), (), ("m1",), ("m1", "gone"))),
        )  # fmt: skip
        kind = c.choice(("never", "always", "explicit", "some"))

        async def step(twin):
            if not twin.begun:
                return None
            begun = twin.begun[int(which * len(twin.begun))]
            return await twin.over.sessions(n).complete(begun, outcome, twin.trigger(kind))

        return step

    def do_abort(self, weight=3):
        n, which = self._replica(), self._chance.random()

        async def step(twin):
            if twin.begun:
                await twin.over.sessions(n).abort(twin.begun[int(which * len(twin.begun))])

        return step

    def do_claim(self, weight=10):
        n, lane, now = self._replica(), self._chance.choice((1, 2, 3, 3)), self.now

        async def step(twin):
            job = await twin.over.jobs(n).claim(now, LEASE_S, upto_lane=lane)
            if job is None:
                return None
            twin.jobs.append(job)
            return replace(job, id=str(twin.number(job.id)), upto=0)

        return step

    def do_batch(self, weight=8):
        n, limit, context = self._replica(), self._chance.choice((1, 2, 9)), self._chance.choice((0, 1, 9))

        async def work(twin, job):
            batch = await twin.over.jobs(n).batch(job, limit=limit, context=context)
            return (*([replace(e, seq=0) for e in part] for part in (batch.pending, batch.context)),)

        return self._with_a_job(work)

    def do_finish(self, weight=6):
        n = self._replica()

        async def work(twin, job):
            try:
                return await twin.over.finish(n, job)
            except LeaseLost:
                return "lost"

        return self._with_a_job(work)

    def do_retry(self, weight=5):
        n, c = self._replica(), self._chance
        how = {"at": self.now + c.choice((-5, 0, 5, 100)), "dead": c.random() < 0.4,
               "counted": c.random() < 0.7, "reason": c.choice(("timeout", "refused"))}  # fmt: skip
        return self._with_a_job(lambda twin, job: twin.over.jobs(n).retry(job, **how))

    def do_wait(self, weight=2):
        n = self._replica()
        return self._with_a_job(lambda twin, job: twin.over.jobs(n).wait_for_credential(job))

    def do_wake(self, weight=1):
        n, scope = self._replica(), self._chance.choice((*SCOPES, None))
        return lambda twin: twin.over.jobs(n).wake(scope)

    def do_revive(self, weight=2):
        n, tenant, c = self._replica(), self._chance.choice(("acme", "other")), self._chance
        user, which = c.choice((None, "anna", "ben")), c.choice((None, c.random()))

        async def step(twin):
            one = twin.jobs[int(which * len(twin.jobs))].id if which and twin.jobs else None
            return await twin.over.jobs(n).revive(tenant, user, one)

        return step

    def do_end(self, weight=3):
        n, scope, session, now = self._replica(), self._chance.choice(SCOPES), self._session(), self.now
        return lambda twin: twin.over.sessions(n).end(scope, session, now)

    def do_sweep(self, weight=4):
        """One session only: which of several has its job first is not said."""
        n, now, session = self._replica(), self.now, (self._chance.choice(SCOPES), self._session())

        return lambda twin: self._sweep(twin, n, now, twin.trigger("one", session))

    async def _sweep(self, twin, n, now, trigger):
        asked, twin.asked = twin.asked, []
        made = await twin.over.sessions(n).sweep(now, trigger)
        twin.asked = asked + sorted(twin.asked, key=repr)
        self.is_over = self.is_over or made > 1  # others had been ended by their clients
        return made

    def do_prune(self, weight=1):
        """Each from later on: over Redis, what was kept the last time is looked at again only then."""
        n = self._replica()
        self._before = before = max(self._before + 1, self.now - self._chance.choice((0, 60, 300)))
        return lambda twin: twin.over.sessions(n).prune(before)

    def do_die(self, weight=1):
        """With the sweep after it: over Redis, another user's `end` does not see to what it left."""
        n, now = self._replica(), self.now

        async def step(twin):
            await twin.over.die(n)
            return await self._sweep(twin, n, now, twin.trigger("never"))

        return step

    def do_pass(self, weight=4):
        self.now += self._chance.choice((1, 10, 50))

        async def step(twin):
            return None

        return step

    # ------------------------------------------------------------ looking
    def do_recent(self, weight=4):
        n, scope, session, limit = self._replica(), self._chance.choice(SCOPES), self._session(), 3

        async def step(twin):
            found = await twin.over.sessions(n).recent(scope, session, limit)
            return [replace(e, seq=0) for e in found]

        return step

    def do_session_of(self, weight=2):
        n, scope = self._replica(), self._chance.choice(SCOPES)
        return lambda twin: twin.over.sessions(n).session_of(scope, "resp_1")

    def do_sessions(self, weight=4):
        n, scope, limit = self._replica(), self._chance.choice(SCOPES), self._chance.choice((1, 2, 9))

        async def step(twin):
            seen, after = [], None
            while page := await twin.over.sessions(n).sessions(scope, limit=limit, after=after):
                seen += [replace(info, cursor=info.cursor.partition("@")[0]) for info in page]
                after = page[-1].cursor
            return seen

        return step

    def do_list(self, weight=4):
        n, c = self._replica(), self._chance
        tenant, user = c.choice((("acme", None), ("acme", "anna"), ("other", None)))
        state, limit = c.choice((None, None, "dead", "queued")), c.choice((1, 2, 9))

        async def step(twin):
            seen, after = [], None
            try:
                while page := await twin.over.jobs(n).list(
                    tenant, user, state=state, limit=limit, after=after
                ):
                    seen += [twin.info(info) for info in page]
                    after = page[-1].id
            except NotFound as error:
                return seen, error.param
            return seen

        return step

    def do_counts(self, weight=4):
        n = self._replica()
        return lambda twin: twin.over.jobs(n).counts()

    # ------------------------------------------------------------ drawing
    def _replica(self):
        return self._chance.randrange(2)

    def _session(self):
        return self._chance.choice(("s1", "s2", "s3"))

    def _with_a_job(self, work):
        which = 1 - self._chance.random() ** 2  # rather one of the last

        async def step(twin):
            if not twin.jobs:
                return None
            return await work(twin, twin.jobs[min(int(which * len(twin.jobs)), len(twin.jobs) - 1)])

        return step


@pytest.mark.parametrize("seed", SEEDS)
async def test_redis_answers_what_sqlite_answers(redis, tmp_path, seed):
    twins = [Twin(OverSqlite(tmp_path)), Twin(OverRedis(redis))]
    steps, told = Steps(random.Random(seed)), []
    for twin in twins:
        await twin.over.start()
        for scope in SCOPES:
            if scope is not APOLLO:
                await twin.over.remember(scope, "m1")
    for _ in range(STEPS):
        name, step = steps.draw()
        expected, found = [await step(twin) for twin in twins]
        told.append((name, expected))
        assert found == expected, _lately(told)
        assert [twin.asked for twin in twins[1:]] == [twins[0].asked], _lately(told)
        if steps.is_over:
            break
        if name in ("do_die", "do_prune", "do_finish"):
            assert await shared(redis) == await by_rows(redis), _lately(told)
    for twin in twins:
        await twin.over.close()


def _lately(told):
    return "\n".join(map(repr, told[-12:]))
