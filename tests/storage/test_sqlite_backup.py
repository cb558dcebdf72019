"""Backups are complete, private, verified, and of one moment, during any writes."""

import asyncio
import os
import resource
import signal
import sqlite3
import stat
import sys
from contextlib import closing
from pathlib import Path

import pytest

from proxy.domain.errors import StoreUnavailable
from proxy.domain.ports import EmbeddingModel
from proxy.storage.sqlite import SqliteStores, backup
from tests.storage.making import create, store, vector
from tests.storage.talking import always, talk

ROOT = Path(__file__).parents[2]
COMMITTER = Path(__file__).with_name("committer.py")
NOW = 5_000.0


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""


def written(stores: SqliteStores, target: Path) -> backup.Manifest:
    return backup.write(stores.path, target, silent, now=NOW)


def manifest_of(path: Path) -> backup.Manifest:
    with path.open("rb") as opened:
        return backup.read_manifest(opened, path.name)


async def test_a_backup_says_what_it_holds_and_is_readable_by_its_owner_only(stores, tmp_path):
    await stores.memories.stamp_model(EmbeddingModel("mini", 3, 0.3, 0.8))
    await store(stores.memories, *(create(f"fact {n}", vec=vector(n, 1)) for n in range(30)))
    target = tmp_path / "copy"
    manifest = written(stores, target)
    assert manifest == manifest_of(target)
    assert (manifest.counts["memories"], manifest.model, manifest.dimension) == (30, "mini", 3)
    assert (manifest.made_at, manifest.bytes) == (NOW, target.stat().st_size - backup.TRAILER_BYTES)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("copy")] == ["copy"]


async def test_what_is_written_while_the_backup_is_taken_is_in_it_wholly_or_not_at_all(tmp_path):
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(COMMITTER), str(tmp_path / "data"), "x",
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            acknowledged = [(await process.stdout.readline()).split() for _ in range(300)]
            source = tmp_path / "data" / "memory.db"
            drained = asyncio.create_task(process.stdout.read())
            made = [
                await asyncio.to_thread(backup.write, source, tmp_path / f"copy{n}", silent, now=NOW)
                for n in range(3)
            ]
    finally:
        process.kill()
        await process.wait()
        await drained
    begun = {word.decode() for kind, word, *_ in acknowledged if kind == b"begun"}
    with closing(sqlite3.connect(tmp_path / "copy0")) as copy:
        assert begun <= {id_ for (id_,) in copy.execute("SELECT id FROM exchanges")}
        (orphans,) = copy.execute(
            "SELECT count(*) FROM memories WHERE seq NOT IN (SELECT memory FROM vectors)"
        ).fetchone()
        assert orphans == 0
    assert [m.counts["exchanges"] for m in made] == sorted(m.counts["exchanges"] for m in made)


async def test_a_backup_that_cannot_be_written_leaves_the_old_one(stores, tmp_path):
    await store(stores.memories, create("tea"))
    target = tmp_path / "copy"
    written(stores, target)
    before = target.read_bytes()
    await store(stores.memories, *(create(f"rum {n} " * 50) for n in range(300)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))  # the disk is full
    try:
        with pytest.raises(StoreUnavailable, match="copy"):
            written(stores, target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert target.read_bytes() == before
    assert not list(tmp_path.glob("*.partial*"))


async def test_a_kill_in_the_middle_leaves_the_old_backup_and_the_next_one_clears_up(stores, tmp_path):
    await store(stores.memories, create("tea"))
    target = tmp_path / "copy"
    written(stores, target)
    before = target.read_bytes()
    await store(stores.memories, create("rum"))
    script = (
        "import os, signal, sys; from pathlib import Path; from proxy.storage.sqlite import backup\n"
        "def told(what, done, total):\n"
        "    if what == 'verify': os.kill(os.getpid(), signal.SIGKILL)\n"
        "backup.write(Path(sys.argv[1]), Path(sys.argv[2]), told, now=1.0)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(stores.path), str(target), cwd=ROOT
    )
    assert await process.wait() == -signal.SIGKILL
    assert target.read_bytes() == before
    assert (tmp_path / "copy.partial").exists()
    assert written(stores, target).counts["memories"] == 2
    assert not list(tmp_path.glob("*.partial*"))


async def test_a_store_with_a_damaged_page_is_not_backed_up_as_if_it_were_sound(stores, tmp_path):
    await store(stores.memories, *(create(f"fact {n} " * 20, vec=vector(n, 1)) for n in range(300)))
    await talk(stores.sessions, trigger=always)
    await stores.close()
    with stores.path.open("r+b") as opened:
        opened.seek(20 * 4096)
        opened.write(b"\xff" * 4096)
    with pytest.raises(StoreUnavailable, match=r"corrupt|CORRUPT|rows"):
        written(stores, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
