"""DocumentStore and PassageIndex: scopes, versions, both levels of the search, forgetting."""

import asyncio
from typing import Any

import pytest

from proxy.domain.core import ForgetCounts, Scope
from proxy.domain.documents import (
    INDEXING,
    READY,
    Document,
    DocumentLimits,
    NewDocument,
    Passage,
    PassageSearch,
)
from proxy.domain.errors import NotFound, QuotaExceeded
from proxy.domain.ports import EmbeddingModel
from proxy.domain.session import Outcome
from proxy.text.words import terms
from tests.storage.forgetting_support import ZEUS
from tests.storage.making import ANNA, APOLLO, BEN, NOW, create, forgotten, of, store, vector
from tests.storage.talking import always, exchange, keep, response, talk

ENGINES = ("sqlite", "postgres")

MODEL = EmbeddingModel("small", 3, similarity_threshold=0.3, related_threshold=0.3)
WORD = "xylophonist"


def passages(*texts: str, sections: list[int] | None = None) -> tuple[Passage, ...]:
    made, start = [], 0
    for n, text in enumerate(texts):
        section = sections[n] if sections else n
        title = f"# H{section}"
        tile = f"{title}\n\n{text}\n"
        made.append(
            Passage(headings=(f"H{section}",), section=section, tile=tile, start=start, lead=len(title))
        )
        start += len(tile)
    return tuple(made)


def new(*texts: str, scope: Scope = ANNA, name: str = "Guide", vectors=(), sections=None, at=NOW):
    return NewDocument(
        scope=scope, name=name, digest="".join(texts).encode("utf-8", "surrogatepass"), at=at,
        passages=passages(*texts, sections=sections),
        vectors=None if vectors is None else tuple(vectors) or (None,) * len(texts),
    )  # fmt: skip


async def put(stores: Any, *texts: str, **fields) -> Document:
    document, _ = await stores.documents.put(new(*texts, **fields), DocumentLimits())
    return document


async def found(stores: Any, words: str, scope: Scope = ANNA) -> list[str]:
    hits = await stores.passages.search(scope, PassageSearch(None, terms(words), sections=9, limit=9))
    return sorted(hit.passage.text for hit in hits)


@pytest.fixture
def embedding():
    return MODEL


