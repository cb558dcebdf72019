"""Rate limits and the hour's calls of replicas, on Redis's clock."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.domain.errors import StoreUnavailable
from proxy.domain.rates import Rate, judge
from proxy.storage.redis import limits as module
from proxy.storage.redis.connection import Redis, scored
from proxy.storage.redis.forms import RedisForms
from proxy.storage.redis.limits import RedisCalls, RedisLimits
from tests import redis_server
from tests.storage.contract_calls import CallsContract
from tests.storage.contract_forms import FormsContract

CLOCK, EXPIRY = "redis.call('TIME')", ", 'PX', math.ceil(ahead * 1000)"
assert CLOCK in module._ASK
assert EXPIRY in module._ASK
ours = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # the database is emptied below


async def test_replicas_share_a_budget_and_subjects_do_not(redis: Redis) -> None:
    first, second = RedisLimits(redis), RedisLimits(redis)
    rate = Rate(per_minute=1, burst=3)
    told = [await each.ask("anna", rate) for each in (first, second, first, second)]
    assert [verdict.passes for verdict in told] == [True, True, True, False]
    assert [verdict.remaining for verdict in told] == [2, 1, 0, 0]
    assert told[2].reset_s == pytest.approx(180, abs=5)
    assert told[3].retry_after_s == pytest.approx(60, abs=5)
    assert (await second.ask("ben", rate)).passes


async def test_many_at_once_get_no_more_than_a_burst(redis: Redis) -> None:
    replicas = [RedisLimits(redis) for _ in range(4)]
    rate = Rate(per_minute=1, burst=25)
    told = await asyncio.gather(*(each.ask("anna", rate) for each in replicas for _ in range(20)))
    assert sum(verdict.passes for verdict in told) == 25


async def test_a_subject_that_is_back_at_nothing_leaves_nothing_behind(redis: Redis) -> None:
    await RedisLimits(redis).ask("anna", Rate(per_minute=600, burst=2))
    (key,) = await redis.call("KEYS", "*")
    assert b"anna" not in key
    assert 0 < int(await redis.call("PTTL", key)) <= 100


@ours
@given(st.integers(1, 10_000), st.integers(1, 500), st.lists(st.floats(0, 90), min_size=1, max_size=50))
async def test_the_script_judges_as_the_rule_does(
    redis: Redis, per_minute: int, burst: int, gaps: list[float]
) -> None:
    await redis.call("FLUSHDB")
    rate, now, at = Rate(per_minute, burst), 1_700_000_000.0, 0.0
    for gap in gaps:
        now = round(now + gap / 60, 6)  # what Redis's clock can say
        at, expected = judge(rate, now, at)
        at = round(at, 6)
        clock = f"{{'{int(now)}', '{round(now % 1 * 1e6)}'}}"
        script = module._ASK.replace(CLOCK, clock).replace(EXPIRY, "")
        arguments = (rate.interval_s, rate.most_s, module.TOLERANCE)
        passes, ahead = await redis.script(script, ("k",), *arguments)
        found = module.verdict_of(rate, passes=bool(passes), ahead_s=float(ahead))
        assert found.passes == expected.passes
        assert found.remaining == pytest.approx(expected.remaining, abs=0)
        assert found.reset_s == pytest.approx(expected.reset_s, abs=1e-5)
        assert found.retry_after_s == pytest.approx(expected.retry_after_s, abs=1e-5)


async def test_without_redis_the_limits_say_so_and_come_back_with_it(
    redis: Redis, server: redis_server.Server
) -> None:
    limits, rate = RedisLimits(redis), Rate(60, 5)
    assert (await limits.ask("anna", rate)).passes
    server.kill()
    try:
        with pytest.raises(StoreUnavailable):
            await limits.ask("anna", rate)
    finally:
        server.start()
    assert (await limits.ask("anna", rate)).passes


class TestForms(FormsContract):
    """Two replicas."""

    @pytest.fixture
    def forms(self, redis):
        return RedisForms(redis), RedisForms(redis)


class TestCalls(CallsContract):
    """The hour's calls of two replicas. Redis tells the time, and nobody moves its clock: what it holds grows
    older instead."""

    @pytest.fixture
    def calls(self, redis):
        return RedisCalls(redis), RedisCalls(redis)

    @pytest.fixture
    def now(self):
        return lambda: 5.0  # nobody asks

    @pytest.fixture
    def pass_s(self, redis):
        async def age(seconds):
            for member, at in scored(await redis.call("ZRANGE", redis.key("calls"), 0, -1, "WITHSCORES")):
                await redis.call("ZADD", redis.key("calls"), f"{at - seconds:.6f}", member)

        return age

    async def test_nothing_is_left_of_an_hour_that_is_over(self, calls, redis):
        await calls[0].spend(5, 0.0)
        assert 3_590_000 < int(await redis.call("PTTL", redis.key("calls"))) <= 3_600_000

    async def test_a_full_redis_counts_all_the_same(self, calls, redis):
        await redis.call("CONFIG", "SET", "maxmemory", "1")
        try:
            assert [(await calls[0].spend(1, 0.0)).granted for _ in range(2)] == [True, False]
        finally:
            await redis.call("CONFIG", "SET", "maxmemory", "0")
