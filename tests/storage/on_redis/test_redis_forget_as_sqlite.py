"""The same things kept in SQLite and in Redis, at random, and forgotten: both take the same, count the same,
and keep the same."""

import os
import random
from dataclasses import replace

import pytest

from proxy.domain.core import Candidate, Confirm, Evidence, Hold, Outcome, Scope
from proxy.domain.documents import Limits, NewDocument, Passage
from proxy.domain.errors import Conflict, QuotaExceeded
from proxy.domain.notes import OTHER, Anchor
from proxy.domain.stored_responses import Conversation
from proxy.storage.redis import clearing, forgetting
from proxy.storage.sqlite import SqliteStores
from tests.storage.contract_chains import response
from tests.storage.making import ANNA, APOLLO, BEN, NOW, always, create, exchange, never, of, store, supersede
from tests.storage.on_redis.forgetting_support import opened

SEEDS = range(int(os.environ.get("TWIN_SEEDS", "12")))
STEPS = int(os.environ.get("TWIN_STEPS", "90"))
SCOPES = (ANNA, ANNA, APOLLO, APOLLO, BEN)
SESSIONS = ("s1", "s2", "s3")
TYPES = ("semantic", "preference", "episodic")
TITLES = ("A", "B", "C")
DAY = 86_400.0


