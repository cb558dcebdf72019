"""A real Redis for tests: a server of this test process, on a loopback port of its own, gone with it."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import reserved

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")
MISSING = "NO REDIS: run scripts/redis (Debian's redis-server) to test the cache that replicas share"
_START_S = 60.0


class Server:
    """A Redis that can be stopped and started again with what it had made durable."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._dir = directory
        self._keeper = reserved()
        self.port: int = self._keeper.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not running"
        return self._process.pid

    def start(self) -> None:
        assert PROGRAM is not None, MISSING
        self._process = subprocess.Popen(
            [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._dir),
             "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no",
             ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + _START_S
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                    probe.sendall(b"PING\r\n")
                    if probe.recv(16).startswith(b"+PONG"):
                        return
            except OSError:
                pass
            assert self._process.poll() is None, "Redis has ended"
            assert time.monotonic() < deadline, "Redis did not start"
            time.sleep(0.02)

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End it, and give its port back."""
        self.kill()
        self._keeper.close()


@contextmanager
def running(directory: Path) -> Iterator[Server]:
    server = Server(directory)
    try:
        server.start()
        yield server
    finally:
        server.close()
