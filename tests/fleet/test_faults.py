"""What may happen to a fleet: PostgreSQL read-only, silent or killed under load, a replica killed under load,
and two replicas that change one user at once. A longer drill, at random: scripts/dev/kill_replica.py."""

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from tests import postgres_server
from tests.e2e.conftest import until
from tests.fleet.replicas import Replica, knows, replicas, settled, stored
from tests.postgres_server import PostgresServer
from tests.support.model import ScriptedModel, fact, friends, said
from tests.support.upstream import Exchange, ScriptedUpstream

pytestmark = pytest.mark.asyncio(loop_scope="module")
LIMIT_S = 60.0
QUESTION = "What is my friend called?"


class Gated(ScriptedModel):
    """Lets a test decide when it answers, and when it extracts."""

    def __init__(self) -> None:
        super().__init__(facts=friends)
        self.may_answer, self.may_extract = asyncio.Event(), asyncio.Event()
        self.is_extracting = asyncio.Event()
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
            await self.may_extract.wait()
        await super().__call__(exchange)

    async def converse(self, exchange: Exchange) -> None:
        await self.may_answer.wait()
        await super().converse(exchange)


@dataclass
class House:
    """Two replicas, what they share, and their client."""

    postgres: PostgresServer
    script: Gated
    one: Replica
    other: Replica
    http: httpx2.AsyncClient

    async def chat(self, replica: Replica, text: str, user: str) -> httpx2.Response:
        body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": text}]}
        body["memory_context"] = {"user_id": user}
        return await self.http.post(f"{replica.origin}/v1/chat/completions", json=body)

    async def respond(self, replica: Replica, text: str, **more: Any) -> dict[str, Any]:
        body = {"model": "m", "input": text, "memory_context": {"user_id": "anna"}, **more}
        answer = await self.http.post(f"{replica.origin}/v1/responses", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def forget(self, replica: Replica, user: str) -> int:
        answer = await self.http.delete(f"{replica.origin}/v1/memory", params={"user_id": user})
        assert answer.status_code == 200, answer.text
        return int(answer.json()["deleted_count"])

    async def reason(self, replica: Replica) -> str | None:
        reason: str | None = (await self.http.get(f"{replica.origin}/health")).json()["memory"]["reason"]
        return reason

    async def stores_again(self, replica: Replica, user: str, name: str) -> None:
        """Return once the replica promises to store, has done so, and says that all is well."""

        async def promise() -> str:
            return str((await self.chat(replica, said(name), user)).headers["x-memory-store"])

        await until(promise, lambda value: value == "queued", within_s=LIMIT_S)
        await knows(replica, user, name)
        await until(lambda: self.reason(replica), lambda reason: not reason, within_s=LIMIT_S)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory):
    if postgres_server.PROGRAMS is None:
        pytest.skip(postgres_server.MISSING)
    async with AsyncExitStack() as stack:
        postgres, script = stack.enter_context(postgres_server.running()), Gated()
        upstream = await stack.enter_async_context(ScriptedUpstream(script))
        environ = {
            "MEMORY_PROXY__UPSTREAM__RESPONSES": "translate",
            "MEMORY_PROXY__EVOLUTION__USE": "false",  # these answers use no memory: it would be archived
        }
        made = replicas(tmp_path_factory.mktemp("fleet"), upstream.url, postgres.url(), **environ)
        one, other = await stack.enter_async_context(made)
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=LIMIT_S))
        yield House(postgres, script, one, other, http)


@pytest_asyncio.fixture(loop_scope="module")
async def house(shared):
    """The replicas of all these tests, which have users of their own; what the test before has left to be
    extracted is done."""
    shared.script.let_go()
    await settled(shared.one)
    return shared


async def test_a_read_only_postgres_costs_no_request_and_no_recall(house):
    await house.chat(house.one, said("Bado"), "read-only")
    await knows(house.one, "read-only", "Bado")
    switch = "ALTER SYSTEM SET default_transaction_read_only = {}", "SELECT pg_reload_conf()"
    house.postgres.execute(switch[0].format("on"), switch[1])
    try:
        for replica in (house.one, house.other):
            answer = await house.chat(replica, QUESTION, "read-only")
            assert answer.status_code == 200
            assert answer.headers["x-memory-status"] == "injected"
            assert answer.headers["x-memory-store"] == "off"
            assert await house.reason(replica) == "store_read_only"
    finally:
        house.postgres.execute("SET default_transaction_read_only = off", switch[0].format("off"), switch[1])
    for replica, name in ((house.one, "Cefi"), (house.other, "Doga")):
        await house.stores_again(replica, "read-only", name)


