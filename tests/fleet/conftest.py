"""What the replicas of a fleet share: a PostgreSQL, a Redis for limits, and an upstream."""

import pytest

from tests import postgres_server, redis_server
from tests.fleet.replicas import model
from tests.support.upstream import ScriptedUpstream


@pytest.fixture
def redis(tmp_path):
    """A Redis of the test's own."""
    if redis_server.PROGRAM is None:
        pytest.skip(redis_server.MISSING)
    with redis_server.running(tmp_path / "redis") as running:
        yield running


@pytest.fixture
def postgres():
    """A PostgreSQL of the test's own, which it may stop."""
    if postgres_server.PROGRAMS is None:
        pytest.skip(postgres_server.MISSING)
    with postgres_server.running() as running:
        yield running


@pytest.fixture
async def scripted():
    """An upstream that extracts what it is shown, and its address."""
    script = model()
    async with ScriptedUpstream(script) as upstream:
        yield script, upstream.url
