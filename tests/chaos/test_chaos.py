"""The four promises of the design, kept by a real process under load while its store goes through faults.

1. A client's request succeeds, whatever is broken.
2. Nobody gets another's memories, and what was forgotten stays forgotten.
3. What was acknowledged is not lost, and is stored once.
4. Once the fault is over, memory is whole again by itself: no restart.
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

from tests.chaos.load import SAID, USERS, Load, model
from tests.e2e.conftest import until
from tests.support.process import Serving, serving_process
from tests.support.upstream import ScriptedUpstream

ENVIRON = {
    "MEMORY_PROXY__MEMORY__EXTRACTION_BATCH_SIZE": "1",
    "MEMORY_PROXY__MEMORY__DEADLINE_MS": "1000",  # what a loaded machine keeps; the real one has tests
    "MEMORY_PROXY__MEMORY__SESSION_SUMMARIES": "false",
}


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
    """As on a full disk, and without being root: a limit of the process's own, from outside."""
    pid = served.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1024, limits[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


@contextlib.contextmanager
def made_unreadable(served: Serving, database: Path) -> Iterator[None]:
    database.chmod(0o000)
    yield
    database.chmod(0o600)


@contextlib.contextmanager
def garbage_in_its_place(served: Serving, database: Path) -> Iterator[None]:
    away, garbage = database.with_name("away.db"), database.with_name("garbage")
    garbage.write_bytes(b"garbage " * 9_999)
    os.link(database, away)
    garbage.replace(database)
    yield
    away.replace(database)


FAULTS: dict[Callable[[Serving, Path], AbstractContextManager[None]], str] = {
    moved_away: "store_unavailable",
    no_file_may_grow: "store_unavailable",
    garbage_in_its_place: "store_corrupt",
    made_unreadable: "store_unavailable",
    locked_by_another_program: "store_locked",
}


# ---------------------------------------------------------------- the stage
class Stage:
    """A server under load, and questions to it."""

    def __init__(self, served: Serving, load: Load, http: httpx2.AsyncClient, data_dir: Path) -> None:
        self.served, self.load, self.database = served, load, data_dir / "memory.db"
        self._http = http

    async def health(self) -> dict[str, Any]:
        health: dict[str, Any] = (await self._http.get(f"{self.served.origin}/health")).json()
        return health

    async def is_whole(self) -> bool:
        return (await self.health())["status"] == "ok"

    async def friends(self, user: str) -> list[str]:
        """The friends that are remembered, also twice if they are."""
        params: dict[str, str] = {"user_id": user, "limit": "100"}
        names: list[str] = []
        while True:
            page = (await self._http.get(f"{self.served.base_url}/memory", params=params)).json()
            names += [name for one in page["data"] for name in _named(one["content"])]
            if not page["has_more"]:
                return names
            params["after"] = page["last_id"] if "last_id" in page else page["data"][-1]["id"]

    async def forget(self, user: str) -> int:
        answer = await self._http.delete(f"{self.served.base_url}/memory", params={"user_id": user})
        return answer.status_code


def _named(content: str) -> list[str]:
    return SAID.findall(content.replace("User has", "I have"))


@contextlib.asynccontextmanager
async def stage(tmp_path: Path, models_dir: Path, log: Path | None = None) -> AsyncIterator[Stage]:
    data_dir = tmp_path / "data"
    async with (
        ScriptedUpstream(model()) as upstream,
        serving_process(
            data_dir, "--upstream", upstream.url, models_dir=models_dir, log=log, **ENVIRON
        ) as served,
        httpx2.AsyncClient(timeout=30) as http,
    ):
        yield Stage(served, Load(served.base_url), http, data_dir)


@contextlib.asynccontextmanager
async def under_load(on: Stage) -> AsyncIterator[None]:
    talking = asyncio.create_task(on.load.run())
    try:
        yield
    finally:
        talking.cancel()
        await asyncio.wait([talking])


async def all_extracted(on: Stage) -> bool:
    jobs = (await on.health())["jobs"] or {"queued": 1, "running": 1}
    return jobs["queued"] + jobs["running"] == 0


async def promised_to(on: Stage, user: str) -> int:
    return len(on.load.promised[user])


async def promises(on: Stage) -> int:
    return sum(map(len, on.load.promised.values()))


async def kept_promises(on: Stage) -> None:
    """Nothing wrong reached a client, and all that was promised is stored, for its user, once."""
    assert on.load.wrong == []
    await until(lambda: all_extracted(on), within_s=60)
    for user in USERS:

        async def missing(user: str = user) -> set[str]:
            return on.load.promised[user] - set(await on.friends(user))

        await until(missing, lambda names: not names, within_s=60)
    for user in USERS:
        counted = Counter(await on.friends(user))
        assert [name for name, count in counted.items() if count > 1] == []
        for other in set(USERS) - {user}:
            assert not counted.keys() & on.load.promised[other]


# ---------------------------------------------------------------- the promises
async def test_one_fault_after_another_under_load(tmp_path: Path, models_dir: Path) -> None:
    async with stage(tmp_path, models_dir) as on, under_load(on):
        await on.load.settled()
        for fault, reason in FAULTS.items():
            before = on.load.requests
            with fault(on.served, on.database):

                async def reason_now() -> str | None:
                    told: str | None = (await on.health())["memory"]["reason"]
                    return told

                await until(reason_now, lambda told, reason=reason: told == reason, within_s=60)
                await on.load.settled()
            await until(on.is_whole, within_s=60)
            assert on.load.requests > before + 5, fault.__name__
        promised = await promises(on)
        await until(lambda: promises(on), lambda count: count > promised)  # it learns again
        assert on.load.slowest_s < 8
        assert on.served.logged("store.trouble")

        async def recovered() -> bool:  # said after ten seconds without trouble
            return bool(on.served.logged("store.recovered"))

        await until(recovered, within_s=60)
    async with stage(tmp_path, models_dir) as again:
        again.load = on.load
        await kept_promises(again)


async def test_a_forget_between_faults_holds(tmp_path: Path, models_dir: Path) -> None:
    async with stage(tmp_path, models_dir) as on:
        async with under_load(on):
            await until(lambda: promised_to(on, "anna"), lambda count: count >= 3)
        await until(lambda: on.friends("anna"), lambda names: len(names) >= 3, within_s=60)
        await until(lambda: all_extracted(on), within_s=60)
        with moved_away(on.served, on.database):
            assert await on.forget("anna") == 503  # and says so: nothing was forgotten
        await until(on.is_whole, within_s=60)
        assert await on.forget("anna") == 200
        with locked_by_another_program(on.served, on.database):
            await asyncio.sleep(0.2)
        await until(on.is_whole, within_s=60)
        assert await on.friends("anna") == []
        forgotten = on.load.promised["anna"]
        on.load.promised["anna"] = set()
        await kept_promises(on)
        assert not forgotten & set(await on.friends("anna"))


def _mounted(directory: Path, options: str) -> bool:
    return subprocess.run(["mount", *options.split(), str(directory)], capture_output=True).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 6 MB of its own; skipped where nobody may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not _mounted(disk, "-t tmpfs -o size=6m tmpfs"):
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_a_full_disk_is_said_and_is_over_when_there_is_room(
    tmp_path: Path, models_dir: Path, small_disk: Path
) -> None:
    async with stage(small_disk, models_dir, tmp_path / "log") as on, under_load(on):
        await on.load.settled()
        with contextlib.suppress(OSError), (small_disk / "film").open("wb", buffering=0) as film:
            while True:
                film.write(b"x" * 4096)

        async def reason() -> str | None:
            told: str | None = (await on.health())["memory"]["reason"]
            return told

        await until(reason, lambda told: told == "store_disk_full", within_s=60)
        assert (await on.health())["memory"]["level"] == "full"  # what is remembered is recalled
        await on.load.settled()
        (small_disk / "film").unlink()
        await until(on.is_whole, within_s=60)
        await on.load.settled(3)
        await kept_after(on)


async def kept_after(on: Stage) -> None:
    on.load.end()  # else the small disk is full again before a slow machine has extracted it all
    await kept_promises(on)


async def test_a_read_only_disk_at_the_start_keeps_nobody_from_chatting(
    tmp_path: Path, models_dir: Path, small_disk: Path
) -> None:
    assert _mounted(small_disk, "-o remount,ro")
    data_dir = small_disk / "data"
    async with (
        ScriptedUpstream(model()) as upstream,
        serving_process(data_dir, "--upstream", upstream.url, log=tmp_path / "log", **ENVIRON) as served,
        httpx2.AsyncClient(timeout=30) as http,
    ):
        on = Stage(served, Load(served.base_url), http, data_dir)
        async with under_load(on):
            await on.load.settled()
            memory = (await on.health())["memory"]
            assert (memory["level"], memory["reason"]) == ("none", "store_unavailable")
            assert "read-only file system" in memory["cause"]
            assert _mounted(small_disk, "-o remount,rw")

            async def is_stored() -> bool:
                return any(on.load.promised.values())

            await until(is_stored, within_s=60)
            await kept_after(on)
