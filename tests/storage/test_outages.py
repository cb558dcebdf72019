"""What the log and /health report about a database that fails, recovers and fails again."""

import errno
import sqlite3

import pytest

from proxy.domain.errors import StoreUnavailable
from proxy.storage.sql.database import CORRUPT, DISK_FULL, HOLD_S, READ_ONLY, UNAVAILABLE, Outages
from proxy.storage.sqlite.database import DIAGNOSIS, kind_of
from tests.storage.recording import recorded


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def log(monkeypatch):
    """What is logged: the event, its kind, and how long the outage lasted."""
    return recorded(monkeypatch, lambda facts: (facts.get("kind"), facts.get("seconds")))


def raised(code):
    error = sqlite3.OperationalError()
    error.sqlite_errorcode = code
    return error


FULL, RECOVERED = raised(sqlite3.SQLITE_FULL), "store.recovered"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (raised(sqlite3.SQLITE_READONLY), READ_ONLY),
        (raised(sqlite3.SQLITE_IOERR | 3 << 8), UNAVAILABLE),  # extended: IOERR_WRITE
        (raised(sqlite3.SQLITE_CANTOPEN), UNAVAILABLE),
        (raised(sqlite3.SQLITE_NOTADB), CORRUPT),
        (raised(sqlite3.SQLITE_CONSTRAINT), None),
        (OSError(errno.EROFS, "Read-only file system"), READ_ONLY),
        (OSError(errno.ENOSPC, "No space left on device"), DISK_FULL),
        (FileNotFoundError(errno.ENOENT, "No such file"), UNAVAILABLE),
        (ValueError("an unreadable row"), None),
    ],
)
def test_an_error_of_sqlite_is_known_by_its_number_also_as_a_cause(error, kind):
    assert kind_of(error) == kind
    ours = StoreUnavailable("x")
    ours.__cause__ = error
    assert kind_of(ours) == kind


def test_an_outage_that_comes_and_goes_is_one_until_both_sides_have_worked_for_a_while(log):
    clock = Clock()
    outages = Outages(DIAGNOSIS, clock)
    for clock.now in range(0, 125, 5):
        outages.failed("write", FULL)  # a large write, and then small ones
        outages.worked("write")
        outages.settle()
        assert outages.current == "", "the last operation worked"
    assert log == [("store.trouble", (DISK_FULL, None))] * 3
    clock.now += HOLD_S - 0.1
    outages.settle()
    assert len(log) == 3
    clock.now += 0.1
    outages.settle()
    outages.settle()
    assert log[3:] == [(RECOVERED, (DISK_FULL, 120))]  # without the time in which it held
    outages.failed("read", FileNotFoundError(errno.ENOENT, "No such file"))
    outages.failed("write", FULL)
    outages.worked("write")
    assert (outages.current, outages.of_reading) == (UNAVAILABLE, UNAVAILABLE)
    clock.now += HOLD_S
    outages.settle()
    assert outages.current == UNAVAILABLE
