"""The memory API of the whole proxy: what is moved away and brought back is injected as before."""

import asyncio

import httpx2

from proxy.cli.main import main
from proxy.http.memory_api.openapi import OPERATIONS
from tests.e2e.conftest import House, until

FACT = "User's dentist is Dr. Okafor."
ASKED = {"user_id": "alice", "query": "Who looks after my teeth?"}


async def chat(house: House, text: str) -> dict[str, str]:
    async with house.client() as client:
        answer = await client.chat.completions.with_raw_response.create(
            model="m",
            messages=[{"role": "user", "content": text}],
            extra_headers={"X-Memory-User-Id": "alice", "X-Memory-Session-Id": "s-1"},
        )
    return dict(answer.headers)


async def test_what_was_moved_away_and_back_is_injected_as_before(house):
    async with house() as h, httpx2.AsyncClient(base_url=h.base_url, timeout=20) as http:
        await http.post("/memory", json={"user_id": "alice", "content": FACT})
        before = (await http.post("/memory/search", json=ASKED)).json()
        ids = (await chat(h, "Who is my dentist?"))["x-memory-ids"]
        exported = (await http.get("/memory/export", params={"user_id": "alice"})).content
        await http.delete("/memory", params={"user_id": "alice"})
        assert "x-memory-ids" not in await chat(h, "Who is my dentist?")
        counts = await http.post(
            "/memory/import", content=exported, headers={"content-type": "application/x-ndjson"}
        )
        assert counts.json()["imported"] == 1
        after = (await http.post("/memory/search", json=ASKED)).json()
        assert [(m["memory"]["id"], m["score"]) for m in after["data"]] == [
            (m["memory"]["id"], m["score"]) for m in before["data"]
        ]
        assert (await chat(h, "Who is my dentist?"))["x-memory-ids"] == ids


async def test_ending_a_session_extracts_it_without_waiting_for_more(house):
    patient = {"extraction_batch_size": 50, "idle_seconds": 3600, "personal_idle_seconds": 3600}
    async with (
        house(memory={**patient, "extraction": "verbatim"}) as h,
        httpx2.AsyncClient(base_url=h.base_url, timeout=20) as http,
    ):
        await chat(h, "I am allergic to peanuts.")
        ended = await http.post("/memory/sessions/s-1/end", params={"user_id": "alice"})
        assert (ended.status_code, ended.json()["queued_exchanges"]) == (202, 1)

        async def stored():
            page = await http.get("/memory", params={"user_id": "alice"})
            return [m["content"] for m in page.json()["data"]]

        assert "peanuts" in str(await until(stored))


async def test_the_command_line_moves_memories_between_proxies(house, tmp_path, monkeypatch, capsys):
    file = tmp_path / "alice.ndjson"
    async with house() as h:
        monkeypatch.setenv("MEMORY_PROXY_URL", h.origin)
        for words in (
            ["add", FACT, "--user", "alice"],
            ["export", str(file), "--user", "alice"],
            ["forget", "--user", "alice", "--yes"],
            ["import", str(file)],
            ["list", "--user", "alice"],
            ["receipts", "--user", "alice"],
        ):
            assert await asyncio.to_thread(main, ["memory", *words]) == 0, words
    shown = capsys.readouterr().out
    assert "Imported: 1 memory." in shown
    assert "Okafor" in shown.rpartition("Imported")[2]


async def test_the_proxy_serves_every_operation_of_its_openapi_document(house):
    async with house() as h, httpx2.AsyncClient() as http:
        for operation in OPERATIONS:
            path = operation.path.replace("{", "").replace("}", "")
            refused = await http.request("PROPFIND", h.origin + path)
            assert refused.status_code == 405, path
            assert operation.method in refused.headers["allow"]
