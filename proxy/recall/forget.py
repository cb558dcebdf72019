"""Forget what a message asks to forget: find the memories that it names, and erase them.

"Please forget my address" hides the memories in the answer to that very message; they are erased as
DELETE /v1/memory/{id} does it, one by one, each with a receipt. A wrong judgement must not cost a user much:
a memory has to reach a high bar, only a few are forgotten at once, and never a whole scope.
"""

from collections.abc import Sequence
from dataclasses import replace

from proxy import telemetry
from proxy.domain.core import MemoryFilter, Turn
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.judging import Remembered
from proxy.recall.profile import Profiles
from proxy.recall.query import query_of
from proxy.recall.search import Searcher, Wanted

ASKED = 0.5  # the operating point of the calibrated head
NAMED = 0.7  # what the relevance head must give a memory, more than for one that is shown
NEAR_BEST = 0.15  # and at most so much less than the best: a memory of the same kind of thing helps as well
NAMED_RULE = 0.97  # the least for a standing rule, which helps with every message
MOST = 5  # memories at once
BY = "conversation"  # in receipts


async def named(turn: Turn, searcher: Searcher, profiles: Profiles) -> tuple[str, ...]:
    """Return the ids of the memories that the turn's last message asks to forget, the surest first. Without a
    judge none.

    Raises StoreUnavailable."""
    query, judge = query_of(turn.query), searcher.judge
    if judge is None or not query.text or not turn.said.strip():  # a step of a tool loop asks nothing new
        return ()
    reading = await searcher.read(query.text)
    if reading is None or reading.asks.forget < ASKED:
        return ()
    snapshot = await searcher.memories.snapshot(turn.scope, profiles.sorter)
    encoded = await searcher.encode(query, reading)
    wanted = Wanted(turn.scope, None, MOST, None, turn.at)
    near = await searcher.candidates(encoded, wanted, snapshot)
    held = await profiles.of(turn.scope, snapshot, replace(turn.options, types=None))
    found = {memory.id: Remembered(memory.content) for memory, _ in held}
    found |= {c.hit.memory.id: Remembered(c.hit.memory.content, c.hit.vector) for c in near}
    try:
        helps = await judge.helps(reading, [*found.values()])
    except EmbeddingFailed:
        return ()
    rules = {memory.id for memory, kind in held if kind == "rule"}
    sure = [
        (share, id_)
        for id_, share in zip(found, helps, strict=True)
        if share >= (NAMED_RULE if id_ in rules else NAMED)
    ]
    best = max(sure, default=(0.0, ""))[0]
    return tuple(id_ for share, id_ in sorted(sure, reverse=True)[:MOST] if share >= best - NEAR_BEST)


async def forget(turn: Turn, ids: Sequence[str], searcher: Searcher) -> tuple[str, ...]:
    """Erase the memories of the turn's user, durable on return; return the ids of those that were there.

    Raises StoreUnavailable."""
    gone = []
    for id_ in ids:
        where = MemoryFilter(tenant=turn.scope.tenant, user=turn.scope.user, now=searcher.clock())
        if (await searcher.memories.forget(where, id_, by=BY)).memories:
            gone.append(id_)
    if gone:
        telemetry.log.info("memory.forgotten", by=BY, count=len(gone))
    return tuple(gone)