class TestDocuments:
    @pytest.mark.parametrize("other", [BEN, Scope("other", "anna"), Scope("acme", "Anna")])
    async def test_no_other_user_has_the_document(self, stores, other):
        document = await put(stores, "figs")
        await put(stores, "dates", scope=other)
        assert await stores.documents.find(other.tenant, other.user, document.id) is None
        assert [d.name for d in await stores.documents.list(other, limit=9)] == ["Guide"]
        assert await found(stores, "figs", other) == []
        with pytest.raises(NotFound):
            await stores.documents.list(other, limit=9, after=document.id)

    async def test_documents_are_listed_the_last_written_first_and_searched_with_those_of_no_project(
        self, stores
    ):
        for name in ("A", "B", "C", "A"):
            await put(stores, f"figs {name}", name=name, scope=APOLLO if name == "C" else ANNA)
            await put(stores, f"more {name}", name=name, scope=APOLLO if name == "C" else ANNA)
        page = await stores.documents.list(ANNA, limit=2)
        assert [d.name for d in page] == ["A", "C"]
        assert [d.name for d in await stores.documents.list(ANNA, limit=9, after=page[-1].id)] == ["B"]
        assert [d.name for d in await stores.documents.list(APOLLO, limit=9)] == ["C"]
        assert await found(stores, "more", APOLLO) == ["more A", "more B", "more C"]
        assert await found(stores, "more", ZEUS) == ["more A", "more B"]

    # ------------------------------------------------------------ searched
    async def test_sections_are_chosen_first_and_only_their_passages_found(self, stores):
        """By its own words the last passage is the best; its section is not."""
        await put(
            stores, "figs figs", "figs again", "ripe figs", "plums", "dates", "a fig", "nuts",
            sections=[0, 0, 0, 1, 1, 1, 1],
            vectors=[vector(1), vector(1), vector(1), vector(0, 1), vector(0, 1), vector(1), vector(0, 1)],
        )  # fmt: skip
        flat = await stores.passages.search(ANNA, PassageSearch(vector(1), (), sections=0, limit=9))
        assert len([hit for hit in flat if hit.own.cosine == 1.0]) == 4
        chosen = await stores.passages.search(ANNA, PassageSearch(vector(1), (), sections=1, limit=9))
        assert {hit.passage.section for hit in chosen} == {0}
        assert all(hit.section.cosine == pytest.approx(1.0) for hit in chosen)

    # ------------------------------------------------------------ limits, and two at once
    async def test_a_user_may_keep_so_many_documents_and_passages_and_replace_them(self, stores):
        few = DocumentLimits(documents=2, passages_of_user=3)
        for name in ("A", "B"):
            await stores.documents.put(new("figs", name=name), few)
        with pytest.raises(QuotaExceeded):
            await stores.documents.put(new("figs", name="C"), few)
        await stores.documents.put(new("figs", "dates", name="A"), few)
        with pytest.raises(QuotaExceeded):
            await stores.documents.put(new("figs", "dates", "plums", name="A"), few)
        assert await found(stores, "figs dates plums") == ["dates", "figs", "figs"]
        await stores.documents.put(new("figs", name="C", scope=BEN), few)
        document = await stores.documents.named(ANNA, "A")
        await stores.documents.delete(document, by="test", now=NOW)
        await stores.documents.put(new("plums", "nuts", name="C"), few)
        await stores.memories.forget(of(ANNA), by="test")
        await stores.documents.put(new("figs", "dates", "plums", name="C"), few)

    async def test_documents_put_at_once_by_two_processes_leave_one_version(self, stores, second):
        both = (stores, second)
        await asyncio.gather(*(put(both[n % 2], f"figs {n}", f"dates {n}") for n in range(8)))
        (document,) = await stores.documents.list(ANNA, limit=9)
        assert (document.version, document.passages) == (8, 2)
        stored = [passage.text for passage in await second.documents.passages(document)]
        assert stored[0].removeprefix("figs") == stored[1].removeprefix("dates")
        assert await found(second, "figs dates") == sorted(stored)
        same = await asyncio.gather(*(each.documents.put(new("plums"), DocumentLimits()) for each in both))
        assert sorted(change for _, change in same) == ["unchanged", "updated"]

    # ------------------------------------------------------------ vectors
    async def test_passages_without_vectors_are_pending_until_they_are_filled(self, stores):
        document = await put(stores, "figs", "dates", name="G", vectors=None)
        assert document.status == INDEXING
        waiting = await stores.passages.pending(9)
        assert [(one.headings, one.text) for one in waiting] == [(("H0",), "figs"), (("H1",), "dates")]
        assert await stores.passages.fill([(waiting[0], vector(1))]) == 1
        assert (await stores.documents.named(ANNA, "G")).status == INDEXING
        assert await stores.passages.pending(9) == waiting[1:]
        assert await stores.passages.fill([(waiting[1], None)]) == 1
        assert not await stores.passages.pending(9)
        assert (await stores.documents.named(ANNA, "G")).status == READY
        hits = await stores.passages.search(ANNA, PassageSearch(vector(1), ()))
        cosines = {hit.passage.text: hit.own.cosine for hit in hits}
        assert cosines == {"figs": 1.0}

    # ------------------------------------------------------------ forgotten
    async def test_a_deleted_document_leaves_no_words_and_no_response_given_with_it_but_a_receipt(
        self, stores, engine
    ):
        document = await put(stores, f"a {WORD} plays")
        await put(stores, "figs", name="stays")
        await keep(stores, response("r", text=WORD, session_id="old"), recalled=(document.id,))
        await keep(stores, response("other", session_id="old2"))  # retention may have removed what was said
        deleted = await stores.documents.delete(document, by="test", now=NOW)
        assert deleted == ForgetCounts(documents=1, responses=1, receipt=deleted.receipt)
        assert WORD.encode() not in engine.written()
        (receipt,) = await stores.receipts.list("acme", "anna", limit=9)
        assert (receipt.memory_id, receipt.counts) == (document.id, deleted)
        assert [d.name for d in await stores.documents.list(ANNA, limit=9)] == ["stays"]
        assert await stores.documents.delete(document, by="test", now=NOW) == ForgetCounts()
        assert await stores.chains.get(ANNA, "other", NOW) is not None

    async def test_an_answer_given_with_a_document_in_view_is_kept_and_never_extracted(self, stores):
        """Nor are those that follow it: they were given with it in their history."""
        document = await put(stores, "figs")
        await talk(stores.sessions, "hello", "hi")
        begun = await stores.sessions.begin(exchange("what are they?"))
        await stores.sessions.complete(begun, Outcome("sweet", whole=True, recalled=(document.id,)), always)
        _, stored = await stores.sessions.recent(ANNA, "s1", 9)
        assert stored.answer == "sweet"
        job = await stores.jobs.claim(NOW, 60)
        batch = await stores.jobs.batch(job, limit=9, context=9)
        assert [(e.said, e.answer) for e in batch.pending] == [("hello", "hi"), ("what are they?", "")]
        await stores.memories.apply(ANNA, (), expect=batch.stamp, done=job)
        await talk(stores.sessions, "I play", "Sweet, as I said.", always)
        await talk(stores.sessions, "elsewhere", "it is read", always, session="s2")
        again = await stores.jobs.claim(NOW + 9, 60)
        follow_up = await stores.jobs.batch(again, limit=9, context=9)
        assert [(e.said, e.answer) for e in follow_up.pending] == [("I play", "")]
        assert [e.answer for e in follow_up.context] == ["hi", ""]
        await stores.memories.apply(ANNA, (), expect=follow_up.stamp, done=again)
        await stores.sessions.end(ANNA, "s1", NOW + 10)
        await stores.notes.close(idle_since=NOW + 20, left_since=NOW + 20, now=NOW + 20)
        other = await stores.jobs.claim(NOW + 30, 60)
        batch = await stores.jobs.batch(other, limit=9, context=9)
        assert [e.answer for e in batch.pending] == ["it is read"]
        await stores.memories.apply(ANNA, (), expect=batch.stamp, done=other)
        closing = await stores.jobs.claim(NOW + 30, 60)
        episode = await stores.notes.episode(closing, limit=9)
        assert [e.answer for e in episode.exchanges] == ["hi", "", ""]

    @pytest.mark.parametrize(
        ("where", "left"),
        [(of(ANNA), set()), (of(APOLLO), {"all"}), (of(ANNA, type="semantic"), {"all", "apollo"})],
    )
    async def test_forgetting_a_user_or_a_project_takes_its_documents(
        self, stores, engine, where, left, mode
    ):
        await put(stores, "figs", name="all")
        await put(stores, *(f"a {WORD} {n}" for n in range(5)), name="apollo", scope=APOLLO)
        await put(stores, "figs", name="ben's", scope=BEN)
        await store(stores.memories, create("a fact"))
        counted = await stores.memories.forget(where, by="test", dry_run=True)
        deleted = await forgotten(stores.memories, where)
        assert counted.documents == deleted.documents == 2 - len(left)
        assert {d.name for d in await stores.documents.list(ANNA, limit=9)} == left
        assert len(await found(stores, f"figs {WORD}")) == (6 if "apollo" in left else len(left))
        assert (WORD.encode() in engine.written()) is ("apollo" in left)
        assert [d.name for d in await stores.documents.list(BEN, limit=9)] == ["ben's"]

    @pytest.mark.usefixtures("in_portions")
    @pytest.mark.parametrize("scope", [ANNA, APOLLO], ids=["user", "project"])
    async def test_documents_being_forgotten_are_hidden_and_new_ones_survive(
        self, stores, second, gate, scope
    ):
        old = await put(stores, *(f"figs {n}" for n in range(6)), scope=scope)
        assert len(await found(second, "figs")) == 6
        forgetting = asyncio.create_task(stores.memories.forget(of(scope), by="test"))
        await gate.reached.wait()
        assert await found(second, "figs") == []
        assert await second.documents.find("acme", "anna", old.id) is None
        assert await second.documents.named(scope, "Guide") is None
        fresh = await put(second, "plums", scope=scope)
        assert (fresh.id != old.id, fresh.version) == (True, 1)
        gate.go_on.set()
        await forgetting
        assert await found(stores, "figs plums") == ["plums"]
