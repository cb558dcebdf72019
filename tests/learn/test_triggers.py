"""When pending exchanges become a job: what a message asks for, batches, silence, and a new topic."""

from dataclasses import replace

import numpy as np
import pytest

from proxy.domain.session import BATCH, EXPLICIT, ORDINARY, NewJob, SessionState
from proxy.learn.recorder import TOOLS_S, TriggerPolicy
from proxy.learn.worker import TopicDrift, Worker, WorkerConfig
from tests.learn.support import ANA, NOON, House
from tests.support.embedder import ScriptedEmbedder

# ---------------------------------------------------------------- what a message asks for
# ---------------------------------------------------------------- triggers
POLICY = TriggerPolicy(batch_size=5, idle_seconds=600, personal_idle_seconds=15)
STATE = SessionState(
    scope=ANA, session_id="s", last_at=NOON, last_seq=9, pending=1,
    explicit=False, personal=False, at_work=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "lane"),
    [
        ({}, None),
        ({"explicit": True}, EXPLICIT),
        ({"explicit": True, "at_work": True}, EXPLICIT),
        ({"pending": 5}, ORDINARY),
        ({"pending": 5, "at_work": True}, None),  # tools are at work
        ({"pending": 10, "at_work": True}, ORDINARY),
    ],
)
def test_a_completed_exchange_is_due_for_an_explicit_ask_or_a_full_batch(changes, lane):
    due = NewJob("s", upto=9, lane=lane) if lane else None
    state = replace(STATE, **changes)
    assert POLICY.on_completion(state) == due
    if due:
        assert POLICY.on_sweep(state, NOON) == due, "a sweep finds what a crash left"


@pytest.mark.parametrize(
    ("changes", "after_s", "lane"),
    [
        ({"personal": True}, 14, None),
        ({"personal": True}, 15, ORDINARY),
        ({}, 599, None),
        ({}, 600, BATCH),
        ({"personal": True, "at_work": True}, TOOLS_S, ORDINARY),
        ({"pending": 5, "at_work": True}, TOOLS_S, ORDINARY),
        ({"at_work": True}, TOOLS_S, None),
    ],
)
def test_an_idle_session_is_due_sooner_if_it_is_personal_and_waits_for_tools(changes, after_s, lane):
    state = replace(STATE, **changes)
    assert POLICY.on_sweep(state, NOON + after_s) == (NewJob("s", upto=9, lane=lane) if lane else None)


# ---------------------------------------------------------------- topic drift
TRIP = (
    ("I'm planning a trip to Lisbon in May, hotels near the river please.", "Try the hotels in Belém."),
    ("Which of the Lisbon hotels has rooms with a view of the river?", "The Altis Belém hotel has."),
    ("And what do hotel rooms cost in Lisbon in May, with breakfast?", "About 180 euros a night."),
)
CODE = "My Postgres query over the orders table got slow since the index was dropped by a migration."


@pytest.fixture
def patient(house):
    """A house in which only the end of a topic makes anything due."""
    house.policy = TriggerPolicy(batch_size=50, idle_seconds=9999, personal_idle_seconds=9999)
    return house


@pytest.fixture
def watched():
    """An embedder by which code is far from a trip."""
    axes = np.eye(3, dtype=np.float32)
    return ScriptedEmbedder(lambda text: axes[1 if "index" in text else 0].tobytes())


def worker(house: House, embedder: ScriptedEmbedder) -> Worker:
    tools = replace(house.worker()._tools, drift=TopicDrift(house.stores.sessions, embedder))
    return Worker(tools, WorkerConfig(policy=house.policy), clock=lambda: house.now)


async def test_exchanges_before_a_new_topic_are_due_and_the_new_one_is_not(patient, watched):
    for text, answer in TRIP:
        await patient.say(text, answer)
    ours = worker(patient, watched)
    assert await ours.sweep() == 0
    measured = len(watched.embedded)
    assert await ours.sweep() == 0
    assert len(watched.embedded) == measured, "a session is measured once per exchange"
    await patient.say(CODE, "Create the index again, concurrently.")
    assert await ours.sweep() == 1
    job = await patient.stores.jobs.claim(patient.now, 60)
    assert job.lane == ORDINARY
    batch = await patient.stores.jobs.batch(job, limit=20, context=0)
    assert [e.said for e in batch.pending] == [text for text, _ in TRIP]


async def test_a_broken_model_and_a_language_that_it_does_not_know_cost_nothing(patient, watched):
    ours = worker(patient, watched)
    await patient.say(*TRIP[0])
    await ours.sweep()
    assert watched.embedded == [], "one exchange is not measured"
    for text, answer in (*TRIP[1:], (CODE, "Create the index again.")):
        await patient.say(text, answer)
    assert await worker(patient, ScriptedEmbedder(reads=lambda text: False)).sweep() == 0
    watched.failing = True
    assert await ours.sweep() == 0
    watched.failing = False
    assert await ours.sweep() == 1
