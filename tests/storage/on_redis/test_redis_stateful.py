"""Nothing that was forgotten is ever seen again, over Redis as over SQLite: the same machine, two replicas.

Between a forget's commit and the index's agreement a process may die. After each step the words of what was
forgotten are in no answer and nowhere in Redis, which holds the points of the index here, too.

FORGET_EXAMPLES=500 runs more of them.
"""

from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from proxy.domain.core import Scope
from proxy.storage.redis import clearing, forgetting, orders
from proxy.storage.redis.layout import summary_key
from proxy.storage.redis.unit import Unit
from tests import redis_server
from tests.storage import test_sqlite_stateful
from tests.storage.on_redis.forgetting_support import before_portions, emptied, opened, written
from tests.storage.on_redis.memories_support import agreement
from tests.storage.on_redis.shared_support import by_rows, shared
from tests.storage.test_sqlite_stateful import EXAMPLES, USERS, which

URLS: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def url(server: redis_server.Server):
    """A state machine takes no fixtures."""
    URLS.append(server.url)
    yield
    URLS.clear()


class Forgetting(test_sqlite_stateful.Forgetting):
    """The machine over replicas."""

    is_empty = False  # the database, before the first step

    def opened(self):
        if not self.is_empty:
            self.run(emptied(URLS[-1]))
            self.is_empty = True
        return self.run(opened(URLS[-1]))

    @initialize(portions=st.booleans())
    def choose(self, portions):
        """Half of the runs forget in portions of two rows, whoever has any memories."""
        self.in_portions, self.portions = portions, True  # either may be broken off
        self.patches = [
            mock.patch.object(forgetting, "AT_ONCE", -1 if portions else forgetting.AT_ONCE),
            mock.patch.object(forgetting, "PORTION", 2),
            mock.patch.object(forgetting, "_SETTLE_EVERY", 2),
            mock.patch.object(clearing, "_ROWS", 2),
            mock.patch.object(clearing, "_TABLES", 2),
            mock.patch.object(orders, "LEASE_S", -1.0),
        ]
        for patch in self.patches:
            patch.start()

    def forget_until(self, at, where, id_, crash):
        """Forget, while others read and write; return None if the process died on the way."""
        self.meddled = False
        self.run(self.read_chains(1 - at, where.user))
        memories, left = self.stores[at].memories, iter(range(crash or 0))
        settle, units = memories.indexing.settle, memories.forgetting._units

        async def between():
            await self.save_readings(1 - at)
            await self.read_and_continue(1 - at, where.user)
            self.die_if(crash is not None and next(left, None) is None)

        async def after_the_last_commit(scope):
            if not await self.is_under_way(1 - at, scope):
                await self.read_and_continue(1 - at, where.user)
                self.die_if(crash is not None)
            return await settle(scope)

        before_portions(self.stores[at], between)
        with mock.patch.object(memories.indexing, "settle", after_the_last_commit):
            try:
                return self.run(memories.forget(where, id_, by="test"))
            except RuntimeError:
                return None
            finally:
                memories.forgetting._units = units

    async def is_under_way(self, at, scope):
        async def work(unit):
            return bool(await orders.standing(unit))

        return await self.stores[at].units.glance(scope, work)

    def die_if(self, dies):
        if dies:
            raise RuntimeError("the process dies here")

    @precondition(lambda self: self.going)
    @rule(at=which)
    def go_on(self, at):
        """The upkeep of any process."""
        for stores in self.stores:
            self.run(stores.memories.resume_forgets())
            self.run(stores.memories.indexing.settle(Scope("t", USERS[at])))
            self.run(stores.memories.indexing.settle(Scope("t", USERS[1 - at])))
        self.gone |= self.going
        self.going = set()

    @invariant()
    def nothing_forgotten_is_in_any_file(self):
        """The append-only file aside: Redis rewrites it when it likes."""
        text = self.run(written(self.stores[0].redis))
        assert {word for word in self.gone if word.encode() in text} == set()

    @invariant()
    def all_that_follows_from_rows_agrees_with_them(self):
        redis = self.stores[0].redis
        if not self.going:  # while a forget is under way, no job is due
            assert self.run(shared(redis)) == self.run(by_rows(redis))
        for user in USERS:
            self.run(self.agree(redis, Scope("t", user)))

    async def agree(self, redis, scope):
        unit = await Unit.begin(redis, scope)
        await agreement(redis, unit)
        memories = await unit.table("memories").all()
        cited = {(e["exchange_id"], id_) for id_, row in memories.items() for e in row["evidence"]}
        cited |= {
            (summary_key(row["project"], e["session_id"]), id_)
            for id_, row in memories.items()
            for e in row["evidence"]
            if row["source"] == "summary"
        }
        found = {(source, id_) for source, ids in (await unit.table("cited").all()).items() for id_ in ids}
        assert found == cited


Forgetting.TestCase.settings = settings(
    max_examples=max(1, EXAMPLES // 4), stateful_step_count=15, deadline=None
)
TestForgetting = Forgetting.TestCase
