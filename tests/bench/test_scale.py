"""scripts/scale: what it says of sizes nobody measured, and that a crowd outlives the run that made it."""

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench.crowd import Census, Crowd, heavy_scope, scope_of
from bench.growth import Step, heavy_table, projected_mb, table
from bench.scale import sizes
from proxy.domain.core import MemoryFilter
from proxy.storage.sqlite.stores import SqliteStores

STEP = Step(**dict.fromkeys(Step.__slots__, 0))


@pytest.fixture
async def crowd(tmp_path):
    """Five users with three memories each."""
    stores = SqliteStores(tmp_path)
    await stores.open()
    crowd = Crowd(stores, tmp_path, Census(3), seed=1)
    await crowd.grow(5, lambda users: None, time.monotonic() + 60)
    yield crowd
    await stores.close()


async def how_many(crowd, scope):
    where = MemoryFilter(tenant=scope.tenant, user=scope.user)
    return (await crowd.stores.memories.list(where, limit=1)).total


def test_sizes_beyond_the_last_lie_on_a_line_through_the_first_and_the_last():
    steps = [
        replace(STEP, memories=size, disk_mb=disk) for size, disk in ((100, 5.0), (200, 0.0), (1100, 25.0))
    ]
    assert projected_mb(steps, "disk_mb", 2100) == 45.0


def test_every_column_says_of_what_it_is_and_the_manual_names_one_that_is_there():
    steps = table("sqlite", [replace(STEP, memories=9)])
    for shown in (steps, heavy_table([])):
        names = [column.header for column in shown.columns]
        assert len({name.strip() for name in names}) == len(names)
        assert not {"p95", "p50"} & {name.strip() for name in names}
    manual = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text("utf-8")
    (named,) = re.findall(r"column `([^`]+)`", manual)
    assert named in [column.header for column in steps.columns]


def test_the_last_step_is_the_size_that_was_asked_for():
    assert list(sizes(10_000, 3_000_000, 10, 100)) == [100, 1_000, 10_000, 30_000]


async def test_a_filled_store_holds_what_the_census_says(crowd):
    assert crowd.census.memories == 15
    assert [await how_many(crowd, scope_of(number)) for number in range(6)] == [3, 3, 3, 3, 3, 0]


async def test_a_crowd_is_known_again_by_its_directory_and_grows_on(crowd, tmp_path):
    again = Crowd(crowd.stores, tmp_path, Census.load(tmp_path), seed=1)
    await again.grow(7, lambda users: None, time.monotonic() + 60)
    assert Census.load(tmp_path) == Census(3, 7)
    assert [await how_many(crowd, scope_of(number)) for number in (4, 5, 6)] == [3, 3, 3]


async def test_users_whom_a_broken_off_run_left_are_not_filled_twice(crowd, tmp_path):
    Census(3, 2).save(tmp_path)
    again = Crowd(crowd.stores, tmp_path, Census.load(tmp_path), seed=1)
    await again.grow(6, lambda users: None, time.monotonic() + 60)
    assert [await how_many(crowd, scope_of(number)) for number in (1, 3, 5)] == [3, 3, 3]


async def test_a_heavy_user_has_as_many_as_were_asked_for(crowd):
    await crowd.add_heavy(2_500)
    assert await how_many(crowd, heavy_scope(2_500)) == 2_500
    assert crowd.census.memories == 2_515