class Steps:
    """What is done to both stores. A step returns what they must agree on."""

    def __init__(self, both, seed):
        self.both, self.random, self.count, self.before = both, random.Random(seed), 0, NOW
        self.begun, self.memories, self.responses = [], [], []

    async def step(self):
        names = [name for name in dir(self) if name.startswith("do_")]
        weights = [getattr(self, name).__defaults__[0] for name in names]
        name = self.random.choices(names, weights)[0]
        drawn = self.random.getstate(), self.count, [*self.memories], [*self.responses]
        first = await getattr(self, name)(self.both[0], 0)
        self.random.setstate(drawn[0])
        _, self.count, self.memories, self.responses = drawn
        second = await getattr(self, name)(self.both[1], 1)
        assert first == second, name
        return name

    def id(self, letter):
        self.count += 1
        return f"{letter}{self.count}"

    def some(self, names, most=2):
        return tuple(self.random.sample(names, min(len(names), self.random.randrange(most + 1))))

    # ------------------------------------------------------------ what is kept
    async def do_begin(self, stores, number, weight=6):
        scope, session, id_ = self.random.choice(SCOPES), self.random.choice(SESSIONS), self.id("e")
        anchors = (Anchor(OTHER, f"be {id_}"),) if self.random.random() < 0.3 else ()
        new = exchange(f"said {id_}", scope, session=session, id=id_, key=id_, anchors=anchors)
        if number == 0:
            self.begun.append([None, None, scope, session, id_])
        self.begun[-1][number] = await stores.sessions.begin(new)

    async def do_complete(self, stores, number, weight=8):
        if not self.begun:
            return None
        begun = self.begun[self.random.randrange(len(self.begun))]
        outcome = Outcome(
            self.random.choice(("an answer", "")), whole=self.random.random() < 0.8,
            response_id=self.id("r"),
            recalled=(*self.some(self.memories), *await self.shelved(stores, begun[2])),
        )  # fmt: skip
        trigger = self.random.choice((always, never, never))
        return await stores.sessions.complete(begun[number], outcome, trigger)

    async def do_extract(self, stores, number, weight=5):
        job = await stores.jobs.claim(NOW, 1e9)
        if job is None:
            return None
        batch = await stores.jobs.batch(job, limit=2, context=0)
        id_, type_ = self.id("m"), self.random.choice(TYPES)
        evidence = tuple(Evidence(job.session_id, e.id, e.said) for e in batch.pending)
        change = create(f"fact {id_}", job.scope, id=id_, type=type_, evidence=evidence)
        try:
            await stores.memories.apply(job.scope, [change], expect=batch.stamp, done=job)
        except Conflict:
            await stores.jobs.retry(job, at=0.0, reason="conflict")
            return "conflict"
        self.memories.append(id_)
        return job.scope, job.session_id, len(evidence)

    async def do_remember(self, stores, number, weight=6):
        scope, id_, type_ = self.random.choice(SCOPES), self.id("m"), self.random.choice(TYPES)
        expires = self.random.choice((None, None, NOW + 1, NOW + 9 * DAY))
        kept = create(f"fact {id_}", scope, id=id_, type=type_, evidence=self.evidence(), expires_at=expires)
        await store(stores.memories, kept, scope=scope)
        self.memories.append(id_)

    async def do_supersede(self, stores, number, weight=5):
        if not self.memories:
            return
        scope, old, id_ = self.random.choice(SCOPES), self.random.choice(self.memories), self.id("m")
        new = supersede(old, f"fact {id_}", scope, id=id_, type=self.random.choice(TYPES))
        await store(stores.memories, new, scope=scope)
        self.memories.append(id_)

    async def do_confirm(self, stores, number, weight=3):
        if self.memories:
            confirm = Confirm(self.random.choice(self.memories), NOW, 0.9, self.evidence())
            await store(stores.memories, confirm, scope=self.random.choice(SCOPES))

    async def do_hold(self, stores, number, weight=3):
        scope, id_, (origin, *_) = self.random.choice(SCOPES), self.id("q"), (*self.evidence(), None)
        candidate = Candidate(type=self.random.choice(TYPES), content=f"held {id_}", origin=origin)
        await store(stores.memories, Hold(id_, candidate, "planted", NOW), scope=scope)

    async def do_keep(self, stores, number, weight=6):
        scope, id_ = self.random.choice(SCOPES), self.id("resp")
        kept = response(
            id_, scope, session_id=self.random.choice(SESSIONS), expires_at=None,
            previous_id=(*self.some(self.responses, 1), None)[0],
            conversation_id=(*self.some(("c1", "c2")), None)[0],
        )  # fmt: skip
        generation = (await stores.memories.stamp(scope)).generation
        self.responses.append(id_)
        recalled = (*self.some(self.memories), *await self.shelved(stores, scope))
        return await stores.chains.save(kept, generation=generation, recalled=recalled)

    async def do_shelve(self, stores, number, weight=4):
        scope, text = self.random.choice(SCOPES), self.random.choice(("figs", "dates", "plums"))
        passage = Passage(headings=(), section=0, tile=text, start=0)
        title, digest = self.random.choice(TITLES), text.encode()
        new = NewDocument(scope=scope, name=title, digest=digest, passages=(passage,), at=NOW)
        try:
            document, change = await stores.documents.put(new, Limits(documents=4))
        except QuotaExceeded:
            return "full"
        return change, document.version

    async def do_take_away(self, stores, number, weight=2):
        document = await stores.documents.named(self.random.choice(SCOPES), self.random.choice(TITLES))
        if document is None:
            return None
        return replace(await stores.documents.delete(document, by="test", now=NOW), receipt=None)

    async def shelved(self, stores, scope):
        """Return the id of a document that an answer is given with in view, or none."""
        title = self.random.choice((None, *TITLES))
        # Not one of a project that the answer is not in: SQLite leaves the answer when the project goes.
        document = title and await stores.documents.named(scope, title)
        return (document.id,) if document else ()

    async def do_delete_a_response(self, stores, number, weight=1):
        if self.responses:
            return await stores.chains.delete(self.random.choice(SCOPES), self.random.choice(self.responses))
        return None

    async def do_converse(self, stores, number, weight=5):
        scope, id_ = self.random.choice(SCOPES), self.random.choice(("c1", "c2", "c3"))
        if await stores.conversations.get(scope, id_) is None:
            made = Conversation(id=id_, scope=scope, metadata=b"{}", created_at=NOW)
            await stores.conversations.create(made, [])
        generation = (await stores.memories.stamp(scope)).generation
        session = self.random.choice((None, *SESSIONS))
        items = [(self.id("i"), b'"item"')]
        return await stores.conversations.add(scope, id_, items, generation=generation, session_id=session)

    async def do_prune(self, stores, number, weight=1):
        """Each from later on: over Redis, what was kept the last time is looked at again only then."""
        if number == 0:
            self.before += 1
        return await stores.sessions.prune(self.before)

    def evidence(self):
        if not self.begun or self.random.random() < 0.3:
            return ()
        _, _, _, session, id_ = self.random.choice(self.begun)
        return (Evidence(session, id_, self.random.choice(("", "words"))),)

    # ------------------------------------------------------------ forgetting
    async def do_forget(self, stores, number, weight=5):
        where, id_ = self.where(), None
        if self.memories and self.random.random() < 0.4:
            id_ = self.random.choice(self.memories)
            where = self.random.choice((of(ANNA), of(BEN), of(APOLLO), replace(of(ANNA), user=None), where))
        counted = await stores.memories.forget(where, id_, by="test", dry_run=True)
        gone = await stores.memories.forget(where, id_, by="test")
        assert replace(gone, receipt=None) == counted
        return counted, gone.receipt is None

    async def do_expire(self, stores, number, weight=1):
        return await stores.memories.expire(NOW + 2 * DAY)

    def where(self):
        scope = self.random.choice(SCOPES)
        if self.random.random() < 0.25:
            return of(Scope(scope.tenant, scope.user))
        text = "fact m1" if self.random.random() < 0.2 else None
        return of(scope, type=self.random.choice((None, *TYPES)), text=text)


