"""Vectors of what is to be stored: whoever wants them, the model is asked once, and lets others go on."""

import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from proxy.admit.gate import REMIND_S, Basis, Gate, Languages, admit, vectors_of, with_readings
from proxy.domain.core import Candidate, Confirm, Create, Edit, Memory
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import Embedder, EmbeddingModel
from proxy.learn.documents import DocumentIngester
from proxy.learn.extractor import related
from tests.learn.support import ANA, NOON, House, batch, exchange
from tests.storage.recording import recorded
from tests.support.judge import ScriptedJudge

MODEL = EmbeddingModel("scripted", 3, similarity_threshold=0.25, related_threshold=0.3)


@dataclass
class Watched:
    """Understands what is ASCII; keeps what it was asked, and by which thread."""

    asked: list[str] = field(default_factory=list)
    threads: set[threading.Thread] = field(default_factory=set)
    embedded: list[str] = field(default_factory=list)
    model: EmbeddingModel = MODEL

    async def embed_query(self, text: str) -> bytes:
        return (await self.embed([text]))[0]

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.embedded += texts
        return [np.array([1, 0, len(text)], np.float32).tobytes() for text in texts]

    def begin(self, text: str) -> None: ...

    def understands(self, text: str) -> bool:
        self.asked.append(text)
        self.threads.add(threading.current_thread())
        return text.isascii()


async def test_each_text_has_its_own_vector_and_what_is_not_understood_has_none() -> None:
    embedder: Any = Watched()
    found = await vectors_of(embedder, ["a", "猫", "abc"])
    assert [vector and np.frombuffer(vector, np.float32)[2] for vector in found] == [1, None, 3]
    assert await vectors_of(None, ["a", "b"]) == [None, None]
    assert await vectors_of(embedder, []) == []


async def test_a_memory_is_embedded_as_it_is() -> None:
    embedder: Any = Watched()
    await vectors_of(embedder, ["User's rent is due (stated 2026-01-22)."])
    assert embedder.embedded == ["User's rent is due (stated 2026-01-22)."]


async def _admit(house: House, embedder: Embedder) -> None:
    began = await house.stores.memories.stamp(ANA)
    candidates = [Candidate(type="semantic", content=c) for c in ("User lives in Ghent", "用户养了一只猫")]
    await admit(Gate(house.stores.memories, embedder), ANA, candidates, Basis(began, NOON, seed="job"))


async def _related(house: House, embedder: Embedder) -> None:
    said = exchange("I live in Ghent. 我养了一只猫。")
    await related(house.stores.memories, embedder, batch(said), NOON)


async def _library(house: House, embedder: Embedder) -> None:
    library = DocumentIngester(house.stores.documents, house.stores.passages, embedder, lambda: NOON)
    await library.add(ANA, "Guide", "# Guide\n\nHello.\n\n## 猫\n\n我养了一只猫。\n", "markdown")


@pytest.mark.parametrize("work", [_admit, _related, _library])
async def test_the_model_is_asked_once_a_text_and_not_on_the_event_loop(
    house: House, work: Callable[[House, Embedder], Awaitable[None]]
) -> None:
    embedder: Any = Watched()
    await house.stores.memories.stamp_model(MODEL)
    await work(house, embedder)
    assert len(embedder.asked) == len(set(embedder.asked)) > len(embedder.embedded) > 0
    assert threading.main_thread() not in embedder.threads


def test_the_log_says_once_an_hour_that_most_texts_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, now = recorded(monkeypatch, lambda facts: facts), [0.0]
    languages = Languages(lambda: now[0])
    languages.note([True] * 9 + [False] * 10)
    assert lines == []
    languages.note([False])
    languages.note([False] * 50)
    assert [(event, facts["texts"], facts["unread"]) for event, facts in lines] == [
        ("embedding.language_not_read", 20, 11)
    ]
    now[0] = REMIND_S
    languages.note([False])
    assert len(lines) == 2


async def test_what_is_stored_comes_with_its_reading_and_a_failing_judge_is_done_without() -> None:
    memory = Memory(
        id="m1",
        scope=ANA,
        type="semantic",
        content="Ana lives in Graz.",
        source="api",
        created_at=NOON,
        updated_at=NOON,
        valid_from=NOON,
    )
    changes: list[Any] = [
        Create(memory, b"1"),
        Confirm(id="m2", at=NOON, confidence=0.9),
        Edit(memory, None),
        Edit(memory, b"2"),
    ]
    found = await with_readings(ScriptedJudge(), changes)
    content = memory.content.encode()
    assert found == [
        replace(changes[0], reading=content),
        *changes[1:3],
        replace(changes[3], reading=content),
    ]

    class Broken(ScriptedJudge):
        async def readings(self, contents: Sequence[str]) -> list[bytes | None]:
            raise EmbeddingFailed("closed")

    assert await with_readings(Broken(), changes) == changes
    assert await with_readings(None, changes) == changes
