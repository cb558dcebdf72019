"""Nothing that was forgotten is ever seen again, in whatever order things happen.

Random sequences of what writes or reads memories, through two stores over one directory: add, edit,
supersede, confirm, talk, set anchors and states, extract, search, forget (by id, user, project, type, counted
beforehand, at once and in portions, broken off by a crash), reopen; after a story of each user that
hangs together, with quotes, held candidates, responses and conversations in several sessions. At every forget
another process had begun to write, and between its portions it reads and continues what is being forgotten.
Every text holds a word of its own. After each step the words of what was forgotten are in no answer and in no
file, and what was not forgotten is found.
"""

from dataclasses import replace
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from proxy.domain.changes import Confirm, Edit
from proxy.domain.core import Evidence, ForgetCounts, Scope
from proxy.domain.errors import Conflict
from proxy.domain.session import Anchor, Outcome
from proxy.storage.sql import erasure, forget
from tests.storage.forgetting_model import Said
from tests.storage.forgetting_stage import TYPES, USERS, Stage
from tests.storage.making import NOW, contents, create, find, memory, of, store, vector
from tests.storage.talking import always, exchange
from tests.support.examples import examples

NAMED = tuple(
    (Scope("t", user, project), session)
    for user in USERS
    for project in (None, "p")
    for session in ("s1", "s2", "late")
)
projects = st.sampled_from([None, "p"])
scopes = st.builds(Scope, st.just("t"), st.sampled_from(USERS), projects)
types = st.sampled_from(TYPES)
which = st.integers(0, 1)
picks = st.integers(0, 99)
sessions = st.sampled_from(["s1", "s2"])


