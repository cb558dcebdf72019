"""The embedder: never in the event loop's way, and whole after whatever happens to its callers."""

import asyncio
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import Embedder, EmbeddingModel
from proxy.models.embedder import Encoder, OnnxEmbedder, Prompts
from proxy.models.load import load_embedder

MODEL = EmbeddingModel("gated", 2, 0.3, 0.8)


class GatedSession:
    """Stands for onnxruntime's session: a run waits until the test opens the gate."""

    def __init__(self) -> None:
        self.gate, self.entered = threading.Event(), threading.Semaphore(0)
        self.runs: list[int] = []  # tokens of each
        self.error: Exception | None = None

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="input_ids", type="tensor(int32)")]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name="sentence_embedding")]

    def run(self, _outputs: list[str], feed: dict[str, Any]) -> list[Any]:
        assert feed["input_ids"].dtype == np.int32
        self.runs.append(feed["input_ids"].size)  # in the order in which they begin
        self.entered.release()
        assert self.gate.wait(10)
        if self.error:
            raise self.error
        return [np.ones((len(feed["input_ids"]), 2), np.float32)]


class Letters:
    """Stands for a tokenizer: one token a character."""

    def ids(self, text: str) -> list[int]:
        return [ord(c) % 100 for c in text]


@pytest.fixture
def session() -> GatedSession:
    return GatedSession()


@pytest.fixture
def embedder(session: GatedSession) -> OnnxEmbedder:
    encoder: Any = Encoder(session, Letters())  # type: ignore[arg-type]
    return OnnxEmbedder(encoder, MODEL)


async def test_the_model_reads_its_prompts_first(session: GatedSession) -> None:
    encoder: Any = Encoder(session, Letters())  # type: ignore[arg-type]
    embedder = OnnxEmbedder(encoder, MODEL, prompts=Prompts("query: ", "passage: "))
    session.gate.set()
    embedder.begin("seven")
    await embedder.embed_query("seven")
    await embedder.embed(["seven"])
    await embedder.in_background().embed(["seven"])  # kept
    await embedder.in_background().embed_query("twelve")
    embedder.close()
    assert session.runs == [len("query: seven"), len("passage: seven"), len("query: twelve")]


async def test_without_prompts_a_text_is_read_once_for_both(
    embedder: OnnxEmbedder, session: GatedSession
) -> None:
    session.gate.set()
    await embedder.embed(["my cat"])
    await embedder.embed_query("my cat")
    embedder.close()
    assert len(session.runs) == 1


async def test_the_event_loop_runs_while_the_model_does(
    embedder: OnnxEmbedder, session: GatedSession
) -> None:
    waiting = asyncio.create_task(embedder.embed(["slow"]))
    await asyncio.to_thread(session.entered.acquire)
    assert not waiting.done()  # this line runs while the model is at work
    session.gate.set()
    assert len(await waiting) == 1
    embedder.close()


async def test_cancelled_calls_leave_the_pool_in_order(embedder: OnnxEmbedder, session: GatedSession) -> None:
    calls = [asyncio.create_task(embedder.embed([f"call {i}"])) for i in range(5)]
    await asyncio.to_thread(session.entered.acquire)
    await asyncio.to_thread(session.entered.acquire)
    for call in calls:
        call.cancel()
    assert all(
        isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*calls, return_exceptions=True)
    )
    session.gate.set()
    assert len(await embedder.embed(["after", "them"])) == 2
    embedder.close()  # waits for the threads, so that the count is final
    assert len(session.runs) == 4  # two under way when they were cancelled, three never begun, two after


async def test_a_query_does_not_wait_for_a_long_import(embedder: OnnxEmbedder, session: GatedSession) -> None:
    bulk = asyncio.create_task(embedder.embed([f"fact number {i}" for i in range(200)]))
    await asyncio.to_thread(session.entered.acquire)
    query = asyncio.create_task(embedder.embed(["query"]))
    await asyncio.to_thread(session.entered.acquire)  # its run has begun beside the import's
    assert not bulk.done()
    session.gate.set()
    await asyncio.gather(bulk, query)
    embedder.close()


async def test_one_thread_is_enough_for_a_query_to_overtake_an_import(session: GatedSession) -> None:
    encoder: Any = Encoder(session, Letters())  # type: ignore[arg-type]
    embedder = OnnxEmbedder(encoder, MODEL, threads=1)
    bulk = asyncio.create_task(embedder.embed([f"fact number {i}" for i in range(40)]))
    await asyncio.to_thread(session.entered.acquire)
    query = asyncio.create_task(embedder.embed(["?"]))
    await asyncio.sleep(0)  # lets it join the queue
    session.gate.set()
    await asyncio.gather(bulk, query)
    assert session.runs.index(len("?")) < 10
    embedder.close()


async def test_a_query_finds_a_thread_free_however_much_is_done_in_the_background(
    embedder: OnnxEmbedder, session: GatedSession
) -> None:
    background = embedder.in_background()
    many = [asyncio.create_task(background.embed([f"fact number {i}"])) for i in range(20)]
    await asyncio.to_thread(session.entered.acquire)
    query = asyncio.create_task(embedder.embed(["?"]))
    await asyncio.to_thread(session.entered.acquire)
    session.gate.set()
    await asyncio.gather(query, *many)
    assert session.runs.index(len("?")) <= 1
    embedder.close()


