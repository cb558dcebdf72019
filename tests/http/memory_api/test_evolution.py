"""Pin, archive, settings, a pass now, insights, undo of a consolidation, and contradictions, over HTTP."""

import json
import time

import pytest

from proxy.domain.changes import DAY_S, Consolidate, Flag
from proxy.domain.core import Memory, Scope
from proxy.domain.session import Outcome
from tests.http.memory_api.conftest import Bench
from tests.storage.talking import exchange, never

ALICE = Scope("default", "alice")
OLD = b'{"id": "mem_a", "user_id": "alice", "content": "User has a canoe.", "created_at": 1}'


async def post(bench: Bench, path: str, **body):
    answer = await bench.http.post(f"/memory/{path}", json=body or None)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_pinned_memory_is_core_and_does_not_fade(bench):
    memory = await bench.add("User's sister is called Mara.", importance=0.8)
    assert (memory["pinned"], memory["core"], memory["weight"], memory["uses"]) == (False, False, 1.0, 0)
    assert memory["fades_at"] == pytest.approx(memory["updated_at"] + 300 * DAY_S, abs=2)
    pinned = await post(bench, f"{memory['id']}/pin")
    assert (pinned["pinned"], pinned["core"], pinned["fades_at"]) == (True, True, None)
    (listed,) = (await bench.listed())["data"]
    assert listed == pinned
    assert not (await post(bench, f"{memory['id']}/unpin"))["core"]


async def test_an_archived_memory_is_listed_apart_until_it_is_restored(bench):
    memory = await bench.add("User owns a canoe.")
    archived = await post(bench, f"{memory['id']}/archive")
    assert (archived["archived"], archived["archived_by"]) == (True, "user")
    assert (await bench.listed())["data"] == []
    assert [m["id"] for m in (await bench.listed(include="archived"))["data"]] == [memory["id"]]
    assert not (await post(bench, f"{memory['id']}/restore"))["archived"]
    await post(bench, f"{memory['id']}/archive")
    await bench.add("User owns a canoe.")
    assert [m["id"] for m in (await bench.listed(archived="true"))["data"]] == [memory["id"]]
    answer = await bench.http.post(f"/memory/{memory['id']}/restore")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "duplicate_memory")


async def test_importance_is_shown_as_it_has_decayed_and_exported_as_it_was(bench):
    await bench.bring_in(
        b'{"id": "mem_a", "user_id": "alice", "content": "User owns a canoe.", "created_at": 1}'
    )
    (shown,) = (await bench.listed())["data"]
    assert shown["importance"] < 0.01
    exported = await bench.export(user_id="alice")
    assert b'"importance":0.5' in exported
    await bench.http.delete("/memory?user_id=alice")
    used = {**json.loads(exported), "pinned": True, "uses": 3, "last_used_at": 5.5}
    await bench.bring_in(json.dumps(used).encode())
    (shown,) = (await bench.listed())["data"]
    assert (shown["pinned"], shown["uses"], shown["last_used_at"], shown["core"]) == (True, 3, 5, True)


async def test_a_user_sets_what_the_server_allows(bench):
    url = "/memory/settings?user_id=alice"
    assert (await bench.http.get(url)).json()["own"] == {}
    own = {"half_life_days": 7, "reflect": True, "half_life_days_by_type": {"episodic": 3}}
    shown = (await bench.http.put(url, json={**own, "core_above": None})).json()
    assert shown == (await bench.http.get(url)).json()
    assert shown["own"] == own
    settings = shown["settings"]
    assert (settings["half_life_days"], settings["reflect"], settings["core_above"]) == (7, False, 5.0)
    for bad, param in (({"half_life": 7}, "half_life"), ({"forget_below": 2}, "forget_below"),
                       ({"exempt_types": ["x"]}, "exempt_types")):  # fmt: skip
        answer = await bench.http.put(url, json=bad)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"].startswith(param)
    assert (await bench.http.get("/memory/settings?user_id=bob")).json()["own"] == {}


