"""What a forget takes of what came later: answers, what mentions it, conversations of several sessions."""

import threading

import pytest

from proxy.domain.session import Outcome
from proxy.storage.sql import mentions as module
from proxy.text.words import sentences
from tests.storage.forgetting_support import WORD, shelve
from tests.storage.making import ANNA, APOLLO, BEN, NOW, create, forgotten, of, store
from tests.storage.talking import converse, exchange, extract, items, keep, never, quote, response, talk
from tests.storage.test_responses import names

ENGINES = ("sqlite", "postgres")


async def session(stores, name="s1", scope=ANNA):
    """What was said in a session and answered, oldest first."""
    return [(e.said, e.answer) for e in await stores.sessions.recent(scope, name, 9)]


class TestForgetLater:
    @pytest.mark.parametrize(("type_", "id_"), [(None, "a"), ("semantic", None)], ids=["by id", "by type"])
    async def test_later_answers_go_with_a_memory_and_what_the_user_said_stays(
        self, stores, engine, mode, type_, id_
    ):
        await talk(stores.sessions, "hello", "hi, the first")
        stated = await talk(stores.sessions, f"I play the {WORD}", f"A {WORD}!")
        await talk(stores.sessions, "what do I play?", f"the {WORD}")
        await talk(stores.sessions, "and how long?", f"the {WORD} for years")
        await talk(stores.sessions, "elsewhere", "and it stays", session="s2")
        await talk(stores.sessions, "another's", "stays, too", scope=BEN)
        await read(stores)
        await store(stores.memories, create(f"the {WORD}", id="a", evidence=quote(stated, WORD)))
        await stores.memories.forget(of(ANNA, type=type_), id_, by="test")
        assert await session(stores) == [
            ("hello", "hi, the first"), ("what do I play?", ""), ("and how long?", "")
        ]  # fmt: skip
        assert await session(stores, "s2") == [("elsewhere", "and it stays")]
        assert await session(stores, scope=BEN) == [("another's", "stays, too")]
        assert WORD.encode() not in engine.written()

    async def test_a_later_answer_that_is_on_its_way_is_not_kept(self, stores, engine, mode):
        stated = await talk(stores.sessions, f"I play the {WORD}")
        broken = await talk(stores.sessions, "since when?", f"the {WORD} si", whole=False)
        begun = await stores.sessions.begin(exchange("what do I play?"))
        await store(stores.memories, create(f"the {WORD}", id="a", evidence=quote(stated)))
        await forgotten(stores.memories, of(ANNA), "a")
        for late in (broken, begun):
            await stores.sessions.complete(late, Outcome(f"the {WORD}", whole=True), never)
        assert await session(stores) == [("since when?", ""), ("what do I play?", "")]
        assert WORD.encode() not in engine.written()
        await talk(stores.sessions, "and now?", "something else")
        assert (await session(stores))[-1] == ("and now?", "something else")

    async def test_all_answers_of_a_session_go_whose_beginning_retention_has_removed(self, stores, engine):
        stated = await talk(stores.sessions, f"I play the {WORD}")
        await read(stores, create(f"the {WORD}", id="a", evidence=quote(stated)))
        assert await stores.sessions.prune(NOW + 1) == 1
        await talk(stores.sessions, "what do I play?", f"the {WORD}")
        await talk(stores.sessions, "in the project", "of the same name", scope=APOLLO)
        await forgotten(stores.memories, of(ANNA), "a")
        assert await session(stores) == [("what do I play?", "")]
        assert await session(stores, scope=APOLLO) == [("in the project", "of the same name")]
        assert WORD.encode() not in engine.written()

    @pytest.mark.parametrize("is_by_id", [True, False], ids=["by id", "with its project"])
    async def test_answers_go_that_came_after_a_document_was_shown(self, stores, engine, is_by_id, mode):
        document = await shelve(stores, APOLLO)
        await talk(stores.sessions, "hello", "hi, the first")
        await talk(stores.sessions, "what does it say?", f"the {WORD}", recalled=(document.id,))
        await talk(stores.sessions, "and again?", f"the {WORD}, as I said")
        await keep(stores, response("r", text=WORD))
        if is_by_id:
            await stores.documents.delete(document, by="test", now=NOW)
        else:
            await stores.memories.forget(of(APOLLO), by="test")
        assert await session(stores) == [
            ("hello", "hi, the first"), ("what does it say?", ""), ("and again?", "")
        ]  # fmt: skip
        assert WORD.encode() not in engine.written()

    async def test_no_memory_is_made_of_what_a_client_that_sends_its_history_is_answered_afterwards(
        self, stores
    ):
        stated = await talk(stores.sessions, f"I play the {WORD}", f"A {WORD}!")
        await talk(stores.sessions, "since when?", f"the {WORD}?")
        await store(stores.memories, create(f"the {WORD}", id="a", evidence=quote(stated)))
        await forgotten(stores.memories, of(ANNA), "a")
        await talk(stores.sessions, "what do I play?", f"the {WORD}, as I see above")
        await talk(stores.sessions, "hello", "hi", session="s2")
        assert await to_extract(stores, "s1") == [("since when?", ""), ("what do I play?", "")]
        assert await to_extract(stores, "s2") == [("hello", "hi")]

    async def test_no_memory_is_made_of_answers_after_one_that_a_forget_overtook(self, stores):
        await store(stores.memories, create(f"plays the {WORD}", id="a"))
        begun = await stores.sessions.begin(exchange("what do I play?"))
        await forgotten(stores.memories, of(ANNA), "a")
        late = Outcome(f"the {WORD}", whole=True, recalled=("a",))
        assert await stores.sessions.complete(begun, late, never)
        await talk(stores.sessions, "and how long?", f"the {WORD} for years")
        assert await to_extract(stores, "s1") == [("what do I play?", ""), ("and how long?", "")]


