"""The same steps over Redis and over SQLite, at random, each by two replicas: whatever is kept of sessions
beside their exchanges, both tell the same of it."""

import os
import random
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from proxy.domain.core import Evidence, Outcome, Scope
from proxy.domain.errors import LeaseLost
from proxy.domain.notes import EVERY, LATEST, OTHER, Anchor
from proxy.storage.redis.connection import Redis
from proxy.storage.sqlite import SqliteStores
from tests.storage.making import ANNA, APOLLO, BEN, NOW, always, create, exchange, never, of, store
from tests.storage.on_redis.kept_support import replicas

SEEDS = range(int(os.environ.get("TWIN_SEEDS", "10")))
STEPS = int(os.environ.get("TWIN_STEPS", "120"))
SCOPES = (ANNA, ANNA, APOLLO, BEN)
ALL_SCOPES = (ANNA, APOLLO, BEN)
SESSIONS = ("s1", "s2", "s3")
ANSWERS = ("yes", "no", " yes\n", "as you like", "")
SLOTS = ("language", "length", OTHER)
LEASE_S = 1e9


class Steps:
    """Both stores, what is under way in them, and the steps. A step returns what the stores must agree on."""

    def __init__(self, stores: tuple[list[Any], list[Any]], seed: int) -> None:
        self.stores, self.random = stores, random.Random(seed)
        self.now, self.count = NOW, 0
        self.begun: list[tuple[Any, Any]] = []
        self.read: list[tuple[Scope, str, Any, Any]] = []
        self.jobs: list[tuple[Any, Any]] = []
        self.said: list[tuple[Scope, str]] = []
        # Ids, of which the last two are shown, and forgotten; none is given twice.
        self.remembered = ["never", "never"]

    async def step(self) -> str:
        chosen = self.random.choice(STEP_NAMES)
        which = self.random.randrange(2)
        self.now += self.random.choice((0, 0, 1, 30))
        await getattr(self, chosen)(tuple(each[which] for each in self.stores))
        return chosen

    def named(self) -> tuple[Scope, str]:
        return self.random.choice(SCOPES), self.random.choice(SESSIONS)

    # ------------------------------------------------------------ what is said
    async def begin(self, both: Any) -> None:
        scope, session = self.named()
        self.count += 1
        new = exchange(
            f"said {self.count}", scope, session=session, id=f"e{self.count}", key=f"k{self.count}",
            at=self.now, anchors=tuple(self.anchor() for _ in range(self.random.choice((0, 0, 1, 2)))),
            stateful=self.random.random() < 0.7,
        )  # fmt: skip
        self.begun.append(tuple([await each.sessions.begin(new) for each in both]))
        self.said.append((scope, new.id))

    def anchor(self) -> Anchor:
        if self.random.random() < 0.2:
            return Anchor(self.random.choice((EVERY, LATEST)), "")
        return Anchor(self.random.choice(SLOTS), self.random.choice(("", "one", "two", "three")))

    async def complete(self, both: Any) -> None:
        if not self.begun:
            return
        begun = self.begun.pop(self.random.randrange(len(self.begun)))
        shown = tuple(self.random.sample(self.remembered[-2:], self.random.choice((0, 0, 1))))
        outcome = Outcome(self.random.choice(ANSWERS), self.random.random() < 0.8, recalled=shown)
        trigger = self.random.choice((always, never, never))
        first, second = [
            await each.sessions.complete(one, outcome, trigger) for each, one in zip(both, begun, strict=True)
        ]
        assert first == second
        if not outcome.whole and self.random.random() < 0.5:
            self.begun.append(begun)  # it is asked again

    async def say(self, both: Any) -> None:
        await self.begin(both)
        await self.complete(both)

    async def abort(self, both: Any) -> None:
        if self.begun:
            begun = self.begun.pop(self.random.randrange(len(self.begun)))
            for each, one in zip(both, begun, strict=True):
                await each.sessions.abort(one)

    # ------------------------------------------------------------ what is kept of it
    async def look(self, both: Any) -> None:
        for scope in ALL_SCOPES:
            for session in SESSIONS:
                after, lines = self.random.choice((None, None, *ANSWERS, "never")), self.random.randrange(4)
                first, second = [
                    await each.notes.notes(scope, session, after=after, lines=lines) for each in both
                ]
                assert first == second
                first, second = [await each.notes.standing(scope, session) for each in both]
                assert first == second

    async def unread(self, both: Any) -> None:
        scope, session = self.named()
        first, second = [await each.notes.unread(scope, session, limit=3) for each in both]
        assert _told(first) == _told(second)
        if first is not None and first.exchanges:
            self.read.append((scope, session, first, second))

    async def keep_state(self, both: Any) -> None:
        if not self.read:
            return
        scope, session, *unread = self.read[self.random.randrange(len(self.read))]
        self.count += 1
        state, marks = {"topic": f"t{self.count}", "facts": ["a", "b"]}, [f"m{self.count}", "m"]
        first, second = [
            await each.notes.keep_state(scope, session, state, one.exchanges[-1], marks, expect=one.stamp)
            for each, one in zip(both, unread, strict=True)
        ]
        assert first == second

    # ------------------------------------------------------------ its end
    async def close(self, both: Any) -> None:
        since = {"idle_since": self.now - 60, "left_since": self.now - self.random.choice((0, 20))}
        first, second = [await each.notes.close(**since, now=self.now) for each in both]
        assert first == second

    async def end(self, both: Any) -> None:
        scope, session = self.named()
        first, second = [await each.sessions.end(scope, session, self.now) for each in both]
        assert first == second

    async def claim(self, both: Any) -> None:
        jobs = [await each.jobs.claim(self.now, LEASE_S) for each in both]
        if jobs[0] is None:
            assert jobs[1] is None
            return
        assert _of_job(jobs[0]) == _of_job(jobs[1])
        self.jobs.append(tuple(jobs))

    async def episode(self, both: Any) -> None:
        if not self.jobs:
            return
        jobs, limit = self.random.choice(self.jobs), self.random.choice((1, 9))
        found = []
        for each, job in zip(both, jobs, strict=True):
            episode = await each.notes.episode(job, limit=limit)
            found.append(episode and ([e.id for e in episode.exchanges], episode.before))
        assert found[0] == found[1]

    async def finish(self, both: Any) -> None:
        if not self.jobs:
            return
        jobs = self.jobs.pop(self.random.randrange(len(self.jobs)))
        scope, end = jobs[0].scope, self.random.choice(("apply", "apply", "summary", "retry", "bury"))
        self.count += 1
        source = self.random.choice([id_ for of_scope, id_ in self.said if of_scope == scope])
        evidence = (Evidence(jobs[0].session_id, source),)
        fact = create(
            f"summary {self.count}", scope, id=f"f{self.count}", source="summary", evidence=evidence
        )
        ended = []
        for each, job in zip(both, jobs, strict=True):
            batch = await each.jobs.batch(job, limit=99, context=0)
            try:
                if end in ("retry", "bury"):
                    await each.jobs.retry(job, at=self.now, reason="r", dead=end == "bury")
                else:
                    changes = [fact] if end == "summary" else []
                    await each.memories.apply(scope, changes, expect=batch.stamp, done=job)
                ended.append("done")
            except LeaseLost:
                ended.append("lost")
        assert ended[0] == ended[1]

    # ------------------------------------------------------------ what goes
    async def remember(self, both: Any) -> None:
        if not self.said:
            return
        scope, source = self.random.choice(self.said)
        id_ = f"m{len(self.remembered)}"
        self.remembered.append(id_)
        fact = create(f"fact {id_}", scope, id=id_, evidence=(Evidence("s1", source),))
        for each in both:
            await store(each.memories, fact, scope=scope)

    async def prune(self, both: Any) -> None:
        self.now += 1  # retention goes forward
        first, second = [await each.sessions.prune(self.now - 20) for each in both]
        assert first == second

    async def forget(self, both: Any) -> None:
        scope = self.random.choice(SCOPES)
        memory_id = self.random.choice((*self.remembered[-2:] * 2, None))
        type_ = None if memory_id or self.random.random() < 0.3 else "episodic"
        gone = [await each.memories.forget(of(scope, type=type_), memory_id, by="t") for each in both]
        first, second = [replace(each, receipt=None) for each in gone]
        assert first == second


STEP_NAMES = (
    *("say",) * 6, *("begin", "complete", "look", "claim", "finish", "episode") * 2,
    *("unread", "keep_state", "close") * 2, "abort", "end", "remember", "prune", "forget",
)  # fmt: skip


def _told(unread: Any) -> Any:
    return unread and (unread.state, [e.id for e in unread.exchanges], unread.keys)


def _of_job(job: Any) -> Any:
    return job.scope, job.session_id, job.lane, job.closing, job.attempts


@pytest.mark.parametrize("seed", SEEDS)
async def test_notes_over_redis_are_those_over_sqlite(redis: Redis, tmp_path: Any, seed: int) -> None:
    async with AsyncExitStack() as stack:
        over_sqlite = [SqliteStores(tmp_path), SqliteStores(tmp_path)]
        for each in over_sqlite:
            await each.open()
            stack.push_async_callback(each.close)
        over_redis = await stack.enter_async_context(replicas(redis, 2))
        steps = Steps((over_sqlite, over_redis), seed)
        for _ in range(STEPS):
            await steps.step()
        await steps.look((over_sqlite[0], over_redis[1]))
