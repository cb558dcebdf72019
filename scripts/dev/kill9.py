#!/usr/bin/env python3
"""Kill the real proxy again and again under load, then count: `scripts/dev/kill9.py --rounds 200 [options]`.

Every exchange states a fact of its own ("I have a friend named …"); the scripted upstream answers it, and
as the extraction model returns exactly the facts it is shown. Each round starts `memory-proxy serve`, lets
several users talk (new and continued sessions, streamed and not), and kills all of its processes with
SIGKILL at a random moment: also while it starts, or (`--at-last-byte`) just after a client got its answer's
last byte. At the end one more start settles the rest, and then must hold: every fact whose answer a client
received completely is stored, none is stored twice, and the database is sound. Exit status 1 otherwise.

`--backend postgres` starts a PostgreSQL, and every third kill takes its server down at the same moment.
"""

import argparse
import asyncio
import collections
import contextlib
import json
import os
import random
import re
import signal
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import aiohttp  # noqa: E402
import psycopg  # noqa: E402

from tests import postgres_server  # noqa: E402
from tests.support.model import ScriptedModel  # noqa: E402
from tests.support.upstream import (  # noqa: E402
    Exchange,
    ScriptedUpstream,
    completion,
    completion_events,
)

STARTUP_S, SETTLE_S = 60, 900
SAID = re.compile(r"I have a friend named (\w+)\.")
SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


class Model(ScriptedModel):
    """Answers in a few pieces, and extracts from the exchanges it is asked to extract, each fact once."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(facts=self._facts)
        self._rng = rng

    async def __call__(self, exchange: Exchange) -> None:
        await asyncio.sleep(self._rng.choice((0, 0, 0.003, 0.02)))
        await super().__call__(exchange)

    async def converse(self, exchange: Exchange) -> None:
        if not exchange.request.json.get("stream"):
            return await exchange.json(completion("Noted, thank you."))
        await exchange.start_stream()
        for event in completion_events("Noted, ", "thank ", "you."):
            await exchange.chunk(event)
            await asyncio.sleep(self._rng.choice((0, 0, 0.002)))
        return await exchange.end()

    def _facts(self, prompt: str) -> list[dict[str, Any]]:
        shown = prompt[prompt.rfind("<exchange ") :] if "<exchange " in prompt else ""
        names = SAID.findall("\n".join(re.findall(r"<exchange .*?</exchange>", prompt, re.S)) or shown)
        return [
            {"type": "semantic", "content": fact(name), "confidence": 0.9, "evidence": said(name)}
            for name in dict.fromkeys(names)
        ]


def said(name: str) -> str:
    return f"I have a friend named {name}."


def fact(name: str) -> str:
    return f"User has a friend named {name}."


class Names:
    """Names that differ clearly: telling similar names apart is another test's matter."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._starts: set[str] = set()

    def new(self) -> str:
        while (start := "".join(self._rng.choices(SYLLABLES, k=3))) in self._starts:
            pass
        self._starts.add(start)
        return f"{start}{self._rng.choice(SYLLABLES)}".capitalize()


def asking(user: str, session: str | None, messages: list[dict[str, str]], *, stream: bool) -> dict[str, Any]:
    """Return the body of a request."""
    context = {"user_id": user, **({"session_id": session} if session else {})}
    body: dict[str, Any] = {"model": "m", "messages": messages, "memory_context": context}
    return body | ({"stream": True} if stream else {})


def is_complete(answer: bytes) -> bool:
    """True of an answer that has come to its end."""
    return b"[DONE]" in answer or b'"finish_reason": "stop"' in answer


