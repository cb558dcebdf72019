"""DELETE with its dry run and receipt, and the header for projects. Stores' tests check what it erases."""

import json
from typing import Any

import pytest

from proxy.domain.core import Scope
from proxy.http.auth.identity import Caller
from tests.http.memory_api.conftest import Bench

APOLLO = {"x-memory-project-id": "apollo"}


@pytest.mark.parametrize("narrowed", [{}, {"project_id": "apollo"}, {"type": "preference"}])
async def test_a_dry_run_counts_what_the_forget_then_erases(bench, narrowed):
    await bench.add("User likes figs.", type="preference", project_id="apollo")
    await bench.add("User's dentist is Dr. Okafor.")
    params, before = {"user_id": "alice", **narrowed}, await bench.listed()
    dry = (await bench.http.delete("/memory", params={**params, "dry_run": "true"})).json()
    assert (dry["deleted"], dry.pop("dry_run"), dry["receipt"]) == (False, True, None)
    assert await bench.listed() == before
    wet = (await bench.http.delete("/memory", params={**params, "dry_run": "false"})).json()
    assert (wet["deleted"], wet["deleted_count"]) == (True, 1 if narrowed else 2)
    assert {**dry, "deleted": True, "receipt": wet["receipt"]} == wet


async def test_receipts_say_what_was_forgotten_by_which_credential_without_content(bench):
    made = await bench.add("User likes figs.")
    bench.call_as(Caller("default", label="key:k_1"))
    one = (await bench.http.delete(f"/memory/{made['id']}")).json()
    await bench.add("User's dentist is Dr. Okafor.", project_id="apollo")
    project = {"user_id": "alice", "project_id": "apollo"}
    scope = (await bench.http.delete("/memory", params=project)).json()
    page = await bench.http.get("/memory/receipts", params={"user_id": "alice"})
    newest, oldest = page.json()["data"]
    assert [newest["id"], oldest["id"]] == [scope["receipt"], one["receipt"]]
    assert (oldest["memory_id"], oldest["by"], oldest["counts"]["memories"]) == (made["id"], "key:k_1", 1)
    assert (newest["memory_id"], newest["project_id"], newest["user_id"]) == (None, "apollo", "alice")
    assert "figs" not in page.text


async def test_forgetting_a_whole_user_drops_the_credential(bench):
    alice, bob = Scope("default", "alice"), Scope("default", "bob")
    key = [(b"authorization", b"Bearer sk-1")]
    for user in (alice, bob):
        bench.services.credentials.remember(user, key)
    for narrowed in ({"project_id": "apollo"}, {"type": "episodic"}, {"dry_run": "true"}, {}):
        await bench.http.delete("/memory", params={"user_id": "alice", **narrowed})
        assert bench.services.credentials.get(alice) == (key if narrowed else []), narrowed
    assert bench.services.credentials.get(bob) == key


async def test_a_body_that_would_narrow_a_forget_is_refused(bench):
    """If it were ignored, the forget would erase everything."""
    made = await bench.add("User likes figs.")
    for path in ("/memory?user_id=alice", f"/memory/{made['id']}", "/memory/documents/doc_none"):
        for body in (b'{"project_id": "apollo"}', b"project_id=apollo", b"{"):
            answer = await bench.http.request("DELETE", path, content=body)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "body"), path
    assert (await bench.listed())["total"] == 1


# ---------------------------------------------------------------- the project's header
async def three(bench: Bench) -> list[dict[str, Any]]:
    return [
        await bench.add("User's dentist is Dr. Okafor."),
        await bench.add("The rocket is blue.", project_id="apollo"),
        await bench.add("The temple is white.", project_id="zeus"),
    ]


async def test_the_header_narrows_what_is_listed_exported_found_and_forgotten(bench):
    await three(bench)
    user = {"user_id": "alice"}
    listed = await bench.http.get("/memory", params=user, headers=APOLLO)
    assert [m["project_id"] for m in listed.json()["data"]] == ["apollo"]
    exported = await bench.http.get("/memory/export", params=user, headers=APOLLO)
    assert exported.text.count("\n") == exported.text.count('"apollo"') == 1
    query = {**user, "query": "the white temple"}
    found = await bench.http.post("/memory/search", json=query, headers=APOLLO)
    assert "zeus" not in {m["memory"]["project_id"] for m in found.json()["data"]}
    deleted = await bench.http.delete("/memory", params=user, headers=APOLLO)
    assert deleted.json()["deleted_count"] == 1
    assert {m["project_id"] for m in (await bench.listed())["data"]} == {None, "zeus"}
    other = await bench.http.delete("/memory", params={**user, "project_id": "zeus"}, headers=APOLLO)
    assert (other.status_code, other.json()["error"]["param"]) == (400, "X-Memory-Project-Id")


async def test_the_header_is_the_project_of_what_is_added_without_one(bench):
    user = {"user_id": "alice"}
    added = await bench.http.post("/memory", json={**user, "content": "The crew is three."}, headers=APOLLO)
    text = {**user, "name": "Handbook", "content": "# Launch\n\nAt noon."}
    document = await bench.http.post("/memory/documents", json=text, headers=APOLLO)
    assert added.json()["project_id"] == document.json()["project_id"] == "apollo"
    lines: list[dict[str, Any]] = [
        {"content": "The pad is wet."}, {"content": "User likes figs.", "project_id": None},
        {"content": "The temple is white.", "project_id": "zeus"},
    ]  # fmt: skip
    content = "\n".join(map(json.dumps, lines))
    headers = {**APOLLO, "content-type": "application/x-ndjson"}
    answer = await bench.http.post("/memory/import", params=user, content=content, headers=headers)
    assert [error["line"] for error in answer.json()["errors"]] == [3]
    projects = {m["content"]: m["project_id"] for m in (await bench.listed())["data"]}
    assert (projects["The pad is wet."], projects["User likes figs."]) == ("apollo", None)


async def test_a_memory_of_another_project_than_the_header_is_absent(bench):
    general, of_apollo, of_zeus = await three(bench)
    text = {"user_id": "alice", "name": "Roof", "content": "Tiles.", "project_id": "zeus"}
    document = (await bench.http.post("/memory/documents", json=text)).json()
    one = f"/memory/{of_zeus['id']}"
    for method, path, body in (
        ("GET", one, None), ("GET", f"{one}/history", None), ("DELETE", one, None),
        ("PATCH", one, {"tags": ["x"]}), ("DELETE", f"/memory/documents/{document['id']}", None),
    ):  # fmt: skip
        answer = await bench.http.request(method, path, json=body, headers=APOLLO)
        assert answer.status_code == 404, (method, path)
    for seen in (general, of_apollo):
        assert (await bench.http.get(f"/memory/{seen['id']}", headers=APOLLO)).status_code == 200
