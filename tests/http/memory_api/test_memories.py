"""Adding, finding, listing and correcting memories over HTTP."""

import time
from typing import Any

import pytest

from tests.http.memory_api.conftest import Bench

KEY = "sk-proj-Abc123Def456Ghi789Jkl012Mno345Pqr678"


async def test_an_added_memory_is_found_listed_and_forgotten(bench):
    made = await bench.add("User's dentist is Dr. Okafor.", tags=["health"], importance=0.9)
    assert (made["object"], made["source"], made["change"]) == ("memory", "api", "created")
    assert "embedding" not in made
    (match,) = await bench.found("Who looks after my teeth?")
    assert (match["memory"]["id"], "dense" in match["why"]) == (made["id"], True)
    assert 0 < match["score"] <= 1
    listed = await bench.listed()
    assert (listed["total"], listed["has_more"], listed["first_id"]) == (1, False, made["id"])
    deleted = await bench.http.delete(f"/memory/{made['id']}")
    assert (deleted.json()["deleted_count"], deleted.json()["id"]) == (1, made["id"])
    for method in ("GET", "DELETE"):
        assert (await bench.http.request(method, f"/memory/{made['id']}")).status_code == 404
    assert await bench.found("my teeth") == []


async def test_the_same_again_confirms_and_a_changed_value_supersedes(bench):
    first = await bench.add("User's rent is $1,800 a month.")
    again = await bench.add("User's rent is $1,800 a month")
    assert (again["id"], again["change"]) == (first["id"], "confirmed")
    raised = await bench.add("User's rent is $1,950 a month.")
    assert raised["change"] == "superseded"
    assert [m["id"] for m in (await bench.listed())["data"]] == [raised["id"]]
    both = (await bench.listed(include="inactive"))["data"]
    assert {m["id"] for m in both} == {first["id"], raised["id"]}


async def test_a_confirming_post_updates_the_fields_that_it_gives(bench):
    soon, later = time.time() + 60, time.time() + 86_400
    first = await bench.add("User parks in bay seven.", expires_at=later, tags=["car"], importance=0.2)
    plain = await bench.add("User parks in bay seven.")
    assert (plain["change"], plain["tags"], plain["importance"]) == ("confirmed", ["car"], 0.2)
    assert plain["expires_at"] == pytest.approx(later)
    again = await bench.add("User parks in bay seven", expires_at=soon, tags=["work", "car"], importance=1.0)
    assert (again["id"], again["importance"], again["tags"]) == (first["id"], 1.0, ["car", "work"])
    assert again["expires_at"] == pytest.approx(soon)
    history = (await bench.http.get(f"/memory/{first['id']}/history")).json()["data"]
    assert [event["action"] for event in history] == ["created", "confirmed", "confirmed", "updated"]


async def test_pages_hold_every_memory_once(bench):
    made = [(await bench.add(f"User owns book number {n} of saga {chr(65 + n)}."))["id"] for n in range(7)]
    seen: list[str] = []
    page: dict[str, Any] = {"has_more": True}
    while page["has_more"]:
        page = await bench.listed(limit="3", **({"after": page["last_id"]} if seen else {}))
        seen += [m["id"] for m in page["data"]]
    assert seen == made[::-1]


async def test_users_and_projects_are_separate(bench):
    apollo = await bench.add("The launch code name is Bluebird.", project_id="apollo")
    await bench.add("The launch code name is Redwing.", project_id="zeus")
    general = await bench.add("User signs mails with 'Best, Al'.")
    bobs = await bench.add("User is Bob.", user="bob")
    assert [m["id"] for m in (await bench.listed(project_id="apollo"))["data"]] == [apollo["id"]]
    found = str(await bench.found("What is the launch code name?", project_id="apollo"))
    assert ("Redwing" in found, "Bluebird" in found) == (False, True)
    for more in ({"headers": {"X-Memory-User-Id": "alice"}}, {"params": {"user_id": "alice"}}):
        for method in ("GET", "DELETE"):
            foreign = await bench.http.request(method, f"/memory/{bobs['id']}", **more)
            assert foreign.status_code == 404
    project = {"user_id": "alice", "project_id": "apollo"}
    assert (await bench.http.delete("/memory", params=project)).json()["deleted_count"] == 1
    assert general["id"] in {m["id"] for m in (await bench.listed())["data"]}
    assert [m["id"] for m in (await bench.listed("bob"))["data"]] == [bobs["id"]]


