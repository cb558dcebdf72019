"""What an operator meets: files that are damaged in ways nobody drew up."""

import sqlite3
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from proxy.cli import doctor
from proxy.domain.errors import StoreUnavailable
from proxy.storage.sqlite import backup, database, file
from tests.adversary.conftest import listed, tell, until
from tests.e2e.conftest import Houses
from tests.support.model import ScriptedModel, known

TEA = ("oolong", "User likes oolong tea.")


def spoil_the_schema(database: Path) -> None:
    """Make a table's name bytes that are no text, and its SQL nonsense."""
    with closing(sqlite3.connect(database)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    held = bytearray(database.read_bytes())
    name, sql = held.find(b"tablememoriesmemories"), held.find(b"CREATE TABLE memories")
    assert min(name, sql) > 0
    held[name + 5 : name + 13] = b"\xf7" * 8
    held[sql : sql + 12] = b"x" * 12
    database.write_bytes(held)


@pytest.fixture
def spoilt(tmp_path: Path) -> Path:
    database = tmp_path / "memory.db"
    file.prepare(database, create=True)
    spoil_the_schema(database)
    return database


def test_a_schema_that_is_no_text_is_a_corrupt_file(spoilt: Path) -> None:
    with pytest.raises(StoreUnavailable, match="SQLITE_CORRUPT") as raised:
        file.prepare(spoilt, create=True)
    assert database.kind_of(raised.value) == database.CORRUPT


def test_the_doctor_and_a_backup_say_so_of_such_a_file(spoilt: Path, tmp_path: Path) -> None:
    (found,) = doctor.findings(spoilt, "m")
    assert (found.mark, "restore a backup" in found.text) == (doctor.BAD, True)
    with pytest.raises(StoreUnavailable):
        backup.write(spoilt, tmp_path / "copy", lambda *_: None, now=1.0)


def test_the_doctor_advises_no_restore_where_the_disk_is_at_fault(
    spoilt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
        error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
        raise StoreUnavailable("SQLITE_IOERR_SHMSIZE") from error

    monkeypatch.setattr(doctor, "survey", full)
    monkeypatch.setattr(doctor, "LEAST_FREE_BYTES", 2**62)
    (found, disk) = doctor.findings(spoilt, "m")
    assert "restore" not in found.text
    assert (disk.mark, disk.subject) == (doctor.BAD, "disk")


async def test_the_proxy_starts_on_a_file_whose_schema_is_no_text(house: Houses, tmp_path: Path) -> None:
    async with house(ScriptedModel(facts=known(TEA))) as h:
        await tell(h, "I like oolong tea.")
        await until(lambda: listed(h))
    spoil_the_schema(tmp_path / "data" / "memory.db")
    async with house(ScriptedModel()) as h:
        answer = await tell(h, "Which tea do I like?")
        assert (answer.status_code, answer.headers["x-memory-status"]) == (200, "degraded")
        async with httpx2.AsyncClient() as http:
            assert (await http.get(f"{h.origin}/health")).json()["status"] == "degraded"
            assert (await http.get(f"{h.base_url}/memory?user_id=alice")).status_code == 503
