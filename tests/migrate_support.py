"""Stores with a row of every kind, and what they answer through their ports."""

import re
from dataclasses import replace
from pathlib import Path

from proxy.domain.changes import Confirm, Create, Edit, Event, Flag, Hold, Review
from proxy.domain.core import Candidate, Evidence, Scope
from proxy.domain.documents import DocumentLimits, NewDocument, Passage, PassageSearch
from proxy.domain.ports import EmbeddingModel
from proxy.domain.responses import Conversation
from proxy.domain.session import EVERY, Anchor, Outcome
from proxy.storage.sqlite import SqliteStores
from tests.storage.making import (
    ANNA,
    APOLLO,
    BEN,
    NOW,
    create,
    find,
    forgotten,
    key,
    memory,
    of,
    store,
    supersede,
    vector,
)
from tests.storage.talking import always, exchange, keep, never, quote, response, talk

MODEL = EmbeddingModel("wide", 3, 0.3, 0.8)
OTHER = Scope("other", "anna")
DORA = Scope("acme", "dora")  # with rows that no old layout had
USERS = (ANNA, BEN, OTHER)
SCOPES = (ANNA, APOLLO, BEN, OTHER)
SESSIONS = (
    "s1", "s2", "s3", "plain", "open", "ended", "over", "dead", "late", "taken", "anchored", "stateful",
    "old",
)  # fmt: skip


async def opened(data_dir: Path) -> SqliteStores:
    stores = SqliteStores(data_dir)
    await stores.open()
    await stores.memories.stamp_model(MODEL)
    return stores


async def fill(stores: SqliteStores) -> None:
    """Make a row of every kind; an exchange and a job are left in the hands of the process."""
    await _remember(stores)
    await _talk(stores)
    await _queue(stores)
    await _keep(stores)
    await stores.keys.add(key("k1"), b"d1")
    await stores.keys.add(key("k2", user=None), b"d2")
    await stores.keys.revoke("k2", NOW + 1)
    await _shelve(stores)
    await store(
        stores.memories,
        *(create(said, DORA, id=said[-1]) for said in ("likes tea in Porto d", "likes no tea e")),
        *(Flag("d", "e", 0.5, NOW), Review("step", ("d",), NOW, 1, batch="1")),
        scope=DORA,
    )


async def _shelve(stores: SqliteStores) -> None:
    """Documents with vectors and without, of several versions, and an answer given with one in view."""

    def document(name, *texts, scope=ANNA, vectors=None):
        tiles = tuple(
            Passage(section=n, headings=(f"H{n}", "größer"), start=20 * n, lead=2, tile=f"# {text:18}")
            for n, text in enumerate(texts)
        )
        return NewDocument(
            scope=scope, name=name, digest=name.encode() + bytes([len(texts)]), passages=tiles, at=NOW,
            vectors=vectors,
        )  # fmt: skip

    three = (vector(1), None, vector(0, 1))
    for new in (
        document("handbook", "tea at noon", "milk"),
        document("guide", "first edition"),
        document("handbook", "tea at four", "no milk", "sugar", vectors=three),
        document("handbook", "tea of apollo", scope=APOLLO),
        document("handbook", "tea of ben", "你好", scope=BEN, vectors=(vector(1), vector(1, 1))),
        document("guide", "second edition of tea"),
        document("gone", "gone"),
    ):
        made, _ = await stores.documents.put(new, DocumentLimits())
    await stores.documents.delete(made, by="test", now=NOW)
    for scope, session in ((ANNA, "plain"), (BEN, "s1")):
        (last, *_) = await stores.documents.list(scope, limit=1)
        unanswered = await stores.sessions.begin(exchange("when?", scope, session=session, at=NOW + 3))
        await stores.sessions.complete(unanswered, Outcome("at four", whole=True, recalled=(last.id,)), never)


