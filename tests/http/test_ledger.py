"""Times that the processes of a machine share."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.http import limits as module
from proxy.http.limits import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "limits"


def put(ledger: Ledger, key: str, moment: float) -> float:
    """Set the key's time; return the one before."""
    return ledger.exchange(key, lambda before: (moment, before))


def test_a_key_has_the_time_that_was_last_given_and_zero_at_first(path: Path) -> None:
    ledger = Ledger(path)
    assert [put(ledger, "a", 5.0), put(ledger, "b", 6.0), put(ledger, "a", 7.0)] == [0.0, 0.0, 5.0]
    assert put(ledger, "a", 0.0) == 7.0
    ledger.close()


def test_times_outlive_the_process_and_are_shared(path: Path) -> None:
    first, second = Ledger(path), Ledger(path)
    put(first, "a", 5.0)
    assert put(second, "a", 6.0) == 5.0
    first.close()
    second.close()
    third = Ledger(path)
    assert put(third, "a", 0.0) == 6.0
    third.close()


def test_thousands_of_keys_are_told_apart(path: Path) -> None:
    ledger = Ledger(path)
    for n in range(5_000):
        assert put(ledger, f"user {n}", float(n + 1)) == 0.0
    assert all(put(ledger, f"user {n}", 1.0) == n + 1 for n in range(5_000))
    ledger.close()


def test_the_file_does_not_grow_and_a_flood_drives_out_the_earliest_times(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUCKETS", 1)
    ledger = Ledger(path)
    put(ledger, "much used", 1e9)
    for n in range(100):
        put(ledger, f"passing by {n}", float(n + 1))
    size = path.stat().st_size
    assert put(ledger, "much used", 1e9) == 1e9
    assert put(ledger, "passing by 0", 1.0) == 0.0
    assert path.stat().st_size == size
    ledger.close()


def test_the_file_is_its_owners_and_names_nobody(path: Path) -> None:
    ledger = Ledger(path)
    put(ledger, "user\0acme\0anna@example.org", 5.0)
    data = path.read_bytes()
    assert b"anna" not in data
    assert b"acme" not in data
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    ledger.close()


def test_two_files_place_the_same_key_differently(tmp_path: Path) -> None:
    contents = []
    for name in ("one", "two"):
        ledger = Ledger(tmp_path / name)
        put(ledger, "anna", 5.0)
        contents.append((tmp_path / name).read_bytes()[module._HEADER_BYTES :])
        ledger.close()
    assert contents[0] != contents[1]


@pytest.mark.parametrize("found", [b"", b"something else", bytes(module._FILE_BYTES)])
def test_a_file_that_is_not_ours_is_replaced(path: Path, found: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(found)
    ledger = Ledger(path)
    assert put(ledger, "a", 5.0) == 0.0
    assert put(ledger, "a", 5.0) == 5.0
    assert path.read_bytes().startswith(module._MAGIC)  # and so with a secret
    ledger.close()


def test_where_no_file_can_be_made_the_times_are_the_process_own(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file, not a directory")
    ledger = Ledger(tmp_path / "run" / "limits")
    put(ledger, "a", 5.0)
    assert put(ledger, "a", 0.0) == 5.0
    ledger.close()


def test_an_error_in_the_step_keeps_the_time_and_the_lock_free(path: Path) -> None:
    ledger, other = Ledger(path), Ledger(path)
    put(ledger, "a", 5.0)
    with pytest.raises(ZeroDivisionError):
        ledger.exchange("a", lambda before: (1 / 0, None))
    assert put(other, "a", 0.0) == 5.0
    ledger.close()
    other.close()


def test_a_file_system_without_locks_stops_no_request(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    ledger = Ledger(path)
    put(ledger, "a", 5.0)
    assert put(ledger, "a", 5.0) == 5.0
    ledger.close()


HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


class Clock:
    """Time that passes while somebody sleeps, and else stands still."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_process_that_was_stopped_with_the_lock_delays_nobody_for_long(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    ledger = Ledger(path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with path.open("r+b") as file, pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        started = clock.now
        for _ in range(50):
            put(ledger, "a", 5.0)
        assert clock.now - started == pytest.approx(module.LOCK_WAIT_S, rel=0.1)  # it waits once a second
        assert put(ledger, "a", 5.0) == 5.0
        holder.communicate()
    ledger.close()


COUNT = """
import sys
from pathlib import Path
from proxy.http import limits as module
from proxy.http.limits import Ledger
from proxy.http.limits import Rate, judge
module.LOCK_WAIT_S = 30.0  # on a busy machine the holder of a lock may have to wait for a processor
ledger = Ledger(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
rate, passed = Rate(60, 15_000), 0
for _ in range(10_000):
    passed += ledger.exchange("anna", lambda at: judge(rate, 1_000.0, at)).passes
print(passed)
"""


def test_processes_together_let_exactly_a_burst_through(path: Path) -> None:
    counting = [
        subprocess.Popen(
            [sys.executable, "-c", COUNT, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        for _ in range(3)
    ]
    for process in counting:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in counting:  # all at once
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    passed = [int(process.communicate(timeout=60)[0]) for process in counting]
    assert sum(passed) == 15_000
