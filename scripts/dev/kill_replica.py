#!/usr/bin/env python3
"""Replicas over one database, hurt again and again under load, then counted: `scripts/dev/kill_replica.py`.

Every exchange states a fact of its own ("I have a friend named …"); the scripted upstream answers it, and
as the extraction model returns exactly the facts it is shown. Users talk without end; a request that fails
is sent again, the very same, to another replica. Replicas are killed with SIGKILL and started
again, stopped for longer than the others wait and then continued (a split: they believe they hold what others
have taken over), and ended with SIGTERM; PostgreSQL is killed and started, or stopped for a while. At the
end, with all of them there, must hold: every fact with a completely received answer with
`X-Memory-Store: queued` is stored once, nothing is stored twice, no user has what he did not say, nothing is
back that was forgotten, no job and no exchange is stuck. Exit status 1 otherwise.
"""

import argparse
import asyncio
import collections
import contextlib
import json
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import aiohttp  # noqa: E402

from scripts.dev.kill9 import (  # noqa: E402
    Model,
    Names,
    PostgresDatabase,
    SqliteFile,
    asking,
    confirmations,
    database,
    fact,
    is_complete,
    nothing_left,
    said,
    work_directory,
)
from tests import postgres_server  # noqa: E402
from tests.fleet.replicas import Replica  # noqa: E402
from tests.support.upstream import ScriptedUpstream  # noqa: E402

PATIENCE_S = 8.0  # of a client, with one replica
SPLIT_S = 15.0  # the others take a silent replica for dead after ten
SETTLE_S = 900.0
FAULTS = {"kill": 10, "kill two": 3, "split": 3, "drain": 3}
DATABASE_FAULTS = {"kill the database": 4, "stop the database": 3}  # of a server of its own
Facts = dict[str, set[str]]


@dataclass
class Tally:
    """What the clients know: facts by user, as they sent and as they received the whole answer."""

    sent: Facts = field(default_factory=lambda: collections.defaultdict(set))
    queued: Facts = field(default_factory=lambda: collections.defaultdict(set))
    unpromised: Facts = field(default_factory=lambda: collections.defaultdict(set))
    forgotten: Facts = field(default_factory=lambda: collections.defaultdict(set))
    resent: set[str] = field(
        default_factory=set
    )  # may have reached a frozen replica, which continues with it
    answers: collections.Counter[str] = field(default_factory=collections.Counter)
    faults: collections.Counter[str] = field(default_factory=collections.Counter)


class Load:
    """Users who talk until they are cancelled, each request to a random replica first."""

    def __init__(self, replicas: list[Replica], rng: random.Random, tally: Tally) -> None:
        self._replicas, self._rng, self._tally = replicas, rng, tally
        self._names = Names(rng)

    async def run(self, users: int) -> None:
        patience = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(timeout=patience) as http, asyncio.TaskGroup() as tasks:
            for number in range(users):
                for _ in range(1 + number % 2):  # some users hold two conversations at once, others forget
                    tasks.create_task(self._talk(http, f"user-{number}", forgets=number % 2 == 0))

    async def _talk(self, http: aiohttp.ClientSession, user: str, *, forgets: bool) -> None:
        while True:
            if forgets and self._rng.random() < 0.1:
                await self._forget(http, user)
            session = f"s-{self._rng.randrange(10**9)}" if self._rng.random() < 0.5 else None
            messages: list[dict[str, str]] = []
            for _ in range(self._rng.randint(1, 4)):
                name = self._names.new()
                messages.append({"role": "user", "content": said(name)})
                self._tally.sent[user].add(name)
                await self._say(http, user, session, messages, name)
                messages.append({"role": "assistant", "content": "Noted, thank you."})
                await asyncio.sleep(self._rng.uniform(0, 0.5))

    async def _say(
        self,
        http: aiohttp.ClientSession,
        user: str,
        session: str | None,
        messages: list[dict[str, str]],
        name: str,
    ) -> None:
        """Send the request to one replica after the other until one answers."""
        body = asking(user, session, messages, stream=self._rng.random() < 0.6)
        while True:
            replica = self._rng.choice(self._replicas)
            try:
                async with http.post(f"{replica.origin}/v1/chat/completions", json=body) as answer:
                    whole = await answer.read()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self._tally.answers[type(error).__name__] += 1
                self._tally.resent.add(name)
                await asyncio.sleep(0.05)
                continue
            self._tally.answers[str(answer.status)] += 1
            if answer.status == 200 and is_complete(whole):
                promised = answer.headers.get("X-Memory-Store") == "queued"
                (self._tally.queued if promised else self._tally.unpromised)[user].add(name)
                return

    async def _forget(self, http: aiohttp.ClientSession, user: str) -> None:
        """Forget everything about the user, by any replica."""
        said_before = set(self._tally.sent[user])
        while True:
            replica = self._rng.choice(self._replicas)
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with http.delete(f"{replica.origin}/v1/memory", params={"user_id": user}) as answer:
                    self._tally.answers[f"forget {answer.status}"] += 1
                    if answer.status == 200:
                        self._tally.forgotten[user] |= said_before
                        return
            await asyncio.sleep(0.05)


