"""Documents and their passages over Redis: what every store does with them, and what only replicas can."""

import asyncio

import pytest

from proxy.domain.core import Outcome, Scope
from proxy.domain.documents import READY, Limits, Look, NewDocument
from proxy.domain.errors import StoreUnavailable
from proxy.storage.redis import library
from proxy.storage.redis.passages import LEASE_S
from tests.storage.contract_documents import MODEL, OTHER_MODEL, WORD, DocumentsContract, found, passages, put
from tests.storage.making import ANNA, APOLLO, BEN, NOW, exchange, never, of, vector
from tests.storage.on_redis.documents_support import library_agreement
from tests.storage.on_redis.forgetting_support import Gate, lapse


@pytest.fixture
def embedding():
    return MODEL


@pytest.fixture
def restarted(stores, second, redis):
    """Ends the replica; the other one goes on with its forgets."""

    async def restart():
        await stores.close()
        await lapse(redis)
        await second.memories.resume_forgets()
        return second

    return restart


class TestRedisDocuments(DocumentsContract):
    """DocumentStore and PassageIndex over Redis."""


# ---------------------------------------------------------------- nothing is left
async def test_of_what_is_replaced_or_deleted_nothing_is_left_in_redis(stores, redis, written):
    document = await put(stores, f"a {WORD} plays", name=f"about a {WORD}")
    first = await redis.call("KEYS", "*passage*")
    await put(stores, "figs", "dates", name=f"about a {WORD}", vectors=[vector(1), vector(0, 1)])
    assert f"{WORD} plays".encode() not in await written()
    await stores.passages.pending(9)
    await stores.documents.delete(document, by="test", now=NOW)
    assert WORD.encode() not in await written()
    assert first
    assert await redis.call("KEYS", "*passage*") == []
    left = (await written()).replace(document.id.encode(), b"", 1)  # its receipt names it
    assert document.id.encode() not in left


@pytest.mark.parametrize("portions", [False, True])
async def test_a_forgotten_user_leaves_no_document_in_any_list(stores, request, redis, written, portions):
    if portions:
        request.getfixturevalue("in_portions")
    document, _ = await stores.documents.put(unread(f"about a {WORD}", f"a {WORD} plays"), Limits())
    begun = await stores.sessions.begin(exchange("what?"))
    await stores.sessions.complete(begun, Outcome("it", whole=True, recalled=(document.id,)), never)
    assert len(await stores.passages.pending(9)) == 1
    await stores.memories.forget(of(ANNA), by="test")
    everything = await written()
    assert WORD.encode() not in everything
    assert document.id.encode() not in everything
    assert await stores.documents.find("acme", None, document.id) is None
    assert not await stores.passages.pending(9)


async def test_of_a_deleted_document_nobody_knows_any_more_which_answers_it_was_in_view_of(stores, redis):
    document = await put(stores, "figs")
    begun = await stores.sessions.begin(exchange("what?"))
    await stores.sessions.complete(begun, Outcome("figs", whole=True, recalled=(document.id,)), never)
    assert len(await redis.call("KEYS", "*:shown:*")) == 1
    await stores.documents.delete(document, by="test", now=NOW)
    assert await redis.call("KEYS", "*:shown:*") == []


async def test_a_document_put_while_the_user_s_former_ones_are_cleared_stays_known(
    stores, second, in_portions
):
    await put(stores, *(f"figs {n}" for n in range(6)))
    gate = Gate(stores)
    under_way = asyncio.create_task(stores.memories.forget(of(ANNA), by="test"))
    await gate.reached.wait()
    fresh = await put(second, "plums")
    gate.go_on.set()
    gone = await under_way
    assert gone.documents == 1
    assert await stores.documents.find("acme", None, fresh.id) == fresh
    assert await found(stores, "plums") == ["plums"]


