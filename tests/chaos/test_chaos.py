"""The promises of the design, tested on a real process under load while its store fails.

1. A client's request succeeds, whatever is broken.
2. No user gets another's memories, and what was forgotten stays forgotten.
3. What was acknowledged is not lost, and is stored once.
4. When the fault is over, memory recovers without a restart.
"""

import asyncio
import contextlib
import os
import resource
import sqlite3
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chaos.load import ANSWER, USERS, Load
from tests.e2e.conftest import models_dir, until
from tests.support.model import FRIENDS, ScriptedModel, friends
from tests.support.process import Serving, serving_process
from tests.support.upstream import ScriptedUpstream

__all__ = ["models_dir"]

ENVIRON = {
    "MEMORY_PROXY__MEMORY__EXTRACTION_BATCH_SIZE": "1",
    "MEMORY_PROXY__MEMORY__DEADLINE_MS": "1000",  # a loaded machine meets it
    "MEMORY_PROXY__MEMORY__SESSION_SUMMARIES": "false",
    "MEMORY_PROXY__EVOLUTION__USE": "false",  # these answers use no memory: after three it would be archived
}
# An outage is noticed and over sooner than in life.
FIRST = """
from proxy.storage.sql import database
from proxy.storage.sqlite import database as sqlite
database.HOLD_S, sqlite.BUSY_TIMEOUT_MS = 2.0, 500
"""


# ---------------------------------------------------------------- faults
@contextlib.contextmanager
def moved_away(served: Serving, database: Path) -> Iterator[None]:
    away = database.with_name("away.db")
    database.rename(away)
    yield
    away.rename(database)


