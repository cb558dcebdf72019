"""`memory-proxy doctor`: each mistake is named, with what to do, and nothing is changed."""

import asyncio
import sqlite3
import time
from collections import namedtuple
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import doctor
from proxy.cli.doctor import BAD, GOOD, NOTE, Probe, database_findings
from proxy.config import Settings, load
from proxy.domain.ports import EmbeddingModel
from proxy.storage import sqlite
from proxy.storage.sqlite import SqliteStores
from proxy.storage.sqlite.database import _APPLICATION_ID, connect
from proxy.upstream.network import Network
from tests.models.heads import write_heads
from tests.storage.making import create, store
from tests.support.upstream import ScriptedUpstream


@pytest.fixture(autouse=True)
def judge(tmp_path_factory, monkeypatch):
    """Heads for the judge, of random weights."""
    directory = write_heads(tmp_path_factory.mktemp("heads"))
    monkeypatch.setitem(doctor.load_judge.__kwdefaults__, "directory", directory)
    return directory


def settings(data_dir: Path, **sections: Any) -> Settings:
    return load(None, {}, {"storage": {"data_dir": data_dir}, **sections})


# ---------------------------------------------------------------- models
def test_a_missing_head_and_a_reranker_that_does_not_load_are_errors(tmp_path, judge):
    chosen = settings(tmp_path)
    assert [f.mark for f in doctor._embedder(chosen) if f.subject == "judge"] == [GOOD]
    assert list(doctor._reranker(chosen)) == []
    (judge / "relation.npz").unlink()
    (finding,) = (f for f in doctor._embedder(chosen) if f.subject == "judge")
    assert (finding.mark, "the head relation is missing" in finding.text) == (BAD, True)
    (finding,) = doctor._reranker(settings(tmp_path, retrieval={"rerank": str(tmp_path / "absent")}))
    assert (finding.mark, "holds no model.onnx" in finding.text) == (BAD, True)


# ---------------------------------------------------------------- upstreams
KEY = "sk-wrong-one"
LIST = b'{"data": [{"id": "m"}]}'


@pytest.mark.parametrize(
    ("setting", "models", "chat", "mark", "text"),
    [
        ("upstream.api_key", (401, LIST), None, BAD, "refuses upstream.api_key (status 401)"),
        (None, (401, LIST), None, NOTE, "clients send theirs"),
        ("upstream.api_key", (200, LIST), None, GOOD, "1 models"),
        (None, (404, b""), (400, b'{"error": {"message": "messages"}}'), GOOD, "has chat completions"),
        (None, (404, b""), (404, b'{"error": {"message": "no page"}}'), BAD, "the URL is wrong"),
        ("upstream.api_key", (404, b""), (401, b""), BAD, "refuses upstream.api_key"),
    ],
)
async def test_the_upstream_is_asked_for_its_models_and_else_for_an_empty_chat(
    setting, models, chat, mark, text
):
    async def answer(exchange):
        status, body = chat if chat and exchange.request.method == b"POST" else models
        await exchange.reply(body, status)

    async with ScriptedUpstream(answer) as upstream:
        found = await doctor._upstream("upstream", Probe(setting, upstream.url, KEY, Network()))
        sent = upstream.requests[-1]
    assert (found.mark, text in found.text) == (mark, True), found.text
    assert KEY not in found.text
    if chat:
        assert (sent.target, sent.body) == (b"/v1/chat/completions", b"{}")


async def test_redis_is_checked_without_showing_its_password(tmp_path):
    def cached(url):
        return settings(tmp_path, cache={"redis_url": url, "timeout_seconds": 5})

    assert await doctor._cache(cached(None)) == []
    (found,) = await doctor._cache(cached("redis://user:sesame@127.0.0.1:9/0"))
    assert (found.mark, "redis://127.0.0.1:9/0" in found.text, "sesame" in found.text) == (BAD, True, False)


