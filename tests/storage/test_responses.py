"""ChainStore and ConversationStore."""

import json
from dataclasses import replace

import pytest

from proxy.domain.core import ForgetCounts, Scope
from proxy.domain.responses import Chain, Conversation, StoredResponse
from proxy.domain.session import Outcome
from tests.storage.making import ANNA, APOLLO, BEN, NOW, create, forgotten, of, store
from tests.storage.talking import converse, exchange, items, keep, never, quote, response, talk

ENGINES = ("sqlite", "postgres")

OTHERS = (BEN, Scope("other", "anna"), Scope("acme", "Anna"), Scope("acme", ""), Scope("", "anna"))


async def ids(chains, head: str, scope: Scope = ANNA, *, limit: int = 99, now: float = NOW) -> list[str]:
    return [r.id for r in (await chain_of(chains, head, scope, limit=limit, now=now)).responses]


async def chain_of(chains, head, scope=ANNA, *, limit=99, now=NOW, most_bytes=10**9):
    return await chains.chain(scope, head, now, limit=limit, most_bytes=most_bytes)


def linked(*names: str, **fields: object) -> list[StoredResponse]:
    """Responses of which each continues the one before."""
    pairs = zip(names, (None, *names), strict=False)
    return [response(name, previous_id=before, **fields) for name, before in pairs]


class TestChain:
    async def test_what_was_said_is_in_the_conversation_if_the_response_was_saved(
        self, stores, chains, conversations
    ):
        await converse(conversations, "a")
        seen, cancelled, late = (
            response("r1", APOLLO, text=text, conversation_id="c1") for text in ("seen", "cancelled", "late")
        )
        await keep(stores, seen)
        generation = (await stores.memories.stamp(ANNA)).generation
        assert await chains.save(cancelled, generation=generation, over=seen.response)
        assert not await chains.save(late, generation=generation, over=seen.response, said=items("b"))
        assert await names(conversations) == "a"
        await keep(stores, late, over=cancelled.response, said=items("b", "a", "c"))
        assert await names(conversations) == "a b c"

    async def test_a_response_comes_back_as_it_was_saved_to_its_user_alone(self, stores, chains):
        saved = response("r1", APOLLO, previous_id="r0", conversation_id="c1", response=b'{"a":"\xc3\xa9"}')
        await keep(stores, saved)
        for other in OTHERS:
            assert await chains.get(other, "r1", NOW) is None
            assert await chain_of(chains, "r1", other) == Chain()
            assert not await chains.delete(other, "r1")
            assert await stores.sessions.session_of(other, "r1") is None
        for scope in (APOLLO, ANNA):  # another project's, but the user's own
            assert await chains.get(scope, "r1", NOW) == saved
        await keep(stores, response("bens", BEN), response("mine", previous_id="bens"))
        assert await ids(chains, "mine") == ["mine"]

    async def test_a_chain_is_oldest_first_without_what_was_deleted_and_its_newest_part_under_a_limit(
        self, stores, chains
    ):
        await keep(stores, *linked("a", "b", "c", "d"), response("b2", previous_id="a"))
        assert await ids(chains, "d") == ["a", "b", "c", "d"]
        assert await ids(chains, "b2") == ["a", "b2"]
        assert await ids(chains, "d", limit=2) == ["c", "d"]
        assert await ids(chains, "unknown") == []
        assert await chains.delete(ANNA, "b")
        assert not await chains.delete(ANNA, "b")
        assert await ids(chains, "d") == ["a", "c", "d"]
        generation = (await stores.memories.stamp(ANNA)).generation
        assert not await chains.save(response("b"), generation=generation)  # still running, then
        made = linked("x", "y", "z", text="x" * 1_000)
        await keep(stores, *made)
        size = sum(len(r.response) + len(r.input_items) for r in made)
        assert await chain_of(chains, "z", most_bytes=size) == Chain(tuple(made), None, size)
        assert await chain_of(chains, "z", most_bytes=size - 1) == Chain(size=size)

    async def test_a_running_response_that_a_forget_has_left_is_stored_by_its_end(
        self, stores, chains, memories, conversations
    ):
        """The forget has looked at it, with all that the model was shown."""
        await store(memories, create("tea", id="a"), create("rum", id="b"))
        await converse(conversations)
        before = (await memories.stamp(ANNA)).generation
        left, taken = response("left", text="so far", conversation_id="c1"), response("taken", text="so far")
        await keep(stores, left, recalled=("a",))
        await keep(stores, taken, recalled=("b",))
        await forgotten(memories, of(ANNA), "b")
        whole, over = response("left", text="whole", conversation_id="c1"), left.response
        assert await chains.save(whole, generation=before, recalled=("a",), over=over, said=items("x"))
        assert not await chains.save(taken, generation=before, recalled=("b",), over=taken.response)
        assert await chains.get(ANNA, "left", NOW) == whole
        assert await chains.get(ANNA, "taken", NOW) is None
        assert await names(conversations) == "x"
        await forgotten(memories, of(ANNA), "a")
        assert await chains.get(ANNA, "left", NOW) is None

    async def test_the_answer_of_an_exchange_that_a_forget_has_left_is_stored(
        self, stores, chains, memories, sessions
    ):
        await store(memories, create("tea", id="a"), create("rum", id="b"), create("gin", id="c"))
        stated = await talk(sessions, "I drink rum", session="stated")
        await store(memories, create("drinks rum", id="d", evidence=quote(stated)))
        await keep(stores, response("there", session_id="s0"), response("gone", session_id="stated"))
        before = (await memories.stamp(ANNA)).generation
        begun = [await sessions.begin(exchange("hello", session=s)) for s in ("s1", "stated", "s3")]
        one, of_stated, _ = (each.id for each in begun)
        await forgotten(memories, of(ANNA), "b")
        await forgotten(memories, of(ANNA), "d")
        late = await sessions.begin(exchange("hello", session="s4"))

        async def is_stored(id_, exchange, *recalled, **fields):
            made = response(id_, session_id="s1", **fields)
            return await chains.save(made, generation=before, recalled=recalled, exchange=exchange)

        assert await is_stored("r1", one, "a")
        assert await is_stored("r2", one, "a", previous_id="there")
        assert not await is_stored("r3", None, "a")
        assert not await is_stored("r4", one, "a", "b")  # shown, and forgotten
        assert not await is_stored("r5", one, "a", previous_id="gone")
        assert not await is_stored("r6", of_stated, "a")  # said in that session
        assert not await is_stored("r7", late.id, "a")  # began after it
        assert not await is_stored("r8", "unknown", "a")
        assert not await is_stored("r9", one, "a", conversation_id="c1")
        await forgotten(memories, of(ANNA))
        assert not await is_stored("r10", one)
        assert await chains.get(ANNA, "r1", NOW) is None


