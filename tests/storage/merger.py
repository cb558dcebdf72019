"""A process that consolidates until it is killed: `python merger.py <data_dir, or URL of a PostgreSQL>`. Each
line is the id of a memory that was stored."""

import asyncio
import json
import re
import sys
from pathlib import Path

import numpy as np

from proxy.admit.gate import Gate
from proxy.domain.changes import Create, EvolutionPolicy, Visit
from proxy.domain.ports import EmbeddingModel, Relation
from proxy.learn.consolidation import Consolidation
from proxy.storage.postgres import PostgresStores
from proxy.storage.sqlite import SqliteStores
from tests.storage.making import ANNA, NOW, memory
from tests.support.judge import ScriptedJudge

TRIPS = 40
FACTS = (
    "User's budget for trip {} is $10,000.",
    "User added $2,000 to the budget for trip {}.",
    "User's final budget for trip {} is $12,000.",
)
POLICY = EvolutionPolicy(calls_per_user_hour=1_000)


class ByTrip:
    """An embedder to which all texts about a trip are alike."""

    model = EmbeddingModel("trips", TRIPS, similarity_threshold=0.5, related_threshold=0.5)

    async def embed(self, texts):
        trips = [int(re.search(r"trip (\d+)", text)[1]) for text in texts]
        return [np.eye(TRIPS, dtype=np.float32)[trip].tobytes() for trip in trips]

    def understands(self, text):
        return True


class Writer:
    """A model that merges the facts of a trip."""

    async def complete(self, request):
        trip = re.search(r"trip (\d+)", request.user)[1]
        content = f"User's budget for trip {trip} is $12,000 (from $10,000)."
        return json.dumps({"content": content, "sources": [1, 2, 3]})


async def facts():
    made = [memory(text.format(n), id=f"{n}-{k}") for n in range(TRIPS) for k, text in enumerate(FACTS)]
    vectors = await ByTrip().embed([m.content for m in made])
    return [Create(m, vector) for m, vector in zip(made, vectors, strict=True)]


async def merge(stores, report=lambda id_: None):
    """Consolidate all that is due."""
    judge = ScriptedJudge(relation=lambda old, new: Relation(0.3, 0.4, 0.3))
    step = Consolidation(Gate(stores.memories, ByTrip(), judge=judge), stores.derivation, Writer())
    while True:
        counts = await step.run(Visit(ANNA, NOW, POLICY))
        for id_ in counts.ids.get("consolidated", ()):
            report(id_)
        if not counts.more:
            return


async def main(place):
    stores = PostgresStores(place) if "://" in place else SqliteStores(Path(place))
    await stores.open()
    await merge(stores, lambda id_: print(id_, flush=True))
    print("all", flush=True)
    await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
