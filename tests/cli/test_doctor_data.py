"""The doctor on a database: each thing that can be wrong with it is named, with what to do."""

import asyncio
import sqlite3
import time
from collections import namedtuple
from contextlib import closing
from pathlib import Path

import pytest

from proxy.cli import doctor
from proxy.cli.doctor import BAD, GOOD, NOTE, findings
from proxy.domain.ports import EmbeddingModel
from proxy.storage.sqlite import file
from proxy.storage.sqlite.stores import SqliteStores
from tests.storage.making import create, store


@pytest.fixture
def database(tmp_path: Path) -> Path:
    async def made() -> None:
        stores = SqliteStores(tmp_path)
        await stores.open()
        await stores.memories.stamp_model(EmbeddingModel("mini", 3, 0.3, 0.8))
        await store(stores.memories, *(create(f"fact {n} " * 50) for n in range(40)))
        await stores.close()

    asyncio.run(made())
    return tmp_path / "memory.db"


def marks(database: Path, model: str = "mini") -> dict[str, str]:
    return {finding.subject: finding.mark for finding in findings(database, model)}


def test_a_sound_database_is_well(database: Path) -> None:
    assert marks(database) == {"database": GOOD, "disk": GOOD}
    assert "40 memories" in next(findings(database, "mini")).text


def test_a_damaged_page_is_found(database: Path) -> None:
    with database.open("r+b") as opened:
        opened.seek(database.read_bytes().index(b"fact 20 fact 20") // 4096 * 4096)
        opened.write(b"\xff" * 4096)
    assert marks(database)["database"] == BAD


def test_a_file_that_is_no_database_is_found(database: Path) -> None:
    database.write_bytes(b"garbage " * 999)
    assert marks(database) == {"database": BAD}


def test_a_disk_with_little_room_is_found(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(file.shutil, "disk_usage", lambda _: usage(1, 1, 1_000_000))
    assert marks(database)["disk"] == BAD


def test_a_log_that_has_grown_is_told_of(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LARGE_LOG_BYTES", 0)
    with closing(sqlite3.connect(database)) as other:
        other.execute("INSERT INTO meta VALUES ('x', '1')")
        other.commit()
        assert marks(database)["log"] == NOTE


def test_files_that_others_may_read_are_named(database: Path) -> None:
    database.chmod(0o644)
    aside = database.with_name("memory.db.before-restore-1")
    aside.write_bytes(b"")
    aside.chmod(0o640)
    told = {finding.subject: finding for finding in findings(database, "mini")}
    assert told["privacy"].mark == BAD
    assert "memory.db memory.db.before-restore-1" in told["privacy"].text


def test_a_clock_behind_what_is_stored_is_found(database: Path) -> None:
    with closing(sqlite3.connect(database)) as other, other:
        other.execute("UPDATE memories SET updated_at = ?", (time.time() + 90_000,))
    assert marks(database)["clock"] == BAD


def test_vectors_of_another_model_are_found(database: Path) -> None:
    assert marks(database, "other")["vectors"] == BAD


def test_what_is_too_large_to_be_read_through_is_not(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "MOST_CHECKED_BYTES", 1)
    assert marks(database)["database"] == NOTE
