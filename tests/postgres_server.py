"""A real PostgreSQL for tests: a server of this test process, on a loopback port of its own."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import psycopg

from tests.support.ports import reserved

MISSING = "NO POSTGRESQL: run scripts/postgres (Debian's package) to test the stores over PostgreSQL"
PASSWORD = "s3cret-of-the-test"
_START_S = 60.0
# The role `locked` needs its password; everybody else of this machine is let in.
_ACCESS = "host all locked 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: float(p.parts[4]))
    if found:
        return found[-1].parent
    program = shutil.which("postgres")
    return Path(program).resolve().parent if program else None


PROGRAMS = _programs()


class PostgresServer:
    """A server that can be stopped, killed and started again."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._data = self._root / "data"
        self._keeper = reserved()
        self.port: int = self._keeper.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self._as: list[str] = []
        if os.geteuid() == 0:  # it refuses to run as root
            user = pwd.getpwnam("postgres")
            os.chown(self._root, user.pw_uid, user.pw_gid)
            self._as = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def create(self) -> None:
        """Make its data directory."""
        assert PROGRAMS is not None, MISSING
        subprocess.run(
            [*self._as, str(PROGRAMS / "initdb"), "-D", str(self._data), "-U", "postgres", "--auth=trust",
             "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"],
            check=True, stdout=subprocess.DEVNULL, cwd=self._root,
        )  # fmt: skip
        (self._data / "pg_hba.conf").write_text(_ACCESS)

    def start(self) -> None:
        assert PROGRAMS is not None, MISSING
        settings = {
            "port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off",
            "shared_buffers": "32MB", "max_connections": "80", "max_wal_size": "64MB", "min_wal_size": "32MB",
        }  # fmt: skip
        self._process = subprocess.Popen(
            [*self._as, str(PROGRAMS / "postgres"), "-D", str(self._data),
             *(word for name, value in settings.items() for word in ("-c", f"{name}={value}"))],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._root,
        )  # fmt: skip
        deadline = time.monotonic() + _START_S
        while True:
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.url(), connect_timeout=2).close()
                return
            assert self._process.poll() is None, "PostgreSQL has ended"
            assert time.monotonic() < deadline, "PostgreSQL did not start"
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a crash would."""
        self._signal(signal.SIGQUIT)

    def freeze(self) -> None:
        """Stop all of its processes: clients wait for answers."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def execute(self, *statements: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def new_database(self, template: str = "template0") -> str:
        """Make an empty database, or a copy of another, and return its URL."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database: each takes 7 MB."""
        self.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def close(self) -> None:
        """End it, and remove what it has stored."""
        self._signal(signal.SIGQUIT)
        self._keeper.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def _signal_all(self, number: int) -> None:
        assert self._process is not None, "not running"
        first = self._process.pid
        children = Path(f"/proc/{first}/task/{first}/children").read_text()
        for pid in (first, *map(int, children.split())):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None


@contextmanager
def running() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.close()