@contextlib.contextmanager
def locked_by_another_program(served: Serving, database: Path) -> Iterator[None]:
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextlib.contextmanager
def no_file_may_grow(served: Serving, database: Path) -> Iterator[None]:
    """Like a full disk, by a limit of the process that is set from outside."""
    pid = served.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1024, limits[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


@contextlib.contextmanager
def replaced_by_garbage(served: Serving, database: Path) -> Iterator[None]:
    away, garbage = database.with_name("away.db"), database.with_name("garbage")
    garbage.write_bytes(b"garbage " * 9_999)
    os.link(database, away)
    garbage.replace(database)
    yield
    away.replace(database)


FAULTS: dict[Callable[[Serving, Path], AbstractContextManager[None]], str] = {
    moved_away: "store_unavailable",
    no_file_may_grow: "store_unavailable",
    replaced_by_garbage: "store_corrupt",
    locked_by_another_program: "store_locked",
}


# ---------------------------------------------------------------- the stage
class Stage:
    """A server, its load, and questions to it."""

    def __init__(self, served: Serving, http: httpx2.AsyncClient, data_dir: Path) -> None:
        self.served, self.load, self.database = served, Load(served.base_url), data_dir / "memory.db"
        self._http = http

    async def health(self) -> dict[str, Any]:
        health: dict[str, Any] = (await self._http.get(f"{self.served.origin}/health")).json()
        return health

    async def reason(self) -> str | None:
        return dict((await self.health())["memory"])["reason"]

    async def recovered(self) -> None:
        await until(self.health, lambda health: health["status"] == "ok", within_s=60)

    async def friends(self, user: str) -> Counter[str]:
        """Return the friends that are remembered, with their counts."""
        params: dict[str, str] = {"user_id": user, "limit": "100"}
        names: Counter[str] = Counter()
        while True:
            page = (await self._http.get(f"{self.served.base_url}/memory", params=params)).json()
            names.update(n for m in page["data"] for n in FRIENDS.findall(m["content"]))
            if not page["has_more"]:
                return names
            params["after"] = page["data"][-1]["id"]

    async def forget(self, user: str) -> int:
        answer = await self._http.delete(f"{self.served.base_url}/memory", params={"user_id": user})
        return answer.status_code

    @contextlib.asynccontextmanager
    async def under_load(self) -> AsyncIterator[None]:
        chatting = asyncio.create_task(self.load.run())
        try:
            yield
        finally:
            chatting.cancel()
            await asyncio.wait([chatting])

    async def promises_hold(self) -> None:
        """Fail unless every answer was right and all that was promised is stored, for its user, once."""
        self.load.is_over = True  # else a small disk is full again
        promised = self.load.promised
        assert self.load.wrong == []
        for user in USERS:

            async def missing(user: str = user) -> set[str]:
                return promised[user] - set(await self.friends(user))

            await until(missing, lambda names: not names, within_s=60)
            stored = await self.friends(user)
            assert [name for name, count in stored.items() if count > 1] == []
            assert not any(stored.keys() & promised[other] for other in set(USERS) - {user})


@contextlib.asynccontextmanager
async def stage(data_dir: Path, models_dir: Path | None, log: Path | None = None) -> AsyncIterator[Stage]:
    async with (
        ScriptedUpstream(ScriptedModel(ANSWER, friends)) as upstream,
        serving_process(
            data_dir, "--upstream", upstream.url, models_dir=models_dir, log=log, first=FIRST, **ENVIRON
        ) as served,
        httpx2.AsyncClient(timeout=30) as http,
    ):
        yield Stage(served, http, data_dir)


# ---------------------------------------------------------------- the promises
async def test_one_fault_after_another_loses_nothing_and_what_is_forgotten_in_between_stays_so(
    tmp_path, models_dir
):
    async with stage(tmp_path / "data", models_dir) as on, on.under_load():
        await on.load.answered()
        for fault, reason in FAULTS.items():
            with fault(on.served, on.database):
                await until(on.reason, lambda found, reason=reason: found == reason, within_s=60)
                await on.load.answered()
            await on.recovered()
        assert on.load.slowest_s < 8
        assert on.served.logged("store.trouble")
        await on.promises_hold()
        with moved_away(on.served, on.database):
            assert await on.forget("anna") == 503  # nothing was forgotten, and the status says so
        await on.recovered()
        assert await on.forget("anna") == 200
        load = on.load
        load.promised["anna"] = set()
    async with stage(tmp_path / "data", models_dir) as again:
        again.load = load
        await again.promises_hold()
        assert not await again.friends("anna")


def _mounted(directory: Path, options: str) -> bool:
    return subprocess.run(["mount", *options.split(), str(directory)], capture_output=True).returncode == 0


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 6 MB; skipped without the right to mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not _mounted(disk, "-t tmpfs -o size=6m tmpfs"):
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_a_full_disk_is_reported_and_ends_when_there_is_room(tmp_path, models_dir, small_disk):
    async with stage(small_disk / "data", models_dir, tmp_path / "log") as on, on.under_load():
        await on.load.answered()
        with contextlib.suppress(OSError), (small_disk / "film").open("wb", buffering=0) as film:
            while True:
                film.write(b"x" * 4096)
        await until(on.reason, lambda found: found == "store_disk_full", within_s=60)
        assert (await on.health())["memory"]["level"] == "full"  # memories are still recalled
        await on.load.answered()
        (small_disk / "film").unlink()
        await on.recovered()
        await on.load.answered(3)
        await on.promises_hold()


async def test_a_read_only_disk_at_the_start_does_not_stop_chats(tmp_path, small_disk):
    assert _mounted(small_disk, "-o remount,ro")
    async with stage(small_disk / "data", None, tmp_path / "log") as on, on.under_load():
        await on.load.answered()
        memory = (await on.health())["memory"]
        assert (memory["level"], memory["reason"]) == ("none", "store_unavailable")
        assert "read-only file system" in memory["cause"]
        assert _mounted(small_disk, "-o remount,rw")

        async def is_stored():
            return any(on.load.promised.values())

        await until(is_stored, within_s=60)
        await on.promises_hold()
