"""What is said, for store tests: exchanges, stored responses and conversations."""

import itertools
import json

from proxy.domain.core import Evidence, Scope
from proxy.domain.responses import Conversation, StoredResponse
from proxy.domain.session import NewExchange, NewJob, Outcome, SessionState, StoredExchange
from tests.storage.making import ANNA, NOW

_numbers = itertools.count(1)


def exchange(said="hello", scope=ANNA, *, session="s1", **fields):
    number = next(_numbers)
    defaults = {"id": f"e{number}", "key": f"k{number}", "model": "m", "at": NOW}
    return NewExchange(scope=scope, session_id=session, said=said, **{**defaults, **fields})


def never(state: SessionState) -> None:
    return None


def always(state: SessionState) -> NewJob:
    return NewJob(state.session_id, state.last_seq, lane=1 if state.explicit else 2)


async def talk(
    sessions, said="hello", answer="hi", trigger=never, *, whole=True, recalled=(), response_id=None, **fields
):
    """An exchange that was answered."""
    begun = await sessions.begin(exchange(said, **fields))
    assert await sessions.complete(begun, Outcome(answer, whole, response_id, recalled), trigger)
    return begun


async def extract(stores, *changes):
    """Read what is queued, as a worker does, and store the changes with each job; return what was read."""
    found = []
    while (job := await stores.jobs.claim(NOW, 60)) is not None:
        batch = await stores.jobs.batch(job, limit=9, context=0)
        await stores.memories.apply(job.scope, changes, expect=batch.stamp, done=job)
        found += [(each.said, each.answer) for each in batch.pending]
    return found


def quote(begun: StoredExchange, span: str = "", session: str = "s1") -> tuple[Evidence, ...]:
    return (Evidence(session, begun.id, span),)


def response(id: str, scope: Scope = ANNA, *, text: str = "hi", **fields: object) -> StoredResponse:
    """A response whose text is in its output and in its input."""
    defaults = {
        "session_id": "s1",
        "previous_id": None,
        "conversation_id": None,
        "response": json.dumps({"id": id, "output": [text]}).encode(),
        "input_items": json.dumps([{"id": f"msg_{id}", "content": text}]).encode(),
        "created_at": NOW,
        "expires_at": NOW + 100,
    }
    return StoredResponse(id=id, scope=scope, **{**defaults, **fields})


async def keep(stores, *responses: StoredResponse, **more: object) -> None:
    """Save under the current generation."""
    for each in responses:
        generation = (await stores.memories.stamp(each.scope)).generation
        assert await stores.chains.save(each, generation=generation, **more)


def items(*names: str) -> list[tuple[str, bytes]]:
    return [(name, f'"{name}"'.encode()) for name in names]


async def converse(conversations, *names: str, id: str = "c1", scope: Scope = ANNA) -> Conversation:
    made = Conversation(id=id, scope=scope, metadata=b"{}", created_at=NOW)
    await conversations.create(made, items(*names))
    return made
