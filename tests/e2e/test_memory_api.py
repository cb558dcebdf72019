"""The memory API of the whole proxy: what is moved away and brought back is injected as before."""

import asyncio
from typing import Any

import httpx2

from proxy.cli.main import main
from proxy.http.memory_api.openapi import OPERATIONS
from tests.e2e.conftest import context, until

FACT = "User's dentist is Dr. Okafor."
ASKED = "Who is my dentist?"


async def test_the_command_line_moves_memories_between_proxies_and_they_are_injected_as_before(
    house, tmp_path, monkeypatch, capsys
):
    file = tmp_path / "alice.ndjson"
    async with house() as h:
        monkeypatch.setenv("MEMORY_PROXY_URL", h.origin)

        async def run(*words):
            assert await asyncio.to_thread(main, ["memory", *words]) == 0, words

        await run("add", FACT, "--user", "alice")
        ids = (await h.tell(ASKED)).headers["x-memory-ids"]
        await run("export", str(file), "--user", "alice")
        await run("forget", "--user", "alice", "--yes")
        assert "x-memory-ids" not in (await h.tell(ASKED)).headers
        await run("import", str(file))
        assert (await h.tell(ASKED)).headers["x-memory-ids"] == ids
        await run("list", "--user", "alice")
    shown = capsys.readouterr().out
    assert "Imported: 1 memory." in shown
    assert "Okafor" in shown.rpartition("Imported")[2]


async def test_ending_a_session_extracts_it_without_waiting_for_more(house):
    patient = {"extraction_batch_size": 50, "idle_seconds": 3600, "personal_idle_seconds": 3600}
    async with house(memory={**patient, "extraction": "verbatim"}) as h:
        await h.tell("I am allergic to peanuts.", extra=context(session_id="s-1"))
        ended = await h.post("/memory/sessions/s-1/end?user_id=alice", {})
        assert (ended.status_code, ended.json()["queued_exchanges"]) == (202, 1)
        assert "peanuts" in str(await until(h.listed))


async def test_the_proxy_serves_every_operation_of_its_openapi_document(house):
    async with house() as h, httpx2.AsyncClient() as http:
        for operation in OPERATIONS:
            path = operation.path.replace("{", "").replace("}", "")
            refused = await http.request("PROPFIND", h.origin + path)
            assert refused.status_code == 405, path
            assert operation.method in refused.headers["allow"]


TRIP = "User's budget for the Hawaii trip is $10,000."
CAR = ("User drives a blue Skoda Octavia.", "User's car is serviced at Dorn in Kiel.")


async def test_a_search_lists_what_is_near_and_says_what_a_chat_would_be_shown(house):
    async def search(query, **more: Any):
        return (await h.post("/memory/search", {"user_id": "alice", "query": query, **more})).json()

    async with house(memory={"default_retrieval_limit": 2}) as h:
        await h.add(TRIP, *CAR)
        for query in ("What can I spend on my holiday?", "Where is my car serviced?", "Thanks!"):
            found, headers = await search(query), (await h.tell(query)).headers
            assert len(found["data"]) <= 2, "as many as a chat would be shown"
            assert found["would_inject"] is (found["reason"] is None)
            assert (found["reason"] or "injected") in (
                headers.get("x-memory-reason"),
                headers["x-memory-status"],
            )
        assert (await search("What is my licence plate number?", limit=3))["data"], (
            "what is near can be browsed"
        )
