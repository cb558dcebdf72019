"""No sequence of create, supersede, confirm, touch, search, forget and reopening, through two stores over
one file, shows a forgotten, superseded or foreign memory, or loses a current one."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy import terms
from proxy.domain import Confirm, Scope, Stamp
from proxy.errors import Conflict
from proxy.stores.sqlite import SqliteStores
from tests.stores.making import NOW, contents, create, of, store, supersede, vector

scopes = st.sampled_from([Scope("t", user, project) for user in ("anna", "ben") for project in (None, "p")])
words = st.sampled_from(["tea", "rum", "gin", "ale", "Tea."])
which = st.integers(0, 1)
picks = st.integers(0, 99)


class Stores(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.dir = tempfile.TemporaryDirectory()
        self.stores = [self.opened(), self.opened()]
        self.current = {}  # id -> (scope, content)
        self.older = {}  # id -> the ids that it superseded, directly
        self.count = 0
        self.old_stamps = {}  # user scope -> a stamp from before the last change

    def opened(self):
        stores = SqliteStores(Path(self.dir.name))
        self.loop.run_until_complete(stores.open())
        return stores

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    def new(self, word, scope):
        """A content that may have been stored before, in this wording or another."""
        self.count += 1
        return f"likes {word}", f"id{self.count}"

    def twin(self, scope, content):
        same = terms.normalise(content)
        return next(
            (i for i, (s, c) in self.current.items() if s == scope and terms.normalise(c) == same), None
        )

    @rule(at=which, scope=scopes, word=words, vec=st.booleans())
    def create(self, at, scope, word, vec):
        content, id_ = self.new(word, scope)
        self.keep_stamp(at, scope)
        change = create(content, scope, id=id_, vec=vector(1) if vec else None)
        self.run(store(self.stores[at].memories, change, scope=scope))
        if self.twin(scope, content) is None:
            self.current[id_] = (scope, content)

    @rule(at=which, pick=picks, word=words)
    def supersede(self, at, pick, word):
        if not self.current:
            return
        old = sorted(self.current)[pick % len(self.current)]
        scope, _ = self.current[old]
        content, id_ = self.new(word, scope)
        self.keep_stamp(at, scope)
        self.run(store(self.stores[at].memories, supersede(old, content, scope, id=id_), scope=scope))
        del self.current[old]
        successor = self.twin(scope, content)
        if successor is None:
            successor, self.current[id_] = id_, (scope, content)
        self.older.setdefault(successor, []).append(old)

    @rule(at=which, pick=picks)
    def touch_and_confirm(self, at, pick):
        if self.current:
            id_ = sorted(self.current)[pick % len(self.current)]
            scope, _ = self.current[id_]
            self.run(self.stores[at].memories.touch(scope, [id_], NOW))
            self.run(store(self.stores[at].memories, Confirm(id_, NOW, 0.9), scope=scope))

    @rule(at=which, scope=scopes, pick=picks, whole=st.booleans())
    def forget(self, at, scope, pick, whole):
        memories = self.stores[at].memories
        self.keep_stamp(at, scope)
        if whole:
            self.run(memories.forget(of(scope)))
            gone = [
                i for i, (s, _) in self.current.items() if s.user == scope.user and s.project == scope.project
            ]
            if scope.project is None:
                gone = [i for i, (s, _) in self.current.items() if s.user == scope.user]
        else:
            gone = sorted(i for i, (s, _) in self.current.items() if s.user == scope.user)[pick % 5 :][:1]
            for id_ in gone:
                self.run(memories.forget(of(Scope(scope.tenant, scope.user)), id_))
        for id_ in gone:
            del self.current[id_]
            self.check_gone(memories, id_)

    def check_gone(self, memories, id_):
        for scope in (Scope("t", "anna"), Scope("t", "ben")):
            assert self.run(memories.get(of(scope), id_)) is None
        for older in self.older.pop(id_, ()):
            self.check_gone(memories, older)

    def keep_stamp(self, at, scope):
        user = Scope(scope.tenant, scope.user)
        self.old_stamps[user] = self.run(self.stores[at].memories.stamp(user))

    @rule(at=which, user=st.sampled_from(["anna", "ben"]))
    def write_late(self, at, user):
        scope = Scope("t", user)
        old = self.old_stamps.get(scope, Stamp(0, 0))
        if old != self.run(self.stores[at].memories.stamp(scope)):
            try:
                self.run(self.stores[at].memories.apply(scope, [create("likes late", scope)], expect=old))
            except Conflict:
                return
            raise AssertionError("a late write was taken")

    @rule(at=which)
    def reopen(self, at):
        self.run(self.stores[at].close())
        self.stores[at] = self.opened()

    @invariant()
    def a_search_shows_exactly_what_is_current(self):
        for stores in self.stores:
            for user in ("anna", "ben"):
                for project in (None, "p", "other"):
                    expected = {
                        content
                        for scope, content in self.current.values()
                        if scope.user == user and (project is None or scope.project in (None, project))
                    }
                    scope = Scope("t", user, project)
                    assert self.run(contents(stores.memories, "likes", scope, vec=vector(1))) == expected

    def teardown(self):
        for stores in self.stores:
            self.run(stores.close())
        self.loop.close()
        self.dir.cleanup()


Stores.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestStores = Stores.TestCase
