"""What may happen to a fleet: PostgreSQL read-only or silent, a replica that was away and does not know, and
two replicas that change one user at once. A longer drill, at random: scripts/dev/kill_replica.py."""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
import pytest_asyncio

from tests import postgres_server
from tests.fleet.replicas import Replica, fact, model, replicas, said, settled, stored, tell_each
from tests.postgres_server import PostgresServer
from tests.support.model import ScriptedModel
from tests.support.upstream import Exchange, ScriptedUpstream, completion

pytestmark = pytest.mark.asyncio(loop_scope="module")
LIMIT_S = 60.0


class Gated(ScriptedModel):
    """Lets a test decide when it answers, and when it extracts."""

    def __init__(self) -> None:
        super().__init__(facts=model().facts)
        self.may_answer, self.may_extract = asyncio.Event(), asyncio.Event()
        self.is_extracting = asyncio.Event()
        # The name that each reading finds; the last one in all further readings, because a busy machine may
        # read a job again.
        self.readings: list[str] = []
        self.let_go()

    def let_go(self) -> None:
        self.may_answer.set()
        self.may_extract.set()

    def hold_extraction(self) -> None:
        self.may_extract.clear()
        self.is_extracting.clear()

    async def __call__(self, exchange: Exchange) -> None:
        if b"(memory_extraction)" in (exchange.request.header(b"user-agent") or b""):
            self.is_extracting.set()
            seen = self.readings.pop(0) if len(self.readings) > 1 else "".join(self.readings)
            await self.may_extract.wait()
            if seen:
                found = [each for each in model().facts(_prompt(exchange)) if each["content"] == fact(seen)]
                await exchange.json(completion(json.dumps({"facts": found})))
                return
        await super().__call__(exchange)

    async def converse(self, exchange: Exchange) -> None:
        await self.may_answer.wait()
        await super().converse(exchange)


def _prompt(exchange: Exchange) -> str:
    return str(exchange.request.json["messages"][-1]["content"])


