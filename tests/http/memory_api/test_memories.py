"""The memory API over HTTP: what it shows, what it refuses, whom it shows it to."""

import json
import time
from typing import Any

import httpx2
import pytest

from tests.http.memory_api.conftest import Bench


@pytest.fixture
def api(bench: Bench) -> httpx2.AsyncClient:
    return bench.http


async def add(api: httpx2.AsyncClient, content: str, user: str = "alice", **more: Any) -> dict[str, Any]:
    answer = await api.post("/memory", json={"user_id": user, "content": content, **more})
    assert answer.status_code in (200, 201), answer.text
    memory: dict[str, Any] = answer.json()
    return memory


async def test_what_is_added_is_found_listed_and_forgotten(api: httpx2.AsyncClient) -> None:
    made = await add(api, "User's dentist is Dr. Okafor.", tags=["health"], importance=0.9)
    assert (made["object"], made["type"], made["source"], made["change"]) == (
        "memory",
        "semantic",
        "api",
        "created",
    )
    assert "embedding" not in made
    (match,) = (
        await api.post("/memory/search", json={"user_id": "alice", "query": "Who looks after my teeth?"})
    ).json()["data"]
    assert match["memory"]["id"] == made["id"]
    assert 0 < match["score"] <= 1
    assert "dense" in match["why"]
    listed = (await api.get("/memory", params={"user_id": "alice"})).json()
    assert (listed["total"], listed["has_more"], listed["first_id"]) == (1, False, made["id"])
    gone = await api.delete(f"/memory/{made['id']}")
    assert gone.json()["deleted_count"] == 1
    assert gone.json()["id"] == made["id"]
    assert (await api.get(f"/memory/{made['id']}")).status_code == 404
    assert (await api.delete(f"/memory/{made['id']}")).status_code == 404
    assert (await api.post("/memory/search", json={"user_id": "alice", "query": "my teeth"})).json()[
        "data"
    ] == []


