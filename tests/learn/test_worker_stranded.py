"""A store that goes away while a job is served costs the user no more than that time."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.domain.errors import CompletionFailed, CompletionRefused, StoreUnavailable
from proxy.learn import worker
from proxy.storage.sql.jobs import SqlJobs
from proxy.storage.sql.memories import SqlMemories
from proxy.storage.sqlite.stores import SqliteStores
from proxy.telemetry import REMIND_S
from tests.learn.support import House, facts
from tests.storage.recording import recorded


async def test_a_job_that_could_not_be_given_back_is_served_as_soon_as_the_store_is_back(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("a full disk")

    house.completer.answers = [facts("User likes tea"), facts("User likes tea")]
    await house.say("I like tea.")
    worker = house.worker()
    with monkeypatch.context() as fault:
        fault.setattr(SqlMemories, "apply", away)
        fault.setattr(SqlJobs, "retry", away)
        with pytest.raises(StoreUnavailable):
            await worker.work_one()
        with pytest.raises(StoreUnavailable):
            await worker.work_one()
    house.now += 1  # the lease has minutes to go
    assert await worker.work_one()
    assert await house.contents() == ["User likes tea"]
    assert not await worker.work_one()


# ---------------------------------------------------------------- what the log says
async def test_rounds_that_keep_failing_are_told_of_once_a_minute(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def bug(*_: Any, **__: Any) -> None:
        raise KeyError("user words")

    lines = recorded(monkeypatch, lambda facts: facts)
    worker, began = house.worker(), house.now
    monkeypatch.setattr(SqlJobs, "claim", bug)
    for second in range(round(2 * REMIND_S) + 1):
        house.now = began + second
        assert not await worker._round(worker.work_one)
    told = ("worker.round_failed", {"error": "KeyError", "left_out": 59})
    assert lines == [("worker.round_failed", {"error": "KeyError"}), told, told]


async def test_of_a_store_that_is_not_open_the_worker_says_nothing(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.stores, opened = SqliteStores(tmp_path / "shut"), house.stores
    lines = recorded(monkeypatch, lambda facts: facts)
    worker = house.worker()
    for work in (worker.work_one, worker.sweep):
        assert not await worker._round(work)
    assert lines == []  # whoever tries to open it says where it should be, and what is wrong
    await house.stores.close()
    house.stores = opened


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (CompletionFailed("status 500"), {"error": "CompletionFailed", "reason": "status 500"}),
        (CompletionRefused("status 400"), {"error": "CompletionRefused", "reason": "status 400"}),
        (CompletionFailed(), {"error": "CompletionFailed"}),
        (KeyError("user words"), {"error": "KeyError"}),
    ],
)
async def test_of_an_extraction_that_failed_the_log_says_why_and_nothing_of_what_was_said(
    house: House, error: Exception, facts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = list[tuple[str, dict[str, Any]]]()
    log = SimpleNamespace(warning=lambda event, **facts: lines.append((event, facts)))
    monkeypatch.setattr(worker, "log", log)
    house.completer.answers = [error]
    await house.say("I like tea.")
    assert await house.worker().work_one()
    dead = isinstance(error, CompletionRefused)
    assert lines == [("memory.extraction_failed", {**facts, "attempt": 1, "dead": dead})]
