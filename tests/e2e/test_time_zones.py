"""Dates in the user's time zone, from the request to the block, and conversations of long ago."""

from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import House, until
from tests.support.model import ScriptedModel, known

DENTIST = ("dentist", "User has a dentist appointment tomorrow at 9.")
TOKYO_MORNING = "2026-03-05T22:30:00Z"  # Friday 6 March, 07:30 in Tokyo


async def chat(h: House, text: str, headers: dict[str, str] | None = None, **context: Any) -> Any:
    async with h.client() as client:
        return await client.chat.completions.with_raw_response.create(
            model="m",
            messages=[{"role": "user", "content": text}],
            extra_headers=headers or {},
            extra_body={"memory_context": {"user_id": "alice", **context}},
        )


async def stored(h: House) -> list[dict[str, Any]]:
    async with httpx2.AsyncClient(base_url=h.base_url, timeout=20) as http:
        data: list[dict[str, Any]] = (await http.get("/memory", params={"user_id": "alice"})).json()["data"]
        return data


@pytest.mark.parametrize(
    ("said_at", "zone", "shown", "meant"),
    [
        (TOKYO_MORNING, "Asia/Tokyo", "2026-03-06 07:30 Asia/Tokyo, Friday", "2026-03-07"),
        (TOKYO_MORNING, None, "2026-03-06 04:00 +05:30, Friday", "2026-03-07"),
    ],
)  # fmt: skip
async def test_tomorrow_is_the_day_after_the_users_today(house, said_at, zone, shown, meant):
    model = ScriptedModel(facts=known(DENTIST))
    async with house(model, memory={"timezone": "UTC+5:30"}) as h:
        said = {"timezone": zone} if zone else {}
        await chat(h, "I have to be at the dentist tomorrow at 9.", created_at=said_at, **said)
        (memory,) = await until(lambda: stored(h))
        assert f"tomorrow ({meant})" in memory["content"]
        prompt = str(model.extractions[-1].json["messages"])
        assert shown in prompt


async def test_the_zone_is_known_in_the_next_conversation_and_the_block_shows_its_days(house):
    model = ScriptedModel(facts=known(DENTIST))
    async with house(model) as h:
        header = {"X-Memory-Timezone": "Asia/Tokyo"}
        await chat(h, "I have to be at the dentist tomorrow at 9.", header, created_at=TOKYO_MORNING)
        await until(lambda: stored(h))
        await chat(h, "When do I have to see the dentist?")
        assert "2026-03-06 #" in str(model.last_messages)
        await chat(h, "When do I have to see the dentist?", timezone="UTC")
        assert "2026-03-05 #" in str(model.last_messages)


async def test_a_wrong_zone_or_date_is_refused_by_name(house):
    async def refused(context, headers=None):
        body = {"model": "m", "messages": [], "memory_context": {"user_id": "alice", **context}}
        answer = await http.post("/chat/completions", json=body, headers=headers)
        assert answer.status_code == 400
        return str(answer.json()["error"]["param"])

    dates = ("2999-01-01T00:00:00Z", "2023-05-10", "0001-01-01T00:00:00+14:00", 10**400, True)
    async with house() as h, httpx2.AsyncClient(base_url=h.base_url, timeout=20) as http:
        for zone in ("Asia/Tokio", "", 9):
            assert await refused({"timezone": zone}) == "memory_context.timezone"
        assert await refused({}, {"X-Memory-Timezone": "Mars/Phobos"}) == "X-Memory-Timezone"
        for date in dates:
            assert await refused({"created_at": date}) == "memory_context.created_at"
        assert not h.model.chats