class TestExpiry:
    async def test_a_response_lives_as_long_as_one_that_continues_it(self, stores, chains):
        first, second = linked("a", "b")
        await keep(stores, first, replace(second, expires_at=NOW + 200), response("alone"))
        await keep(stores, response("deleted", expires_at=NOW + 200))
        assert await chains.delete(ANNA, "deleted")
        assert await ids(chains, "a", now=NOW + 150) == []
        assert await chains.expire(NOW + 150) == 1  # alone
        assert await ids(chains, "b", now=NOW + 150) == ["a", "b"]
        assert await chains.expire(NOW + 300) == 3

    async def test_the_oldest_are_deleted_until_the_rest_fits_but_never_the_newest(self, stores, chains):
        texts = {f"resp_{n}": "x" * 1_000 for n in range(4)}
        for n, (id_, text) in enumerate(texts.items()):
            await keep(stores, response(id_, text=text, created_at=NOW + n))
        await keep(stores, response("resp_0", BEN, text="x" * 1_000))
        assert await chains.trim(ANNA, 1_000_000) == 0
        assert await chains.trim(ANNA, 4_500) == 2
        assert [id_ for id_ in texts if await chains.get(ANNA, id_, NOW)] == ["resp_2", "resp_3"]
        assert await chains.trim(ANNA, 10) == 1
        assert [id_ for id_ in texts if await chains.get(ANNA, id_, NOW)] == ["resp_3"]
        assert await chains.get(BEN, "resp_0", NOW) is not None

    async def test_conversations_expire_some_time_after_their_last_use(self, stores, chains, conversations):
        for id_ in ("unused", "added", "said", "described"):
            await conversations.create(talk_of(id_, used_at=NOW), items("i"))
        await conversations.create(talk_of("for ever", used_at=None), items("i"))
        assert await conversations.add(ANNA, "added", items("j"), generation=0, at=NOW + 9)
        assert await conversations.add(ANNA, "for ever", items("j"), generation=0, at=NOW)
        assert await conversations.update(ANNA, "described", b"{}", at=NOW + 9)
        said = response("r", conversation_id="said", created_at=NOW + 9, expires_at=None)
        await keep(stores, said, said=items("j"))
        assert await chains.expire(NOW, unused_since=NOW - 1) == 0
        assert await chains.expire(NOW, unused_since=NOW + 1) == 1
        assert await conversations.get(ANNA, "unused") is None
        assert (await conversations.get(ANNA, "added")).used_at == NOW + 9
        assert await chains.expire(NOW, unused_since=NOW + 9) == 3
        assert await chains.expire(NOW, unused_since=NOW + 9) == 0
        assert await conversations.get(ANNA, "for ever") is not None


