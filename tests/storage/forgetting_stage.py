"""Two stores over one directory, and all that happens in them while the model keeps count."""

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis.stateful import RuleBasedStateMachine

from proxy.domain.changes import Hold
from proxy.domain.core import Candidate, Evidence, Scope
from proxy.domain.errors import Conflict
from proxy.domain.session import Outcome
from proxy.storage.sqlite import SqliteStores
from tests.storage.conftest import on_disk
from tests.storage.forgetting_model import Fact, Model, Said, StoredText
from tests.storage.making import NOW, create, find, of, store, supersede, vector
from tests.storage.talking import always, converse, exchange, response

QUICK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a disk without waiting: fsync costs nothing
USERS = ("anna", "ben")
TYPES = ("semantic", "preference", "episodic")


class Stage(RuleBasedStateMachine):
    """What the rules are made of."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.dir = tempfile.TemporaryDirectory(dir=QUICK)
        self.stores = [self.opened(), self.opened()]
        self.count = 0
        self.patches = contextlib.ExitStack()
        self.model = Model()
        self.readings = []  # (user, response, generation, what its chain says)
        self.under_way = []  # (exchange id, begun, its words)
        self.everything_kept: dict[str, StoredText] = {}
        self.meddled = False
        self.extracting = []  # (job, batch, number of the user's forgets until then)
        self.forgets = dict.fromkeys(USERS, 0)
        self.deleted: set[str] = set()
        self.going: set[str] = set()  # of a forget that was broken off: shown no more, but in the file

    def opened(self):
        stores = SqliteStores(Path(self.dir.name))
        self.loop.run_until_complete(stores.open())
        return stores

    def written(self):
        """All that is stored, to the last byte."""
        return on_disk(Path(self.dir.name))

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    def all_of(self, coroutines):
        """Run them at once, none waiting for a thread of another."""

        async def gathered():
            return await asyncio.gather(*coroutines)

        return self.run(gathered())

    def word(self):
        self.count += 1
        return f"Word{self.count:04}x"  # a name, by its form

    def pick(self, items, number):
        found = sorted(items)
        return found[number % len(found)] if found else None

    def hidden(self, text):
        """The forgotten words in the text."""
        return {word for word in self.deleted | self.going if word in text}

    def teardown(self):
        for stores in self.stores:
            self.run(stores.close())
        self.patches.close()
        self.loop.close()
        self.dir.cleanup()

    # ------------------------------------------------------------ stories
    def tell(self, at, scope, kinds):
        """An exchange is read, what it said is superseded, quoted by others, held, shown, and repeated."""
        said, then, other = kinds
        stated = self.talk(at, scope, "s1", ())
        old = self.extracted(at, stated, scope, said)
        word, new = self.word(), f"id{self.count}"
        self.replace_fact(at, scope, then, word, old)
        word = self.word()
        self.add_fact(at, scope, other, word, f"id{self.count}", stated)
        self.hold_one(at, scope, other, stated)
        self.extracted(at, self.talk(at, scope, "s2", (new,)), scope, other)
        first = self.save(at, scope, "s2", None, self.model.facts[new].words)
        self.save(at, scope, "s1", first, self.model.facts[new].words)

    def talk(self, at, scope, session, recalled):
        """One exchange, whose answer repeats the memories in view; return its id."""
        sessions, word = self.stores[at].sessions, self.word()
        new = exchange(f"say {word}", scope, session=session, id=f"e{self.count}", key=f"k{self.count}")
        begun = self.run(sessions.begin(new))
        repeated = " ".join(sorted(w for i in recalled for w in self.model.facts[i].words))
        outcome = Outcome(f"answer {repeated}", whole=True, recalled=recalled)
        assert self.run(sessions.complete(begun, outcome, always))
        self.model.said[new.id] = Said(scope, session, {word}, recalled=set(recalled))
        return new.id

    def extracted(self, at, origin, scope, type):
        """Read the exchange as a worker would; return the memory's id."""
        stores, word = self.stores[at], self.word()
        job = self.run(stores.jobs.claim(NOW, 1e9))
        batch = self.run(stores.jobs.batch(job, limit=9, context=0))
        (spoken,) = (e.said for e in batch.pending if e.id == origin)
        id_ = f"id{self.count}"
        evidence = (Evidence(job.session_id, origin, spoken),)
        change = create(f"likes {word}", scope, id=id_, type=type, evidence=evidence)
        self.run(stores.memories.apply(scope, [change], expect=batch.stamp, done=job))
        self.model.said[origin].read = True
        self.know(id_, scope, type, word, origin)
        return id_

    def add_fact(self, at, scope, type, word, id_, origin, vec=False):
        quoted = next(iter(self.model.said[origin].words), "") if origin else ""
        evidence = (Evidence(self.model.said[origin].session, origin, quoted),) if origin else ()
        vec = vector(1) if vec else None
        change = create(f"likes {word}", scope, id=id_, type=type, evidence=evidence, vec=vec)
        self.run(store(self.stores[at].memories, change, scope=scope))
        self.know(id_, scope, type, word, origin)

    def know(self, id_, scope, type, word, origin):
        self.model.facts[id_] = Fact(id_, scope, type, f"likes {word}", {word}, {origin} if origin else set())

    def replace_fact(self, at, scope, type, word, old):
        id_ = f"id{self.count}"
        change = supersede(old, f"likes {word}", scope, id=id_, type=type)
        self.run(store(self.stores[at].memories, change, scope=scope))
        self.model.facts[old].current, self.model.facts[old].next = False, id_
        self.know(id_, scope, type, word, None)

    def hold_one(self, at, scope, type, origin):
        word, id_ = self.word(), f"held{self.count}"
        quoted = next(iter(self.model.said[origin].words)) if origin else ""
        candidate = Candidate(
            type=type, content=f"obey {word}", evidence=quoted,
            origin=Evidence("s1", origin, quoted) if origin else None,
        )  # fmt: skip
        self.run(store(self.stores[at].memories, Hold(id_, candidate, "planted", NOW), scope=scope))
        self.model.held[id_] = Fact(id_, scope, type, "", {word}, {origin} if origin else set())

    def save(self, at, scope, session, previous, repeated):
        """Keep a response and an item of a conversation, said in the session; return the response's id."""
        stores, word = self.stores[at], self.word()
        generation = self.run(stores.memories.stamp(scope)).generation
        id_, item_id = f"r{self.count}", f"i{self.count}"
        made = self.run(converse(stores.conversations, id=f"c{self.count}", scope=scope))
        stored = response(
            id_, scope, text=" ".join([word, *repeated]), session_id=session, previous_id=previous,
            conversation_id=made.id,
        )  # fmt: skip
        assert self.run(stores.chains.save(stored, generation=generation))
        items = [(item_id, f'"item {word}"'.encode())]
        add = stores.conversations.add(scope, made.id, items, generation=generation, session_id=session)
        assert self.run(add)
        self.model.stored[id_] = StoredText(scope, session, {word}, previous)
        self.model.stored[item_id] = StoredText(scope, session, {word}, id_)
        return id_

    # ------------------------------------------------------------ during a forget
    async def read_and_continue(self, at, user):
        """Save what was read before the last portion, as others continue a conversation, and read again."""
        await self.save_readings(at)
        for each in self.stores:
            page = await each.memories.list(of(Scope("t", user), include_inactive=True), limit=999)
            hits = await find(each.memories, "likes", Scope("t", user), limit=999, vec=vector(1))
            history = await each.memories.history(of(Scope("t", user)), list(self.everyone))
            shown = str(([m.content for m in page.items], [h.memory.content for h in hits], history))
            assert not {word for word in self.being_forgotten if word in shown}
        await self.read_chains(at, user)

    async def read_chains(self, at, user):
        """Read what a client is about to continue."""
        stores = self.stores[at]
        ours = [(i, k) for i, k in self.everything_kept.items() if k.scope.user == user and i[0] == "r"]
        for id_, stored in ours[-3:]:
            generation = (await stores.memories.stamp(stored.scope)).generation
            chain = await stores.chains.chain(stored.scope, id_, NOW, limit=9, most_bytes=10**9)
            if chain.responses:
                said = b" ".join(r.response for r in chain.responses).decode().replace('"', "")
                self.readings.append((stored, id_, generation, said))

    async def save_readings(self, at):
        for stored, id_, generation, said in self.readings:
            word = self.word()
            later = response(
                f"r{self.count}", stored.scope, text=f"{word} after {said}", session_id=stored.session,
                previous_id=id_,
            )  # fmt: skip
            if await self.stores[at].chains.save(later, generation=generation):
                self.meddled = True
                self.model.stored[later.id] = StoredText(stored.scope, stored.session, {word}, id_)
        self.readings = []

    def begin_what_will_be_late(self, at, where):
        """Begin one of everything that writes, for a user who is about to forget something."""
        stores, scope = self.stores[at], Scope("t", where.user, where.project)
        self.everything_kept = dict(self.model.stored)
        word = self.word()
        new = exchange(f"say {word}", scope, session="late", id=f"e{self.count}", key=f"k{self.count}")
        begun = self.run(stores.sessions.begin(new))
        self.model.said[new.id] = Said(scope, "late", {word})
        conversation = self.run(converse(stores.conversations, id=f"c{self.count}", scope=scope))
        return new, begun, conversation, self.run(stores.memories.stamp(scope))

    def write_late(self, at, late):
        """Write what was begun before a forget: none of it may be taken. Return its words."""
        new, begun, conversation, stamp = late
        stores, word = self.stores[at], self.word()
        with pytest.raises(Conflict):
            self.run(stores.memories.apply(new.scope, [create(f"likes {word}", new.scope)], expect=stamp))
        stored = response(f"r{self.count}", new.scope, text=word, session_id="late")
        assert not self.run(stores.chains.save(stored, generation=stamp.generation))
        item = [("late", f'"item {word}"'.encode())]
        assert not self.run(
            stores.conversations.add(new.scope, conversation.id, item, generation=stamp.generation)
        )
        if new.id in self.model.said:  # of another kind than what was forgotten
            self.under_way.append((new, begun))
        else:
            assert not self.run(stores.sessions.complete(begun, Outcome(f"answer {word}", True), always))
        return {word}
