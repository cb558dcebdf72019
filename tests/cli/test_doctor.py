"""What `memory-proxy doctor` says of single settings."""

import asyncio
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import doctor
from proxy.config import Settings, load
from proxy.domain.ports import EmbeddingModel
from proxy.storage.sqlite import file
from proxy.storage.sqlite.stores import SqliteStores
from tests.models.heads import write_heads
from tests.support.upstream import ScriptedUpstream


@pytest.fixture(autouse=True)
def judge(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Heads for the judge, of random weights."""
    directory = write_heads(tmp_path_factory.mktemp("heads"))
    monkeypatch.setattr("proxy.models.heads.DIRECTORY", directory)
    return directory


def test_a_missing_head_is_an_error(tmp_path: Path, judge: Path) -> None:
    chosen = load(None, {}, {"storage": {"data_dir": tmp_path}})
    assert [f.mark for f in doctor._embedder(chosen) if f.subject == "judge"] == [doctor.GOOD]
    (judge / "relation.npz").unlink()
    (finding,) = (f for f in doctor._embedder(chosen) if f.subject == "judge")
    assert finding.mark == doctor.BAD
    assert "the head relation is missing" in finding.text


def settings(tmp_path: Path, rerank: str) -> Settings:
    return load(None, {}, {"storage": {"data_dir": tmp_path}, "retrieval": {"rerank": rerank}})


def test_without_a_reranker_there_is_no_finding(tmp_path: Path) -> None:
    assert list(doctor._reranker(settings(tmp_path, "none"))) == []


def test_a_reranker_that_cannot_be_loaded_is_an_error(tmp_path: Path) -> None:
    (finding,) = doctor._reranker(settings(tmp_path, str(tmp_path / "absent")))
    assert finding.mark == doctor.BAD
    assert "holds no model.onnx" in finding.text


KEY = "sk-wrong-one"
MODEL = {
    "model_role": "memory_extraction",
    "llm_model_name": "m",
    "llm_endpoint": "http://127.0.0.1:9/v1",
    "llm_api_key": KEY,
}


@pytest.mark.parametrize(
    ("status", "configured", "mark", "said"),
    [
        (401, True, doctor.BAD, "refuses upstream.api_key (status 401)"),
        (401, False, doctor.NOTE, "clients send theirs"),
        (403, True, doctor.NOTE, "status 403"),
        (403, False, doctor.NOTE, "clients send theirs"),
        (200, True, doctor.GOOD, "1 models"),
    ],
)
async def test_a_refused_configured_key_is_an_error(
    status: int, configured: bool, mark: str, said: str
) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.reply(b'{"data": [{"id": "m"}]}', status)

    async with ScriptedUpstream(answer) as upstream:
        own = "upstream.api_key" if configured else None
        found = await doctor._upstream("upstream", upstream.url, KEY, configured=own)
    assert found.mark == mark
    assert said in found.text
    assert KEY not in found.text


@pytest.mark.parametrize(
    ("status", "body", "mark", "said"),
    [
        (400, b'{"error": {"message": "messages is required"}}', doctor.GOOD, "has chat completions"),
        (404, b'{"error": {"message": "Resource not found"}}', doctor.BAD, "the URL is wrong"),
        (404, b'{"error": {"message": "The model is missing"}}', doctor.GOOD, "has chat completions"),
        (401, b"", doctor.BAD, "refuses upstream.api_key"),
        (503, b"", doctor.NOTE, "503 for an empty chat"),
    ],
)
async def test_an_upstream_without_a_model_list_gets_an_empty_chat(
    status: int, body: bytes, mark: str, said: str
) -> None:
    async def answer(exchange: Any) -> None:
        chats = exchange.request.method == b"POST"
        await exchange.reply(body if chats else b"", status if chats else 404)

    async with ScriptedUpstream(answer) as upstream:
        found = await doctor._upstream("upstream", upstream.url, KEY, configured="upstream.api_key")
        sent = upstream.requests[-1]
    assert (found.mark, said in found.text) == (mark, True)
    assert (sent.target, sent.body) == (b"/v1/chat/completions", b"{}")


def test_findings_name_the_configured_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in OPENAI_API_KEY is a client's: the proxy sends it nowhere."""
    asked = list[tuple[str, str | None, str | None]]()

    async def note(
        subject: str, url: str, key: str | None, model: Any = None, *, configured: Any, network: Any
    ) -> Any:
        asked.append((subject, key, configured))

    monkeypatch.setattr(doctor, "_upstream", note)
    for name in ("_embedder", "_reranker", "_identity"):
        monkeypatch.setattr(doctor, name, lambda _: ())
    monkeypatch.setenv("OPENAI_API_KEY", "sk-client")
    said: dict[str, Any] = {"storage": {"data_dir": tmp_path}}
    list(doctor._checks(load(None, {}, said)))
    list(doctor._checks(load(None, {}, {**said, "upstream": {"api_key": KEY}, "external_models": [MODEL]})))
    assert asked == [
        ("upstream", "sk-client", None),
        ("upstream", KEY, "upstream.api_key"),
        ("memory_extraction", KEY, "its llm_api_key"),
    ]


def test_the_doctor_creates_no_database(tmp_path: Path) -> None:
    """A proxy that has lost its own would take it, and remember nothing."""
    keys = load(None, {}, {"storage": {"data_dir": tmp_path}, "identity": {"mode": "keys"}})
    found = doctor._data_dir(keys)
    assert (found.mark, found.subject) == (doctor.GOOD, "data")
    assert [finding.mark for finding in doctor._identity(keys)] == [doctor.BAD]
    assert not (tmp_path / "memory.db").exists()


def test_the_doctor_creates_no_directory(tmp_path: Path) -> None:
    """What is mistyped must not look like a directory to be used first; nor is one the worse for its look."""
    for typo in (tmp_path / "dta", tmp_path / "a" / "b"):
        found = list(doctor._checks(settings(typo, "none")))
        assert [f.mark for f in found if f.subject == "data"] == [doctor.NOTE]
        assert [f.mark for f in found if f.subject == "embeddings"] == [doctor.GOOD]
    assert not list(tmp_path.iterdir())
    assert not [f for f in doctor._checks(settings(tmp_path, "none")) if f.mark == doctor.BAD]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", ["open", "keys"])
def test_the_doctor_does_not_change_data_of_an_older_version(tmp_path: Path, mode: str) -> None:
    """An older proxy may be serving them, and could not go on."""
    script = resources.files("proxy.storage.sqlite").joinpath("schema_v1.sql").read_text("utf-8")
    database = tmp_path / "memory.db"
    with closing(file.connect(_empty(database))) as connection:
        connection.executescript(
            f"{script}; PRAGMA application_id = {file._APPLICATION_ID}; PRAGMA user_version = 1"
        )
    chosen = {"storage": {"data_dir": tmp_path}, "identity": {"mode": mode}}
    found = list(doctor._checks(load(None, {}, chosen)))
    (data,) = [f for f in found if f.subject == "data"]
    assert (data.mark, "schema 1" in data.text, "take a backup before" in data.text) == (
        doctor.NOTE,
        True,
        True,
    )
    assert not [f for f in found if f.mark == doctor.BAD]
    with closing(file.connect(database)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def _empty(file: Path) -> Path:
    file.touch(0o600)
    return file


def test_a_directory_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "file/data", "link", "link/data"):
        found = doctor._data_dir(settings(tmp_path / name, "none"))
        assert found.mark == doctor.BAD, name
        assert "is no directory" in found.text


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_a_lost_database_is_an_error(tmp_path: Path, left: str) -> None:
    async def lived() -> None:
        stores = SqliteStores(tmp_path)
        await stores.open()
        await stores.close()

    asyncio.run(lived())
    assert doctor._data_dir(settings(tmp_path, "none")).mark == doctor.GOOD
    (tmp_path / "memory.db").unlink()
    if left == "an empty file":
        (tmp_path / "memory.db").touch()
    found = doctor._data_dir(settings(tmp_path, "none"))
    assert found.mark == doctor.BAD
    assert "put it back, or restore a backup" in found.text
    assert not (tmp_path / "memory.db").exists() or not (tmp_path / "memory.db").stat().st_size


def test_an_organisation_prefix_does_not_change_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_embedder", "_reranker", "_identity"):
        monkeypatch.setattr(doctor, name, lambda _: ())

    async def lived() -> None:
        stores = SqliteStores(tmp_path)
        await stores.open()
        await stores.memories.stamp_model(EmbeddingModel("mini", 3, 0.3, 0.8))
        await stores.close()

    asyncio.run(lived())

    def vectors(model: str) -> list[str]:
        chosen = load(None, {}, {"storage": {"data_dir": tmp_path}, "embedding": {"model": model}})
        return [found.mark for found in doctor._checks(chosen) if found.subject == "vectors"]

    assert vectors("mini") == vectors("somebody/mini") == []
    assert vectors("somebody/maxi") == [doctor.BAD]
