"""Nothing of notes outlives a forget, in whatever order."""

from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, rule

from proxy.domain.core import Evidence, Scope
from proxy.domain.session import NO_NOTES, Anchor
from proxy.storage.sql import forget
from proxy.storage.sqlite import SqliteStores
from tests.storage.forgetting_model import Said
from tests.storage.making import ANNA, APOLLO, NOW, always, create, exchange, of, store, talk
from tests.storage.test_notes import keep, told
from tests.storage.test_sqlite_stateful import USERS, Forgetting, picks, scopes, sessions, which
from tests.support.examples import examples

ANCHOR = Anchor("language", "Answer in Chinese.")
EXAMPLES = examples(15)
NAMED = tuple(
    (Scope("t", user, project), session)
    for user in USERS
    for project in (None, "p")
    for session in ("s1", "s2", "late")
)


async def test_anchors_are_known_to_another_process_and_after_a_restart(tmp_path):
    first, second = SqliteStores(tmp_path), SqliteStores(tmp_path)
    for stores in (first, second):
        await stores.open()
    await talk(first.sessions, anchors=(Anchor("language", "Answer in Chinese."),))
    assert await told(second.notes) == ["Answer in Chinese."]
    for stores in (first, second):
        await stores.close()
    third = SqliteStores(tmp_path)
    await third.open()
    assert await told(third.notes, ANNA) == ["Answer in Chinese."]
    await third.close()


@contextmanager
def dying_on_the_way(stores):
    """Large forgets only, and the process dies at the first portion."""

    async def die():
        raise RuntimeError("the process dies here")

    with (
        mock.patch.object(forget, "_MOST_AT_ONCE", 0),
        mock.patch.object(stores.memories.forgetting._database, "checkpoint", die),
        pytest.raises(RuntimeError),
    ):
        yield


async def test_while_something_is_being_forgotten_no_notes_are_shown(stores):
    begun = await talk(stores.sessions, "one", anchors=(ANCHOR,), stateful=True)
    await talk(stores.sessions, "two")
    assert await keep(stores.notes)
    fact = create("fact", id="m", type="episodic", evidence=(Evidence("s1", begun.id),))
    await store(stores.memories, fact)
    with dying_on_the_way(stores):
        await stores.memories.forget(of(ANNA), "m", by="test")
    assert await stores.notes.notes(ANNA, "s1", lines=1) == NO_NOTES
    assert await stores.notes.standing(ANNA, "s1") is None
    await stores.memories.resume_forgets()
    shown = await stores.notes.notes(ANNA, "s1", lines=1)
    assert [line.said for line in shown.lines] == ["two"]
    assert shown.anchors == ()


async def test_a_session_that_goes_on_while_its_project_is_forgotten_starts_without_notes(stores):
    await talk(stores.sessions, scope=APOLLO, trigger=always, anchors=(ANCHOR,))
    job = await stores.jobs.claim(NOW, 60)
    batch = await stores.jobs.batch(job, limit=9, context=0)
    await stores.memories.apply(APOLLO, [create("fact", APOLLO)], expect=batch.stamp, done=job)
    assert await stores.sessions.prune(NOW + 1) == 1
    await talk(stores.sessions, scope=APOLLO, at=NOW + 2)
    with dying_on_the_way(stores):
        await stores.memories.forget(of(APOLLO), by="test")
    await talk(stores.sessions, "a new beginning", scope=APOLLO)
    await stores.memories.resume_forgets()
    shown = await stores.notes.notes(APOLLO, "s1", lines=3)
    assert [line.said for line in shown.lines] == ["a new beginning"]
    assert shown.anchors == ()


class ForgettingNotes(Forgetting):
    """The machine of test_sqlite_stateful, whose exchanges set anchors and are read into states."""

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
        kept = self.run(
            notes.keep_state(scope, session, state, unread.exchanges[-1], marks, expect=unread.stamp)
        )
        assert kept == (forgets == self.forgets[scope.user])

    @invariant()
    def notes_show_nothing_forgotten(self):
        notes = self.stores[self.count % 2].notes
        for scope, session in NAMED:
            shown = self.run(notes.notes(scope, session, lines=1))
            standing = self.run(notes.standing(scope, session))
            assert not self.hidden(f"{shown} {standing}")


ForgettingNotes.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=25)
TestForgettingNotes = ForgettingNotes.TestCase