async def test_an_erased_document_leaves_the_memory_of_the_replica_that_erased_it(stores):
    document = await put(stores, "figs")
    await found(stores, "figs")
    assert stores.passages._libraries._held
    await stores.documents.delete(document, by="test", now=NOW)
    assert not stores.passages._libraries._held
    assert not stores.passages._libraries._bytes


# ---------------------------------------------------------------- one replica makes the vectors
def unread(name, *texts, scope=ANNA):
    return NewDocument(scope=scope, name=name, digest=name.encode(), passages=passages(*texts), at=NOW)


async def test_of_two_replicas_only_one_is_given_a_document_s_passages(stores, second):
    await stores.documents.put(unread("A", "figs", "dates", "plums"), Limits())
    first = await stores.passages.pending(2)
    assert [one.text for one in first] == ["figs", "dates"]
    assert not await second.passages.pending(2)
    await stores.passages.fill([(one, vector(1)) for one in first])
    assert [one.text for one in await stores.passages.pending(2)] == ["plums"]
    assert not await second.passages.pending(2)


async def test_two_replicas_share_documents_that_wait(stores, second):
    for number in range(9):
        await stores.documents.put(unread(f"{number}", f"figs {number}"), Limits())
    made: list[str] = []
    while waiting := [(each, await each.passages.pending(2)) for each in (stores, second)]:
        if not any(some for _, some in waiting):
            break
        for each, some in waiting:
            made += [one.text for one in some]
            await each.passages.fill([(one, vector(1)) for one in some])
    assert sorted(made) == [f"figs {number}" for number in range(9)]
    assert all(d.status == READY for d in await stores.documents.list(ANNA, limit=99))


async def test_a_dead_replica_s_document_is_taken_over(stores, second, redis):
    await stores.documents.put(unread("A", "figs", "dates"), Limits())
    (one, _) = await stores.passages.pending(9)
    await stores.passages.fill([(one, vector(1))])
    (lease,) = await redis.call("KEYS", "t:to-embed:*")
    assert 0 < await redis.call("TTL", lease) <= LEASE_S
    assert await second.passages.pending(9) == []
    await redis.call("DEL", lease)  # as it goes by itself
    assert [one.text for one in await second.passages.pending(9)] == ["dates"]


async def test_a_replica_that_is_stopped_leaves_its_documents_to_the_others_at_once(stores, second):
    for name in ("A", "B"):
        await stores.documents.put(unread(name, f"figs {name}"), Limits())
    assert len(await stores.passages.pending(9)) == 2
    assert await second.passages.pending(9) == []
    await stores.close()
    assert len(await second.passages.pending(9)) == 2


async def test_a_replica_that_makes_no_vectors_does_not_keep_a_document(stores, redis):
    """Only who has made some says again that it is at it."""
    await stores.documents.put(unread("A", "figs", "dates"), Limits())
    (one, _) = await stores.passages.pending(9)
    (lease,) = await redis.call("KEYS", "t:to-embed:*")
    await redis.call("EXPIRE", lease, 5)
    assert await stores.passages.pending(9)
    assert await redis.call("TTL", lease) <= 5
    await stores.passages.fill([(one, vector(1))])
    assert await redis.call("TTL", lease) > 5


async def test_vectors_that_two_made_count_once(stores, second, redis):
    await stores.documents.put(unread("A", "figs"), Limits())
    (one,) = await stores.passages.pending(9)
    (lease,) = await redis.call("KEYS", "t:to-embed:*")
    await redis.call("DEL", lease)
    (same,) = await second.passages.pending(9)
    assert await second.passages.fill([(same, vector(0, 1))]) == 1
    assert await stores.passages.fill([(one, vector(1))]) == 0
    (hit,) = await stores.passages.search(ANNA, Look(vector(0, 1), ()))
    assert hit.own.cosine == pytest.approx(1.0)


