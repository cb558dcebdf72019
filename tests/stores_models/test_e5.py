"""multilingual-e5-small: whole or not there, and it knows what is meant in any language."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from proxy.errors import EmbeddingFailed
from proxy.stores.models import e5, weights
from proxy.stores.models.catalog import E5
from proxy.stores.models.embedder import OnnxEmbedder
from proxy.stores.models.load import fetched_dir, load_embedder
from tests.stores_models.questions import WHERE_DO_I_LIVE


@pytest.fixture(scope="session")
def fetched() -> Path:
    """Where the installer put the model; skips where it could not."""
    if not weights.is_whole(fetched_dir() / weights.E5.packed_name):
        pytest.skip("multilingual-e5-small is not here: run scripts/install multilingual")
    return fetched_dir()


@pytest.fixture(scope="session")
def embedder(fetched: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnnxEmbedder]:
    loaded = load_embedder(tmp_path_factory.mktemp("models"), model=f"intfloat/{E5}")
    assert loaded.embedder is not None
    assert (loaded.source, loaded.notes) == ("package", ())
    yield loaded.embedder
    loaded.embedder.close()


async def cosines(embedder: OnnxEmbedder, question: str, *texts: str) -> list[float]:
    asked = np.frombuffer(await embedder.embed_query(question), np.float32)
    return [float(np.frombuffer(vector, np.float32) @ asked) for vector in await embedder.embed(texts)]


@pytest.mark.parametrize("question", WHERE_DO_I_LIVE)
async def test_a_fact_is_found_by_a_question_in_another_language(
    embedder: OnnxEmbedder, question: str
) -> None:
    assert embedder.understands(question)
    home, *others = await cosines(
        embedder, question, "I live in Graz.", "I like tea.", "My cat is called Momo."
    )
    assert home > max(others) + 0.05


async def test_what_has_nothing_in_common_has_a_low_cosine(embedder: OnnxEmbedder) -> None:
    # Uncentred they are all above .7.
    question = "Which paint did we choose for the fence?"
    texts = ("I like tea.", "My flight leaves at seven.", "Ich bin gegen Nüsse allergisch.")
    assert max(await cosines(embedder, question, *texts)) < 0.3


async def test_a_question_is_read_otherwise_than_what_answers_it(embedder: OnnxEmbedder) -> None:
    (same,) = await cosines(embedder, "Where is my bicycle?", "Where is my bicycle?")
    assert 0.5 < same < 0.99


async def test_the_same_directory_may_be_named(fetched: Path, tmp_path: Path) -> None:
    loaded = load_embedder(tmp_path, model=E5, path=fetched)
    assert loaded.source == "directory"
    assert loaded.embedder is not None
    loaded.embedder.close()


def test_a_damaged_file_is_a_reason_and_no_crash(
    fetched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / E5
    shutil.copytree(fetched, damaged)
    with (damaged / weights.E5.packed_name).open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"not what it was")
    monkeypatch.setattr("proxy.stores.models.load.fetched_dir", lambda: damaged)
    loaded = load_embedder(tmp_path, model=E5)
    assert loaded.embedder is None
    assert "is damaged: run scripts/install multilingual" in loaded.notes[0]


def test_where_it_was_not_fetched_the_command_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.stores.models.load.fetched_dir", lambda: tmp_path / "absent")
    loaded = load_embedder(tmp_path, model=E5)
    assert loaded.embedder is None
    assert "scripts/install multilingual" in loaded.notes[0]


def test_another_file_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / e5.SOURCE_NAME
    source.write_bytes(b"E5S1 and something else")
    with pytest.raises(EmbeddingFailed, match="not the known one"):
        e5.unpack(source, tmp_path / "target")
    assert list(tmp_path.iterdir()) == [source]