def talk_of(id: str, *, used_at: float | None) -> Conversation:
    return Conversation(id=id, scope=ANNA, metadata=b"{}", created_at=NOW, used_at=used_at)


async def names(conversations, *, limit: int = 99, after: str | None = None, ascending: bool = True) -> str:
    page = await conversations.items(ANNA, "c1", limit=limit, after=after, ascending=ascending)
    return " ".join(json.loads(item) for item in page.items) + (" …" if page.has_more else "")


class TestConversationObject:
    async def test_a_conversation_comes_back_to_its_user_alone(self, conversations):
        made = await converse(conversations, "a")
        for other in OTHERS:
            assert await conversations.get(other, "c1") is None
            assert not await conversations.update(other, "c1", b"{}")
            assert not await conversations.delete(other, "c1")
            assert not await conversations.add(other, "c1", items("evil"), generation=0)
            assert await conversations.items(other, "c1", limit=9, after=None, ascending=True) is None
            assert await conversations.item(other, "c1", "a") is None
            assert not await conversations.remove(other, "c1", "a")
        assert await conversations.get(APOLLO, "c1") == made
        assert await conversations.item(ANNA, "c1", "a") == b'"a"'
        assert await names(conversations) == "a"

    async def test_an_item_of_another_conversation_is_not_a_cursor_and_not_removed(self, conversations):
        await converse(conversations, "a")
        await converse(conversations, "b", id="c2")
        assert await conversations.items(ANNA, "c1", limit=9, after="b", ascending=True) is None
        assert not await conversations.remove(ANNA, "c1", "b")
        assert await conversations.item(ANNA, "c2", "b") is not None

    async def test_items_are_paged_in_both_directions(self, conversations):
        await converse(conversations, "a", "b", "c", "d", "e")
        assert await names(conversations, limit=2) == "a b …"
        assert await names(conversations, limit=2, after="b") == "c d …"
        assert await names(conversations, limit=2, after="c") == "d e"
        assert await names(conversations, limit=2, ascending=False) == "e d …"
        assert await names(conversations, limit=3, after="d", ascending=False) == "c b a"
        assert await names(conversations, after="e") == ""

    async def test_items_are_added_all_or_none_and_what_is_deleted_is_gone(self, conversations):
        await converse(conversations, "a")
        assert not await conversations.add(ANNA, "c1", items("b", "a"), generation=0, only_new=True)
        assert await names(conversations) == "a"
        assert await conversations.add(ANNA, "c1", items("b", "c"), generation=0, only_new=True)
        assert await names(conversations) == "a b c"
        assert await conversations.remove(ANNA, "c1", "b")
        assert not await conversations.remove(ANNA, "c1", "b")
        assert await names(conversations) == "a c"
        assert await conversations.delete(ANNA, "c1")
        assert not await conversations.delete(ANNA, "c1")
        assert await conversations.get(ANNA, "c1") is None
        assert not await conversations.add(ANNA, "c1", items("late"), generation=0)
        await converse(conversations)
        assert await names(conversations) == ""

    async def test_a_late_item_after_a_forget_is_not_added(self, conversations, memories):
        await converse(conversations, "a")
        await forgotten(memories, of(APOLLO))
        assert not await conversations.add(ANNA, "c1", items("late"), generation=0)
        assert await conversations.add(ANNA, "c1", items("later"), generation=1)
        assert await names(conversations) == "a later"


@pytest.mark.usefixtures("mode")
class TestForgetChains:
    async def test_a_memory_takes_the_responses_given_with_it_in_view(
        self, stores, sessions, chains, memories
    ):
        await store(memories, create("vegan", id="m"), create("tea", id="n"))
        begun = await sessions.begin(exchange("dinner?"))
        await sessions.complete(begun, Outcome("Vegan!", whole=True, recalled=("m", "n")), never)
        await keep(stores, response("echo"), response("else", session_id="s2"))
        await keep(stores, response("unwritten", session_id="s3"), recalled=["m"])
        await keep(stores, response("of another", session_id="s3"), recalled=["n"])
        assert await forgotten(memories, of(ANNA), "m") == ForgetCounts(memories=1, responses=2)
        assert await ids(chains, "echo") == await ids(chains, "unwritten") == []
        assert await ids(chains, "else") == ["else"]
        assert await ids(chains, "of another") == ["of another"]
