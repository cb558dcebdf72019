"""Users who have memories: facts written into a store of the proxy's own, and questions that need them."""

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import time
from uuid import uuid4

from proxy import telemetry
from proxy.admit.gate import with_readings
from proxy.domain.changes import Create
from proxy.domain.core import Memory, Scope
from proxy.http.auth.identity import OPEN_TENANT
from proxy.models.judge import load_judge
from proxy.models.load import load_embedder
from proxy.storage.sqlite import SqliteStores

FACTS_A_USER = 100

_CITIES = (
    "Lisbon Kyoto Bergen Oaxaca Tallinn Porto Hanoi Cusco Split Galway Nara Bologna Tromsø Jaipur".split()
)
_NAMES = "Maya Jonas Priya Luca Aiko Omar Greta Tomás Nadia Felix Ines Ravi Clara Dmitri Wen Salma".split()
_KIN = "sister brother aunt cousin neighbour colleague daughter nephew manager grandmother".split()
_THINGS = "bicycle laptop kayak violin camera tent oven telescope router printer drone sofa".split()
_MONTHS = "January February March April May June July August September October November December".split()
_PROJECTS = "Apollo Beacon Cedar Delta Ember Falcon Harbor Indigo Juniper Lantern Meadow".split()
_FOOD = "peanuts shellfish mushrooms cilantro gluten lactose almonds strawberries eggplant oysters".split()
# What is stored, and how a user asks for it, mostly in other words.
_TEMPLATES = (
    (
        "semantic",
        "User's budget for the trip to {place} is ${number}.",
        "How much can I spend on my holiday in {place}?",
    ),
    (
        "semantic",
        "User's {kin} {name} was born on {day} {month}.",
        "When should I buy a present for my {kin}?",
    ),
    (
        "preference",
        "User prefers window seats on flights to {place}.",
        "Where should I sit on the plane to {place}?",
    ),
    (
        "semantic",
        "User's {kin} {name} is allergic to {food}.",
        "What must I not cook when my {kin} comes over?",
    ),
    (
        "episodic",
        "User bought a {thing} for ${number} on {day} {month}.",
        "What did I pay for my {thing}, and is it still under warranty?",
    ),
    (
        "semantic",
        "The {project} project of the user ships on {day} {month}, and {name} signs it off.",
        "When is my deadline for {project}, and whom do I ask?",
    ),
    (
        "procedural",
        "To release {project}, the user first tags build {number} and then tells {name}.",
        "How do I get {project} out of the door again?",
    ),
    (
        "preference",
        "User wants reports about {project} in {number} words or fewer.",
        "Draft my status note on {project}, the way I like it.",
    ),
    (
        "semantic",
        "User lives at number {number} of the {name} street in {place}.",
        "Where do I live? The courier with my {thing} wants to know.",
    ),
    (
        "episodic",
        "User met {name} in {place} in {month} to talk about the {thing}.",
        "Whom did I meet to talk about the {thing}?",
    ),
)


def user_id(number: int) -> str:
    return f"bench-user-{number}"


@dataclass(frozen=True, slots=True)
class SeedFact:
    """What is stored of a user, and what it is asked for with."""

    type: str
    text: str
    question: str


def question(chance: random.Random, user: int, number: int) -> str:
    """Return a question that a fact of the user's answers; another `number` makes another text."""
    return f"{chance.choice(facts(user)).question} Keep it under {number + 20} characters."


@cache
def facts(user: int) -> tuple[SeedFact, ...]:
    """Return the user's facts, all different."""
    chance = random.Random(user)
    found: dict[str, SeedFact] = {}
    while len(found) < FACTS_A_USER:
        type_, stated, asked = _TEMPLATES[len(found) % len(_TEMPLATES)]
        names = _names(chance)
        text = stated.format_map(names)
        found[text] = SeedFact(type_, text, asked.format_map(names))
    return tuple(found.values())


async def fill(data_dir: Path, users: int) -> AsyncIterator[int]:
    """Write the users' facts into the store under `data_dir`; yields the number of memories after each user.

    Without an embedding model the memories have no vectors, as in the proxy itself.
    """
    telemetry.configure("warning", "console")
    embedder = load_embedder(data_dir / "models").embedder
    judge = load_judge(data_dir / "models", embedder).judge
    stores = SqliteStores(data_dir)
    await stores.open()
    try:
        if embedder is not None:
            await stores.memories.stamp_model(embedder.model)
        for user in range(users):
            scope, known = Scope(OPEN_TENANT, user_id(user)), facts(user)
            texts = [fact.text for fact in known]
            vectors = await embedder.embed(texts) if embedder else [None] * len(texts)
            created = [
                Create(_memory(scope, number, fact), vector)
                for number, (fact, vector) in enumerate(zip(known, vectors, strict=True))
            ]
            changes = await with_readings(judge, created)
            await stores.memories.apply(scope, changes, expect=await stores.memories.stamp(scope))
            yield (user + 1) * FACTS_A_USER
    finally:
        await stores.close()
        if judge is not None:
            judge.close()
        if embedder is not None:
            embedder.close()


def _memory(scope: Scope, number: int, fact: SeedFact) -> Memory:
    at = time() - number * 86_400
    return Memory(
        id=f"mem_{uuid4().hex}",
        scope=scope,
        type=fact.type,
        content=fact.text,
        source="api",
        created_at=at,
        updated_at=at,
        valid_from=at,
    )


def _names(chance: random.Random) -> dict[str, str | int]:
    return {
        "place": chance.choice(_CITIES),
        "name": chance.choice(_NAMES),
        "kin": chance.choice(_KIN),
        "thing": chance.choice(_THINGS),
        "month": chance.choice(_MONTHS),
        "project": chance.choice(_PROJECTS),
        "food": chance.choice(_FOOD),
        "number": chance.randrange(20, 9_000),
        "day": chance.randrange(1, 29),
    }