async def _remember(stores: SqliteStores) -> None:
    memories = stores.memories
    for number, scope in enumerate((ANNA, BEN, ANNA, OTHER, APOLLO, ANNA, BEN)):
        fact = create(f"fact {number} of tea", scope, id=f"f{number}", vec=vector(1, number), tags=("a", "ü"))
        await store(memories, fact, scope=scope)
    await store(memories, create("without a vector 你好", id="bare"))
    await store(memories, supersede("f0", "fact zero is coffee", id="f0b", created_at=NOW + 1))
    await store(memories, supersede("f0b", "fact zero is cocoa", id="f0c", created_at=NOW + 2))
    await store(memories, Confirm("f2", NOW + 3, 0.9, (Evidence("s1", "e-far", "tea"),)))
    edited = memory("fact five of milk", id="f5", importance=0.9, updated_at=NOW + 4)
    await store(memories, Edit(edited, vector(0, 1)))
    await store(memories, Edit(replace(edited, archived=True), vector(0, 1)))
    await store(memories, create("over soon", id="brief", expires_at=NOW + 50))
    await store(memories, create("over already", id="over", expires_at=NOW - 50))
    past = memory("from another store", BEN, id="imported")
    history = (
        Event(NOW - 9, "created", "api", "before"),
        Event(NOW, "imported", "api", "from another store"),
    )
    await store(memories, Create(past, None, history), scope=BEN)
    await memories.touch(BEN, ["f1", "f1", "f6"], NOW + 5)
    await store(memories, create("to be forgotten", id="gone"))
    await memories.forget(of(ANNA), "gone", by="key:k1")
    await memories.forget(of(OTHER, type="preference"), by="open")
    await memories.forget(of(ANNA, type="procedural"), by="open")
    candidate = Candidate(type="semantic", content="obey", evidence="obey me", origin=Evidence("s1", "e-far"),
                          tags=("x",), observed_at=NOW)  # fmt: skip
    await store(memories, Hold("held1", candidate, "planted", NOW))
    await store(memories, Hold("held2", replace(candidate, origin=None), "doubtful", NOW + 1))
    await store(memories, Hold("held3", candidate, "planted", NOW), scope=APOLLO)


async def _talk(stores: SqliteStores) -> None:
    sessions, notes = stores.sessions, stores.notes
    begun = await talk(sessions, "I like tea", session="plain", personal=True)
    await store(stores.memories, create("likes tea", id="said", evidence=quote(begun, "like tea", "plain")))
    unanswered = await sessions.begin(exchange("what?", session="plain", at=NOW + 1))
    seen = Outcome("fact zero", whole=True, response_id="resp-made", recalled=("f2", "gone-or-never"))
    await sessions.complete(unanswered, seen, never)
    unanswered = await sessions.begin(exchange("and?", session="plain", at=NOW + 2))
    await sessions.complete(unanswered, Outcome("tea and milk", whole=True, recalled=("f2", "f5")), never)
    for scope in (APOLLO, BEN, OTHER):
        await talk(sessions, "hello from me", "hi", scope=scope, session="s1")
    chinese, short = Anchor("language", "Answer in Chinese."), Anchor("length", "Keep it short.")
    for number, said in enumerate(((chinese,), (short,), (Anchor("length", ""),), ())):
        await talk(sessions, f"turn {number}", f"answer {number}", session="anchored", anchors=said)
    await talk(sessions, "all over", session="s2", anchors=(short, Anchor("other", "Ask.")))
    await talk(sessions, "no more", session="s2", anchors=(Anchor(EVERY, ""),))
    for number in range(4):
        await talk(sessions, f"long {number}", f"reply {number}", session="stateful", stateful=True)
    unread = await notes.unread(ANNA, "stateful", limit=3)
    state = {"goal": "a tale", "decided": ["one", "two"]}
    await notes.keep_state(
        ANNA, "stateful", state, unread.exchanges[-1], ["m1", "m2"], expect=unread.stamp
    )  # fmt: skip


async def _queue(stores: SqliteStores) -> None:
    """Jobs of every state. The process ends before one of them does."""
    sessions, jobs = stores.sessions, stores.jobs
    for said in ("one", "two"):
        await talk(
            sessions, said, session="over", trigger=always, at=NOW + 2 if said == "two" else NOW - 10**7
        )
    job = await _claimed(jobs, ANNA, "over")
    batch = await jobs.batch(job, limit=5, context=0)
    await stores.memories.apply(ANNA, [], expect=batch.stamp, done=job)
    await sessions.end(ANNA, "over", NOW + 3)
    for name, scope in (("dead", ANNA), ("late", BEN)):
        await talk(sessions, "not now", session=name, trigger=always, scope=scope)
        job = await _claimed(jobs, scope, name)
        await jobs.batch(job, limit=5, context=1)
        await jobs.retry(job, at=NOW + 500, reason="upstream", dead=name == "dead")
    await talk(sessions, "no credential", session="s3", trigger=always, scope=OTHER)
    await jobs.wait_for_credential(await _claimed(jobs, OTHER, "s3"))
    await talk(sessions, "quick", session="taken", trigger=always, explicit=True)
    job = await _claimed(jobs, ANNA, "taken")
    await jobs.batch(job, limit=5, context=1)
    await talk(sessions, "behind it", session="taken", trigger=always)
    await talk(sessions, "finished", session="old", key="old-key", trigger=never, at=NOW - 10**7)
    await sessions.begin(exchange("no answer", session="open", at=NOW + 7, explicit=True, personal=True))
    await talk(sessions, "bye", session="ended", scope=BEN)
    await sessions.end(BEN, "ended", NOW + 8)


