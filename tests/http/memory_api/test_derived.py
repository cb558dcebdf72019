"""Undo of a consolidation, and contradictions, over HTTP."""

from proxy.domain.changes import Consolidate, Flag
from proxy.domain.core import Memory, Scope
from tests.http.memory_api.conftest import Bench

ALICE = Scope("default", "alice")


async def apply(bench: Bench, *changes):
    memories = bench.stores.memories
    await memories.apply(ALICE, changes, expect=await memories.stamp(ALICE))


async def test_an_undone_consolidation_gives_its_sources_back_once(bench):
    ids = [(await bench.add(text))["id"] for text in ("User plants figs.", "User plants plums.")]
    made = Memory(
        id="mem_c", scope=ALICE, type="semantic", content="User plants figs and plums.",
        source="consolidated", created_at=1.0, updated_at=1.0, valid_from=1.0, sources=tuple(ids),
    )  # fmt: skip
    await apply(bench, Consolidate(tuple(ids), made, None))
    (shown,) = (await bench.listed())["data"]
    assert (shown["source"], shown["sources"]) == ("consolidated", ids)
    assert (await bench.http.post("/memory/mem_c/undo?user_id=bob")).status_code == 404
    assert (await bench.http.post(f"/memory/{ids[0]}/undo")).status_code == 404
    answer = await bench.http.post("/memory/mem_c/undo?user_id=alice")
    assert answer.json() == {"object": "memory.undo", "id": "mem_c", "restored": ids}
    assert {one["id"] for one in (await bench.listed())["data"]} == set(ids)
    assert (await bench.http.post("/memory/mem_c/undo")).status_code == 404


async def test_an_export_brings_a_consolidation_back_with_its_sources(bench):
    await test_an_undone_consolidation_gives_its_sources_back_once(bench)
    ids = [one["id"] for one in (await bench.listed())["data"]]
    made = Memory(
        id="mem_d", scope=ALICE, type="semantic", content="User plants trees.", source="consolidated",
        created_at=1.0, updated_at=1.0, valid_from=1.0, sources=tuple(ids),
    )  # fmt: skip
    await apply(bench, Consolidate(tuple(ids), made, None))
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
    assert (await bench.http.post(f"{path}?user_id=alice", json={"keep": "none"})).status_code == 400
    assert (await bench.http.post(f"{path}?user_id=bob", json={"keep": "older"})).status_code == 404
    assert (await bench.http.post(f"{path}?user_id=alice", json={"keep": "older"})).json()["id"] == found[
        "id"
    ]
    assert [one["id"] for one in (await bench.listed())["data"]] == [older]
    assert (await bench.http.post(f"{path}?user_id=alice", json={"keep": "older"})).status_code == 404