class Forgetting(Stage):
    @initialize(portions=st.booleans())
    def choose(self, portions):
        """Half of the runs forget in portions of two rows."""
        at_once = 0 if portions else forget._MOST_AT_ONCE
        self.portions = portions
        self.patches.enter_context(mock.patch.object(forget, "_MOST_AT_ONCE", at_once))
        self.patches.enter_context(mock.patch.object(erasure, "_WEIGHT", 1 / 2))

    @initialize(at=which, projects=st.tuples(projects, projects), kinds=st.permutations(TYPES))
    def tell_stories(self, at, projects, kinds):
        """What hangs together in every way, of each user, before anything is forgotten."""
        for user, project in zip(USERS, projects, strict=True):
            self.tell(at, Scope("t", user, project), kinds)

    # ------------------------------------------------------------ memories
    @rule(at=which, scope=scopes, type=types, vec=st.booleans(), source=picks)
    def add(self, at, scope, type, vec, source):
        word, id_ = self.word(), f"id{self.count}"
        origin = self.pick([i for i, s in self.model.said.items() if s.scope == scope], source)
        self.add_fact(at, scope, type, word, id_, origin, vec)

    @rule(at=which, number=picks, type=types, project=projects)
    def supersede(self, at, number, type, project):
        old = self.pick(self.model.current(), number)
        if old is None:
            return
        scope = replace(self.model.facts[old].scope, project=project)
        self.replace_fact(at, scope, type, self.word(), old)

    @rule(at=which, number=picks)
    def edit_and_confirm(self, at, number):
        id_ = self.pick(self.model.current(), number)
        if id_ is None:
            return
        fact, word = self.model.facts[id_], self.word()
        changed = memory(f"likes {word}", fact.scope, id=id_, type=fact.type)
        self.run(store(self.stores[at].memories, Edit(changed, vector(1)), scope=fact.scope))
        fact.content = f"likes {word}"
        fact.words.add(word)
        self.run(self.stores[at].memories.touch(fact.scope, [id_], NOW))
        self.run(store(self.stores[at].memories, Confirm(id_, NOW, 0.9), scope=fact.scope))

    # ------------------------------------------------------------ what is said
    @rule(at=which, scope=scopes, session=sessions)
    def begin(self, at, scope, session):
        word = self.word()
        new = exchange(
            f"say {word}", scope, session=session, id=f"e{self.count}", key=f"k{self.count}",
            anchors=(Anchor("other", f"obey {word}"),), stateful=True,
        )  # fmt: skip
        begun = self.run(self.stores[at].sessions.begin(new))
        self.model.said[new.id] = Said(scope, session, {word})
        self.under_way.append((new, begun))

    @rule(at=which, number=picks, shown=picks)
    def complete(self, at, number, shown):
        """The answer repeats a memory that was in view, perhaps forgotten since."""
        if not self.under_way:
            return
        new, begun = self.under_way.pop(number % len(self.under_way))
        word, recalled = self.word(), ()
        ours = [i for i, f in self.model.facts.items() if f.scope.user == new.scope.user]
        if (id_ := self.pick(ours, shown)) is not None:
            recalled = (id_,)
            word += " " + " ".join(sorted(self.model.facts[id_].words))
        known = self.model.said.get(new.id)
        outcome = Outcome(f"answer {word}", whole=True, recalled=recalled)
        stored = self.run(self.stores[at].sessions.complete(begun, outcome, always))
        assert not stored or known is not None, "a forgotten exchange was completed"
        if known is not None:
            known.words.add(word.split()[0])
            known.recalled.update(recalled)

    @rule(at=which, number=picks, then_forget=picks)
    def keep_state(self, at, number, then_forget):
        """A state repeats all that was read; one from before a forget is not taken."""
        scope, session = NAMED[number % len(NAMED)]
        notes = self.stores[at].notes
        unread = self.run(notes.unread(scope, session, limit=9))
        if unread is None or not unread.exchanges:
            return
        said = [f"{e.said} {e.answer}" for e in unread.exchanges]
        state = {"topic": session, "facts": [*(unread.state or {}).get("facts", ()), *said]}
        assert not self.hidden(str(state))
        marks = [f"mark {key}" for key in unread.keys]
        forgets = self.forgets[scope.user]
        if then_forget % 3 == 0:
            self.forget_many(at, replace(scope, project=None), None, None)
        stored = self.run(
            notes.keep_state(scope, session, state, unread.exchanges[-1], marks, expect=unread.stamp)
        )
        assert stored == (forgets == self.forgets[scope.user])

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
        id_, origin = f"id{self.count}", next((e.id for e in batch.pending if e.id in self.model.said), None)
        said = next((e.said for e in batch.pending if e.id == origin), "")
        evidence = (Evidence(job.session_id, origin, said),) if origin else ()
        change = create(f"likes {word}", job.scope, id=id_, type=type, evidence=evidence)
        try:
            self.run(stores.memories.apply(job.scope, [change], expect=batch.stamp, done=job))
        except Conflict:
            self.run(stores.jobs.retry(job, at=NOW, reason="conflict"))
            return
        assert forgets == self.forgets[job.scope.user], "an extraction from before a forget was stored"
        for exchange_ in batch.pending:
            if exchange_.id in self.model.said:
                self.model.said[exchange_.id].read = True
        self.know(id_, job.scope, type, word, origin)

    # ------------------------------------------------------------ forgetting
    @rule(at=which, number=picks)
    def forget_one(self, at, number):
        id_ = self.pick(self.model.facts, number)
        if id_ is not None:
            self.forget(at, of(replace(self.model.facts[id_].scope, project=None)), id_, crash=None)

    @rule(at=which, scope=scopes, type=st.none() | types, crash=st.none() | st.integers(0, 3))
    def forget_many(self, at, scope, type, crash):
        self.forget(at, of(scope, type=type), None, crash)

    def forget(self, at, where, id_, crash):
        memories = self.stores[at].memories
        self.everyone = list(self.model.facts)
        late = self.begin_what_will_be_late(1 - at, where)
        words = self.model.take_out(where, id_)
        counted = self.run(memories.forget(where, id_, by="test", dry_run=True))
        self.forgets[where.user] += 1
        self.being_forgotten = words
        deleted = self.forget_until(at, where, id_, crash if self.portions else None)
        self.run(self.save_readings(1 - at))
        words |= self.model.take_out_continuations()
        if deleted is None or deleted.memories or id_ is None:
            words |= self.write_late(1 - at, late)
        if deleted is None:
            self.going |= words
            return
        if not self.going and not self.meddled:
            assert replace(deleted, receipt=None) == counted
            assert self.run(memories.forget(where, id_, by="test", dry_run=True)) == ForgetCounts()
        if id_ is None or deleted.memories:
            receipts = self.run(self.stores[at].receipts.list("t", where.user, limit=1))
            assert receipts[0].counts == deleted
        self.deleted |= words

    def forget_until(self, at, where, id_, crash):
        """Forget, while others read and write between the portions; return None if the process died on the
        way, after so many of them."""
        left, self.meddled = iter(range(crash or 0)), False

        async def checkpoint():
            await self.read_and_continue(1 - at, where.user)
            if crash is not None and next(left, None) is None:
                raise RuntimeError("the process dies here")

        memories = self.stores[at].memories
        with mock.patch.object(memories.forgetting._database, "checkpoint", checkpoint):
            try:
                return self.run(memories.forget(where, id_, by="test"))
            except RuntimeError:
                return None

    # ------------------------------------------------------------ restarts
    @precondition(lambda self: self.going)
    @rule(at=which)
    def go_on(self, at):
        """The upkeep of any process of which it was."""
        for stores in (self.stores[at], self.stores[1 - at]):
            self.run(stores.memories.resume_forgets())
        self.deleted |= self.going
        self.going = set()

    @rule(at=which)
    def reopen(self, at):
        """A dead process's jobs and open exchanges are the others'."""
        self.run(self.stores[at].close())
        self.stores[at] = self.opened()
        self.extracting = [each for each in self.extracting if each[0] != at]

    # ------------------------------------------------------------ what must hold
    @invariant()
    def a_search_shows_exactly_what_is_current(self):
        asked = [Scope("t", user, project) for user in USERS for project in (None, "p")]
        found = self.all_of(
            contents(stores.memories, "likes", scope, vec=vector(1), limit=999)
            for stores in self.stores
            for scope in asked
        )
        expected = [
            {
                f.content
                for f in self.model.facts.values()
                if f.current
                and f.scope.user == scope.user
                and scope.project in (None, f.scope.project or scope.project)
            }
            for scope in asked
        ]
        assert found == expected * len(self.stores)

    @invariant()
    def nothing_forgotten_is_shown(self):
        stores = self.stores[self.count % 2]
        for user in USERS:
            scope = Scope("t", user)
            pages = stores.memories.list(of(scope, include_inactive=True), limit=999, oldest_first=True)
            exported = self.run(pages).items
            histories, held, hits, past, named, *talks = self.all_of(
                [
                    stores.memories.history(of(scope), [m.id for m in exported]),
                    stores.quarantine.held(scope, limit=999),
                    find(stores.memories, " ".join(sorted(self.deleted)[-5:]), scope),
                    stores.timeline.events(of(scope), limit=999),
                    stores.entities.list(of(scope), limit=999),
                    *(
                        stores.sessions.recent(replace(scope, project=p), s, 99)
                        for p in (None, "p")
                        for s in ("s1", "s2", "late")
                    ),
                ]
            )
            if self.going:
                # What was said, and quotes of it, go with their portion; no search or model sees them.
                talks, held = [], []
                exported = [replace(m, evidence=()) for m in exported]
            assert not self.hidden(str((exported, histories, held, hits, past, named, talks)))
            assert {e.memory_id for e in past} <= {m.id for m in exported}
            assert len(exported) == sum(f.scope.user == user for f in self.model.facts.values())

    @invariant()
    def notes_show_nothing_forgotten(self):
        notes = self.stores[self.count % 2].notes
        shown = self.all_of(notes.notes(*of_session, lines=1) for of_session in NAMED)
        states = self.all_of(notes.standing(*of_session) for of_session in NAMED)
        assert not self.hidden(f"{shown} {states}")

    @invariant()
    def nothing_forgotten_is_in_any_file(self):
        text = self.written()
        assert {word for word in self.deleted if word.encode() in text} == set()


Forgetting.TestCase.settings = settings(max_examples=examples(14), stateful_step_count=15)
TestForgetting = Forgetting.TestCase
