"""A store that goes away while a job is served costs the user no more than that time."""

from typing import Any

import pytest

from proxy.errors import StoreUnavailable
from proxy.stores.sqlite.jobs import SqliteJobs
from proxy.stores.sqlite.memories import SqliteMemories
from tests.background.support import House, facts


async def test_a_job_that_could_not_be_given_back_is_served_as_soon_as_the_store_is_back(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("a full disk")

    house.completer.answers = [facts("User likes tea"), facts("User likes tea")]
    await house.say("I like tea.")
    worker = house.worker()
    with monkeypatch.context() as fault:
        fault.setattr(SqliteMemories, "apply", away)
        fault.setattr(SqliteJobs, "retry", away)
        with pytest.raises(StoreUnavailable):
            await worker.work_one()
        with pytest.raises(StoreUnavailable):
            await worker.work_one()
    house.now += 1  # the lease has minutes to go
    assert await worker.work_one()
    assert await house.contents() == ["User likes tea"]
    assert not await worker.work_one()