async def test_the_same_again_confirms_and_a_changed_value_supersedes(api: httpx2.AsyncClient) -> None:
    first = await add(api, "User's rent is $1,800 a month.")
    again = await api.post("/memory", json={"user_id": "alice", "content": "User's rent is $1,800 a month"})
    assert (again.status_code, again.json()["id"], again.json()["change"]) == (200, first["id"], "confirmed")
    raised = await add(api, "User's rent is $1,950 a month.")
    assert raised["change"] == "superseded"
    assert [m["id"] for m in (await api.get("/memory", params={"user_id": "alice"})).json()["data"]] == [
        raised["id"]
    ]
    both = (await api.get("/memory", params={"user_id": "alice", "include": "inactive"})).json()["data"]
    assert {m["id"] for m in both} == {first["id"], raised["id"]}
    await api.patch(f"/memory/{raised['id']}", json={"archived": True})
    shelved = (await api.get("/memory", params={"user_id": "alice", "include": "archived"})).json()
    assert [m["id"] for m in shelved["data"]] == [raised["id"]]
    assert (await api.get("/memory", params={"user_id": "alice"})).json()["data"] == []
    wrong = await api.get("/memory", params={"user_id": "alice", "include": "everything"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "include")


async def test_what_a_confirming_post_says_besides_the_content_is_heeded(bench: Bench) -> None:
    soon, later = time.time() + 60, time.time() + 86_400
    first = await bench.add("User parks in bay seven.", expires_at=later, tags=["car"], importance=0.2)
    plain = await bench.add("User parks in bay seven.")
    assert (plain["change"], plain["tags"], plain["importance"]) == ("confirmed", ["car"], 0.2)
    assert plain["expires_at"] == pytest.approx(later)
    again = await bench.add(
        "User parks in bay seven", expires_at=soon, tags=["work", "car"], importance=1.0, user="alice"
    )
    assert (again["id"], again["change"], again["importance"]) == (first["id"], "confirmed", 1.0)
    assert again["tags"] == ["car", "work"]
    assert again["expires_at"] == pytest.approx(soon)
    assert again["content"] == "User parks in bay seven."
    shown = (await bench.http.get(f"/memory/{first['id']}")).json()
    assert {**shown, "change": "confirmed"} == again
    history = (await bench.http.get(f"/memory/{first['id']}/history")).json()["data"]
    assert [event["action"] for event in history] == ["created", "confirmed", "confirmed", "updated"]
    await bench.add("User parks in bay seven.", tags=["car"], importance=1.0)  # what holds already
    history = (await bench.http.get(f"/memory/{first['id']}/history")).json()["data"]
    assert [event["action"] for event in history][4:] == ["confirmed"]


async def test_pages_hold_every_memory_once(api: httpx2.AsyncClient) -> None:
    made = [(await add(api, f"User owns book number {n} of the saga {chr(65 + n)}."))["id"] for n in range(7)]
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = (await api.get("/memory", params={"user_id": "alice", "limit": "3", **after})).json()
        seen += [m["id"] for m in page["data"]]
        if not page["has_more"]:
            break
        after = {"after": page["last_id"]}
    assert seen == made[::-1]


async def test_users_and_projects_are_apart(api: httpx2.AsyncClient) -> None:
    apollo = await add(api, "The launch code name is Bluebird.", project_id="apollo")
    await add(api, "The launch code name is Redwing.", project_id="zeus")
    general = await add(api, "User signs mails with 'Best, Al'.")
    bobs = await add(api, "User is Bob.", user="bob")

    async def ids(**params: str) -> set[str]:
        return {m["id"] for m in (await api.get("/memory", params=params)).json()["data"]}

    assert await ids(user_id="alice", project_id="apollo") == {apollo["id"]}
    found = await api.post(
        "/memory/search",
        json={"user_id": "alice", "project_id": "apollo", "query": "What is the launch code name?"},
    )
    assert "Redwing" not in found.text
    assert "Bluebird" in found.text
    for headers in ({"X-Memory-User-Id": "alice"}, {}):
        params = {"user_id": "alice"} if not headers else {}
        foreign = await api.get(f"/memory/{bobs['id']}", params=params, headers=headers)
        assert foreign.status_code == 404
        assert (await api.delete(f"/memory/{bobs['id']}", params=params, headers=headers)).status_code == 404
    assert (await api.delete("/memory", params={"user_id": "alice", "project_id": "apollo"})).json()[
        "deleted_count"
    ] == 1
    assert general["id"] in await ids(user_id="alice")
    assert await ids(user_id="bob") == {bobs["id"]}


async def test_a_memory_takes_the_date_at_which_it_was_said(bench: Bench) -> None:
    said = {
        "user_id": "anna",
        "content": "User was in Lisbon last week",
        "created_at": "2023-05-10T23:30:00Z",
    }
    added = await bench.http.post("/memory", json={**said, "timezone": "asia/tokyo"})
    memory = added.json()
    assert (added.status_code, memory["change"]) == (201, "created")
    assert memory["content"] == "User was in Lisbon last week (week of 2023-05-01)"
    assert memory["created_at"] == memory["valid_from"] == 1683761400
    asked = {"user_id": "anna", "query": "Where was I in May 2023?"}
    found = (await bench.http.post("/memory/search", json=asked)).json()
    assert found["data"][0]["memory"]["id"] == memory["id"]


async def test_an_import_resolves_the_dates_of_lines_that_no_export_wrote(bench: Bench) -> None:
    lines = [
        {"content": "User moved yesterday", "created_at": "2023-05-10T12:00:00Z"},
        {"content": "User sold the boat yesterday"},
        {"id": "mem_1", "content": "User bought a kayak yesterday", "created_at": 1683716400},
    ]
    body = "\n".join(json.dumps(line) for line in lines)
    kind = {"content-type": "application/x-ndjson"}
    answer = await bench.http.post("/memory/import", params={"user_id": "anna"}, content=body, headers=kind)
    assert answer.json()["imported"] == 3
    found = (await bench.http.get("/memory", params={"user_id": "anna"})).json()["data"]
    assert {m["content"] for m in found} == {
        "User moved yesterday (2023-05-09)", "User sold the boat yesterday", "User bought a kayak yesterday",
    }  # fmt: skip
