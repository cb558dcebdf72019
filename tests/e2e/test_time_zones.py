"""Dates in the user's time zone, from the request to the block, and questions about the past."""

import pytest

from tests.e2e.conftest import context, until
from tests.support.model import ScriptedModel, known

DENTIST = ("dentist", "User has a dentist appointment tomorrow at 9.")
TOKYO_MORNING = "2026-03-05T22:30:00Z"  # Friday 6 March, 07:30 in Tokyo


@pytest.mark.parametrize(
    ("zone", "shown"),
    [("Asia/Tokyo", "2026-03-06 07:30 Asia/Tokyo, Friday"), (None, "2026-03-06 04:00 +05:30, Friday")],
)
async def test_tomorrow_is_the_day_after_the_users_today(house, zone, shown):
    model = ScriptedModel(facts=known(DENTIST))
    async with house(model, memory={"timezone": "UTC+5:30"}) as h:
        headers = {"X-Memory-Timezone": zone} if zone else {}
        said = "I have to be at the dentist tomorrow at 9."
        await h.tell(said, extra=context(created_at=TOKYO_MORNING), **headers)
        (content,) = await until(h.listed)
        assert "tomorrow (2026-03-07)" in content
        assert shown in str(model.extractions[-1].json["messages"])
        await h.tell("When do I have to see the dentist?")  # another conversation knows the zone
        assert "2026-03-06 #" in h.block
        await h.tell("When do I have to see the dentist?", extra=context(timezone="UTC"))
        assert "2026-03-05 #" in h.block


async def test_a_wrong_zone_or_date_is_refused_by_name(house):
    async def refused(context, **headers):
        answer = await h.tell("Hi", extra={"memory_context": {"user_id": "alice", **context}}, **headers)
        assert answer.status_code == 400
        return str(answer.json()["error"]["param"])

    async with house() as h:
        for zone in ("Asia/Tokio", "", 9):
            assert await refused({"timezone": zone}) == "memory_context.timezone"
        assert await refused({}, **{"X-Memory-Timezone": "Mars/Phobos"}) == "X-Memory-Timezone"
        for date in ("2999-01-01T00:00:00Z", "2023-05-10", "0001-01-01T00:00:00+14:00", 10**400, True):
            assert await refused({"created_at": date}) == "memory_context.created_at"
        assert not h.model.chats


async def test_a_question_about_last_year_is_shown_what_held_then(house):
    async with house() as h:
        for city, year in (("Lisbon", 2024), ("Oslo", 2025)):
            (new,) = await h.add(f"User lives in {city}.", created_at=f"{year}-03-01T09:00:00Z")
        await h.tell("Where did I live in May 2024?")
        assert "] User lives in Oslo." in h.block
        assert "[was 2024-03-01 until 2025-03-01 #" in h.block
        await h.tell("Where do I live?", extra=context(session_id="s-2"))
        assert "Lisbon" not in h.block
        await h.tell("Where did I live in May 2024?", "bob")
        assert h.block == ""
        page = (await h.get("/memory/timeline", user_id="alice"))["data"]
        (old,) = {event["memory_id"] for event in page} - {new}
        async with h.http() as http:
            assert (await http.delete(f"/memory/{old}", params={"user_id": "alice"})).status_code == 200
        await h.tell("Where did I live in May 2024?", extra=context(session_id="s-4"))
        assert "Lisbon" not in h.block