async def to_extract(stores, session):
    """What a worker reads of it."""
    await stores.sessions.end(ANNA, session, NOW)
    return await extract(stores)


async def read(stores, *changes):
    """Extract what was said so far, and store what was found in it."""
    for name in ("s1", "s2"):
        await stores.sessions.end(ANNA, name, NOW)
    await extract(stores, *changes)


FACT = f"The user will play the {WORD} in October."


class TestForgetUnextracted:
    async def test_what_tells_a_forgotten_memory_and_is_not_read_yet_goes(self, stores, engine, mode):
        stated = await talk(stores.sessions, f"I will play the {WORD} in October")
        await read(stores, create(FACT, id="a", evidence=quote(stated)))
        await talk(stores.sessions, f"What to wear? I play the {WORD}, from October on.", session="s2")
        await talk(stores.sessions, "and to eat?", "what you like", session="s2")
        await talk(stores.sessions, "my dog is Rex", f"Nice! You play the {WORD} in October.", session="s3")
        await talk(stores.sessions, "In October I play cards", "fine", session="s4")
        await talk(stores.sessions, FACT, scope=BEN)
        open_ = await stores.sessions.begin(
            exchange(f"In October, playing the {WORD}, what", APOLLO, session="s5")
        )
        counted = await stores.memories.forget(of(ANNA), "a", by="test", dry_run=True)
        assert (counted.memories, counted.exchanges) == (1, 3)
        assert await forgotten(stores.memories, of(ANNA), "a") == counted
        assert await session(stores, "s2") == [("and to eat?", "")]
        assert await session(stores, "s3") == [("my dog is Rex", "")]
        assert await session(stores, "s4") == [("In October I play cards", "fine")]
        assert not await stores.sessions.complete(open_, Outcome(f"the {WORD}", whole=True), never)
        assert await session(stores, scope=BEN) == [(FACT, "hi")]
        await stores.memories.forget(of(BEN), by="test")
        assert WORD.encode() not in engine.written()

    async def test_a_repetition_in_the_same_session_is_deleted_even_if_extracted(self, stores, engine):
        stated = await talk(stores.sessions, f"I will play the {WORD} in October")
        await talk(stores.sessions, f"will I really play the {WORD} in October?", "yes")
        await talk(stores.sessions, "my dog is Rex", "nice")
        await read(stores, create(FACT, id="a", evidence=quote(stated)))
        await store(
            stores.memories, create(f"They play the {WORD}", id="s", source="summary", evidence=quote(stated))
        )
        deleted = await forgotten(stores.memories, of(ANNA), "a")
        assert (deleted.memories, deleted.exchanges) == (2, 2)
        assert await session(stores) == [("my dog is Rex", "")]
        assert WORD.encode() not in engine.written()

    async def test_slow_matching_blocks_no_other_user(self, stores, monkeypatch):
        judged = []

        def noted(text):
            judged.append(threading.current_thread().name)
            return sentences(text)

        monkeypatch.setattr(module, "sentences", noted)
        await store(stores.memories, create(FACT, id="a"))
        for n in range(3):
            await talk(stores.sessions, f"I will play the {WORD} in October, {n} times", session=f"s{n}")
        assert (await stores.memories.forget(of(ANNA), "a", by="test")).exchanges == 3
        assert len(judged) == 3
        for thread in judged:  # neither the event loop, nor who reads or writes the store for everybody
            assert thread != threading.main_thread().name
            assert not thread.startswith("store-")


