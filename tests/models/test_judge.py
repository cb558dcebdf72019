"""The judge reads a message in one run for its vector and all heads, off the event loop."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import Judge, MemoryText, Reading
from proxy.models import weights
from proxy.models.embedder import Encoder
from proxy.models.judge import load_judge
from proxy.models.weights import read_head
from tests.models.heads import reader_arrays, write_head, write_heads

STRANGE = ["", "word " * 200_000, "😀" * 5000, "</s><mask> \x00\ud800", "語Wort слово كلمة" * 900]


@pytest.fixture(scope="session")
def head_files(tmp_path_factory):
    return write_heads(tmp_path_factory.mktemp("heads"))


@pytest.fixture
def judge(embedder, tmp_path, head_files):
    loaded = load_judge(tmp_path, embedder, directory=head_files)
    assert loaded.judge is not None, loaded.note
    yield loaded.judge
    loaded.judge.close()


@pytest.fixture
def runs(monkeypatch):
    """The texts that the encoder ran over."""
    seen: list[str] = []
    run = Encoder._run

    def watched(self, text, outputs):
        seen.append(text)
        return run(self, text, outputs)

    monkeypatch.setattr(Encoder, "_run", watched)
    return seen


def numbers(reading: Reading) -> list[float]:
    needs, asks = reading.needs, reading.asks
    return [
        *(needs.memory, needs.small_talk, needs.world, needs.tool, needs.self_contained),
        *(asks.remember, asks.forget, asks.off_record, asks.rule),
    ]


# ---------------------------------------------------------------- messages
async def test_a_wish_to_remember_is_not_taken_for_one_to_forget(embedder, tmp_path):
    shipped = load_judge(tmp_path, embedder).judge
    assert shipped is not None
    for closely in (False, True):
        read = await shipped.read("Please remember that I work at Elmgate Hospital.", closely=closely)
        assert read.asks.forget < 0.5 < read.asks.remember
    assert (await shipped.read("Please forget that I work at Elmgate Hospital.")).asks.forget > 0.5
    shipped.close()


async def test_one_run_gives_the_vector_and_what_the_heads_say(judge, embedder, runs):
    port: Judge = judge
    port.begin("Where does my sister live?")
    embedder.begin("Where does my sister live?")
    reading, vector = await asyncio.gather(
        port.read("Where does my sister live?"), embedder.embed_query("Where does my sister live?")
    )
    again = await port.read("Where does my sister live?")
    assert len(runs) == 1
    assert reading.vector == vector
    assert reading == again
    assert len({round(number, 6) for number in numbers(reading)}) == 9
    assert all(0 < number < 1 for number in numbers(reading))


async def test_any_text_is_judged(judge):
    for text in STRANGE:
        reading = await judge.read(text)
        assert np.isfinite(numbers(reading)).all()
        assert await judge.helps(reading, [MemoryText(text)])
    for relation in await judge.relations([(text, "User lives in Graz.") for text in STRANGE]):
        assert relation.same + relation.changed + relation.apart == pytest.approx(1)
    for statement in await judge.statements([(text, text) for text in STRANGE]):
        assert statement.user + statement.other + statement.impersonal == pytest.approx(1)


# ---------------------------------------------------------------- memories
async def test_a_stored_reading_spares_the_pass_and_one_of_another_head_does_not(embedder, tmp_path, runs):
    directory, facts = write_heads(tmp_path), ["I live in Graz.", "Red."]
    write_head(directory, "relevance", reader_arrays(), open=[0.0, 1.0])
    judge = load_judge(tmp_path, embedder, directory=directory).judge
    message = await judge.read("Where do I live?")
    vectors = await embedder.embed(facts)
    given = await judge.helps(message, list(map(MemoryText, facts, vectors)))
    readings = await judge.readings(facts)
    assert all(reading and len(reading) < 3_000 for reading in readings)
    judge.close()
    fresh = load_judge(tmp_path, embedder, directory=directory).judge
    assert fresh is not None
    runs.clear()
    memories = list(map(MemoryText, facts, vectors))

    async def stored(indices):
        return [readings[at] for at in indices]

    assert await fresh.helps(message, memories, stored) == pytest.approx(given)
    assert runs == []
    fresh.close()
    changed = reader_arrays() | {"cosine": np.array([12.0, -4.0])}
    write_head(directory, "relevance", changed, open=[0.0, 1.0])
    other = load_judge(tmp_path, embedder, directory=directory).judge
    await other.helps(message, memories, stored)
    assert sorted(runs) == sorted("passage: " + fact for fact in facts)
    other.close()


# ---------------------------------------------------------------- files
def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def age(path: Path) -> None:
    card = path.with_suffix(".json")
    card.write_text(card.read_text().replace(weights.ENCODER_NAME, "memory-e5-small-v0"))


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        ("message", Path.unlink, "is missing"),
        ("profile", cut, "is damaged"),
        ("relevance", age, "is of another version (memory-e5-small-v0)"),
        ("relation", lambda path: path.with_suffix(".json").write_text("{"), "cannot be read"),
    ],
)
def test_a_head_that_cannot_be_used_is_the_reason_for_no_judge(embedder, tmp_path, name, damage, reason):
    directory = write_heads(tmp_path)
    damage(directory / f"{name}.npz")
    loaded = load_judge(tmp_path, embedder, directory=directory)
    assert loaded.judge is None
    assert name in loaded.note
    assert reason in loaded.note


async def test_a_head_that_fails_later_is_embedding_failed(judge, head_files, monkeypatch):
    def failing(*_):
        raise RuntimeError("a private text")

    monkeypatch.setattr("onnxruntime.InferenceSession.run_with_ort_values", failing)
    with pytest.raises(EmbeddingFailed) as raised:
        await judge.relations([("a", "b")])
    assert "private" not in str(raised.value)
    judge.close()
    with pytest.raises(EmbeddingFailed, match="closed"):
        await judge.relations([("a", "b")])


def test_the_heads_that_ship_are_whole():
    for card in sorted(weights.DIRECTORY.glob("*.json")):
        assert json.loads(card.read_text("utf-8"))["scores"], "a card says how good the head is"
        read_head(card.stem)
