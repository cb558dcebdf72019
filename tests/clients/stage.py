"""The stage: `memory-proxy serve` as a process of its own."""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients.acting import Actor

ROOT = Path(__file__).parents[2]
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
START_S, STOP_S, REMEMBER_S = 30.0, 15.0, 15.0
_ADDRESS = re.compile(r"Listening\s+(http://\S+)/v1")


@dataclass(frozen=True, slots=True)
class Stage:
    """A running proxy. `actor`: its upstream, None where that is the model which ships with the proxy."""

    origin: str
    actor: Actor | None

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    @staticmethod
    def headers(user: str, **more: str) -> dict[str, str]:
        """Return the headers by which an application that only sets headers has a memory."""
        return {"X-Memory-User-Id": user, **more}

    async def remembered(self, user: str, words: str) -> None:
        """Wait until a memory of the user's holds the words."""
        deadline = time.monotonic() + REMEMBER_S
        while words not in (held := await asyncio.to_thread(self._memories, user)):
            assert time.monotonic() < deadline, f"the memories are {held}"
            await asyncio.sleep(0.05)

    def _memories(self, user: str) -> str:
        with urllib.request.urlopen(f"{self.base_url}/memory?user_id={user}", timeout=5) as answer:
            return str(json.load(answer)["data"])


@contextlib.contextmanager
def running(data_dir: Path, actor: Actor | None, upstream: str | None) -> Iterator[Stage]:
    """Run `memory-proxy serve`, as a user would, until the end of the block."""
    settings = {
        "SERVER__PORT": "0",
        "STORAGE__DATA_DIR": str(data_dir),
        "MEMORY__EXTRACTION_BATCH_SIZE": "1",
        "MEMORY__DEADLINE_MS": "5000",  # a busy machine keeps it; the real one has tests of its own
        **({"UPSTREAM__BASE_URL": upstream} if upstream else {}),
    }
    environment = {f"MEMORY_PROXY__{key}": value for key, value in settings.items()}
    log = data_dir / "serve.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [ROOT / ".venv/bin/memory-proxy", "serve"],
            env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
            cwd=data_dir,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            yield Stage(_address(process, log), actor)
        finally:
            process.terminate()
            process.wait(STOP_S)
    assert "Traceback" not in log.read_text(), log.read_text()


def _address(process: "subprocess.Popen[Any]", log: Path) -> str:
    deadline = time.monotonic() + START_S
    while not (found := _ADDRESS.search(log.read_text())):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    return found[1]