async def test_a_postgres_that_does_not_answer_costs_memory_and_no_request(house):
    both = (house.one, house.other)
    house.postgres.freeze()
    try:
        answers = await asyncio.gather(*(house.chat(replica, said("Feku"), "slow") for replica in both))
    finally:
        house.postgres.thaw()
    assert [each.status_code for each in answers] == [200, 200]
    for replica in both:
        await house.stores_again(replica, "slow", "Feku")
    assert await stored(house.one, "slow") == [fact("Feku")]


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
    await house.chat(house.one, said("Lura"), "cached")
    await knows(house.one, "cached", "Lura")
    for replica in (house.one, house.other):  # reads the user into its caches
        assert (await house.chat(replica, QUESTION, "cached")).headers["x-memory-status"] == "injected"
    assert await house.forget(house.one, "cached") == 1
    # At once: a search compares the version of its arrays with the user's in its own transaction.
    answer = await house.chat(house.other, "What is my friend called, again?", "cached")
    assert answer.headers["x-memory-status"] != "injected"
    assert fact("Lura") not in str(house.script.last_messages)


async def test_a_chain_continues_at_the_other_replica_and_is_cancelled_there(house):
    first = await house.respond(house.one, "The word is quince.")
    await house.respond(house.other, "Which word?", previous_response_id=first["id"])
    assert "The word is quince." in str(house.script.last_messages)

    async def status(replica):
        answer = await house.http.get(f"{replica.origin}{path}", headers=headers)
        return answer.json()["status"]

    house.script.may_answer.clear()
    made = await house.respond(house.one, "Take your time.", background=True)
    path, headers = f"/v1/responses/{made['id']}", {"X-Memory-User-Id": "anna"}
    answer = await house.http.post(f"{house.other.origin}{path}/cancel", headers=headers)
    assert answer.json()["status"] == "cancelled"
    for replica in (house.one, house.other):  # it is not made there
        await until(lambda r=replica: status(r), lambda found: found == "cancelled", within_s=LIMIT_S)


# ---------------------------------------------------------------- under load
NAMES = ("Bado Cefi Doga Feku Gilo Hamu Jono Kipe Lura Mabi Neso Pilu Rika Sovi Tamo Vuda").split()
USERS = [f"user-{number}" for number in range(5)]


@dataclass
class Load:
    """Users of an SDK that retries: a request that fails goes to another replica, the very same."""

    house: House
    promised: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    answered: int = 0
    failed: int = 0
    forgone: int = 0  # answers that promised nothing

    async def talk(self, user: str) -> None:
        """Name one friend after another, each once an answer has come, to the replicas in turn."""
        for number, name in enumerate(NAMES):
            for attempt in range(9):
                replica = (self.house.one, self.house.other)[(number + attempt) % 2]
                try:
                    answer = await self.house.chat(replica, said(name), user)
                except (httpx2.HTTPError, OSError):
                    self.failed += 1
                    continue
                assert answer.status_code == 200, answer.text
                self.answered += 1
                if answer.headers["x-memory-store"] == "queued":
                    self.promised[user].append(name)
                else:
                    self.forgone += 1
                break
            else:
                raise AssertionError("no replica answers")

    async def has_answered(self, count: int) -> None:
        wanted = self.answered + count
        async with asyncio.timeout(LIMIT_S):
            while self.answered < wanted:  # noqa: ASYNC110 the users count it
                await asyncio.sleep(0.02)


async def test_a_replica_that_is_killed_under_load_loses_and_doubles_nothing(house):
    load = Load(house)
    talks = [asyncio.create_task(load.talk(user)) for user in USERS]
    await load.has_answered(20)
    await house.one.kill()
    await asyncio.gather(*talks)
    assert load.failed, "it was not under load"
    # What the dead one had not settled is taken over once it has been silent for long enough.
    await settled(house.other)
    for user in USERS:
        await knows(house.other, user, *load.promised[user])
    await settled(house.other)
    await house.one.start()
    for user in USERS:
        found = await stored(house.other, user)
        assert len(found) == len(set(found)), "something is stored twice"
        assert await stored(house.one, user) == found


async def test_a_postgres_that_is_restarted_under_load_loses_and_doubles_nothing(house):
    load, users = Load(house), [f"outage-{user}" for user in USERS]
    talks = [asyncio.create_task(load.talk(user)) for user in users]
    await load.has_answered(20)
    await asyncio.to_thread(house.postgres.kill)
    await asyncio.sleep(1.0)
    await asyncio.to_thread(house.postgres.start)
    await asyncio.gather(*talks)
    assert not load.failed  # no request fares worse
    assert load.forgone, "no request met the outage"
    await house.stores_again(house.one, "outage", NAMES[0])
    await settled(house.other)
    for user in users:
        await knows(house.other, user, *load.promised[user])
        found = await stored(house.other, user)
        assert len(found) == len(set(found)), "something is stored twice"
        assert await stored(house.one, user) == found