async def nothing_left(origin: str, *, within_s: float, quiet_s: float) -> dict[str, Any]:
    """Return the job counts when there has been nothing to do for so long, or the time is up."""
    jobs: dict[str, Any] = {}
    deadline, quiet = time.monotonic() + within_s, 0
    async with aiohttp.ClientSession() as http:
        while time.monotonic() < deadline and quiet < 2 * quiet_s:
            await asyncio.sleep(0.5)
            async with http.get(f"{origin}/health") as answer:
                jobs = (await answer.json())["jobs"] or {"queued": -1}
            quiet = quiet + 1 if not (jobs["queued"] or jobs.get("running")) else 0
    return dict(jobs)


def work_directory(given: Path | None, prefix: str) -> Path:
    """Return the directory to work in, made if need be."""
    directory = given or Path(tempfile.mkdtemp(prefix=prefix))
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@dataclass
class Tally:
    """What the clients know: facts by user, as they sent and as they received the whole answer."""

    sent: dict[str, set[str]] = field(default_factory=lambda: collections.defaultdict(set))
    queued: dict[str, set[str]] = field(default_factory=lambda: collections.defaultdict(set))
    unpromised: dict[str, set[str]] = field(default_factory=lambda: collections.defaultdict(set))
    statuses: collections.Counter[str] = field(default_factory=collections.Counter)
    kills: collections.Counter[str] = field(default_factory=collections.Counter)


class Load:
    """Users who talk for as long as the proxy lives."""

    def __init__(self, base_url: str, rng: random.Random, tally: Tally) -> None:
        self._url, self._rng, self._tally = f"{base_url}/chat/completions", rng, tally
        self.answered = asyncio.Event()  # set at a last byte
        self._names = Names(rng)

    async def run(self, users: int) -> None:
        connector = aiohttp.TCPConnector(force_close=self._rng.random() < 0.3)
        async with aiohttp.ClientSession(connector=connector) as http, asyncio.TaskGroup() as tasks:
            for number in range(users):
                for _ in range(1 + number % 2):  # some users hold two conversations at once
                    tasks.create_task(self._talk(http, f"user-{number}"))

    async def _talk(self, http: aiohttp.ClientSession, user: str) -> None:
        while True:
            session = f"s-{self._rng.randrange(10**9)}" if self._rng.random() < 0.5 else None
            messages: list[dict[str, str]] = []
            for _ in range(self._rng.randint(1, 4)):
                name = self._names.new()
                messages.append({"role": "user", "content": said(name)})
                answer = await self._ask(http, user, session, messages, name)
                messages.append({"role": "assistant", "content": answer})

    async def _ask(
        self,
        http: aiohttp.ClientSession,
        user: str,
        session: str | None,
        messages: list[dict[str, str]],
        name: str,
    ) -> str:
        body = asking(user, session, messages, stream=self._rng.random() < 0.6)
        self._tally.sent[user].add(name)
        async with http.post(self._url, json=body) as answer:
            whole = await answer.read()  # raises unless the framing says that this is all
            self._tally.statuses[str(answer.status)] += 1
            if answer.status == 200 and is_complete(whole):
                promised = answer.headers.get("X-Memory-Store") == "queued"
                (self._tally.queued if promised else self._tally.unpromised)[user].add(name)
                self.answered.set()
        return "Noted, thank you."


class SqliteFile:
    """The database of the data directory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.settings: dict[str, str] = {}

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as db:
            return db.execute(query).fetchall()

    def damage(self) -> str:
        """Return what is wrong with the database itself, "" if nothing."""
        (verdict,) = self.rows("PRAGMA integrity_check")[0]
        if verdict == "ok" and self.rows("PRAGMA foreign_key_check"):
            return "a row refers to none"
        return "" if verdict == "ok" else str(verdict)

    def crash(self) -> None:
        """Nothing, as in the next three: it lives in the proxy's processes."""

    def restart(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...


class PostgresDatabase:
    """A database of a server that can crash."""

    def __init__(self, server: postgres_server.PostgresServer) -> None:
        self._server, self._url = server, server.new_database()
        self._is_down = False
        self.settings = {
            "MEMORY_PROXY__STORAGE__BACKEND": "postgres",
            "MEMORY_PROXY__STORAGE__POSTGRES_URL": self._url,
        }

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._url) as db:
            return db.execute(query.replace("s.user", 's."user"').encode()).fetchall()

    def damage(self) -> str:
        # Reads every row; a page that is torn is an error.
        tables = self.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        for (table,) in tables:
            self.rows(f"SELECT count(t.*::text) FROM {table} t")
        return ""

    def crash(self) -> None:
        self._server.kill()
        self._is_down = True

    def freeze(self) -> None:
        self._server.freeze()

    def thaw(self) -> None:
        self._server.thaw()

    def restart(self) -> None:
        if self._is_down:
            self._server.start()
            self._is_down = False


