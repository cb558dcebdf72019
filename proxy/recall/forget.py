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
from proxy.recall.profile import Profiles
from proxy.recall.query import query_of
from proxy.recall.search import Searcher, Wanted

ASKED = 0.5  # the operating point of the calibrated head
COVERED = 0.6  # above the operating point: forgetting too much cannot be undone
READ = 12  # memories, the nearest and those of the profile
MOST = 5  # that are forgotten at once
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
    wanted = Wanted(turn.scope, None, READ, None, turn.at)
    near = await searcher.candidates(encoded, wanted, snapshot)
    found = {c.hit.memory.id: c.hit.memory.content for c in near[:READ]}
    held = await profiles.of(turn.scope, snapshot, replace(turn.options, types=None))
    found |= {memory.id: memory.content for memory, _ in held[:READ]}
    try:
        covered = await judge.covers(query.text, [*found.values()])
    except EmbeddingFailed:
        return ()
    sure = [(share, id_) for id_, share in zip(found, covered, strict=True) if share >= COVERED]
    return tuple(id_ for _, id_ in sorted(sure, reverse=True)[:MOST])


async def forget(turn: Turn, ids: Sequence[str], searcher: Searcher) -> tuple[str, ...]:
    """Erase the memories of the turn's user, durable on return; return the ids of those that were there.

    Raises StoreUnavailable."""
    erased = []
    for id_ in ids:
        where = MemoryFilter(tenant=turn.scope.tenant, user=turn.scope.user, now=searcher.clock())
        if (await searcher.memories.forget(where, id_, by=BY)).memories:
            erased.append(id_)
    if erased:
        telemetry.log.info("memory.forgotten", by=BY, count=len(erased))
    return tuple(erased)