class Faults:
    """What happens to the replicas and to the database. One replica at least runs at any time."""

    def __init__(
        self, replicas: list[Replica], db: SqliteFile | PostgresDatabase, rng: random.Random
    ) -> None:
        self._well, self._db, self._rng = list(replicas), db, rng
        self._kinds = FAULTS | (DATABASE_FAULTS if isinstance(db, PostgresDatabase) else {})
        self._splits: list[asyncio.Task[None]] = []

    async def one(self) -> str:
        """Cause a fault and repair it; return its name. A split continues in the background."""
        kind = self._rng.choices(list(self._kinds), list(self._kinds.values()))[0]
        if kind in ("kill", "kill two"):
            await self._restart(1 if kind == "kill" else 2, lambda each: each.kill())
        elif kind == "drain":
            await self._restart(1, lambda each: each.stop())
        elif kind == "split" and len(self._well) > 1:
            self._splits.append(asyncio.create_task(self._split(self._take())))
        elif kind == "kill the database":
            await asyncio.to_thread(self._db.crash)
            await asyncio.sleep(self._rng.choice((0.0, 0.5, 3.0)))
            await asyncio.to_thread(self._db.restart)
        elif kind == "stop the database":
            self._db.freeze()
            await asyncio.sleep(self._rng.choice((0.3, 2.5, 6.0)))
            self._db.thaw()
        return kind

    async def repaired(self) -> None:
        """Return when all run."""
        await asyncio.gather(*self._splits)

    async def _restart(self, count: int, end: Any) -> None:
        taken = [self._take() for _ in range(min(count, len(self._well) - 1))]
        for each in taken:
            await end(each)
        await asyncio.sleep(self._rng.choice((0.0, 1.0, 11.0)))  # also longer than the others wait
        for each in taken:
            await each.start()
            if self._rng.random() < 0.1:  # while it starts
                await asyncio.sleep(self._rng.uniform(0, 1))
                await each.kill()
                await each.start()
        self._well += taken

    async def _split(self, replica: Replica) -> None:
        replica.freeze()
        try:
            await asyncio.sleep(self._rng.uniform(SPLIT_S - 5, SPLIT_S + 5))
        finally:
            replica.thaw()
        self._well.append(replica)

    def _take(self) -> Replica:
        return self._well.pop(self._rng.randrange(len(self._well)))


async def stored(replica: Replica, user: str) -> list[str]:
    """Return the contents of all of the user's memories, superseded ones too, page by page."""
    found: list[str] = []
    after: dict[str, str] = {}
    async with aiohttp.ClientSession() as http:
        while True:
            asked = {"user_id": user, "limit": "100", "include": "inactive", **after}
            async with http.get(f"{replica.origin}/v1/memory", params=asked) as answer:
                page = await answer.json()
            found += [memory["content"] for memory in page["data"]]
            if not page["has_more"]:
                return found
            after = {"after": page["data"][-1]["id"]}


