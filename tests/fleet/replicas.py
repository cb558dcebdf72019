"""Replicas of the real program over one PostgreSQL, and clients that retry at another one."""

import asyncio
import collections
import contextlib
import os
import re
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.support.model import ScriptedModel
from tests.support.ports import reserved

ROOT = Path(__file__).resolve().parents[2]
START_S, SETTLE_S = 60.0, 60.0
_PROGRAM = """
import sys
from proxy.storage.postgres import stores
stores.RENEWED_S, stores.ALIVE = 1.0, stores.ALIVE.replace("15.0", "6.0")  # dead sooner than in life
from proxy.cli.main import main
sys.exit(main())
"""
_SAID = re.compile(r"I have a friend named (\w+)\.")


def said(name: str) -> str:
    return f"I have a friend named {name}."


def fact(name: str) -> str:
    return f"User has a friend named {name}."


def model() -> ScriptedModel:
    """An upstream that extracts from the exchanges it is shown, each fact once."""

    def facts(prompt: str) -> list[dict[str, Any]]:
        shown = "\n".join(re.findall(r"<exchange .*?</exchange>", prompt, re.S))
        names = dict.fromkeys(_SAID.findall(shown))
        return [
            {"type": "semantic", "content": fact(n), "confidence": 0.9, "evidence": said(n)} for n in names
        ]

    return ScriptedModel(facts=facts)


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


@dataclass
class Client:
    """Users of an SDK that retries: a request that fails goes to another replica, the very same."""

    replicas: list[Replica]
    promised: dict[str, list[str]] = field(default_factory=lambda: collections.defaultdict(list))
    kill_after: int = 0
    answered: int = 0
    halfway: asyncio.Event = field(default_factory=asyncio.Event)
    failed: int = 0
    forgone: int = 0  # answers without the promise to store

    async def talk(self, user: str, names: list[str], first: int) -> None:
        """Say all of it in one session, a request each, to the replicas in turn."""
        messages: list[dict[str, str]] = []
        async with httpx2.AsyncClient(timeout=60) as http:
            for number, name in enumerate(names):
                messages.append({"role": "user", "content": said(name)})
                await self._ask(http, user, messages, name, first + number)
                messages.append({"role": "assistant", "content": "Noted."})

    async def _ask(self, http, user, messages, name, start):
        body = {"model": "m", "messages": messages, "memory_context": {"user_id": user}}
        for attempt in range(3 * len(self.replicas)):
            replica = self.replicas[(start + attempt) % len(self.replicas)]
            try:
                answer = await http.post(f"{replica.origin}/v1/chat/completions", json=body)
            except (httpx2.HTTPError, OSError):
                self.failed += 1
                continue
            assert answer.status_code == 200, answer.text
            self.answered += 1
            if self.answered >= self.kill_after:
                self.halfway.set()
            if answer.headers["x-memory-store"] == "queued":
                self.promised[user].append(name)
            else:
                self.forgone += 1
            return
        raise AssertionError("no replica answers")


async def settled(replica: Replica) -> None:
    """Return once nothing is left to be extracted."""
    async with asyncio.timeout(SETTLE_S), httpx2.AsyncClient(timeout=60) as http:
        quiet = 0
        while quiet < 4:
            await asyncio.sleep(0.5)
            jobs = (await http.get(f"{replica.origin}/health")).json()["jobs"]
            quiet = quiet + 1 if jobs and not (jobs["queued"] or jobs["running"]) else 0


async def recovered(replica: Replica) -> None:
    """Return once the replica says that all is well with its store."""
    async with asyncio.timeout(SETTLE_S), httpx2.AsyncClient(timeout=60) as http:
        while (await http.get(f"{replica.origin}/health")).json()["memory"]["reason"]:  # noqa: ASYNC110
            await asyncio.sleep(0.2)


async def tell_each(replica: Replica, user: str, facts: set[str]) -> None:
    """Return once the user's memories hold the facts."""
    async with asyncio.timeout(SETTLE_S):
        while not facts <= set(await stored(replica, user)):  # noqa: ASYNC110 another process's doing
            await asyncio.sleep(0.2)


async def stored(replica: Replica, user: str) -> list[str]:
    """Return the contents of the user's memories."""
    async with httpx2.AsyncClient(timeout=60) as http:
        answer = await http.get(f"{replica.origin}/v1/memory", params={"user_id": user, "limit": 100})
    assert answer.status_code == 200, answer.text
    return sorted(memory["content"] for memory in answer.json()["data"])
