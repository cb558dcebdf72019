"""The hour's calls over SQLite, and of one process alone."""

import pytest

from proxy.domain.limits import LocalCallQuota
from proxy.storage.sql.shared_state import SqlCalls
from proxy.storage.sqlite import SqliteStores
from tests.storage.contract_calls import CallsContract
from tests.storage.making import NOW


class Ticking:
    """A clock that is set."""

    def __init__(self):
        self.now = NOW * 1e6

    async def pass_s(self, seconds):
        self.now += seconds

    def __call__(self):
        return self.now


class PassedTimeContract(CallsContract):
    """Stores without a clock are passed the time."""

    @pytest.fixture
    def now(self):
        return Ticking()

    @pytest.fixture
    def pass_s(self, now):
        return now.pass_s


class TestSqliteCalls(PassedTimeContract):
    """Two processes of one data directory."""

    @pytest.fixture
    def calls(self, stores, second):
        return SqlCalls(stores._database), SqlCalls(second._database)

    async def test_who_is_started_again_and_again_spends_no_more(self, calls, stores, tmp_path, now):
        await calls[0].spend(5, now())
        await stores.close()
        again = SqliteStores(tmp_path)
        await again.open()
        assert (await SqlCalls(again._database).look(5, now())).left == 4
        await again.close()


class TestOwnCalls(PassedTimeContract):
    """A store without a counter."""

    @pytest.fixture
    def calls(self):
        own = LocalCallQuota()
        return own, own