@dataclass
class House:
    """Two replicas, what they share, and their client."""

    postgres: PostgresServer
    script: Gated
    one: Replica
    other: Replica
    http: httpx2.AsyncClient

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.postgres.url()) as connection:
            return connection.execute(query.encode()).fetchall()

    async def chat(self, replica: Replica, text: str, user: str, **headers: str) -> httpx2.Response:
        body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": text}]}
        body["memory_context"] = {"user_id": user}
        return await self.http.post(f"{replica.origin}/v1/chat/completions", json=body, headers=headers)

    async def respond(self, replica: Replica, text: str, **more: Any) -> dict[str, Any]:
        body = {"model": "m", "input": text, "memory_context": {"user_id": "anna"}, **more}
        answer = await self.http.post(f"{replica.origin}/v1/responses", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def forget(self, replica: Replica, user: str) -> int:
        answer = await self.http.delete(f"{replica.origin}/v1/memory", params={"user_id": user})
        assert answer.status_code == 200, answer.text
        return int(answer.json()["deleted_count"])

    async def is_well(self, replica: Replica) -> dict[str, Any]:
        return dict((await self.http.get(f"{replica.origin}/health")).json()["memory"])

    async def promised(self, replica: Replica, user: str, name: str) -> str:
        return str((await self.chat(replica, said(name), user)).headers["x-memory-store"])

    async def stores_again(self, replica: Replica, user: str, name: str) -> None:
        """Return once the replica promises to store what it is tell_each, and has done so."""
        async with asyncio.timeout(LIMIT_S):
            while await self.promised(replica, user, name) != "queued":  # noqa: ASYNC110 another process's doing
                await asyncio.sleep(0.2)
        await tell_each(replica, user, {fact(name)})

    async def is_idle(self, replica: Replica) -> None:
        """Return once no replica has anything to extract."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                jobs = (await self.http.get(f"{replica.origin}/health")).json()["jobs"]
                if jobs and not jobs["queued"] + jobs["running"]:
                    return
                await asyncio.sleep(0.05)

    async def is_cured(self, replica: Replica) -> None:
        """Return once the replica says that all is well."""
        async with asyncio.timeout(LIMIT_S):
            while (await self.is_well(replica))["reason"]:  # noqa: ASYNC110 another process's doing
                await asyncio.sleep(0.2)


async def opened(stack: AsyncExitStack, directory: Path, **environ: str) -> House:
    if postgres_server.PROGRAMS is None:
        pytest.skip(postgres_server.MISSING)
    postgres = stack.enter_context(postgres_server.running())
    script = Gated()
    upstream = await stack.enter_async_context(ScriptedUpstream(script))
    one, other = await stack.enter_async_context(replicas(directory, upstream.url, postgres.url(), **environ))
    http = await stack.enter_async_context(httpx2.AsyncClient(timeout=LIMIT_S))
    return House(postgres, script, one, other, http)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory):
    async with AsyncExitStack() as stack:
        environ = {"MEMORY_PROXY__UPSTREAM__RESPONSES": "translate"}
        yield await opened(stack, tmp_path_factory.mktemp("fleet"), **environ)


@pytest_asyncio.fixture(loop_scope="module")
async def house(shared):
    """The replicas of all these tests, which have users of their own; what the test before has left to be
    extracted is done."""
    shared.script.let_go()
    await shared.is_idle(shared.one)
    return shared


async def test_a_read_only_postgres_costs_no_request_and_no_recall(house):
    await house.chat(house.one, said("Bado"), "read-only")
    await tell_each(house.one, "read-only", {fact("Bado")})
    switch = "ALTER SYSTEM SET default_transaction_read_only = {}", "SELECT pg_reload_conf()"
    house.postgres.execute(switch[0].format("on"), switch[1])
    try:
        for replica in (house.one, house.other):
            answer = await house.chat(replica, "What is my friend called?", "read-only")
            assert answer.status_code == 200
            assert answer.headers["x-memory-status"] == "injected"
            assert answer.headers["x-memory-store"] == "off"
            assert (await house.is_well(replica))["reason"] == "store_read_only"
    finally:
        house.postgres.execute("SET default_transaction_read_only = off", switch[0].format("off"), switch[1])
    for replica, name in ((house.one, "Cefi"), (house.other, "Doga")):
        await house.stores_again(replica, "read-only", name)
        await house.is_cured(replica)


async def test_a_postgres_that_does_not_answer_costs_memory_and_no_request(house):
    house.postgres.freeze()
    try:
        answers = await asyncio.gather(
            *(house.chat(replica, said("Feku"), "slow") for replica in (house.one, house.other))
        )
    finally:
        house.postgres.thaw()
    assert [each.status_code for each in answers] == [200, 200]
    for replica in (house.one, house.other):
        await house.stores_again(replica, "slow", "Feku")
        await house.is_cured(replica)
    assert await stored(house.one, "slow") == [fact("Feku")]


async def test_a_replica_that_was_away_and_believes_it_has_the_job_writes_nothing(house):
    """Two readings of one exchange find different facts: nothing but the lease tells whose counts."""
    house.script.hold_extraction()
    house.script.readings = ["Gilo", "Sabo"]
    await house.chat(house.one, f"{said('Gilo')} {said('Sabo')}", "split")
    await house.script.is_extracting.wait()
    # The one that has the job is frozen; the other takes over when it has been silent for long enough.
    ((instance,),) = house.rows("SELECT instance FROM jobs WHERE state = 'running'")
    frozen, awake = await _holder(house, instance)
    frozen.freeze()
    try:
        house.script.let_go()
        await tell_each(awake, "split", {fact("Sabo")})
    finally:
        frozen.thaw()
    house.script.readings = []
    await house.chat(frozen, said("Hamu"), "split")
    await settled(frozen)
    assert await stored(awake, "split") == await stored(frozen, "split") == [fact("Hamu"), fact("Sabo")]


async def _holder(house: House, instance: str) -> tuple[Replica, Replica]:
    """Return the replica that has this id, and the other. While one is frozen, the other renews its row."""
    house.one.freeze()
    try:
        await asyncio.sleep(1.0)  # what the frozen one had sent already has come
        seen = house.rows("SELECT id, seen_at FROM instances")
        async with asyncio.timeout(LIMIT_S):
            while not (renewed := set(house.rows("SELECT id, seen_at FROM instances")) - set(seen)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    finally:
        house.one.thaw()
    return (house.other, house.one) if instance in {id_ for id_, _ in renewed} else (house.one, house.other)


async def test_what_one_forgets_while_another_extracts_it_stays_forgotten(house):
    pair = (house.one, house.other)
    users: list[str] = []
    for moment in ("before it is read", "while it is read", "as it is stored"):
        house.script.hold_extraction()
        stated_now = [f"{moment} {number}" for number in range(4)]
        for number, user in enumerate(stated_now):
            await house.chat(pair[number % 2], said("Jono"), user)
        if moment != "before it is read":
            await house.script.is_extracting.wait()
        if moment == "as it is stored":
            house.script.let_go()
        await asyncio.gather(*(house.forget(pair[n // 2], user) for n, user in enumerate(stated_now)))
        house.script.let_go()
        users += stated_now
    await settled(house.one)
    for user in users:
        assert await stored(house.one, user) == await stored(house.other, user) == [], user


async def test_what_one_forgets_is_not_recalled_from_the_caches_of_the_other(house):
    names = ("Lura", "Mabi", "Neso")
    for name in names:
        await house.chat(house.one, said(name), "cached")
        await tell_each(house.one, "cached", {fact(name)})
        for replica in (house.one, house.other):  # reads the user into its caches
            assert (await house.chat(replica, "What is my friend called?", "cached")).headers[
                "x-memory-status"
            ] == "injected"
        assert await house.forget(house.one, "cached") == 1
        # At once: a search compares the version of its arrays with the user's in its own transaction.
        answer = await house.chat(house.other, "What is my friend called, again?", "cached")
        assert answer.headers["x-memory-status"] != "injected"
        assert fact(name) not in str(house.script.last_messages)


RUNBOOK = "# Harbour service\n\n## Rolling back\n\nRun `tide undo` from the bastion to roll back.\n"
QUESTION = "How do I roll back a bad deployment of the harbour service?"


async def test_a_document_posted_to_one_is_cited_replaced_and_forgotten_by_the_other(house):
    async def post(replica, content):
        body = {"name": "Runbook", "content": content, "user_id": "reader", "format": "markdown"}
        return (await house.http.post(f"{replica.origin}/v1/memory/documents", json=body)).json()

    async def shown(replica, text):
        await house.chat(replica, text, "reader")
        return str(house.script.last_messages)

    document = await post(house.one, RUNBOOK)
    assert "tide undo" in await shown(house.other, QUESTION)
    newer = await post(house.other, RUNBOOK.replace("tide undo", "ebb back"))
    assert (newer["id"], newer["version"], newer["change"]) == (document["id"], 2, "updated")
    said = await shown(house.one, QUESTION + " Once more, please.")
    assert ("ebb back" in said, "tide undo" in said) == (True, False)
    await house.forget(house.one, "reader")
    assert "ebb back" not in await shown(house.other, QUESTION)


async def test_a_chain_continues_at_the_other_replica(house):
    first = await house.respond(house.one, "The word is quince.")
    await house.respond(house.other, "Which word?", previous_response_id=first["id"])
    assert "The word is quince." in str(house.script.last_messages)


async def test_a_background_response_is_cancelled_at_the_replica_that_does_not_make_it(house):
    house.script.may_answer.clear()
    made = await house.respond(house.one, "Take your time.", background=True)
    path, headers = f"/v1/responses/{made['id']}", {"X-Memory-User-Id": "anna"}
    answer = await house.http.post(f"{house.other.origin}{path}/cancel", headers=headers)
    assert answer.json()["status"] == "cancelled"
    async with asyncio.timeout(LIMIT_S):
        while (await _seen_at(house, house.one, path)) != "cancelled":  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    house.script.let_go()
    assert await _seen_at(house, house.other, path) == "cancelled"


async def _seen_at(house: House, replica: Replica, path: str) -> str:
    answer = await house.http.get(f"{replica.origin}{path}", headers={"X-Memory-User-Id": "anna"})
    return str(answer.json()["status"])
