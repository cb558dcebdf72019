"""With `extraction: verbatim`, whole sentences are kept, and a new value takes the place of the old one."""

import httpx2

from tests.e2e.conftest import House, Houses, until


async def say(house: House, session: str, text: str) -> None:
    async with house.client() as client:
        await client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": text}],
            extra_headers={"X-Memory-User-Id": "alice", "X-Memory-Session-Id": session},
        )


async def test_a_new_employer_takes_the_place_of_the_old_one_and_titles_stay_whole(house: Houses) -> None:
    async with (
        house(memory={"extraction": "verbatim"}) as h,
        httpx2.AsyncClient(base_url=h.base_url, timeout=20) as http,
    ):

        async def current() -> list[str]:
            page = await http.get("/memory", params={"user_id": "alice"})
            return sorted(m["content"] for m in page.json()["data"])

        async def among_them(content: str) -> bool:
            return content in await current()

        await say(h, "s-1", "Please remember that I work at Acme. My dentist is Dr. Ohm.")
        await http.post("/memory/sessions/s-1/end", params={"user_id": "alice"})
        await until(lambda: among_them("Please remember that I work at Acme."))
        await say(h, "s-2", "Please remember that I work at Globex now.")
        await http.post("/memory/sessions/s-2/end", params={"user_id": "alice"})
        await until(lambda: among_them("Please remember that I work at Globex now."))
        assert await current() == ["My dentist is Dr. Ohm.", "Please remember that I work at Globex now."]
