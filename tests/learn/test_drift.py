"""Topic drift, with the real embedding model and the real store."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import Embedder
from proxy.domain.session import ORDINARY, SessionState
from proxy.learn.budget import CallBounds, Load
from proxy.learn.triggers import TopicDrift, TopicSample, TriggerPolicy, noting_undue, shifts
from proxy.learn.worker import Worker, WorkerConfig
from tests.learn.support import House

TRIP = (
    ("I'm planning a trip to Lisbon in May, hotels near the river please.", "Try the hotels in Belém."),
    ("Which of the Lisbon hotels has rooms with a view of the river?", "The Altis Belém hotel has."),
    ("And what do hotel rooms cost in Lisbon in May, with breakfast?", "About 180 euros a night."),
)
CODE = "My Postgres query over the orders table got slow since the index was dropped by a migration."


def said(*directions: float, words: Sequence[str] = ("a", "b", "c", "d", "e")) -> list[TopicSample]:
    """Return exchanges whose vectors point in these directions, in degrees."""
    found = []
    for n, degrees in enumerate(directions):
        vector = np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], np.float32)
        own = frozenset(f"{w}{n}" for w in words)
        found.append(TopicSample(own, own, vector, (vector,)))
    return found


def test_words_that_point_elsewhere_begin_a_new_topic() -> None:
    assert shifts(said(0, 20, 10, 120, 130)) == [3]


def test_what_is_far_for_one_session_is_usual_for_another() -> None:
    assert shifts(said(20, 10, 95)) == [2]
    assert shifts(said(20, 160, 95)) == []


def test_two_exchanges_are_needed_to_know_a_topic() -> None:
    assert shifts(said(0, 150)) == []
    assert shifts(said(0, 10, 150, 20)) == [2]


def test_a_few_words_and_words_of_the_topic_change_nothing() -> None:
    assert shifts([*said(0, 10), *said(150, words=("thanks",))]) == []
    near = said(0, 10, 100)
    known = TopicSample(near[2].words, near[0].own, near[2].vector, near[2].vectors)
    assert shifts(near) == [2]
    assert shifts([near[0], near[1], known]) == []


def test_without_a_vector_nothing_is_seen() -> None:
    mute = TopicSample(frozenset("abcde"), frozenset("abcde"), None, ())
    assert shifts([mute, mute, mute]) == []
    assert shifts([mute, mute, *said(100)]) == []


@pytest.fixture
def patient(house: House) -> House:
    """A house in which only a topic's end makes anything due."""
    house.policy = TriggerPolicy(batch_size=50, idle_seconds=9999, personal_idle_seconds=9999)
    return house


def worker(house: House, embedder: Embedder) -> Worker:
    tools = replace(
        house.worker()._tools,
        drift=TopicDrift(house.stores.sessions, embedder),
        load=Load(CallBounds(), lambda: house.now),
    )
    return Worker(tools, WorkerConfig(policy=house.policy), clock=lambda: house.now)


async def test_what_was_said_before_a_new_topic_is_due_and_the_new_one_is_not(
    patient: House, embedder: Embedder
) -> None:
    for text, answer in TRIP:
        await patient.say(text, answer)
    ours = worker(patient, embedder)
    assert await ours.sweep() == 0
    await patient.say(CODE, "Create the index again, concurrently.")
    assert await ours.sweep() == 1
    job = await patient.stores.jobs.claim(patient.now, 60)
    assert job is not None
    assert job.lane == ORDINARY
    batch = await patient.stores.jobs.batch(job, limit=20, context=0)
    assert [e.said for e in batch.pending] == [text for text, _ in TRIP]


async def test_a_session_is_measured_at_once_for_every_exchange(patient: House, embedder: Embedder) -> None:
    watched = _Counting(embedder)
    ours = worker(patient, watched)
    for text, answer in TRIP[:2]:
        await patient.say(text, answer)
    await ours.sweep()
    looked = watched.calls
    assert looked
    await ours.sweep()
    assert watched.calls == looked
    await patient.say(*TRIP[2])
    await ours.sweep()
    assert watched.calls > looked


async def test_a_session_that_waits_no_longer_is_known_no_longer(patient: House, embedder: Embedder) -> None:
    drift, told = TopicDrift(patient.stores.sessions, embedder), list[SessionState]()
    for text, answer in TRIP[:2]:
        await patient.say(text, answer)
    await patient.stores.sessions.sweep(patient.now, noting_undue(lambda state: None, told))
    await drift.left_behind(told)
    assert len(drift._measured_at) == len(told) == 1
    await drift.left_behind([])  # another replica swept
    assert len(drift._measured_at) == 1
    await drift.left_behind([replace(told[0], session_id="s-2", pending=1)])
    assert not drift._measured_at


async def test_a_lone_exchange_and_a_broken_model_cost_nothing(patient: House, embedder: Embedder) -> None:
    watched = _Counting(embedder)
    ours = worker(patient, watched)
    await patient.say(*TRIP[0])
    await ours.sweep()
    assert watched.calls == 0
    watched.error = EmbeddingFailed("no")
    await patient.say(*TRIP[1])
    await patient.say(CODE)
    assert await ours.sweep() == 0
    watched.error = None
    assert await ours.sweep() == 1


async def test_a_language_that_the_model_does_not_know_has_no_topics(
    patient: House, embedder: Embedder
) -> None:
    unread = _Counting(embedder)
    unread.readable = False
    for text, answer in (*TRIP, (CODE, "Yes.")):
        await patient.say(text, answer)
    assert await worker(patient, unread).sweep() == 0


class _Counting:
    """The embedder, and how often it was asked."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder, self.model = embedder, embedder.model
        self.calls, self.readable = 0, True
        self.error: EmbeddingFailed | None = None

    async def embed_query(self, text: str) -> bytes:
        return (await self.embed([text]))[0]

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.calls += 1
        if self.error:
            raise self.error
        return await self._embedder.embed(texts)

    def begin(self, text: str) -> None: ...

    def understands(self, text: str) -> bool:
        return self.readable and self._embedder.understands(text)
