"""Nothing that was forgotten is ever seen again, in whatever order things happen.

Random sequences of everything that writes or reads memories, through two stores over one directory: add,
edit, supersede, confirm, talk, extract (with stale stamps), search, count accesses, hold, release, store
responses and conversations, export, forget (by id, user, project, type, counted beforehand, at once and in
portions, broken off by a crash), reopen. Every text holds a word of its own. After each step the words of
what was forgotten are in no answer and in no file, and what was not forgotten is found.

FORGET_EXAMPLES=500 runs more of them.
"""

import asyncio
import os
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.domain import Candidate, Confirm, Edit, Evidence, Forgotten, Hold, Outcome, Release, Scope
from proxy.errors import Conflict
from proxy.kept import Conversation
from proxy.stores.sqlite import SqliteStores
from proxy.stores.sqlite.forgetting import erase, forget
from tests.stores.contract_chains import response
from tests.stores.making import (
    NOW,
    always,
    contents,
    create,
    exchange,
    find,
    memory,
    of,
    store,
    supersede,
    vector,
)

QUICK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a disk without waiting: fsync costs nothing
EXAMPLES = int(os.environ.get("FORGET_EXAMPLES", "25"))
USERS = ("anna", "ben")
TYPES = ("semantic", "preference", "episodic")
scopes = st.sampled_from([Scope("t", user, project) for user in USERS for project in (None, "p")])
types = st.sampled_from(TYPES)
which = st.integers(0, 1)
picks = st.integers(0, 99)
sessions = st.sampled_from(["s1", "s2"])


@dataclass
class Fact:
    """A memory, or a candidate that is held."""

    id: str
    scope: Scope
    type: str
    content: str
    words: set[str]  # all that must be gone with it
    said: set[str] = field(default_factory=set)  # the exchanges that it came from
    current: bool = True
    next: str | None = None  # the fact that superseded it


@dataclass
class Said:
    """An exchange, and what was kept of it elsewhere."""

    scope: Scope
    words: set[str]
    read: bool = False