# ---------------------------------------------------------------- the data directory
def test_the_doctor_creates_neither_a_directory_nor_a_database(tmp_path):
    for typo in (tmp_path / "dta", tmp_path / "a" / "b"):
        found = list(doctor._checks(settings(typo)))
        assert [f.mark for f in found if f.subject == "data"] == [NOTE]
        assert [f.mark for f in found if f.subject == "embeddings"] == [GOOD]
    keys = settings(tmp_path, identity={"mode": "keys"})
    assert doctor._data_dir(keys).mark == GOOD
    assert [finding.mark for finding in doctor._identity(keys)] == [BAD]
    assert not [f for f in doctor._checks(settings(tmp_path)) if f.mark == BAD]
    assert not list(tmp_path.iterdir())


def test_a_database_of_an_older_version_is_not_migrated(tmp_path):
    script = resources.files("proxy.storage.sqlite").joinpath("schema_v1.sql").read_text("utf-8")
    database = tmp_path / "memory.db"
    database.touch(0o600)
    with closing(connect(database)) as connection:
        connection.executescript(
            f"{script}; PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = 1"
        )
    found = list(doctor._checks(settings(tmp_path, identity={"mode": "keys"})))
    (data,) = [f for f in found if f.subject == "data"]
    assert data.mark == NOTE
    assert all(part in data.text for part in ("schema 1", "take a backup before"))
    assert not [f for f in found if f.mark == BAD]
    with closing(connect(database)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A directory with a database of 40 memories."""
    directory = tmp_path_factory.mktemp("sound")

    async def fill():
        stores = SqliteStores(directory)
        await stores.open()
        await stores.memories.stamp_model(EmbeddingModel("mini", 3, 0.3, 0.8))
        await store(stores.memories, *(create(f"fact {n} " * 50) for n in range(40)))
        await stores.close()

    asyncio.run(fill())
    return directory


@pytest.fixture
def database(sound, tmp_path):
    for name in ("memory.db", "memory.opening"):
        (tmp_path / name).write_bytes((sound / name).read_bytes())
        (tmp_path / name).chmod(0o600)
    return tmp_path / "memory.db"


def test_a_lost_database_is_an_error(database):
    assert doctor._data_dir(settings(database.parent)).mark == GOOD
    for lose in (database.unlink, database.touch):
        lose()
        found = doctor._data_dir(settings(database.parent))
        assert (found.mark, "put it back, or restore a backup" in found.text) == (BAD, True)
    assert not database.stat().st_size


def marks(database: Path, model: str = "mini") -> dict[str, str]:
    return {finding.subject: finding.mark for finding in database_findings(database, model)}


def test_a_sound_database_is_reported_and_one_of_another_model_is_an_error(database):
    assert marks(database) == {"database": GOOD, "disk": GOOD}
    assert "40 memories" in next(database_findings(database, "mini")).text
    assert marks(database, "other")["vectors"] == BAD
    chosen = settings(database.parent, embedding={"model": "somebody/mini"})
    found = [f for f in doctor._checks(chosen) if f.subject == "vectors"]
    assert found == [], "an organisation's prefix does not change the model"


def test_a_damaged_page_and_a_file_of_another_kind_are_errors(database):
    with database.open("r+b") as opened:
        opened.seek(database.read_bytes().index(b"fact 20 fact 20") // 4096 * 4096)
        opened.write(b"\xff" * 4096)
    assert marks(database)["database"] == BAD
    database.write_bytes(b"garbage " * 999)
    assert marks(database) == {"database": BAD}


def test_a_full_disk_a_large_log_a_wrong_clock_and_wide_permissions_are_reported(database, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(sqlite.shutil, "disk_usage", lambda _: usage(1, 1, 1_000_000))
    monkeypatch.setattr(doctor, "LARGE_LOG_BYTES", 0)
    database.chmod(0o644)
    copy = database.with_name("memory.db.before-restore-1")
    copy.write_bytes(b"")
    copy.chmod(0o640)
    with closing(sqlite3.connect(database)) as other:
        other.execute("UPDATE memories SET updated_at = ?", (time.time() + 90_000,))
        other.commit()
        found = {finding.subject: finding for finding in database_findings(database, "mini")}
    marks = {subject: finding.mark for subject, finding in found.items()}
    assert marks == {"database": GOOD, "disk": BAD, "log": NOTE, "privacy": BAD, "clock": BAD}
    assert "memory.db memory.db.before-restore-1" in found["privacy"].text