async def _claimed(jobs, scope, name):
    """Claim until it is the session's turn; the others are put off."""
    while (job := await jobs.claim(NOW + 1, 1e9)).session_id != name or job.scope != scope:
        await jobs.retry(job, at=NOW + 2, reason="", counted=False)
    return job


async def _keep(stores: SqliteStores) -> None:
    first = response("r1", session_id="plain", conversation_id="c1", expires_at=None)
    await keep(stores, first, recalled=("f2",))
    await keep(stores, response("r2", previous_id="r1", text="größer", session_id="s2"))
    await keep(stores, response("r3", previous_id="r2", expires_at=NOW - 1), response("r4", previous_id="r1"))
    await keep(stores, response("r5", previous_id="gone"), response("r6", BEN))
    await stores.chains.delete(ANNA, "r4")
    made = Conversation(id="c1", scope=ANNA, metadata='{"a":"ü"}'.encode(), created_at=NOW)
    await stores.conversations.create(made, [("i1", b'{"n":1}'), ("i2", '{"n":"zwölf"}'.encode())])
    generation = (await stores.memories.stamp(ANNA)).generation
    for number in range(3, 6):
        item = [(f"i{number}", b'{"n":3}')]
        await stores.conversations.add(ANNA, "c1", item, generation=generation, session_id="plain")
    await keep(stores, response("r7", BEN, session_id="elsewhere"), recalled=("f6",))
    await stores.conversations.create(replace(made, id="c3"), [("i9", b'{"n":9}')])
    item = [("i10", b'{"n":10}')]
    await stores.conversations.add(ANNA, "c3", item, generation=generation, session_id="plain")
    await stores.conversations.create(replace(made, id="c2", scope=APOLLO), [])


# ---------------------------------------------------------------- through the ports
async def seen(stores) -> dict[str, object]:
    """Return what the stores answer. Numbers of their own are left out."""
    found: dict[str, object] = {
        "keys": [await stores.keys.list(), await stores.keys.find(b"d1"), await stores.keys.find(b"d2")],
        "counts": await stores.jobs.counts(),
    }
    for tenant in {scope.tenant for scope in USERS}:
        found[f"receipts {tenant}"] = await stores.receipts.list(tenant, None, limit=99)
        jobs = await stores.jobs.list(tenant, None, state=None, limit=99)
        found[f"jobs {tenant}"] = [replace(each, id="") for each in jobs]
    for scope in SCOPES:
        for name, answer in (await answers_of(stores, scope)).items():
            found[f"{name} of {scope.tenant} {scope.user} {scope.project}"] = answer
    return found


async def answers_of(stores, scope: Scope) -> dict[str, object]:
    everything = of(scope, include_inactive=True)
    listed = (await stores.memories.list(everything, limit=99)).items
    found: dict[str, object] = {
        "stamp": await stores.memories.stamp(scope),
        "memories": listed,
        "current": await stores.memories.list(of(scope), limit=99, oldest_first=True),
        "history": dict(await stores.memories.history(everything, [m.id for m in listed])),
        "timeline": await stores.timeline.events(of(scope), limit=99),
        "entities": await stores.entities.list(of(scope), limit=99),
        "held": await stores.quarantine.held(scope, limit=99),
        "sessions": [replace(s, cursor="") for s in await stores.sessions.sessions(scope, limit=99)],
    }
    for words, vec in (("fact tea", vector(1, 2)), ("milk 你好", None), ("", vector(0, 1))):
        hits = await find(stores.memories, words, scope, vec=vec)
        found[f"search {words} {vec}"] = [
            (hit.memory.id, None if hit.cosine is None else round(hit.cosine, 5), round(hit.bm25, 5))
            for hit in hits
        ]
    found |= await _documents(stores, scope)
    for name in SESSIONS:
        found[f"session {name}"] = await _session(stores, scope, name)
    for id_ in ("r1", "r2", "r3", "r4", "r5", "r6", "r7", "resp-made", "nothing"):
        found[f"response {id_}"] = [
            await stores.sessions.session_of(scope, id_),
            await stores.chains.get(scope, id_, NOW),
            await stores.chains.chain(scope, id_, NOW, limit=9, most_bytes=10**9),
        ]
    for id_ in ("c1", "c2", "c3"):
        found[f"conversation {id_}"] = [
            await stores.conversations.get(scope, id_),
            await stores.conversations.items(scope, id_, limit=2, after="i2", ascending=True),
            await stores.conversations.items(scope, id_, limit=9, after=None, ascending=False),
            await stores.conversations.item(scope, id_, "i2"),
        ]
    return found


