"""`memory-proxy serve` as a process of its own, and what it logs."""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-c", "from proxy.cli.main import main; raise SystemExit(main())"]


# Many tests share the machine: what they ask must not hang on who is busy. The real deadline has tests.
_SETTINGS = {"MEMORY_PROXY__LOGGING__FORMAT": "json", "MEMORY_PROXY__MEMORY__DEADLINE_MS": "5000"}


class Serving:
    """A running server."""

    def __init__(self, process: asyncio.subprocess.Process, origin: str, log: Path) -> None:
        self.process, self.origin, self._log = process, origin, log
        self.base_url = f"{origin}/v1"

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The lines of this event so far."""
        return _logged(self._log, event)

    async def until_logged(self, event: str, count: int = 1, within_s: float = 60) -> list[dict[str, Any]]:
        """Wait for so many lines of this event, and return them."""
        async with asyncio.timeout(within_s):
            while len(found := self.logged(event)) < count:  # noqa: ASYNC110 another process writes it
                await asyncio.sleep(0.02)
        return found

    async def ended(self, within_s: float = 60) -> int:
        """Wait for the end and return the exit status."""
        async with asyncio.timeout(within_s):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def serving_process(data_dir, *flags, models_dir=None, log=None, first="", **environ):
    """Run it on a free port until the block ends; it has said that it serves. Logs as JSON, to `log`, else to
    a file next to the directory. `first`: code that it executes before."""
    _furnish(data_dir, models_dir)
    log = log or data_dir.parent / f"{data_dir.name}.log"
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MEMORY_PROXY")}
    with log.open("ab") as stderr:
        before = len(_logged(log, "process.started"))
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND[:-1], first + COMMAND[-1]),
            *("serve", "--port", "0", "--data-dir", str(data_dir), *flags),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=stderr,
            env={**clean, **_SETTINGS, **environ},
        )
    try:
        async with asyncio.timeout(90):
            while len(started := _logged(log, "process.started")) == before:
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.02)
        yield Serving(process, started[-1]["address"], log)
    finally:
        if process.returncode is None:
            process.terminate()
            async with asyncio.timeout(90):
                await process.wait()


def _logged(log: Path, event: str) -> list[dict[str, Any]]:
    lines = (line for line in log.read_text().splitlines() if line.startswith("{"))
    return [entry for line in lines if (entry := json.loads(line)).get("event") == event]


def _furnish(data_dir: Path, models_dir: Path | None) -> None:
    """Make the directory, with the weights that were packed once for all tests."""
    with contextlib.suppress(OSError):  # of a disk that a test has made read-only
        data_dir.mkdir(exist_ok=True)
        if models_dir is not None:
            (data_dir / "models").symlink_to(models_dir)
