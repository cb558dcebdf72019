"""Keys, forms of models, counts of receipts, and the calls of the last hour."""

import json
from dataclasses import replace

import pytest

from proxy.domain.core import ForgetCounts
from proxy.domain.limits import LocalCallQuota
from proxy.storage.sql.erasure import counts_as_dict, counts_from_dict
from proxy.storage.sql.stores import SqlCalls
from tests.storage.contract_calls import CallsContract
from tests.storage.making import NOW, key

ENGINES = ("sqlite", "postgres")


class TestKey:
    async def test_a_key_is_found_by_its_digest_until_it_is_revoked(self, keys):
        assert list(await keys.list()) == []
        for n in range(3):
            await keys.add(key(f"k{n}"), b"d%d" % n)
        assert [k.id for k in await keys.list()] == ["k2", "k1", "k0"]
        assert await keys.find(b"d1") == key("k1")
        assert await keys.find(b"d9") is None
        assert await keys.revoke("k1", NOW + 5)
        assert await keys.find(b"d1") == replace(key("k1"), revoked_at=NOW + 5, upstream_key=None)
        assert (await keys.find(b"d2")).revoked_at is None


def row(until: float, **form: object) -> str:
    return json.dumps({"until": until, "form": form})


class TestForms:
    @pytest.fixture
    def forms(self, stores, second):
        return stores.forms, second.forms

    async def test_what_one_has_saved_the_other_loads(self, forms):
        ours, theirs = forms
        assert await theirs.load() == {}
        await ours.save({"a": row(1), "b": row(2, placement="in_user")}, 10)
        await theirs.save({"a": row(3, limit="max_tokens")}, 10)
        assert await ours.load() == {"a": row(3, limit="max_tokens"), "b": row(2, placement="in_user")}

    async def test_of_too_many_those_that_end_first_or_cannot_be_read_go(self, forms):
        ours, theirs = forms
        await ours.save({"a": "{", "b": "[]"}, 10)
        for number in range(40):
            await (ours, theirs)[number % 2].save({f"m{number}": row(number)}, 7)
        assert sorted(await ours.load()) == [f"m{number}" for number in range(33, 40)]


def test_receipts_of_another_version_can_be_read():
    assert counts_as_dict(ForgetCounts(memories=2)) == {"memories": 2}  # an older one may not know the others
    assert counts_from_dict({"memories": 2, "dreams": 7}, "rcpt_1") == ForgetCounts(
        memories=2, receipt="rcpt_1"
    )


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


class TestSqlCalls(PassedTimeContract):
    """Two processes over one store."""

    @pytest.fixture
    def calls(self, stores, second):
        return SqlCalls(stores._database), SqlCalls(second._database)

    async def test_who_is_started_again_and_again_spends_no_more(self, calls, restarted, now):
        await calls[0].spend(5, now())
        assert (await SqlCalls((await restarted()).database).look(5, now())).left == 4


class TestOwnCalls(PassedTimeContract):
    """A store without a counter."""

    @pytest.fixture
    def calls(self):
        own = LocalCallQuota()
        return own, own