@contextlib.contextmanager
def database(backend: str, directory: Path) -> Iterator[SqliteFile | PostgresDatabase]:
    """Yield the database of the proxy. A PostgreSQL is started, and ended."""
    if backend == "sqlite":
        yield SqliteFile(directory / "data" / "memory.db")
        return
    with postgres_server.running() as server:
        yield PostgresDatabase(server)


class Proxy:
    """The real server in a process group of its own."""

    def __init__(
        self, port: int, data: Path, upstream: str, workers: int, log: Path, settings: Mapping[str, str]
    ) -> None:
        self.base_url = f"http://127.0.0.1:{port}/v1"
        self._port, self._log = port, log
        command = ROOT / ".venv/bin/memory-proxy"
        self._argv = [str(command), "serve", "--port", str(port), "--data-dir", str(data)]
        self._argv += ["--upstream", upstream, "--workers", str(workers)]
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        environ = os.environ | self._settings
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv, env=environ, stdout=log, stderr=log, start_new_session=True
            )

    async def ready(self) -> None:
        """Return once it answers. Raises TimeoutError."""
        async with asyncio.timeout(STARTUP_S), aiohttp.ClientSession() as http:
            while True:
                with contextlib.suppress(aiohttp.ClientError, OSError):
                    async with http.get(f"http://127.0.0.1:{self._port}/ready") as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.01)

    async def kill(self) -> None:
        """SIGKILL to every process of the group, and wait for the port to be free."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)):
                    return
            await asyncio.sleep(0.01)
        raise RuntimeError("something still listens after kill -9")


async def one_round(
    proxy: Proxy,
    load: Load,
    options: argparse.Namespace,
    rng: random.Random,
    db: SqliteFile | PostgresDatabase,
) -> str:
    """Start, load, kill; return which kind of moment it was."""
    await asyncio.to_thread(db.restart)
    await proxy.start()
    if rng.random() < 0.08:
        await asyncio.sleep(rng.uniform(0.2, 1.5))
        await proxy.kill()
        return "while starting"
    await proxy.ready()
    talking = asyncio.create_task(load.run(options.users))
    try:
        if options.at_last_byte:
            for _ in range(rng.randint(1, 25)):
                load.answered.clear()
                async with asyncio.timeout(10):
                    await load.answered.wait()
            moment = "at a last byte"
        else:
            await asyncio.sleep(rng.uniform(*options.seconds))
            moment = "under load"
        if options.backend == "postgres" and rng.random() < 1 / 3:
            await asyncio.to_thread(db.crash)
            moment += ", with the database"
        await proxy.kill()
        return moment
    finally:
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)


def confirmations(db: SqliteFile | PostgresDatabase) -> set[tuple[str, str]]:
    """Return users and what they said for a memory. A fact that is taken for a repetition of another, with a
    name like it, is not a memory of its own, but the other quotes it."""
    return set(
        db.rows(
            "SELECT s.user, e.span FROM evidence e JOIN memories m ON m.seq = e.memory"
            " JOIN scopes s ON s.id = m.owner"
        )
    )


def judge(db: SqliteFile | PostgresDatabase, tally: Tally) -> list[str]:
    """Return what is wrong, with names of lost and doubled facts."""
    damage = db.damage()
    wrong = [f"the database is not sound: {damage}"] if damage else []
    found = db.rows("SELECT s.user, m.content FROM memories m JOIN scopes s ON s.id = m.owner")
    ((stuck,),) = db.rows("SELECT count(*) FROM exchanges WHERE state = 'open'")
    ((left,),) = db.rows("SELECT count(*) FROM exchanges WHERE extraction <> 'done'")
    stored = collections.Counter(found)
    quoted = confirmations(db)
    for (user, content), times in stored.items():
        if times > 1:
            wrong.append(f"stored {times} times: {user} {content}")
        name = content.rstrip(".").rsplit(" ", 1)[-1]
        if name not in tally.sent[user]:
            wrong.append(f"nobody said so: {user} {content}")
    for user, names in tally.queued.items():
        wrong += [
            f"LOST, promised: {user} {n}"
            for n in sorted(names)
            if (user, fact(n)) not in stored and (user, said(n)) not in quoted
        ]
    lost = [(u, n) for u, ns in tally.unpromised.items() for n in ns if (u, fact(n)) not in stored]
    print(f"stored {len(found)}; exchanges still open {stuck}, not extracted {left}")
    print(f"answers without `queued`: {sum(map(len, tally.unpromised.values()))}, not stored {len(lost)}")
    return wrong


async def main(options: argparse.Namespace) -> int:
    if options.backend == "postgres" and postgres_server.PROGRAMS is None:
        print(postgres_server.MISSING, file=sys.stderr)
        return 2
    with database(options.backend, options.keep) as db:
        return await drill(options, db)


async def drill(options: argparse.Namespace, db: SqliteFile | PostgresDatabase) -> int:
    rng = random.Random(options.seed)
    directory: Path = options.keep
    tally, times = Tally(), []
    async with ScriptedUpstream(Model(rng)) as upstream:
        upstream.requests = collections.deque(maxlen=10)  # type: ignore[assignment]
        settings = db.settings | {"MEMORY_PROXY__MEMORY__EXTRACTION_BATCH_SIZE": "1"}
        log = directory / "server.log"
        proxy = Proxy(options.port, directory / "data", upstream.url, options.workers, log, settings)
        load = Load(proxy.base_url, rng, tally)
        for number in range(1, options.rounds + 1):
            began = time.monotonic()
            tally.kills[await one_round(proxy, load, options, rng, db)] += 1
            times.append(time.monotonic() - began)
            if number % 20 == 0:
                acknowledged = sum(map(len, tally.queued.values()))
                print(f"{number} rounds, {acknowledged} answers complete, {sum(times):.0f} s", flush=True)
        await asyncio.to_thread(db.restart)
        await proxy.start()
        await proxy.ready()
        origin = proxy.base_url.removesuffix("/v1")
        jobs = await nothing_left(origin, within_s=SETTLE_S, quiet_s=7.5)  # a sweep comes every 5 s
        await proxy.kill()
    print(f"kills {dict(tally.kills)}; answers {dict(tally.statuses)}; jobs {jobs}")
    print(json.dumps({"sent": sum(map(len, tally.sent.values())), "seed": options.seed}))
    wrong = judge(db, tally)
    print("\n".join([f"WRONG: {len(wrong)}", *wrong[:40]] if wrong else ["all promises held"]))
    print(f"data and log: {directory}")
    return 1 if wrong else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--users", type=int, default=6)
    parser.add_argument("--port", type=int, default=18900)
    parser.add_argument("--seconds", type=float, nargs=2, default=(0.05, 0.9), help="load before the kill")
    parser.add_argument("--at-last-byte", action="store_true", help="kill when a client has its whole answer")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work in this directory")
    options = parser.parse_args()
    options.keep = work_directory(options.keep, "kill9-")
    return options


if __name__ == "__main__":
    sys.exit(asyncio.run(main(arguments())))