async def told(stores):
    """Return all that the stores show."""
    found = []
    for user in (ANNA, BEN):
        receipts = await stores.receipts.list("acme", user.user, limit=999)
        page = await stores.memories.list(of(user, include_inactive=True), limit=999)
        sessions = await stores.sessions.sessions(user, limit=999)
        found += [
            page.items, page.total, await stores.memories.history(of(user), [m.id for m in page.items]),
            sorted((s.id, s.scope.project or "", s.exchanges, s.pending) for s in sessions),
            [(h.id, h.candidate) for h in await stores.quarantine.held(user, limit=999)],
            [replace(each.counts, receipt=None) for each in receipts],
        ]  # fmt: skip
        for document in await stores.documents.list(user, limit=999):
            texts = [passage.tile for passage in await stores.documents.passages(document)]
            found.append((replace(document, id=""), texts))
        for conversation in ("c1", "c2", "c3"):
            found.append(
                await stores.conversations.items(user, conversation, limit=999, after=None, ascending=True)
            )
    for scope in set(SCOPES):
        for session in SESSIONS:
            recent = await stores.sessions.recent(scope, session, 99)
            found.append([(e.said, e.answer, e.whole) for e in recent])
            found.append(await stores.notes.notes(scope, session, lines=9))
    return found


@pytest.mark.parametrize("mode", ["at once", "in portions"])
@pytest.mark.parametrize("seed", SEEDS)
async def test_redis_forgets_what_sqlite_forgets(server, redis, tmp_path, monkeypatch, seed, mode):
    if mode == "in portions":
        monkeypatch.setattr(forgetting, "AT_ONCE", -1)
        monkeypatch.setattr(forgetting, "PORTION", 2)
        monkeypatch.setattr(clearing, "_ROWS", 2)
    over_redis, over_sqlite = await opened(server.url), SqliteStores(tmp_path)
    await over_sqlite.open()
    steps, done = Steps((over_sqlite, over_redis), seed), []
    for _ in range(STEPS):
        done.append(await steps.step())
        if done[-1] in ("do_forget", "do_expire"):
            expected, found = [await told(each) for each in steps.both]
            assert found == expected, done
    responses = [(scope, id_) for scope in (ANNA, BEN) for id_ in steps.responses]
    kept = [[await each.chains.get(*which, NOW) for which in responses] for each in steps.both]
    assert kept[0] == kept[1]
    await over_sqlite.close()
    await over_redis.close()
