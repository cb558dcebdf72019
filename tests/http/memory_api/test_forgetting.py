"""DELETE with its dry run and its receipt, over HTTP. What a forget erases is tested with the stores."""

import json
from typing import Any

import pytest

from proxy.domain.core import Scope
from proxy.http.auth.identity import Caller
from tests.http.memory_api.conftest import Bench

DEPTHS = ("count", "exchanges", "sessions", "jobs", "responses", "quarantined", "documents", "conversations")


def counts(answer: dict[str, Any]) -> dict[str, int]:
    return {name: answer[f"deleted_{name}"] for name in DEPTHS}


@pytest.mark.parametrize("narrowed", [{}, {"project_id": "apollo"}, {"type": "preference"}])
async def test_a_dry_run_counts_what_the_forget_then_takes(bench: Bench, narrowed: dict[str, str]) -> None:
    await bench.add("User likes figs.", type="preference", project_id="apollo")
    await bench.add("User's dentist is Dr. Okafor.")
    params = {"user_id": "alice", **narrowed}
    before = (await bench.http.get("/memory", params={"user_id": "alice"})).json()
    dry = (await bench.http.delete("/memory", params={**params, "dry_run": "true"})).json()
    assert (dry["deleted"], dry["dry_run"], dry["receipt"]) == (False, True, None)
    assert (await bench.http.get("/memory", params={"user_id": "alice"})).json() == before
    wet = (await bench.http.delete("/memory", params={**params, "dry_run": "false"})).json()
    assert wet["deleted"] is True
    assert "dry_run" not in wet
    assert counts(dry) == counts(wet)
    assert wet["deleted_count"] == (1 if narrowed else 2)


async def test_receipts_tell_what_went_by_whom_and_no_content(bench: Bench) -> None:
    made = await bench.add("User likes figs.")
    bench.call_as(Caller("default", label="key:k_1"))
    one = (await bench.http.delete(f"/memory/{made['id']}")).json()
    await bench.add("User's dentist is Dr. Okafor.", project_id="apollo")
    params = {"user_id": "alice", "project_id": "apollo"}
    scope = (await bench.http.delete("/memory", params=params)).json()
    page = await bench.http.get("/memory/receipts", params={"user_id": "alice"})
    newest, oldest = page.json()["data"]
    assert [newest["id"], oldest["id"]] == [scope["receipt"], one["receipt"]]
    assert (oldest["memory_id"], oldest["by"], oldest["counts"]["memories"]) == (made["id"], "key:k_1", 1)
    assert (newest["memory_id"], newest["project_id"], newest["user_id"]) == (None, "apollo", "alice")
    assert "figs" not in page.text


@pytest.mark.parametrize(
    "narrowed",
    [
        {"project_id": "apollo"},
        {"type": "episodic"},
        {"dry_run": "true"},
        {"x-memory-project-id": "apollo"},
        {},
    ],
)
async def test_who_is_forgotten_as_a_whole_leaves_no_credential(
    bench: Bench, narrowed: dict[str, str]
) -> None:
    alice, bob = Scope("default", "alice"), Scope("default", "bob")
    key = [(b"authorization", b"Bearer sk-1")]
    for user in (alice, bob):
        bench.credentials.remember(user, key)
    headers = {name: value for name, value in narrowed.items() if name.startswith("x-")}
    params = {"user_id": "alice"} | {name: narrowed[name] for name in narrowed.keys() - headers.keys()}
    assert (await bench.http.delete("/memory", params=params, headers=headers)).status_code == 200
    assert bench.credentials.get(alice) == (key if narrowed else [])
    assert bench.credentials.get(bob) == key


APOLLO = {"x-memory-project-id": "apollo"}


@pytest.mark.parametrize(
    "body", [b'{"project_id": "apollo"}', b'{"dry_run": true}', b"project_id=apollo", b"{"]
)
@pytest.mark.parametrize("path", ["/memory?user_id=alice", "/memory/{id}", "/memory/documents/doc_none"])
async def test_a_body_that_was_to_narrow_a_forget_is_refused(bench: Bench, path: str, body: bytes) -> None:
    """A body that nobody reads would let the forget take everything."""
    made = await bench.add("User likes figs.")
    answer = await bench.http.request("DELETE", path.format(**made), content=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "body")
    assert "project_id" in answer.json()["error"]["message"] or body == b"{"
    assert (await bench.http.get("/memory", params={"user_id": "alice"})).json()["total"] == 1


async def _three(bench: Bench) -> list[dict[str, Any]]:
    return [
        await bench.add("User's dentist is Dr. Okafor."),
        await bench.add("The rocket is blue.", project_id="apollo"),
        await bench.add("The temple is white.", project_id="zeus"),
    ]


async def test_the_project_that_the_header_names_narrows_a_forget(bench: Bench) -> None:
    await _three(bench)
    gone = await bench.http.delete("/memory", params={"user_id": "alice"}, headers=APOLLO)
    assert (gone.status_code, gone.json()["deleted_count"]) == (200, 1)
    left = (await bench.http.get("/memory", params={"user_id": "alice"})).json()["data"]
    assert {m["project_id"] for m in left} == {None, "zeus"}


async def test_the_header_names_the_project_of_what_is_listed_added_and_found(bench: Bench) -> None:
    await _three(bench)
    user = {"user_id": "alice"}
    listed = await bench.http.get("/memory", params=user, headers=APOLLO)
    assert [m["project_id"] for m in listed.json()["data"]] == ["apollo"]
    exported = await bench.http.get("/memory/export", params=user, headers=APOLLO)
    assert exported.text.count("\n") == exported.text.count('"apollo"') == 1
    added = await bench.http.post("/memory", json={**user, "content": "The crew is three."}, headers=APOLLO)
    assert added.json()["project_id"] == "apollo"
    found = await bench.http.post(
        "/memory/search", json={**user, "query": "the white temple"}, headers=APOLLO
    )
    assert "zeus" not in {m["memory"]["project_id"] for m in found.json()["data"]}
    name = {**user, "name": "Handbook", "content": "# Launch\n\nAt noon."}
    document = await bench.http.post("/memory/documents", json=name, headers=APOLLO)
    assert document.json()["project_id"] == "apollo"


async def test_a_memory_of_another_project_than_the_header_names_is_absent(bench: Bench) -> None:
    general, of_apollo, of_zeus = await _three(bench)
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
    assert (await bench.http.get(one)).json()["tags"] == []


async def test_the_header_fills_in_the_project_of_lines_that_name_none(bench: Bench) -> None:
    lines = [
        {"content": "The crew is three."},
        {"content": "User likes figs.", "project_id": None},
        {"content": "The temple is white.", "project_id": "zeus"},
    ]
    answer = await bench.http.post(
        "/memory/import",
        params={"user_id": "alice"},
        content=b"".join(json.dumps(line).encode() + b"\n" for line in lines),
        headers={**APOLLO, "content-type": "application/x-ndjson"},
    )
    assert [error["line"] for error in answer.json()["errors"]] == [3]
    kept = (await bench.http.get("/memory", params={"user_id": "alice"})).json()["data"]
    assert {m["content"]: m["project_id"] for m in kept} == {
        "The crew is three.": "apollo",
        "User likes figs.": None,
    }