# ---------------------------------------------------------------- what a replica keeps
async def test_a_search_that_was_given_up_leaves_what_it_read_to_the_next(stores, monkeypatch):
    """A library that takes longer to read than a request may wait must come to be known all the same."""
    await put(stores, "figs")
    reading, go_on = asyncio.Event(), asyncio.Event()
    libraries = stores.passages._libraries
    volumes, reads = libraries._volumes, []

    async def slow(*args):
        reads.append(args)
        reading.set()
        await go_on.wait()
        return await volumes(*args)

    monkeypatch.setattr(libraries, "_volumes", slow)
    given_up = asyncio.create_task(found(stores, "figs"))
    await reading.wait()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    go_on.set()
    assert await found(stores, "figs") == ["figs"]
    assert await found(stores, "figs") == ["figs"]
    assert len(reads) == 1


async def test_a_library_that_could_not_be_read_is_read_by_the_next_search(stores, monkeypatch):
    await put(stores, "figs")

    async def fail(*args):
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(stores.passages._libraries, "_volumes", fail)
        outcomes = await asyncio.gather(*(found(stores, "figs") for _ in range(2)), return_exceptions=True)
    assert [type(each) for each in outcomes] == [StoreUnavailable] * 2
    assert await found(stores, "figs") == ["figs"]


async def test_a_replica_that_closes_reads_no_further(stores, monkeypatch):
    await put(stores, "figs")
    reading = asyncio.Event()

    async def never_ends(*args):
        reading.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(stores.passages._libraries, "_volumes", never_ends)
    searching = asyncio.create_task(found(stores, "figs"))
    await reading.wait()
    await stores.passages.close()
    await asyncio.wait([searching])
    assert searching.cancelled()
    assert not stores.passages._libraries._tasks


async def test_what_was_put_while_an_older_state_is_read_is_found_at_once(stores, monkeypatch):
    await put(stores, "figs", name="A")
    reading, waiting, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    libraries = stores.passages._libraries
    volumes, current = libraries._volumes, libraries.current

    async def slow(*args):
        read = await volumes(*args)
        reading.set()
        await go_on.wait()
        return read

    async def noted(state):
        if reading.is_set():
            waiting.set()
        return await current(state)

    monkeypatch.setattr(libraries, "_volumes", slow)
    monkeypatch.setattr(libraries, "current", noted)
    before = asyncio.create_task(found(stores, "figs plums"))
    await reading.wait()
    await put(stores, "plums", name="B")
    after = asyncio.create_task(found(stores, "figs plums"))
    await waiting.wait()
    go_on.set()
    assert await after == ["figs", "plums"]
    assert await before == ["figs"]


async def test_what_is_replaced_or_deleted_while_it_is_searched_is_not_found(stores, second, monkeypatch):
    for name in ("A", "B", "C"):
        await put(stores, f"figs {name}", name=name)
    libraries = stores.passages._libraries
    current = libraries.current

    async def meanwhile(state):
        library = await current(state)
        await put(second, "figs of another edition", name="A")
        await second.documents.delete(await second.documents.named(ANNA, "B"), by="test", now=NOW)
        return library

    monkeypatch.setattr(libraries, "current", meanwhile)
    assert await found(stores, "figs") == ["figs C"]


async def test_only_what_has_changed_is_read_again(stores, second, monkeypatch):
    for name in ("A", "B", "C"):
        await second.documents.put(unread(name, f"figs {name}", f"dates {name}"), Limits())
    assert len(await found(stores, "figs dates")) == 6
    libraries, read = stores.passages._libraries, []
    whole = libraries._whole

    async def noted(state, rows):
        read.extend(row["name"] for row in rows.values())
        return await whole(state, rows)

    monkeypatch.setattr(libraries, "_whole", noted)
    await put(second, "plums", name="B")
    assert len(await found(stores, "figs dates plums")) == 5
    assert read == ["B"]
    waiting = await second.passages.pending(3)
    await second.passages.fill([(one, vector(n + 1)) for n, one in enumerate(waiting)])
    hits = await stores.passages.search(ANNA, Look(vector(1), ()))
    assert {h.passage.text for h in hits if h.own.cosine is not None} == {one.text for one in waiting}
    assert read == ["B"]


