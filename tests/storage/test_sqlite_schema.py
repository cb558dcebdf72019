"""Files of older schemas are brought up to date when they are opened."""

import sqlite3

import pytest

from proxy.domain.errors import WrongModel
from proxy.storage.sqlite import SqliteStores, file
from tests.storage.making import NOW, find
from tests.storage.test_documents import found, put
from tests.storage.test_reembed import NEW, OLD, axis


async def test_a_file_of_version_1_keeps_its_model_and_its_vectors(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "SCHEMA_VERSION", 1)
    path = tmp_path / "memory.db"
    file.prepare(path, create=True)
    made = sqlite3.connect(path)
    made.execute("INSERT INTO meta VALUES ('embedding_model', '[\"old\", 384]')")
    made.execute("INSERT INTO scopes (tenant, user) VALUES ('acme', 'anna')")
    made.execute(
        "INSERT INTO memories (id, owner, type, content, digest, source, created_at, updated_at, valid_from,"
        " importance, weight, confidence, tags, changed, written)"
        " VALUES ('a', 1, 'semantic', 'tea', x'00', 'api', 1, 1, 1, 1, 1, 1, '[]', 1, 1)"
    )
    made.execute("INSERT INTO vectors (memory, embedding, terms) VALUES (1, ?, x'')", (axis(OLD),))
    made.commit()
    made.close()
    monkeypatch.undo()
    stores = SqliteStores(tmp_path)
    await stores.open()
    with pytest.raises(WrongModel, match="old"):
        await stores.memories.stamp_model(NEW)
    await stores.memories.stamp_model(OLD)
    hits = await find(stores.memories, vec=axis(OLD), now=NOW)
    await stores.close()
    assert [(hit.memory.id, hit.cosine) for hit in hits] == [("a", 1.0)]


async def test_a_file_of_version_2_gets_its_place_for_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "SCHEMA_VERSION", 2)
    file.prepare(tmp_path / "memory.db", create=True)
    monkeypatch.undo()
    stores = SqliteStores(tmp_path)
    await stores.open()
    await put(stores, "figs")
    assert await found(stores, "figs") == ["figs"]
    await stores.close()
