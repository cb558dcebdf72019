"""The encoder: vectors mean what they should, and a model knows what it cannot read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxy.domain.errors import EmbeddingFailed
from proxy.models.embedder import OnnxEmbedder
from proxy.models.load import load_embedder


async def vectors(embedder: OnnxEmbedder, *texts: str) -> Any:
    return np.stack([np.frombuffer(v, np.float32) for v in await embedder.embed(texts)])


async def test_a_vector_depends_on_nothing_but_its_text(fetched: Path, tmp_path: Path) -> None:
    embedder = load_embedder(tmp_path, cache_size=0).embedder
    assert embedder is not None
    texts = ["short", "a text of a few more words", "word " * 120]
    together = await embedder.embed(texts)
    assert together == [vector for text in texts for vector in await embedder.embed([text])]
    embedder.close()


@pytest.mark.parametrize(
    "text", ["", " \n", "\0", "a\ud800b", "?!", "🎉", "x" * 5_000_000, "wörter " * 9_999]
)
async def test_any_text_has_a_unit_vector(embedder: OnnxEmbedder, text: str) -> None:
    (vector,) = await vectors(embedder, text)
    assert vector.shape == (384,)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


def test_a_model_for_many_languages_reads_single_letters(tiny_model: Path) -> None:
    loaded = load_embedder(tiny_model.parent, model="many-languages", path=tiny_model)
    assert loaded.embedder is not None
    assert loaded.embedder.understands("я и ты")
    loaded.embedder.close()


async def test_token_vectors_are_averaged(tiny_model: Path) -> None:
    (tiny_model / "tokenizer.json").write_text(_without_cls(tiny_model))
    loaded = load_embedder(tiny_model.parent, model="tiny", path=tiny_model)
    assert loaded.embedder is not None
    found = await vectors(loaded.embedder, "a", "a b", "a a a b c")
    assert found[0] == pytest.approx([1, 0, 0, 0])
    assert found[1] == pytest.approx([0.5**0.5, 0.5**0.5, 0, 0])
    loaded.embedder.close()


async def test_a_model_that_pools_its_first_token_is_honoured(tiny_model: Path) -> None:
    (tiny_model / "1_Pooling").mkdir()
    (tiny_model / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    loaded = load_embedder(tiny_model.parent, model="tiny", path=tiny_model)
    assert loaded.embedder is not None
    assert (await vectors(loaded.embedder, "a b c"))[0] == pytest.approx([0, 0, 0, 1])
    loaded.embedder.close()


async def test_a_text_without_direction_fails_and_is_not_stored(tiny_model: Path) -> None:
    (tiny_model / "tokenizer.json").write_text(_without_cls(tiny_model))
    loaded = load_embedder(tiny_model.parent, model="tiny", path=tiny_model)
    assert loaded.embedder is not None
    with pytest.raises(EmbeddingFailed):
        await loaded.embedder.embed([""])  # no tokens at all: there is nothing to average
    loaded.embedder.close()


def _without_cls(directory: Path) -> str:
    config = json.loads((directory / "tokenizer.json").read_text())
    config["post_processor"] = None
    return json.dumps(config)