class Forgetting(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.dir = tempfile.TemporaryDirectory(dir=QUICK)
        self.stores = [self.opened(), self.opened()]
        self.count = 0
        self.facts: dict[str, Fact] = {}
        self.held: dict[str, Fact] = {}
        self.said: dict[str, Said] = {}
        self.under_way = []  # (exchange id, begun, its words)
        self.extracting = []  # (job, batch, number of the user's forgets until then)
        self.forgets = dict.fromkeys(USERS, 0)
        self.stamps = {}
        self.gone: set[str] = set()
        self.going: set[str] = set()  # of a forget that was broken off: shown no more, but in the file

    @initialize(portions=st.booleans())
    def choose(self, portions):
        """Half of the runs forget in portions of two rows, whoever has anything."""
        at_once = 0 if portions else forget._AT_ONCE
        self.patches = [
            mock.patch.object(forget, "_AT_ONCE", at_once),
            mock.patch.object(erase, "_WEIGHT", 1 / 2),
        ]
        self.portions = portions
        for patch in self.patches:
            patch.start()

    def opened(self):
        stores = SqliteStores(Path(self.dir.name))
        self.loop.run_until_complete(stores.open())
        return stores

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    def word(self):
        self.count += 1
        return f"word{self.count:04}x"

    def pick(self, items, number):
        found = sorted(items)
        return found[number % len(found)] if found else None

    def current(self):
        return [f.id for f in self.facts.values() if f.current]

    # ------------------------------------------------------------ memories
    @rule(at=which, scope=scopes, type=types, vec=st.booleans(), source=picks)
    def add(self, at, scope, type, vec, source):
        word, id_ = self.word(), f"id{self.count}"
        mine = [
            i for i, s in self.said.items() if (s.scope.user, s.scope.project) == (scope.user, scope.project)
        ]
        origin = self.pick(mine, source)
        self.add_fact(at, scope, type, word, id_, origin, vec)

    def add_fact(self, at, scope, type, word, id_, origin, vec=False):
        quoted = next(iter(self.said[origin].words), "") if origin else ""
        evidence = (Evidence("s1", origin, quoted),) if origin else ()
        change = create(
            f"likes {word}", scope, id=id_, type=type, evidence=evidence, vec=vector(1) if vec else None
        )
        self.run(store(self.stores[at].memories, change, scope=scope))
        self.know(id_, scope, type, word, origin)

    def know(self, id_, scope, type, word, origin):
        self.facts[id_] = Fact(id_, scope, type, f"likes {word}", {word}, {origin} if origin else set())

    @rule(at=which, number=picks, type=types, project=st.sampled_from([None, "p"]))
    def supersede(self, at, number, type, project):
        old = self.pick(self.current(), number)
        if old is None:
            return
        scope = replace(self.facts[old].scope, project=project)
        word, id_ = self.word(), f"id{self.count}"
        change = supersede(old, f"likes {word}", scope, id=id_, type=type)
        self.run(store(self.stores[at].memories, change, scope=scope))
        self.facts[old].current, self.facts[old].next = False, id_
        self.know(id_, scope, type, word, None)

    @rule(at=which, number=picks)
    def edit(self, at, number):
        id_ = self.pick(self.current(), number)
        if id_ is None:
            return
        fact, word = self.facts[id_], self.word()
        changed = memory(f"likes {word}", fact.scope, id=id_, type=fact.type)
        self.run(store(self.stores[at].memories, Edit(changed, vector(1)), scope=fact.scope))
        fact.content = f"likes {word}"
        fact.words.add(word)

    @rule(at=which, number=picks)
    def touch_and_confirm(self, at, number):
        id_ = self.pick(self.current(), number)
        if id_ is not None:
            scope = self.facts[id_].scope
            self.run(self.stores[at].memories.touch(scope, [id_], NOW))
            self.run(store(self.stores[at].memories, Confirm(id_, NOW, 0.9), scope=scope))

    @rule(at=which, scope=scopes, type=types, source=picks)
    def hold(self, at, scope, type, source):
        word, id_ = self.word(), f"held{self.count}"
        origin = self.pick([i for i, s in self.said.items() if s.scope == scope], source)
        quoted = next(iter(self.said[origin].words)) if origin else ""
        candidate = Candidate(
            type=type, content=f"obey {word}", evidence=quoted,
            origin=Evidence("s1", origin, quoted) if origin else None,
        )  # fmt: skip
        self.run(store(self.stores[at].memories, Hold(id_, candidate, "planted", NOW), scope=scope))
        self.held[id_] = Fact(id_, scope, type, "", {word}, {origin} if origin else set())

    @rule(at=which, number=picks)
    def release(self, at, number):
        id_ = self.pick(self.held, number)
        if id_ is not None:
            held = self.held.pop(id_)
            (word,) = held.words
            change = create(f"likes {word}", held.scope, id=f"of {id_}", type=held.type)
            self.run(store(self.stores[at].memories, Release(id_), change, scope=held.scope))
            self.know(f"of {id_}", held.scope, held.type, word, None)

    @rule(at=which, user=st.sampled_from(USERS))
    def remember_a_stamp(self, at, user):
        scope = Scope("t", user)
        self.stamps[user] = self.run(self.stores[at].memories.stamp(scope))

    @rule(at=which, user=st.sampled_from(USERS))
    def write_late(self, at, user):
        scope, memories = Scope("t", user), self.stores[at].memories
        old = self.stamps.get(user)
        if old is not None and old != self.run(memories.stamp(scope)):
            try:
                self.run(memories.apply(scope, [create(f"likes {self.word()}", scope)], expect=old))
            except Conflict:
                return
            raise AssertionError("a late write was taken")

    # ------------------------------------------------------------ what is said
    @rule(at=which, scope=scopes, session=sessions)
    def begin(self, at, scope, session):
        word = self.word()
        new = exchange(f"say {word}", scope, session=session, id=f"e{self.count}", key=f"k{self.count}")
        begun = self.run(self.stores[at].sessions.begin(new))
        self.said[new.id] = Said(scope, {word})
        self.under_way.append((new, begun))

    @rule(at=which, number=picks, shown=picks)
    def complete(self, at, number, shown):
        """The answer repeats a memory that was in view, perhaps forgotten since."""
        if not self.under_way:
            return
        new, begun = self.under_way.pop(number % len(self.under_way))
        word, recalled = self.word(), ()
        ours = [i for i, f in self.facts.items() if f.scope.user == new.scope.user]
        if (id_ := self.pick(ours, shown)) is not None:
            recalled = (id_,)
            word += " " + " ".join(sorted(self.facts[id_].words))
        known = self.said.get(new.id)
        outcome = Outcome(f"answer {word}", whole=True, recalled=recalled)
        kept = self.run(self.stores[at].sessions.complete(begun, outcome, always))
        assert not kept or known is not None, "a forgotten exchange was completed"
        if known is not None:
            known.words.add(word.split()[0])

    @rule(at=which, number=picks)
    def keep_a_response(self, at, number):
        """What is kept of the Responses API is said in a session, and goes with what was said there."""
        id_ = self.pick(self.said, number)
        if id_ is None:
            return
        said, word, stores = self.said[id_], self.word(), self.stores[at]
        generation = self.run(stores.memories.stamp(said.scope)).generation
        session = "s1"
        kept = response(f"r{self.count}", said.scope, text=f"kept {word}", session_id=session)
        assert self.run(stores.chains.save(kept, generation=generation))
        made = Conversation(id=f"c{self.count}", scope=said.scope, metadata=b"{}", created_at=NOW)
        self.run(stores.conversations.create(made, []))
        item = [(f"i{self.count}", f'"item {word}"'.encode())]
        add = stores.conversations.add(said.scope, made.id, item, generation=generation, session_id=session)
        assert self.run(add)
        self.kept.append((said.scope, {word}))

    kept: list[tuple[Scope, set[str]]]

    @initialize()
    def keep_nothing(self):
        self.kept = []

    @rule(at=which)
    def claim(self, at):
        jobs = self.stores[at].jobs
        job = self.run(jobs.claim(NOW, 1e9))
        if job is not None:
            batch = self.run(jobs.batch(job, limit=9, context=2))
            shown = " ".join(f"{e.said} {e.answer}" for e in (*batch.pending, *batch.context))
            assert not self.hidden(shown)
            self.extracting.append((at, job, batch, self.forgets[job.scope.user]))

    @rule(number=picks, type=types)
    def apply(self, number, type):
        if not self.extracting:
            return
        at, job, batch, forgets = self.extracting.pop(number % len(self.extracting))
        stores, word = self.stores[at], self.word()
        id_, origin = f"id{self.count}", next((e.id for e in batch.pending if e.id in self.said), None)
        evidence = (Evidence(job.session_id, origin, batch.pending[0].said),) if origin else ()
        change = create(f"likes {word}", job.scope, id=id_, type=type, evidence=evidence)
        try:
            self.run(stores.memories.apply(job.scope, [change], expect=batch.stamp, done=job))
        except Conflict:
            self.run(stores.jobs.retry(job, at=NOW, reason="conflict"))
            return
        assert forgets == self.forgets[job.scope.user], "an extraction from before a forget was stored"
        for exchange_ in batch.pending:
            if exchange_.id in self.said:
                self.said[exchange_.id].read = True
        self.know(id_, job.scope, type, word, origin)

    @rule(at=which)
    def sweep(self, at):
        self.run(self.stores[at].sessions.sweep(NOW, always))

    # ------------------------------------------------------------ forgetting
    @rule(at=which, number=picks)
    def forget_one(self, at, number):
        id_ = self.pick(self.facts, number)
        if id_ is not None:
            self.forget(at, of(replace(self.facts[id_].scope, project=None)), id_, crash=None)

    @rule(at=which, scope=scopes, type=st.none() | types, crash=st.none() | st.integers(0, 3))
    def forget_many(self, at, scope, type, crash):
        self.forget(at, of(scope, type=type), None, crash)

    def forget(self, at, where, id_, crash):
        memories, words = self.stores[at].memories, self.covered(where, id_)
        counted = self.run(memories.forget(where, id_, by="test", dry_run=True))
        self.forgets[where.user] += 1
        gone = self.forget_until(at, where, id_, crash if self.portions else None)
        if gone is None:
            self.going |= words
            return
        if not self.going:
            assert replace(gone, receipt=None) == counted
            assert self.run(memories.forget(where, id_, by="test", dry_run=True)) == Forgotten()
        if id_ is None or gone.memories:
            receipts = self.run(self.stores[at].receipts.list("t", where.user, limit=1))
            assert receipts[0].counts == gone
        self.gone |= words

    def forget_until(self, at, where, id_, crash):
        """Forget; return None if the process died on the way, after so many portions."""
        left = iter(range(crash or 0))

        async def checkpoint():
            if crash is not None and next(left, None) is None:
                raise RuntimeError("the process dies here")

        memories = self.stores[at].memories
        with mock.patch.object(memories.forgetting._database, "checkpoint", checkpoint):
            try:
                return self.run(memories.forget(where, id_, by="test"))
            except RuntimeError:
                return None

    def covered(self, where, id_):
        """Take what the forget covers out of the model; return all words that must be gone with it."""
        facts = {i for i, f in self.facts.items() if self.matches(f, where) and id_ in (None, i)}
        while older := {i for i, f in self.facts.items() if f.next in facts} - facts:
            facts |= older
        said = set().union(*(self.facts[i].said for i in facts)) if facts else set()
        ours = {i for i, s in self.said.items() if self.within(s.scope, where)}
        if id_ is None:
            said |= ours if where.type is None else {i for i in ours if not self.said[i].read}
        said &= {i for i, s in self.said.items() if s.scope.user == where.user}
        held = {
            i for i, h in self.held.items() if (self.matches(h, where) and id_ is None) or (h.said & said)
        }
        words = set().union(
            *(self.facts.pop(i).words for i in facts),
            *(self.said.pop(i).words for i in said),
            *(self.held.pop(i).words for i in held),
        )
        if id_ is None and where.type is None:
            words |= set().union(*(w for scope, w in self.kept if self.within(scope, where)))
            self.kept = [(scope, w) for scope, w in self.kept if not self.within(scope, where)]
        return words

    def within(self, scope, where):
        return scope.user == where.user and where.project in (None, scope.project)

    def matches(self, fact, where):
        children = {"semantic": ("semantic", "preference")}
        wanted = children.get(where.type, (where.type,))
        return self.within(fact.scope, where) and (where.type is None or fact.type in wanted)

    # ------------------------------------------------------------ restarts
    @precondition(lambda self: self.going)
    @rule(at=which)
    def go_on(self, at):
        """The upkeep of any process of which it was."""
        for stores in (self.stores[at], self.stores[1 - at]):
            self.run(stores.memories.resume_forgets())
        self.gone |= self.going
        self.going = set()

    @rule(at=which)
    def reopen(self, at):
        """A dead process's jobs and open exchanges are the others'."""
        self.run(self.stores[at].close())
        self.stores[at] = self.opened()
        self.extracting = [each for each in self.extracting if each[0] != at]

    # ------------------------------------------------------------ what must hold
    def hidden(self, text):
        """The forgotten words in the text."""
        return {word for word in self.gone | self.going if word in text}

    @invariant()
    def a_search_shows_exactly_what_is_current(self):
        for stores in self.stores:
            for user in USERS:
                for project in (None, "p"):
                    expected = {
                        f.content
                        for f in self.facts.values()
                        if f.current
                        and f.scope.user == user
                        and project in (None, f.scope.project or project)
                    }
                    scope = Scope("t", user, project)
                    found = self.run(contents(stores.memories, "likes", scope, vec=vector(1), limit=999))
                    assert found == expected

    @invariant()
    def nothing_forgotten_is_shown(self):
        stores = self.stores[self.count % 2]
        for user in USERS:
            scope = Scope("t", user)
            pages = stores.memories.list(of(scope, include_inactive=True), limit=999, oldest_first=True)
            exported = self.run(pages).items
            histories = [self.run(stores.memories.history(of(scope), m.id)) for m in exported]
            held = self.run(stores.quarantine.held(scope, limit=999))
            hits = self.run(find(stores.memories, " ".join(sorted(self.gone)[-5:]), scope))
            talks = [
                self.run(stores.sessions.recent(replace(scope, project=p), s, 99))
                for p in (None, "p")
                for s in ("s1", "s2")
            ]
            if self.going:
                talks = []  # they go with the last portion, but nobody learns from them
            assert not self.hidden(str((exported, histories, held, hits, talks)))
            assert len(exported) == sum(f.scope.user == user for f in self.facts.values())

    @invariant()
    def nothing_forgotten_is_in_any_file(self):
        files = [p.read_bytes() for p in Path(self.dir.name).rglob("*") if p.is_file()]
        text = b"".join(files)
        assert {word for word in self.gone if word.encode() in text} == set()

    def teardown(self):
        for stores in self.stores:
            self.run(stores.close())
        for patch in getattr(self, "patches", ()):
            patch.stop()
        self.loop.close()
        self.dir.cleanup()


Forgetting.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=25, deadline=None)
TestForgetting = Forgetting.TestCase