async def test_a_replica_that_is_given_another_model_compares_no_vector_of_the_old_one(stores):
    await put(stores, "figs", vectors=[vector(1)])
    assert (await stores.passages.search(ANNA, Look(vector(1), ())))[0].own.cosine == 1.0
    await stores.vectors.begin(OTHER_MODEL)
    await stores.memories.stamp_model(OTHER_MODEL)
    assert not await stores.passages.search(ANNA, Look(vector(1), ()))


async def test_what_a_redis_that_came_back_without_the_last_writes_holds_is_found(stores, redis):
    """Its numbers begin again below those that the replica has seen."""
    for name in ("A", "B", "C"):
        await put(stores, f"figs {name}", name=name)
    assert len(await found(stores, "figs")) == 3
    await redis.call("FLUSHDB")
    await put(stores, "figs of now", name="D")
    assert await found(stores, "figs") == ["figs of now"]


async def test_vectors_of_a_long_document_are_compared_some_at_a_time_and_all_in_the_end(
    stores, second, monkeypatch
):
    monkeypatch.setattr(library, "_SHOWN_EVERY", 4)
    await stores.documents.put(unread("A", *(f"figs {n}" for n in range(10))), Limits())
    assert len(await found(stores, "figs")) == 9
    compared = []
    while waiting := await second.passages.pending(2):
        await second.passages.fill([(one, vector(1)) for one in waiting])
        hits = await stores.passages.search(ANNA, Look(vector(1), (), sections=0, limit=99))
        compared.append(sum(hit.own.cosine is not None for hit in hits))
    assert compared == [0, 4, 4, 8, 10]


async def test_the_libraries_of_many_users_are_held_within_a_bound(stores):
    libraries = stores.passages._libraries
    users = [Scope("acme", f"user{n}") for n in range(4)]
    for user in users:
        await put(stores, *(f"figs {n}" for n in range(40)), scope=user)
        await found(stores, "figs", user)
    assert len(libraries._held) == 4
    libraries._limit = 2 * libraries._bytes // 4
    await found(stores, "figs", ANNA)
    await put(stores, "figs")
    await found(stores, "figs")
    assert libraries._bytes <= libraries._limit
    assert 1 <= len(libraries._held) < 4
    assert libraries._bytes == sum(each.nbytes for each in libraries._held.values())
    assert len(await found(stores, "figs", users[0])) == 9


# ---------------------------------------------------------------- cut off in the middle
async def test_a_put_that_is_broken_off_at_its_commit_leaves_nothing(stores, redis, written, monkeypatch):
    async def die(*args, **kwargs):
        raise StoreUnavailable("gone")

    monkeypatch.setattr(stores.redis, "commit", die)
    with pytest.raises(StoreUnavailable):
        await put(stores, f"a {WORD}", "figs")
    assert WORD.encode() not in await written()
    assert await redis.call("KEYS", "*passage*") == []


async def test_what_every_counter_and_list_says_follows_from_the_documents(stores, second, redis):
    """After puts, replaces, vectors, deletes and a forgotten project."""
    both = (stores, second)
    for number in range(12):
        texts = [f"figs {number} {n}" for n in range(1 + number % 4)]
        scope = (ANNA, APOLLO, BEN)[number % 3]
        await both[number % 2].documents.put(unread(f"{number % 7}", *texts, scope=scope), Limits())
    waiting = await stores.passages.pending(5)
    await stores.passages.fill([(one, vector(1)) for one in waiting])
    (one, *_) = await stores.documents.list(BEN, limit=1)
    await stores.documents.delete(one, by="test", now=NOW)
    await stores.memories.forget(of(APOLLO), by="test")
    await library_agreement(redis)