async def test_relative_dates_refer_to_the_time_at_which_the_memory_was_said(bench):
    made = await bench.add(
        "User was in Lisbon last week", created_at="2023-05-10T23:30:00Z", timezone="asia/tokyo"
    )
    assert made["content"] == "User was in Lisbon last week (week of 2023-05-01)"
    assert made["created_at"] == made["valid_from"] == 1683761400
    assert (await bench.found("Where was I in May 2023?"))[0]["memory"]["id"] == made["id"]


# ---------------------------------------------------------------- corrections
async def edit(bench: Bench, memory_id: str, **changes: Any) -> Any:
    return await bench.http.patch(f"/memory/{memory_id}", json=changes)


async def test_corrected_content_is_found_and_the_old_one_is_in_the_history_only(bench):
    made = await bench.add("User's dentist is Dr. Okafor.", importance=0.9, tags=["health"])
    edited = (await edit(bench, made["id"], content="User plays the cello in an orchestra.")).json()
    unchanged = ("id", "created_at", "importance", "tags")
    assert [edited[name] for name in unchanged] == [made[name] for name in unchanged]
    (match,) = await bench.found("Which musical instrument do I practise?")
    assert match["memory"]["id"] == made["id"]
    assert await bench.found("Who looks after my teeth?", similarity_threshold=0.2) == []
    created, updated = (await bench.http.get(f"/memory/{made['id']}/history")).json()["data"]
    assert (created["action"], updated["action"]) == ("created", "updated")
    assert (updated["content"], updated["became"]) == (made["content"], edited["content"])


async def test_every_field_can_be_changed_alone(bench):
    made = await bench.add("User likes figs.", project_id="apollo", tags=["food"])
    later = int(time.time()) + 1000
    changes: list[dict[str, Any]] = [
        {"type": "preference"}, {"tags": ["fruit", "sweet"]}, {"importance": 0.1}, {"expires_at": later},
        {"expires_at": None}, {"project_id": None}, {"project_id": "zeus"}, {"archived": True},
    ]  # fmt: skip
    for change in changes:
        edited = (await edit(bench, made["id"], **change)).json()
        assert {name: edited[name] for name in change} == change
        assert edited["content"] == "User likes figs."
    assert await bench.found("Which fruit do I like?") == [], "it is archived"
    await edit(bench, made["id"], archived=False)
    assert len(await bench.found("Which fruit do I like?")) == 1


async def test_a_wrong_correction_names_its_field_and_changes_nothing(bench):
    made = await bench.add("User likes figs.")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "body"), ({"content": "  "}, "content"), ({"content": None}, "content"),
        ({"type": "gossip"}, "type"), ({"importance": 1.1}, "importance"), ({"expires_at": 1}, "expires_at"),
        ({"archived": "yes"}, "archived"), ({"id": "mem_x"}, "id"), ({"user_id": "bob"}, "user_id"),
        ({"content": f"User's key is {KEY}"}, "content"), ({"tags": [KEY]}, "content"),
    ]  # fmt: skip
    for changes, param in wrong:
        answer = await edit(bench, made["id"], **changes)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    assert {**(await bench.http.get(f"/memory/{made['id']}")).json(), "change": "created"} == made


async def test_a_correction_that_another_memory_already_states_is_a_conflict(bench):
    await bench.add("User likes figs.")
    other = await bench.add("User's dentist is Dr. Okafor.")
    assert (await edit(bench, other["id"], content="user likes FIGS")).status_code == 409
    assert (await bench.http.get(f"/memory/{other['id']}")).json()["content"] == other["content"]
