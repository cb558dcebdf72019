"""Rows that a dying disk has changed: what cannot be read is out of reach, and nothing else is."""

import sqlite3
from contextlib import closing

import pytest

from proxy.domain.documents import DocumentLimits, NewDocument, Passage, PassageSearch
from proxy.domain.errors import DamagedRow, StoreUnavailable
from proxy.domain.ports import EmbeddingModel
from proxy.storage.sql.database import legible
from tests.storage.making import ANNA, BEN, NOW, create, find, key, of, store, vector
from tests.storage.recording import recorded
from tests.storage.talking import talk


@pytest.fixture
def log(monkeypatch):
    """What is logged: (event, facts)."""
    return recorded(monkeypatch, dict)


def damage(stores, change, *parameters):
    """Change a row without the stores' knowledge."""
    with closing(sqlite3.connect(stores.path)) as other, other:
        assert other.execute(change, parameters).rowcount > 0


@pytest.fixture
async def remembered(stores):
    """Stores with memories of two users."""
    await stores.memories.stamp_model(EmbeddingModel("small", 3, 0.3, 0.8))
    await store(stores.memories, create("tea", vec=vector(1), tags=("hot",)), create("rum", vec=vector(0, 1)))
    await store(stores.memories, create("tea of Ben", BEN, vec=vector(1)), scope=BEN)
    return stores


@pytest.mark.parametrize("tags", ['["hot"', "", '["ho\nt"]'], ids=["cut", "empty", "broken line"])
async def test_a_memory_whose_tags_are_damaged_is_out_of_reach(remembered, log, tags):
    damage(remembered, "UPDATE memories SET tags = ? WHERE content = 'tea'", tags)
    for asked in (
        find(remembered.memories, "tea"),
        find(remembered.memories, "rum", vec=vector(1)),
        remembered.memories.list(of(ANNA), limit=9),
    ):
        with pytest.raises(StoreUnavailable, match="a row is damaged") as stated:
            await asked
        assert stated.value.__suppress_context__, "the first error carries what the row says"
    assert len(await find(remembered.memories, "tea", BEN)) == 1
    assert ("store.row_damaged", {"operation": "read"}) in log


PASSAGES = tuple(
    Passage(headings=("Kitchen", "Tea"), section=0, tile=f"tea tile {n}", start=n * 20) for n in range(2)
)
DOCUMENT = NewDocument(
    scope=ANNA, name="d", digest=b"d", passages=PASSAGES, at=NOW, vectors=(vector(1), vector(1, 1))
)


def passages(stores):
    return stores.passages.search(ANNA, PassageSearch(vector(1), ("tea",), limit=9, sections=1))


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ("UPDATE passages SET headings = '[\"Kitchen' WHERE seq = 1", passages),
        ("UPDATE passages SET terms = x'0102030405' WHERE seq = 1", passages),
        ("UPDATE passages SET embedding = x'0102030405060708' WHERE seq = 2", passages),
        ("UPDATE receipts SET counts = '7'", lambda stores: stores.receipts.list("acme", None, limit=9)),
        ("UPDATE keys SET rights = '[\"chat'", lambda stores: stores.keys.find(b"digest")),
        (
            "INSERT INTO states SELECT session, seq, '{', at FROM exchanges",
            lambda stores: stores.notes.standing(ANNA, "s1"),
        ),
    ],
)
async def test_a_damaged_row_of_another_kind_is_out_of_reach(stores, change, read):
    await stores.memories.stamp_model(EmbeddingModel("small", 3, 0.3, 0.8))
    await stores.memories.forget(of(ANNA), by="test")
    await stores.keys.add(key(), b"digest")
    await stores.documents.put(DOCUMENT, DocumentLimits())
    await talk(stores.sessions)
    damage(stores, change)
    with pytest.raises(DamagedRow):
        await read(stores)


def test_only_what_a_row_can_cause_is_called_damage():
    with pytest.raises(KeyError), legible():
        raise KeyError("a bug")
