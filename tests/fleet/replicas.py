"""Replicas of the real program over one PostgreSQL."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx2

from tests.e2e.conftest import until
from tests.support.model import fact
from tests.support.ports import reserved

ROOT = Path(__file__).resolve().parents[2]
START_S, SETTLE_S = 60.0, 60.0
_PROGRAM = """
import sys
from proxy.storage import postgres
postgres.RENEWED_S, postgres.ALIVE = 1.0, postgres.ALIVE.replace("15.0", "6.0")  # dead sooner than in life
from proxy.cli.main import main
sys.exit(main())
"""


class Replica:
    """One process of `memory-proxy serve`."""

    def __init__(self, directory: Path, upstream: str, environ: Mapping[str, str]) -> None:
        self._keeper = reserved()
        self.port: int = self._keeper.getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        self._argv = [sys.executable, "-c", _PROGRAM, "serve", "--port", str(self.port)]
        self._argv += ["--data-dir", str(directory), "--upstream", upstream]
        self._environ = {**os.environ, **environ}
        self.log = directory / f"replica-{self.port}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Return once it answers."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv, cwd=ROOT, env=self._environ, stdout=log, stderr=log
            )
        async with asyncio.timeout(START_S):
            while True:
                with contextlib.suppress(OSError):
                    _, connection = await asyncio.open_connection("127.0.0.1", self.port)
                    connection.close()
                    return
                assert self._process.returncode is None, self.log.read_text("utf-8")
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """kill -9."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def close(self) -> None:
        """End it, and give its port back."""
        await self.kill()
        self._keeper.close()

    def freeze(self) -> None:
        """SIGSTOP: to the others it is dead, and it does not know."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT, unless it was killed in the meantime."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        self._process.terminate()
        await asyncio.wait_for(self._process.wait(), START_S)


@contextlib.asynccontextmanager
async def replicas(directory, upstream, postgres_url, *, count=2, **environ):
    """Replicas that share nothing but a PostgreSQL."""
    settings = {
        "MEMORY_PROXY__STORAGE__BACKEND": "postgres",
        "MEMORY_PROXY__STORAGE__POSTGRES_URL": postgres_url,
        "MEMORY_PROXY__MEMORY__EXTRACTION_BATCH_SIZE": "1",
        "MEMORY_PROXY__MEMORY__DEADLINE_MS": "5000",
        **environ,
    }
    made = []
    for number in range(count):
        own = directory / f"replica-{number}"
        own.mkdir(parents=True, exist_ok=True)
        made.append(Replica(own, upstream, settings))
    try:
        await asyncio.gather(*(each.start() for each in made))
        yield made
    finally:
        for each in made:
            await each.close()


async def stored(replica: Replica, user: str) -> list[str]:
    """Return the contents of the user's memories."""
    async with httpx2.AsyncClient(timeout=60) as http:
        answer = await http.get(f"{replica.origin}/v1/memory", params={"user_id": user, "limit": 100})
    assert answer.status_code == 200, answer.text
    return sorted(memory["content"] for memory in answer.json()["data"])


async def knows(replica: Replica, user: str, *names: str) -> None:
    """Return once the user's memories hold these friends."""

    async def missing() -> set[str]:
        return {fact(name) for name in names} - set(await stored(replica, user))

    await until(missing, lambda found: not found, within_s=SETTLE_S)


async def settled(replica: Replica) -> None:
    """Return once the store works and nothing is left to be extracted."""

    async def is_quiet() -> bool:
        async with httpx2.AsyncClient(timeout=60) as http:
            health = (await http.get(f"{replica.origin}/health")).json()
        jobs = health["jobs"]
        return bool(jobs) and not (health["memory"]["reason"] or jobs["queued"] + jobs["running"])

    await until(is_quiet, within_s=SETTLE_S)