class TestForgetInConversations:
    async def test_a_conversation_goes_whichever_sessions_it_was_used_in(self, stores, engine, mode):
        stated = await talk(stores.sessions, f"I play the {WORD}")
        await talk(stores.sessions, "what do I play?", f"the {WORD}", scope=APOLLO, session="s2")
        await converse(stores.conversations, "made by the client")
        await said(stores, "told", session_id="s1")
        await said(stores, "asked", scope=APOLLO, session_id="s2")
        await keep(
            stores,
            response("first", text=WORD, conversation_id="c1"),
            response("second", APOLLO, text=WORD, session_id="s2", conversation_id="c1"),
            response("on", text=WORD, session_id="s3", previous_id="second", conversation_id="c2"),
            response("beside", text=WORD, session_id="s4", conversation_id="c2"),
            response("elsewhere", session_id="s2", conversation_id="c3"),
            response("alone", APOLLO, session_id="s2"),
        )
        await store(stores.memories, create(f"the {WORD}", id="a", evidence=quote(stated)))
        counted = await stores.memories.forget(of(ANNA), "a", by="test", dry_run=True)
        assert counted.responses == 4
        assert await forgotten(stores.memories, of(ANNA), "a") == counted
        assert await names(stores.conversations) == ""
        assert await session(stores, "s2", APOLLO) == [("what do I play?", "")]
        for stored in ("elsewhere", "alone"):
            assert await stores.chains.get(ANNA, stored, NOW) is not None
        assert WORD.encode() not in engine.written()

    async def test_a_response_with_an_item_of_a_deleted_one_is_deleted(self, stores, engine):
        stated = await talk(stores.sessions, f"I play the {WORD}")
        await talk(stores.sessions, "shorter, please", f"the {WORD}", session="s2")
        await keep(stores, response("first", text=WORD, session_id="s1"))
        await keep(stores, response("copy", text=WORD, session_id="s2"), recalled=("first",))
        await keep(stores, response("of it", text=WORD, session_id="s3"), recalled=("gone", "copy"))
        await keep(stores, response("beside", session_id="s4"), recalled=("another",))
        await store(stores.memories, create(f"the {WORD}", id="a", evidence=quote(stated)))
        assert (await forgotten(stores.memories, of(ANNA), "a")).responses == 3
        assert await stores.chains.get(ANNA, "beside", NOW) is not None
        assert await session(stores, "s2") == [("shorter, please", "")]
        assert WORD.encode() not in engine.written()


async def said(stores, item, conversation="c1", *, scope=ANNA, session_id):
    """An item of the conversation that was said in the session."""
    generation = (await stores.memories.stamp(scope)).generation
    assert await stores.conversations.add(
        scope, conversation, items(item), generation=generation, session_id=session_id
    )
