"""What replicas share in Redis: rate limits and the hour's calls, and what happens without it."""

import asyncio
import os
import signal
import time
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from proxy.domain.errors import StoreUnavailable
from proxy.domain.limits import TOLERANCE, LocalCallQuota, Rate, check_rate, rate_verdict
from proxy.storage import redis_cache as module
from proxy.storage.redis_cache import RedisCache, place_of
from tests.storage.contract_calls import CallsContract

CLOCK, EXPIRY = "redis.call('TIME')", ", 'PX', math.ceil(ahead * 1000)"
assert CLOCK in module._ASK
assert EXPIRY in module._ASK
ours = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # the database is emptied below
RATE = Rate(per_minute=1, burst=3)


@pytest.fixture
def client(redis):
    """An operator's own connection; Redis is empty."""
    with Redis.from_url(redis.url) as client:
        client.flushall()
        yield client


@pytest.fixture
async def caches(client, redis, steady):
    """Those of two replicas. The machine that runs the tests may be slow: the time-out is long."""
    made = tuple(RedisCache(redis.url, timeout_s=30.0, steady=steady) for _ in range(2))
    yield made
    for cache in made:
        await cache.close()


class Steady:
    """A monotonic clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def steady():
    return Steady()


@pytest.fixture
def log(monkeypatch):
    """Return the events that were logged."""
    mock = Mock()
    monkeypatch.setattr(module.telemetry, "log", mock)
    return lambda: [line.args[0] for line in mock.mock_calls]


# ---------------------------------------------------------------- counting
async def test_replicas_share_a_budget_and_subjects_do_not(caches, client):
    first, second = caches
    verdicts = [await each.ask("anna", RATE) for each in (first, second, first, second)]
    assert [verdict.passes for verdict in verdicts] == [True, True, True, False]
    assert [verdict.remaining for verdict in verdicts] == [2, 1, 0, 0]
    assert verdicts[2].reset_s == pytest.approx(180, abs=5)
    assert verdicts[3].retry_after_s == pytest.approx(60, abs=5)
    (key,) = client.keys("*")
    assert b"anna" not in key
    assert 170_000 < client.pttl(key) <= 180_000, "it expires with the count"
    assert (await second.ask("ben", RATE)).passes


@ours
@given(st.integers(1, 10_000), st.integers(1, 500), st.lists(st.floats(0, 90), min_size=1, max_size=50))
async def test_the_script_judges_as_the_rule_does(client, per_minute, burst, gaps):
    client.flushdb()
    rate, now, at = Rate(per_minute, burst), 1_700_000_000.0, 0.0
    for gap in gaps:
        now = round(now + gap / 60, 6)  # what Redis's clock can say
        at, expected = check_rate(rate, now, at)
        at = round(at, 6)
        clock = f"{{'{int(now)}', '{round(now % 1 * 1e6)}'}}"
        script = module._ASK.replace(CLOCK, clock).replace(EXPIRY, "")
        passes, ahead = client.eval(script, 1, "k", rate.interval_s, rate.most_s, TOLERANCE)
        found = rate_verdict(rate, passes=bool(passes), ahead_s=float(ahead))
        assert (found.passes, found.remaining) == (expected.passes, expected.remaining)
        assert found.reset_s == pytest.approx(expected.reset_s, abs=1e-5)
        assert found.retry_after_s == pytest.approx(expected.retry_after_s, abs=1e-5)


class TestCalls(CallsContract):
    """The hour's calls of two replicas. The clock is Redis's, which no test moves: what it holds grows older
    instead."""

    @pytest.fixture
    def calls(self, caches):
        return tuple(cache.calls(LocalCallQuota()) for cache in caches)

    @pytest.fixture
    def now(self):
        return lambda: 5.0  # not used

    @pytest.fixture
    def pass_s(self, client):
        async def age(seconds):
            for member, at in client.zrange("memory-proxy:calls", 0, -1, withscores=True):
                client.zadd("memory-proxy:calls", {member: f"{at - seconds:.6f}"})

        return age


async def test_calls_are_counted_by_the_store_while_redis_cannot_and_refunded_where_they_were_counted(
    caches, redis, steady
):
    calls = caches[0].calls(LocalCallQuota())
    shared = await calls.spend(1, 1000.0)
    assert not (await calls.spend(1, 1000.0)).granted
    redis.kill()
    try:
        alone = await calls.spend(1, 1000.0)
        assert (alone.granted, alone.at) == (True, 1000.0)
        assert not (await calls.look(1, 1000.0)).granted
        await calls.refund(alone.at)
        assert (await calls.look(1, 1000.0)).granted
    finally:
        redis.start()
    steady.now += module.OPEN_S
    assert not (await calls.look(1, 1000.0)).granted
    await calls.refund(shared.at)
    assert (await calls.look(1, 1000.0)).granted


# ---------------------------------------------------------------- without it
async def test_a_redis_that_is_killed_costs_one_question_one_log_line_and_one_count_and_comes_back(
    client, redis, steady, log
):
    failed = Mock()
    cache = RedisCache(redis.url, timeout_s=30.0, failed=failed, steady=steady)
    assert (await cache.ask("anna", RATE)).passes
    redis.kill()
    try:
        for steady.now in (*[0.0] * 20, module.OPEN_S):
            with pytest.raises(StoreUnavailable):
                await cache.ask("anna", RATE)
    finally:
        redis.start()
    with pytest.raises(StoreUnavailable):  # it is asked again after a while
        await cache.ask("anna", RATE)
    assert (log(), failed.call_count) == (["cache.unavailable"], 1)
    steady.now += module.OPEN_S
    assert (await cache.ask("anna", RATE)).passes
    assert (log(), failed.call_count) == (["cache.unavailable", "cache.recovered"], 1)
    await cache.close()


async def test_a_redis_that_stands_still_delays_no_request_for_longer_than_the_time_out(client, redis, log):
    cache = RedisCache(redis.url, timeout_s=0.3)
    for _ in range(3):
        await cache.ping()
    os.kill(redis.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        asked = [cache.ask(str(n), RATE) for n in range(200)]
        verdicts = await asyncio.gather(*asked, return_exceptions=True)
        took = time.monotonic() - began
        assert {type(verdict) for verdict in verdicts} == {StoreUnavailable}
        assert took < 20.0, "one waited for another"
    finally:
        os.kill(redis.pid, signal.SIGCONT)
    assert log() == ["cache.unavailable"]
    await cache.close()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:secret@[::1]:6380/0", "redis://[::1]:6380/0"),
        ("rediss://:secret@h?ssl_ca_certs=/ca", "rediss://h:6379"),
        ("unix://:secret@/run/redis.sock?db=1", "unix:///run/redis.sock"),
    ],
)
def test_the_place_is_named_without_a_credential(url, shown):
    assert place_of(url) == shown
