"""DELETE with its dry run and its receipt, over HTTP. What a forget erases is tested with the stores."""

from typing import Any

import pytest

from proxy.domain import Scope
from proxy.edge.identity.caller import Caller
from tests.edge.memory_api.conftest import Bench

DEPTHS = ("count", "exchanges", "sessions", "jobs", "responses", "quarantined")


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


async def test_a_dry_run_of_one_memory_changes_nothing(bench: Bench) -> None:
    made = await bench.add("User likes figs.")
    dry = (await bench.http.delete(f"/memory/{made['id']}", params={"dry_run": "true"})).json()
    assert (dry["id"], dry["deleted"], dry["deleted_count"]) == (made["id"], False, 1)
    assert (await bench.http.get(f"/memory/{made['id']}")).status_code == 200
    assert (await bench.http.get("/memory/receipts")).json()["data"] == []
    absent = await bench.http.delete("/memory/mem_none", params={"dry_run": "true"})
    assert absent.status_code == 404


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


@pytest.mark.parametrize("narrowed", [{"project_id": "apollo"}, {"type": "event"}, {"dry_run": "true"}, {}])
async def test_who_is_forgotten_as_a_whole_leaves_no_credential(
    bench: Bench, narrowed: dict[str, str]
) -> None:
    alice, bob = Scope("default", "alice"), Scope("default", "bob")
    key = [(b"authorization", b"Bearer sk-1")]
    for user in (alice, bob):
        bench.credentials.remember(user, key)
    await bench.http.delete("/memory", params={"user_id": "alice", **narrowed})
    assert bench.credentials.get(alice) == (key if narrowed else [])
    assert bench.credentials.get(bob) == key


async def test_receipts_come_in_pages(bench: Bench) -> None:
    for _ in range(3):
        await bench.http.delete("/memory", params={"user_id": "alice"})
    first = (await bench.http.get("/memory/receipts", params={"limit": "2"})).json()
    assert (len(first["data"]), first["has_more"]) == (2, True)
    rest = (await bench.http.get("/memory/receipts", params={"limit": "2", "after": first["last_id"]})).json()
    assert (len(rest["data"]), rest["has_more"]) == (1, False)
    assert not {r["id"] for r in first["data"]} & {r["id"] for r in rest["data"]}


@pytest.mark.parametrize("value", ["", "yes", "1", "TRUE"])
async def test_a_dry_run_is_true_or_false_and_never_guessed(bench: Bench, value: str) -> None:
    """`dry_run=1` taken for false would forget what was only to be counted."""
    await bench.add("User likes figs.")
    answer = await bench.http.delete("/memory", params={"user_id": "alice", "dry_run": value})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "dry_run")
    assert (await bench.http.get("/memory", params={"user_id": "alice"})).json()["total"] == 1
