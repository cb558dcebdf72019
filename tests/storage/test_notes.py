"""NoteStore: anchors, recent turns, states, and the ends of sessions."""

import pytest

from proxy.domain.session import LATEST, NO_NOTES, OTHER, Anchor
from tests.storage.making import ANNA, APOLLO, BEN, NOW, create, forgotten, of, store
from tests.storage.talking import always, exchange, extract, quote, talk

ENGINES = ("sqlite", "postgres")

CHINESE = Anchor("language", "Answer in Chinese.")
SHORT = Anchor("length", "Keep it short.")
STATE = {"topic": "Hawaii", "facts": ["budget 10k"]}


async def stated(notes, scope=ANNA, session="s1", **asked):
    """The anchors in force, as text."""
    return [a.text for a in (await notes.notes(scope, session, **asked)).anchors]


async def keep(notes, *, marks=("m1",), state=STATE, scope=ANNA, session="s1"):
    """Read all that is unread into a state."""
    unread = await notes.unread(scope, session, limit=99)
    return await notes.keep_state(scope, session, state, unread.exchanges[-1], marks, expect=unread.stamp)


class TestAnchor:
    async def test_an_anchor_holds_in_its_session_only(self, sessions, notes):
        await sessions.begin(exchange(anchors=(CHINESE,)))
        found = await notes.notes(ANNA, "s1")
        assert found.anchors == (Anchor("language", "Answer in Chinese.", NOW),)
        assert await notes.notes(ANNA, "s2") == NO_NOTES
        assert await notes.notes(APOLLO, "s1") == NO_NOTES
        assert await notes.notes(BEN, "s1") == NO_NOTES

    async def test_an_anchor_is_taken_back_by_forget_that_and_with_its_exchange(self, sessions, notes):
        await talk(sessions, anchors=(CHINESE,))
        await talk(sessions, anchors=(SHORT, Anchor(OTHER, "Ask first.")))
        for _ in range(2):  # what was set just before, and nothing older
            await talk(sessions, anchors=(Anchor(LATEST, ""),))
            assert await stated(notes) == ["Answer in Chinese."]
        refused = await sessions.begin(exchange(anchors=(Anchor("language", "Now German."),)))
        assert await stated(notes) == ["Now German."]
        await sessions.abort(refused)
        assert await stated(notes) == ["Answer in Chinese."]

    async def test_anchors_are_those_that_were_said_by_the_time_of_an_answer(self, sessions, notes):
        await talk(sessions, answer="one")
        await talk(sessions, answer="two", anchors=(CHINESE,))
        await talk(sessions, answer=" three\n")
        assert await stated(notes, after="one") == []
        assert await stated(notes, after="two") == ["Answer in Chinese."]
        assert await stated(notes, after="three") == ["Answer in Chinese."]
        assert await stated(notes, after="never said") == []

    async def test_retention_leaves_the_anchors_and_a_forget_still_finds_them(
        self, stores, sessions, notes, memories
    ):
        begun = await talk(sessions, trigger=always, anchors=(CHINESE,), stateful=True)
        assert await keep(notes)
        await extract(stores, create("wants Chinese", id="m", evidence=quote(begun)))
        await talk(sessions, at=NOW + 100)
        assert await sessions.prune(NOW + 50) == 1
        assert await stated(notes) == ["Answer in Chinese."]
        assert await notes.standing(ANNA, "s1") is not None
        await forgotten(memories, of(ANNA), "m")
        assert await stated(notes) == []


class TestState:
    async def test_exchanges_come_with_their_keys_once_and_without_a_gap(self, sessions, notes):
        await talk(sessions, "one", key="k1", stateful=True)
        await sessions.begin(exchange("two"))
        await talk(sessions, "three", key="k3")
        unread = await notes.unread(ANNA, "s1", limit=9)
        assert [e.said for e in unread.exchanges] == ["one"]
        assert unread.keys == ("k1",)
        assert await keep(notes)
        later = await notes.unread(ANNA, "s1", limit=9)
        assert (later.exchanges, later.state) == ((), STATE)

    async def test_of_two_readers_the_one_who_read_less_loses(self, sessions, notes):
        await talk(sessions, stateful=True)
        first = await notes.unread(ANNA, "s1", limit=9)
        await talk(sessions)
        assert await keep(notes)
        late = await notes.keep_state(
            ANNA, "s1", {"topic": "old"}, first.exchanges[-1], ["x"], expect=first.stamp
        )
        assert not late
        assert (await notes.standing(ANNA, "s1")).state == STATE


class TestClosing:
    async def closed(self, notes, *, idle=NOW - 1, left=NOW - 1, now=NOW):
        return await notes.close(idle_since=idle, left_since=left, now=now)

    async def test_an_idle_session_of_two_exchanges_is_closed_once(self, sessions, notes, jobs, memories):
        await talk(sessions, "one")
        await talk(sessions, "two")
        assert await self.closed(notes) == 0
        assert await self.closed(notes, idle=NOW) == 1
        assert await self.closed(notes, idle=NOW) == 0
        job = await jobs.claim(NOW, 60)
        assert job.closing
        batch = await jobs.batch(job, limit=9, context=0)
        await memories.apply(ANNA, [], expect=batch.stamp, done=job)
        assert await self.closed(notes, idle=NOW) == 0
        await talk(sessions, "three")
        assert await self.closed(notes, idle=NOW) == 1

    async def test_an_episode_holds_the_whole_session_and_its_earlier_summary(
        self, sessions, notes, jobs, memories
    ):
        first = await talk(sessions, "one")
        await talk(sessions, "two")
        summary = create("a summary", id="sum", source="summary", evidence=quote(first))
        await store(memories, summary, create("a fact", evidence=quote(first)))
        assert await sessions.end(ANNA, "s1", NOW) == 2
        job = await jobs.claim(NOW, 60)
        assert job.closing
        assert await notes.episode(job, limit=9) is None  # not extracted yet
        await jobs.batch(job, limit=9, context=0)
        episode = await notes.episode(job, limit=9)
        assert [e.said for e in episode.exchanges] == ["one", "two"]
        assert episode.before == "sum"
        assert [e.said for e in (await notes.episode(job, limit=1)).exchanges] == ["two"]
        await forgotten(memories, of(ANNA))
        assert await notes.episode(job, limit=9) is None


@pytest.mark.usefixtures("in_portions")
async def test_a_session_that_continues_while_its_project_is_forgotten_starts_without_notes(
    stores, break_off, restarted
):
    await talk(stores.sessions, scope=APOLLO, trigger=always, anchors=(CHINESE,))
    await extract(stores, create("fact", APOLLO))
    assert await stores.sessions.prune(NOW + 1) == 1
    await talk(stores.sessions, scope=APOLLO, at=NOW + 2)
    break_off()
    with pytest.raises(RuntimeError):
        await stores.memories.forget(of(APOLLO), by="test")
    await talk(stores.sessions, "a new beginning", scope=APOLLO)
    shown = await (await restarted()).notes.notes(APOLLO, "s1", lines=3)
    assert [line.said for line in shown.lines] == ["a new beginning"]
    assert shown.anchors == ()