async def test_a_failing_model_is_embedding_failed_and_may_recover(
    embedder: OnnxEmbedder, session: GatedSession
) -> None:
    session.gate.set()
    session.error = RuntimeError("text that nobody may log")
    with pytest.raises(EmbeddingFailed) as raised:
        await embedder.embed(["x"])
    assert "nobody" not in str(raised.value)
    session.error = None
    assert len(await embedder.embed(["x"])) == 1
    embedder.close()


async def test_a_text_embedded_lately_is_not_computed_again(
    embedder: OnnxEmbedder, session: GatedSession
) -> None:
    session.gate.set()
    (first,) = await embedder.embed(["twice"])
    assert await embedder.embed(["twice"]) == [first]
    assert await embedder.embed(["once", "twice", "twice"]) == [first] * 3
    assert len(session.runs) == 2
    embedder.close()


async def test_who_asks_for_what_was_begun_waits_for_that_run(
    embedder: OnnxEmbedder, session: GatedSession
) -> None:
    embedder.begin("soon")
    embedder.begin("soon")
    asked = [asyncio.create_task(embedder.embed(["soon"])) for _ in range(2)]
    await asyncio.to_thread(session.entered.acquire)
    session.gate.set()
    first, second = await asyncio.gather(*asked)
    assert first == second
    embedder.begin("soon")  # known by now
    embedder.begin("a hint that was wrong")
    assert await embedder.embed(["soon"]) == first
    embedder.close()
    assert sorted(session.runs) == [len("soon"), len("a hint that was wrong")]
    embedder.begin("late")  # never fails


async def test_of_several_that_were_begun_some_may_end_while_another_is_waited_for(
    embedder: OnnxEmbedder, session: GatedSession
) -> None:
    texts = ["one", "other"]
    for text in texts:
        embedder.begin(text)
    asked = asyncio.create_task(embedder.embed(texts))
    for _ in texts:
        await asyncio.to_thread(session.entered.acquire)
    session.gate.set()
    time.sleep(0.05)  # noqa: ASYNC251 the loop hears of both ends at once
    assert len(await asked) == 2
    embedder.close()


async def test_what_was_begun_is_called_off_when_all_who_waited_have_gone(
    embedder: OnnxEmbedder, session: GatedSession
) -> None:
    busy = [asyncio.create_task(embedder.embed([f"call {i}"])) for i in range(2)]
    await asyncio.to_thread(session.entered.acquire)
    await asyncio.to_thread(session.entered.acquire)
    embedder.begin("too late")
    gone, stays = (asyncio.create_task(embedder.embed(["too late"])) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    assert not stays.done()  # somebody else's cancellation is not its own
    stays.cancel()
    await asyncio.gather(gone, stays, return_exceptions=True)
    session.gate.set()
    await asyncio.gather(*busy)
    embedder.close()
    assert len("too late") not in session.runs


async def test_who_comes_as_the_last_one_leaves_is_not_cancelled_with_him(
    embedder: OnnxEmbedder, session: GatedSession
) -> None:
    async def ask() -> list[bytes]:
        embedder.begin("the same")
        return await embedder.embed(["the same"])

    gone = asyncio.create_task(ask())
    await asyncio.to_thread(session.entered.acquire)
    gone.cancel()
    comes = asyncio.create_task(ask())  # in the same pass of the loop
    await asyncio.sleep(0)
    session.gate.set()
    assert len(await comes) == 1
    embedder.close()


async def test_a_run_that_was_begun_and_failed_fails_whoever_asks(
    embedder: OnnxEmbedder, session: GatedSession
) -> None:
    session.gate.set()
    session.error = RuntimeError("text that nobody may log")
    embedder.begin("x")
    with pytest.raises(EmbeddingFailed):
        await embedder.embed(["x"])
    session.error = None
    assert len(await embedder.embed(["x"])) == 1
    embedder.close()


async def test_the_cache_forgets_what_was_not_used_longest(session: GatedSession) -> None:
    session.gate.set()
    encoder: Any = Encoder(session, Letters())  # type: ignore[arg-type]
    embedder = OnnxEmbedder(encoder, MODEL, cache_size=2)
    for text in ("a", "b", "a", "c", "a"):
        await embedder.embed([text])
    assert len(session.runs) == 3
    await embedder.embed(["b"])
    assert len(session.runs) == 4
    embedder.close()


async def test_a_closed_embedder_says_so(embedder: OnnxEmbedder) -> None:
    embedder.close()
    embedder.close()
    with pytest.raises(EmbeddingFailed, match="closed"):
        await embedder.embed(["late"])


async def test_vectors_come_in_the_order_of_the_texts(tiny_model: Path) -> None:
    loaded = load_embedder(tiny_model.parent, model="tiny", path=tiny_model)
    embedder: Embedder | None = loaded.embedder
    assert embedder is not None
    texts = [" ".join("abc"[(i * 7 + j) % 3] for j in range(i % 40)) for i in range(90)]
    together = await embedder.embed(texts)
    fresh = load_embedder(tiny_model.parent, model="tiny", path=tiny_model, cache_size=0).embedder
    assert fresh is not None
    for text, vector in zip(texts, together, strict=True):
        (alone,) = await fresh.embed([text])
        assert np.frombuffer(vector, np.float32) == pytest.approx(np.frombuffer(alone, np.float32), abs=1e-6)
    assert await embedder.embed([]) == []
    fresh.close()
    assert loaded.embedder is not None
    loaded.embedder.close()
