"""Forgets over Redis: complete, counted beforehand, with a receipt, hidden at once from every replica."""

from functools import partial

import pytest

from proxy.stores.redis import forgetting
from tests.stores.contract_chains import ForgetChainsContract
from tests.stores.contract_forgetting import ForgettingContract
from tests.stores.contract_memories import ForgetContract
from tests.stores.contract_sessions import ForgetConversationsContract
from tests.stores.making import ANNA, BEN
from tests.stores.on_redis import forgetting_support as support


@pytest.fixture
async def stores(server, redis):
    made = await support.opened(server.url)
    yield made
    await made.close()


@pytest.fixture
async def second(server, redis):
    made = await support.opened(server.url)
    yield made
    await made.close()


@pytest.fixture
def memories(stores):
    return stores.memories


@pytest.fixture
def sessions(stores):
    return stores.sessions


@pytest.fixture
def jobs(stores):
    return stores.jobs


@pytest.fixture
def chains(stores):
    return stores.chains


@pytest.fixture
def conversations(stores):
    return stores.conversations


@pytest.fixture
def in_portions(monkeypatch):
    """Whoever has anything is forgotten in portions, of two memories."""
    monkeypatch.setattr(forgetting, "AT_ONCE", -1)
    monkeypatch.setattr(forgetting, "PORTION", 2)
    monkeypatch.setattr(forgetting, "_SETTLE_EVERY", 2)


@pytest.fixture
def written(redis):
    """Reads all that is in Redis."""
    return partial(support.written, redis)


@pytest.fixture
def commits(stores):
    async def count():
        return [(await stores.units.glance(scope, revision)) for scope in (ANNA, BEN)]

    return count


async def revision(unit):
    return unit.revision


class TestForgetting(ForgettingContract):
    """What a forget takes."""


class TestForgets(ForgetContract, ForgetConversationsContract, ForgetChainsContract):
    """What every forget does."""


@pytest.mark.usefixtures("in_portions")
class TestForgetsInPortions(ForgetContract, ForgetConversationsContract, ForgetChainsContract):
    """What every forget does, it does in portions, too."""
