"""PATCH: a correction keeps the id, is searched by its new words, and loses nobody's change."""

import asyncio
import time
from typing import Any

import pytest

from tests.http.memory_api.conftest import Bench


async def edit(bench: Bench, memory_id: str, **changes: Any) -> Any:
    return await bench.http.patch(f"/memory/{memory_id}", json=changes)


async def test_corrected_content_is_found_and_the_old_one_only_in_the_history(bench: Bench) -> None:
    made = await bench.add("User's dentist is Dr. Okafor.", importance=0.9, tags=["health"])
    answer = await edit(bench, made["id"], content="User plays the cello in an orchestra.")
    assert answer.status_code == 200, answer.text
    edited = answer.json()
    assert (edited["id"], edited["content"]) == (made["id"], "User plays the cello in an orchestra.")
    assert (edited["created_at"], edited["importance"], edited["tags"]) == (
        made["created_at"],
        0.9,
        ["health"],
    )
    (match,) = await bench.found("Which musical instrument do I practise?")
    assert match["memory"]["id"] == made["id"]
    assert await bench.found("Who looks after my teeth?", similarity_threshold=0.2) == []
    events = (await bench.http.get(f"/memory/{made['id']}/history")).json()["data"]
    assert [e["action"] for e in events] == ["created", "updated"]
    assert "Okafor" in "".join(e["content"] for e in events)


async def test_every_field_can_be_changed_alone(bench: Bench) -> None:
    made = await bench.add("User likes figs.", project_id="apollo", tags=["food"])
    later = int(time.time()) + 1000
    for changes in (
        {"type": "preference"},
        {"tags": ["fruit", "sweet"]},
        {"importance": 0.1},
        {"expires_at": later},
        {"expires_at": None},
        {"project_id": None},
        {"project_id": "zeus"},
        {"archived": True},
        {"archived": False},
    ):
        edited = (await edit(bench, made["id"], **changes)).json()
        assert {name: edited[name] for name in changes} == changes
        assert edited["content"] == "User likes figs."


async def test_archived_memories_are_not_searched_until_they_are_restored(bench: Bench) -> None:
    made = await bench.add("User's dentist is Dr. Okafor.")
    await edit(bench, made["id"], archived=True)
    assert await bench.found("Who is my dentist?") == []
    await edit(bench, made["id"], archived=False)
    assert len(await bench.found("Who is my dentist?")) == 1


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({}, "body"),
        ({"content": ""}, "content"),
        ({"content": "  "}, "content"),
        ({"content": None}, "content"),
        ({"type": None}, "type"),
        ({"type": "gossip"}, "type"),
        ({"tags": None}, "tags"),
        ({"importance": 1.1}, "importance"),
        ({"expires_at": 1}, "expires_at"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"archived": "yes"}, "archived"),
        ({"project_id": ""}, "project_id"),
        ({"created_at": 5}, "created_at"),
        ({"id": "mem_x"}, "id"),
        ({"user_id": "bob"}, "user_id"),
        ({"content": "User's key is sk-proj-Abc123Def456Ghi789Jkl012Mno345Pqr678"}, "content"),
        ({"tags": ["sk-proj-Abc123Def456Ghi789Jkl012Mno345Pqr678"]}, "content"),
    ],
)
async def test_a_wrong_correction_is_refused_with_its_field_and_changes_nothing(
    bench: Bench, changes: dict[str, Any], param: str
) -> None:
    made = await bench.add("User likes figs.")
    answer = await bench.http.patch(f"/memory/{made['id']}", json=changes)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    kept = (await bench.http.get(f"/memory/{made['id']}")).json()
    assert {**kept, "change": "created"} == made


async def test_a_correction_that_another_memory_already_states_is_a_conflict(bench: Bench) -> None:
    await bench.add("User likes figs.")
    other = await bench.add("User's dentist is Dr. Okafor.")
    answer = await edit(bench, other["id"], content="user likes FIGS")
    assert answer.status_code == 409, answer.text
    assert (await bench.http.get(f"/memory/{other['id']}")).json()["content"] == other["content"]


async def test_concurrent_corrections_of_different_fields_all_hold(bench: Bench) -> None:
    made = await bench.add("User likes figs.")
    changes: list[dict[str, Any]] = [
        {"importance": 0.25},
        {"tags": ["fruit"]},
        {"type": "preference"},
        {"content": "User likes dates."},
        {"project_id": "apollo"},
    ]
    answers = await asyncio.gather(*(edit(bench, made["id"], **c) for c in changes))
    assert [a.status_code for a in answers] == [200] * len(changes)
    kept = (await bench.http.get(f"/memory/{made['id']}")).json()
    for change in changes:
        assert {name: kept[name] for name in change} == change
