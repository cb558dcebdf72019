"""The embedder never blocks the event loop, shares runs, and survives cancelled and failing calls."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import EmbeddingModel
from proxy.models.embedder import Encoder, OnnxEmbedder
from proxy.models.load import load_embedder

MODEL = EmbeddingModel("gated", 2, 0.3, 0.8)


class GatedSession:
    """An onnxruntime session whose runs wait until the test opens the gate."""

    def __init__(self) -> None:
        self.gate, self.entered = threading.Event(), threading.Semaphore(0)
        self.runs: list[int] = []  # tokens of each, in the order in which they begin
        self.error: Exception | None = None

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="input_ids", type="tensor(int32)")]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name="sentence_embedding")]

    def run(self, _outputs: list[str], feed: dict[str, Any]) -> list[Any]:
        assert feed["input_ids"].dtype == np.int32
        self.runs.append(feed["input_ids"].size)
        self.entered.release()
        assert self.gate.wait(10)
        if self.error:
            raise self.error
        return [np.ones((len(feed["input_ids"]), 2), np.float32)]

    async def begun(self, runs: int = 1) -> None:
        for _ in range(runs):
            await asyncio.to_thread(self.entered.acquire)


class Letters:
    """A tokenizer with one token per character."""

    def ids(self, text: str) -> list[int]:
        return [ord(c) % 100 for c in text]


@pytest.fixture
def session():
    return GatedSession()


def embedder_of(session: GatedSession, **options: Any) -> OnnxEmbedder:
    return OnnxEmbedder(Encoder(session, Letters()), MODEL, **options)


@pytest.fixture
def embedder(session):
    return embedder_of(session)


async def test_recent_texts_are_not_computed_again(session):
    session.gate.set()
    embedder = embedder_of(session, cache_size=2)
    (first,) = await embedder.embed(["twice"])
    assert await embedder.embed(["once", "twice", "twice"]) == [first] * 3
    assert await embedder.embed_query("twice") == first
    assert len(session.runs) == 2
    for text in ("other", "twice", "once"):  # "once" was evicted
        await embedder.embed([text])
    assert len(session.runs) == 4
    embedder.close()


async def test_cancelled_calls_leave_the_pool_working(embedder, session):
    calls = [asyncio.create_task(embedder.embed([f"call {i}"])) for i in range(5)]
    await session.begun(2)  # the event loop runs while the model does
    for call in calls:
        call.cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    session.gate.set()
    assert len(await embedder.embed(["after", "them"])) == 2
    embedder.close()  # waits for the threads, so that the count is final
    assert len(session.runs) == 4  # two running when they were cancelled, three never begun, two after


@pytest.mark.parametrize(("threads", "in_background"), [(1, True), (2, False)])
async def test_a_query_overtakes_a_long_import(session, threads, in_background):
    embedder = embedder_of(session, threads=threads)
    importer = embedder.in_background() if in_background else embedder
    facts = [f"fact number {i}" for i in range(40)]
    imports = [asyncio.create_task(importer.embed(facts[i::4])) for i in range(4 if in_background else 1)]
    await session.begun()
    query = asyncio.create_task(embedder.embed(["?"]))
    await asyncio.sleep(0)
    session.gate.set()
    await asyncio.gather(query, *imports)
    assert session.runs.index(len("?")) < 10
    embedder.close()


async def test_a_failing_model_is_embedding_failed_and_may_recover(embedder, session):
    session.gate.set()
    session.error = RuntimeError("a private text")
    embedder.begin("x")
    with pytest.raises(EmbeddingFailed) as raised:
        await embedder.embed(["x"])
    assert "private" not in str(raised.value)
    session.error = None
    assert len(await embedder.embed(["x"])) == 1
    embedder.close()
    embedder.close()
    embedder.begin("late")  # never fails
    with pytest.raises(EmbeddingFailed, match="closed"):
        await embedder.embed(["late"])


# ---------------------------------------------------------------- vectors of real models
async def test_a_vector_depends_on_its_text_alone(fetched, tmp_path):
    embedder = load_embedder(tmp_path, cache_size=0).embedder
    assert embedder is not None
    texts = ["short", "a text of a few more words", "word " * 120]
    together = await embedder.embed(texts)
    assert together == [vector for text in texts for vector in await embedder.embed([text])]
    assert await embedder.embed([]) == []
    embedder.close()


async def test_any_text_has_a_unit_vector(fetched, tmp_path):
    embedder = load_embedder(tmp_path).embedder
    texts = ["", " \n", "\0", "a\ud800b", "🎉", "x" * 5_000_000, "</s><mask>", "語Wort слово" * 900]
    for vector in await embedder.embed(texts):
        assert np.linalg.norm(np.frombuffer(vector, np.float32)) == pytest.approx(1, abs=1e-5)
    embedder.close()