async def judge(replicas: list[Replica], db: SqliteFile | PostgresDatabase, tally: Tally) -> list[str]:
    """Return what is wrong, with names of lost and doubled facts."""
    wrong: list[str] = []
    quoted = confirmations(db)
    total = 0
    for user, sent in tally.sent.items():
        seen = [await stored(each, user) for each in replicas]
        wrong += [f"replicas disagree: {user}"] if any(each != seen[0] for each in seen) else []
        found = collections.Counter(seen[0])
        total += len(seen[0])
        wrong += [f"stored {times} times: {user} {what}" for what, times in found.items() if times > 1]
        wrong += [f"nobody said so: {user} {what}" for what in found.keys() - set(map(fact, sent))]
        found_ids = tally.forgotten[user]
        wrong += [
            f"LOST, promised: {user} {n}"
            for n in tally.queued[user] - found_ids
            if fact(n) not in found and (user, said(n)) not in quoted
        ]
        wrong += [f"came back: {user} {n}" for n in found_ids - tally.resent if fact(n) in found]
    print(f"stored {total}; answers without `queued`: {sum(map(len, tally.unpromised.values()))}")
    return wrong


def stuck(db: SqliteFile | PostgresDatabase) -> list[str]:
    """Return what is left of work under way."""
    left = {
        "exchanges without an end": "SELECT count(*) FROM exchanges WHERE state = 'open'",
        "exchanges not extracted": "SELECT count(*) FROM exchanges WHERE extraction = 'pending'",
        "jobs": "SELECT count(*) FROM jobs",
        "unfinished forgets": "SELECT count(*) FROM forgets",
    }
    counts = {what: db.rows(query)[0][0] for what, query in left.items()}
    return [f"stuck: {count} {what}" for what, count in counts.items() if count]


async def drill(options: argparse.Namespace, db: SqliteFile | PostgresDatabase) -> int:
    rng, tally, directory = random.Random(options.seed), Tally(), options.keep
    settings = db.settings | {
        "MEMORY_PROXY__MEMORY__EXTRACTION_BATCH_SIZE": "1",
        "MEMORY_PROXY__MEMORY__DEADLINE_MS": "1000",
    }
    async with ScriptedUpstream(Model(rng)) as upstream:
        upstream.requests = collections.deque(maxlen=10)  # type: ignore[assignment]
        (directory / "data").mkdir(exist_ok=True)
        replicas = [Replica(directory / "data", upstream.url, settings) for _ in range(options.replicas)]
        try:
            for each in replicas:
                await each.start()
            print(f"{len(replicas)} replicas run", flush=True)
            faults, began = Faults(replicas, db, rng), time.monotonic()
            talking = asyncio.create_task(Load(replicas, rng, tally).run(options.users))
            try:
                for number in range(1, options.rounds + 1):
                    await asyncio.sleep(rng.uniform(*options.seconds))
                    tally.faults[kind := await faults.one()] += 1
                    promised, took = sum(map(len, tally.queued.values())), time.monotonic() - began
                    print(f"{number}: {kind}; {promised} promises, {took:.0f} s", flush=True)
                await faults.repaired()
            finally:
                talking.cancel()
                (ended,) = await asyncio.gather(talking, return_exceptions=True)
                assert isinstance(ended, asyncio.CancelledError), ended
            jobs = await nothing_left(replicas[0].origin, within_s=SETTLE_S, quiet_s=15)  # sweeps: every 5 s
            wrong = await judge(replicas, db, tally) + stuck(db)
        finally:
            for replica in replicas:
                replica.thaw()
                with contextlib.suppress(ProcessLookupError):
                    await replica.kill()
    print(f"faults {dict(tally.faults)}; answers {dict(tally.answers)}; jobs {jobs}")
    print(json.dumps({"sent": sum(map(len, tally.sent.values())), "seed": options.seed}))
    print("\n".join([f"WRONG: {len(wrong)}", *wrong[:40]] if wrong else ["all promises held"]))
    print(f"data and logs: {directory}")
    return 1 if wrong else 0


def main() -> int:
    options = arguments()
    if options.backend == "postgres" and postgres_server.PROGRAMS is None:
        print(postgres_server.MISSING, file=sys.stderr)
        return 2
    with database(options.backend, options.keep) as db:
        return asyncio.run(drill(options, db))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", choices=("sqlite", "postgres"), default="postgres")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--users", type=int, default=6)
    parser.add_argument("--seconds", type=float, nargs=2, default=(0.2, 3.0), help="between two faults")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work in this directory")
    options = parser.parse_args()
    options.keep = work_directory(options.keep, "kill-replica-")
    return options


if __name__ == "__main__":
    sys.exit(main())