async def test_a_dry_run_says_what_a_pass_does(bench):
    await bench.bring_in(OLD)
    used = await bench.add("User's sister is called Mara.")
    begun = await bench.stores.sessions.begin(exchange("Who may help me?", ALICE, at=time.time()))
    outcome = Outcome("Ask Mara.", whole=True, recalled=(used["id"],))
    await bench.stores.sessions.complete(begun, outcome, never)
    for dry_run in (True, False):
        did = await post(bench, "evolve", user_id="alice", dry_run=dry_run)
        found = {step["step"]: step["ids"] for step in did["steps"]}
        assert found["decay"] == {"archived": ["mem_a"]}
        assert found["use"]["used"] == [used["id"]]
        assert len((await bench.listed())["data"]) == (2 if dry_run else 1)
    assert (await bench.listed())["data"][0]["weight"] == 1.5
    insights = (await bench.http.get("/memory/insights?user_id=alice&days=7")).json()
    assert (insights["active"], insights["archived"], insights["used"]) == (1, 1, 1)
    assert len(insights["by_day"]) == 7
    assert [m["id"] for m in insights["fading"]] == [used["id"]]
    assert (await bench.http.get("/memory/insights?user_id=alice&days=0")).status_code == 400


async def apply(bench: Bench, *changes):
    memories = bench.stores.memories
    await memories.apply(ALICE, changes, expect=await memories.stamp(ALICE))


async def consolidated(bench: Bench) -> list[str]:
    """Let mem_c take the place of two memories; return their ids."""
    ids = [(await bench.add(text))["id"] for text in ("User plants figs.", "User plants plums.")]
    made = Memory(
        id="mem_c", scope=ALICE, type="semantic", content="User plants figs and plums.",
        source="consolidated", created_at=1.0, updated_at=1.0, valid_from=1.0, sources=tuple(ids),
    )  # fmt: skip
    await apply(bench, Consolidate(tuple(ids), made, None))
    return ids


async def test_an_undone_consolidation_gives_its_sources_back_once(bench):
    ids = await consolidated(bench)
    (shown,) = (await bench.listed())["data"]
    assert (shown["source"], shown["sources"]) == ("consolidated", ids)
    for wrong in ("mem_c/undo?user_id=bob", f"{ids[0]}/undo"):
        assert (await bench.http.post(f"/memory/{wrong}")).status_code == 404
    assert (await post(bench, "mem_c/undo?user_id=alice"))["restored"] == ids
    assert {one["id"] for one in (await bench.listed())["data"]} == set(ids)
    assert (await bench.http.post("/memory/mem_c/undo")).status_code == 404


async def test_an_export_brings_a_consolidation_back_with_its_sources(bench):
    await consolidated(bench)
    await bench.bring_in(await bench.export(user_id="alice"), user_id="bob")
    (shown,) = (await bench.listed("bob"))["data"]
    inactive = (await bench.listed("bob", include="inactive"))["data"]
    assert set(shown["sources"]) == {one["id"] for one in inactive} - {shown["id"]}
    await bench.http.delete(f"/memory/{shown['sources'][0]}?user_id=bob")
    assert {one["id"] for one in (await bench.listed("bob"))["data"]} == {shown["sources"][1]}


async def test_a_contradiction_is_listed_until_its_owner_decides(bench):
    older, newer = [(await bench.add(text))["id"] for text in ("User has figs.", "User has no figs.")]
    await apply(bench, Flag(older, newer, 0.6, 1.0))
    assert (await bench.http.get("/memory/contradictions?user_id=bob")).json()["data"] == []
    (found,) = (await bench.http.get("/memory/contradictions?user_id=alice")).json()["data"]
    assert (found["older"]["id"], found["newer"]["id"], found["score"]) == (older, newer, 0.6)
    path = f"/memory/contradictions/{found['id']}"
    for user, keep, status in (
        ("alice", "none", 400),
        ("bob", "older", 404),
        ("alice", "older", 200),
        ("alice", "older", 404),
    ):
        assert (await bench.http.post(f"{path}?user_id={user}", json={"keep": keep})).status_code == status
    assert [one["id"] for one in (await bench.listed())["data"]] == [older]