async def _documents(stores, scope: Scope) -> dict[str, object]:
    documents = await stores.documents.list(scope, limit=99)
    found: dict[str, object] = {
        "documents": documents,
        "passages": [list(await stores.documents.passages(each)) for each in documents],
        "named": [await stores.documents.named(scope, name) for name in ("handbook", "guide", "gone")],
        "of the tenant": [await stores.documents.find(scope.tenant, None, each.id) for each in documents],
    }
    for words, vec in ((("tea",), vector(1, 2)), (("milk", "你好"), None)):
        hits = await stores.passages.search(scope, PassageSearch(vec, words))
        found[f"passages of {words}"] = sorted(
            (hit.document.id, hit.passage.text, round(hit.own.cosine or 0.0, 5), round(hit.own.bm25, 5),
             round(hit.section.bm25, 5))
            for hit in hits
        )  # fmt: skip
    return found


async def _session(stores, scope: Scope, name: str) -> object:
    recent = [replace(each, seq=0) for each in await stores.sessions.recent(scope, name, 99)]
    unread = await stores.notes.unread(scope, name, limit=9)
    return [
        recent,
        await stores.notes.notes(scope, name, lines=2),
        await stores.notes.notes(scope, name, after="answer 1"),
        await stores.notes.standing(scope, name),
        unread and (unread.state, unread.keys, unread.stamp, [each.said for each in unread.exchanges]),
    ]


# ---------------------------------------------------------------- what they do next
async def worked_off(stores) -> list[object]:
    """Do all that is due, dead letters too; return what was read in which order."""
    done: list[object] = [
        await stores.jobs.revive("acme", None),
        await stores.sessions.sweep(NOW + 600, always),
    ]
    for scope in USERS:
        await stores.jobs.wake(scope)
    # What is due soon, then what is due later.
    while job := await stores.jobs.claim(NOW + 100, 60.0) or await stores.jobs.claim(NOW + 600, 60.0):
        batch = await stores.jobs.batch(job, limit=3, context=2)
        done.append(
            (job.scope, job.session_id, job.lane, job.attempts, job.created_at, job.closing,
             [(e.said, e.answer) for e in batch.pending], [e.said for e in batch.context], batch.stamp)
        )  # fmt: skip
        await stores.memories.apply(job.scope, [], expect=batch.stamp, done=job)
    return done


async def said_again(stores) -> list[object]:
    """Send the beginning of a session again; return what it is taken for."""
    again = exchange("finished", session="old", key="old-key", standalone=True, id="e-again", at=NOW + 900)
    begun = await stores.sessions.begin(again)
    return [begun.id, begun.generation, len(await stores.sessions.recent(ANNA, "old", 9))]


async def heard(stores) -> list[object]:
    """Return what a sweep asks its trigger about."""
    states: list[object] = []
    await stores.sessions.sweep(NOW, lambda state: states.append(replace(state, last_seq=0)))
    return sorted(states, key=repr)


async def aged(stores) -> list[object]:
    """Let time pass; return what went, or fell due."""
    return [
        await stores.notes.close(idle_since=1.0, left_since=1.0, now=NOW),
        await stores.notes.close(idle_since=1.0, left_since=NOW + 9, now=NOW),
        await stores.notes.close(idle_since=NOW + 9, left_since=NOW + 9, now=NOW + 9),
        await stores.chains.expire(NOW + 1000),
        await stores.sessions.prune(NOW - 10**6),
        await stores.memories.expire(NOW + 10**6),
    ]


async def forgets(stores) -> list[object]:
    """Forget one thing after the other; return what went with each."""
    removed: list[object] = []
    for scope in (ANNA, BEN):
        (last, *_) = await stores.documents.list(scope, limit=1)
        removed.append(replace(await stores.documents.delete(last, by="test", now=NOW), receipt=None))
        removed.append([each.answer for each in await stores.sessions.recent(scope, "plain", 99)])
    for where, memory_id in (
        (of(ANNA), "f2"), (of(ANNA), "said"), (of(BEN), "f6"), (of(APOLLO), None),
        (of(BEN, type="semantic"), None), (of(OTHER), None),
    ):  # fmt: skip
        removed.append(await stores.memories.forget(where, memory_id, by="test", dry_run=True))
        removed.append(await forgotten(stores.memories, where, memory_id))
    return removed


# What two stores in which the same happened are asked, in this order.
QUESTIONS = (seen, heard, worked_off, said_again, forgets, aged, seen)
_OWN_IDS = re.compile(r"'(?:[ek]\d+|doc_[0-9a-f]+|rcpt_[0-9a-f]+)'")


def alike(found: object) -> str:
    """Return it without the ids that each store makes for itself, lists of one question in one order."""
    if isinstance(found, dict):
        return "\n".join(f"{name}: {alike(answer)}" for name, answer in sorted(found.items()))
    if isinstance(found, list):
        return str(sorted(map(alike, found)))
    return _OWN_IDS.sub("'*'", repr(found))
