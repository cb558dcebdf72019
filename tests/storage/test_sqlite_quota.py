"""The quota over SQLite, no burden on the writer, and what indexes remember of evictions."""

import pytest

from proxy.domain.core import Quota
from proxy.storage.sql import changes, quota
from proxy.storage.sqlite import SqliteStores
from tests.storage.contract_quota import QuotaContract
from tests.storage.making import NOW, contents, create, find, store, vector


@pytest.fixture
async def opened(tmp_path):
    """Open stores over one directory, as several processes would."""
    every = []

    async def open_one(limit):
        stores = SqliteStores(tmp_path, quota=limit)
        await stores.open()
        every.append(stores)
        return stores

    yield open_one
    for stores in every:
        await stores.close()


async def usage(stores):
    """What `scopes` says and what a recount says, by user."""

    def read(tx):
        said = tx.execute("SELECT user, memories, content_bytes FROM scopes").fetchall()
        counted = tx.execute(
            "SELECT s.user, count(m.seq), coalesce(sum(length(CAST(m.content AS BLOB))), 0)"
            " FROM scopes s LEFT JOIN memories m ON m.owner = s.id GROUP BY s.id"
        ).fetchall()
        return sorted(said), sorted(counted)

    return await stores._database.read(read)


class TestQuota(QuotaContract):
    """Processes of one data directory."""

    MODULE = quota

    @pytest.fixture
    def agrees(self):
        async def the_counters_equal_a_recount(stores):
            said, counted = await usage(stores)
            assert said == counted

        return the_counters_equal_a_recount


async def test_an_index_too_old_for_what_is_remembered_of_evictions_is_read_anew(opened, monkeypatch):
    for module in (changes, "proxy.storage.sql.memory_cache"):
        name = module if isinstance(module, str) else module.__name__
        monkeypatch.setattr(f"{name}.REMEMBERED_VERSIONS", 3)
    limit = Quota(memories=3)
    here, there = await opened(limit), await opened(limit)
    await store(here.memories, *(create(f"tea {n}", vec=vector(1)) for n in range(3)))
    assert len(await find(there.memories, "tea", vec=vector(1))) == 3
    for n in range(9):
        await store(here.memories, create(f"rum {n}", importance=0.9, vec=vector(0, 1)))
    (hit,) = await find(there.memories, vec=vector(1), limit=1)  # nothing, if the teas still ranked
    assert hit.memory.content == "rum 8"
    assert await contents(there.memories, "tea rum", vec=vector(1)) == {"rum 6", "rum 7", "rum 8"}
    assert (await here._database.read(lambda tx: tx.execute("SELECT count(*) FROM evicted").fetchone()))[
        0
    ] <= 3


async def test_the_weakest_are_found_without_looking_at_the_others(opened):
    stores = await opened(Quota())
    parameters = {"owner": 1, "version": 1, "now": NOW}

    def plans(tx):
        for query in quota._IN_THIS_ORDER:
            yield [row[3] for row in tx.execute(f"EXPLAIN QUERY PLAN {query}", parameters)]

    closed, expired, others = await stores._database.read(lambda tx: list(plans(tx)))
    for plan in (closed, others):
        assert plan == ["SEARCH memories USING INDEX memories_weakest (owner=? AND <expr>=?)"]
    assert "memories_expiring (owner=? AND expires_at<?)" in expired[0]
