"""What an operator and a client do to a store that has grown, each timed once: through the commands and
over HTTP, as they would."""

import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.table import Table

from bench.crowd import Census, heavy_scope, scope_of
from proxy.domain.core import Scope

_PROGRAM = (str(Path(sys.executable).with_name("memory-proxy")),)
_START_S = 120.0


@dataclass(frozen=True, slots=True)
class Timed:
    """One thing that was done, and how long it took, in ms."""

    what: str
    ms: float


def operations(data: Path, census: Census) -> list[Timed]:
    """Time them one after the other. One user, drawn at random, is forgotten; a copy of the database lies
    beside it for a while."""
    return list(_timed(data, census))


def operations_table(found: Sequence[Timed]) -> Table:
    """Return what was done, and how long it took."""
    shown = Table(title="once each, at the end: ms")
    shown.add_column("what")
    shown.add_column("ms", justify="right")
    for one in found:
        shown.add_row(one.what, f"{one.ms:,.1f}")
    return shown


def _timed(data: Path, census: Census) -> Iterator[Timed]:
    began = time.monotonic()
    with _serving(data) as base:
        yield Timed("start, until /health answers", (time.monotonic() - began) * 1000)
        for when in ("first", "again"):
            yield _ms(f"/metrics, {when}", lambda: _ask(f"{base}/metrics"))
        user = scope_of(random.randrange(census.users))
        yield from _of_user(base, f"a user with {census.each:,} memories", user)
        yield _ms("forgetting this user", lambda: _ask(_memories(base, user), "DELETE"))
        for memories in census.heavy:
            yield from _of_user(base, f"a user with {memories:,} memories", heavy_scope(memories))
    yield _ms("doctor", lambda: _command(data, "doctor"))
    with TemporaryDirectory(dir=data) as beside:
        yield _ms("backup, verified", lambda: _command(data, "backup", str(Path(beside) / "copy")))


def _of_user(base: str, name: str, scope: Scope) -> Iterator[Timed]:
    for when in ("first", "again"):
        yield _ms(f"GET /v1/memory of {name}, {when}", lambda: _ask(_memories(base, scope)))
    yield _ms(
        f"dry run of forgetting {name}", lambda: _ask(_memories(base, scope) + "&dry_run=true", "DELETE")
    )


def _memories(base: str, scope: Scope) -> str:
    return f"{base}/v1/memory?user_id={scope.user}"


def _ms(what: str, work: Callable[[], object]) -> Timed:
    began = time.monotonic()
    work()
    return Timed(what, (time.monotonic() - began) * 1000)


@contextmanager
def _serving(data: Path) -> Iterator[str]:
    """Serve the directory on a free port of the loopback; yields the base URL once /health answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    command = [*_PROGRAM, "serve", "--data-dir", str(data), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + _START_S
        while not _answers(base):
            if time.monotonic() > until or server.poll() is not None:
                raise SystemExit("the proxy did not start over the directory")
            time.sleep(0.01)
        yield base
    finally:
        server.terminate()
        server.wait()


def _answers(base: str) -> bool:
    with suppress(OSError):
        _ask(f"{base}/health")
        return True
    return False


def _ask(url: str, method: str = "GET") -> None:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=_START_S) as answer:
        answer.read()


def _command(data: Path, name: str, *more: str) -> None:
    subprocess.run([*_PROGRAM, name, "--data-dir", str(data), *more], capture_output=True, check=False)
