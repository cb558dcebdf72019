"""Documents and their passages over SQLite."""

import pytest

from proxy.domain.errors import StoreUnavailable
from proxy.storage.sqlite import SqliteStores, file
from tests.storage.contract_documents import MODEL, DocumentsContract, found, put
from tests.storage.making import ANNA


@pytest.fixture
def embedding():
    return MODEL


@pytest.fixture
async def restarted(stores, tmp_path):
    """Ends the process, and opens the file in the next."""
    made = SqliteStores(tmp_path)

    async def restart():
        await stores.close()
        await made.open()
        return made

    yield restart
    await made.close()


class TestSqliteDocuments(DocumentsContract):
    """DocumentStore and PassageIndex over SQLite."""


# ---------------------------------------------------------------- the file
async def test_a_file_of_version_2_gets_its_place_for_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "SCHEMA_VERSION", 2)
    file.prepare(tmp_path / "memory.db", create=True)
    monkeypatch.undo()
    stores = SqliteStores(tmp_path)
    await stores.open()
    await put(stores, "figs")
    assert await found(stores, "figs") == ["figs"]
    await stores.close()


async def test_without_the_file_documents_are_unavailable(tmp_path):
    stores = SqliteStores(tmp_path / "absent")
    with pytest.raises(StoreUnavailable):
        await stores.passages.holds(ANNA)
    await stores.close()
