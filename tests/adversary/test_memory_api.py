"""The memory API under attack by a client with a credential: other users' ids, odd values, many at once."""

import asyncio
import json
from typing import Any

import httpx2

from tests.adversary.conftest import KEYS
from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import Json, until
from tests.http.auth.minting import mint
from tests.support.model import ScriptedModel, known

NDJSON = {"content-type": "application/x-ndjson"}
FIGS = ("figs", "User is fond of figs.")
SAID = "I have always been fond of figs, by the way."


async def chat(http: httpx2.AsyncClient, text: str, **extra: Any) -> httpx2.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **extra}
    answer = await http.post("/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer


async def listed(http: httpx2.AsyncClient, path: str = "/memory") -> list[Json]:
    data: list[Json] = (await http.get(path)).json()["data"]
    return data


# ---------------------------------------------------------------- ids of others
CALLS = """
GET /memory/{}  GET /memory/{}/history  DELETE /memory/{}  DELETE /memory/{}?dry_run=true  PATCH /memory/{}
POST /memory/jobs/{}/retry  POST /memory/quarantine/{}/release  DELETE /memory/quarantine/{}
POST /memory/sessions/{}/end  GET /memory?after={}  GET /memory/sessions?after={}  GET /memory/jobs?after={}
GET /memory/receipts?after={}  GET /memory/quarantine?after={}  GET /responses/{}  GET /conversations/{}
""".split()


async def test_another_users_id_is_answered_like_one_that_does_not_exist(house, keys):
    zoes, _ = await mint(keys, tenant="acme", user="zoe")
    strangers = [await mint(keys, tenant="acme", user="bob"), await mint(keys, tenant="umbrella", user="zoe")]
    async with house(ChatOnly(facts=known(FIGS)), **KEYS) as h, h.http(zoes) as zoe:
        await chat(zoe, SAID, memory_context={"session_id": "the-session"})
        (memory,) = await until(lambda: listed(zoe))
        plums = (await zoe.post("/memory", json={"content": "User is fond of plums."})).json()["id"]
        receipt = (await zoe.delete(f"/memory/{plums}")).json()["receipt"]
        for key, _ in strangers:
            async with h.http(key) as stranger:
                for id_ in (memory["id"], "the-session", receipt, memory["evidence"][0]["exchange_id"]):
                    unknown = id_[:-1] + ("0" if id_[-1] != "0" else "1")
                    for method, path in zip(CALLS[::2], CALLS[1::2], strict=True):
                        body = {"content": "Mine now."} if method == "PATCH" else None
                        answers = []
                        for each in (id_, unknown):
                            answer = await stranger.request(method, path.format(each), json=body)
                            answers.append((answer.status_code, answer.text.replace(each, "")))
                        assert answers[0] == answers[1], (method, path)
                        assert answers[0][0] in (202, 404), (method, path)
        assert await listed(zoe) == [memory]
        assert [s["id"] for s in await listed(zoe, "/memory/sessions")] == ["the-session"]


async def test_an_import_reaches_no_other_user_whatever_its_lines_claim(house, keys):
    zoes, _ = await mint(keys, user="zoe")
    bobs, _ = await mint(keys, user="bob")
    model = ChatOnly(facts=known(FIGS))
    async with house(model, **KEYS) as h, h.http(zoes) as zoe, h.http(bobs) as bob:
        await chat(zoe, SAID)
        (memory,) = await until(lambda: listed(zoe))
        lines = [
            {"id": memory["id"], "content": "User likes cocoa."},
            {"id": "mem_quotes", "content": "User likes water.", "evidence": memory["evidence"]},
            {"id": "mem_older", "content": "User likes soup.", "superseded_by": memory["id"]},
            {"id": "mem_hers", "content": "User hates figs.", "user_id": "zoe"},
            {"id": "mem_tenant", "content": "User hates figs.", "tenant": "default"},
        ]
        taken = await bob.post("/memory/import", content="\n".join(map(json.dumps, lines)), headers=NDJSON)
        assert (taken.json()["imported"], taken.json()["refused"]) == (3, 2)
        for line in lines[:3]:
            await bob.delete(f"/memory/{line['id']}")  # deletes the memory's sources too
        await bob.delete("/memory")
        assert await listed(zoe) == [memory]
        assert [s["exchanges"] for s in await listed(zoe, "/memory/sessions")] == [1]
        assert (await chat(zoe, "Which fruit do I like best?")).headers["x-memory-ids"] == memory["id"]


async def test_concurrent_users_never_see_each_other(house, keys):
    """Their words, memories and upstream keys, with one model that answers all of them."""
    users = [f"user-{n}" for n in range(10)]
    boats = {user: f"Marlin{n:03d}x" for n, user in enumerate(users)}
    minted = {user: (await mint(keys, user=user, upstream_key=f"sk-{user}"))[0] for user in users}
    facts = known(*((f"{boat}.", f"User's boat is called {boat}.") for boat in boats.values()))
    model = ScriptedModel(facts=facts)
    async with house(model, **KEYS) as h:

        async def live(user):
            async with h.http(minted[user]) as http:
                await chat(http, f"My boat is called {boats[user]}.")
                (memory,) = await until(lambda: listed(http), within_s=60)
                assert memory["content"] == f"User's boat is called {boats[user]}."
                answer = await chat(http, f"What is the name of my boat? ({user})")
                assert answer.headers["x-memory-ids"] == memory["id"]

        await asyncio.gather(*map(live, users))
        for request in (*model.chats, *model.extractions):
            key = (request.header(b"authorization") or b"").decode().removeprefix("Bearer sk-")
            assert [user for user in users if boats[user] in request.body.decode()] == [key]


# ---------------------------------------------------------------- odd values
ODD: list[Any] = [
    None, True, -1, 0, 2**63, 10**400, -(10**400), 1.5e308, "", " ", "\x00", "\ud800", "a" * 300_000,
    "'; DROP TABLE memories; --", '" OR 1=1', "NEAR(a b)", "a* AND NOT (", "content:x", "{}[]()^~:\\",
    "%00%ff", "\u202e\u2028\ufeff", [], {}, [[]], [None], ["a"] * 1_000, {"$ne": None}, "1e9", "../../x",
]  # fmt: skip


async def test_odd_values_in_bodies_are_refused_or_stored_but_never_an_error(house):
    tea: Json = {"user_id": "zoe", "content": "User likes tea."}
    async with house() as h, h.http() as http:
        (made,) = await h.add("User likes tea.", user="zoe")
        for call, body, fields in (
            ("POST /memory", tea, "content type user_id project_id tags importance expires_at"),
            (
                "POST /memory/search",
                {"user_id": "zoe", "query": "tea"},
                "query user_id memory_types limit similarity_threshold",
            ),
            (f"PATCH /memory/{made}?user_id=zoe", {}, "content type tags importance expires_at archived"),
            ("POST /memory/import?user_id=zoe", tea, "id content created_at evidence history weight"),
        ):
            method, path = call.split(" ")
            headers = NDJSON if "import" in path else {"content-type": "application/json"}
            for raw in [json.dumps({**body, field: odd}) for field in fields.split() for odd in ODD]:
                answer = await http.request(method, path, content=raw.encode(), headers=headers)
                assert answer.status_code < 500, (call, raw[:200], answer.text)
        assert (await http.get("/memory/me")).status_code == 200


async def test_odd_values_in_queries_are_never_an_error(house):
    async with house() as h, h.http() as http:
        await h.add("User likes tea.", user="zoe")
        texts = [odd for odd in ODD if isinstance(odd, str) and odd.isprintable() and len(odd) < 1_000]
        for path in ("/memory", "/memory/sessions", "/memory/jobs", "/memory/receipts", "/memory/quarantine"):
            for name in ("q", "after", "limit", "type", "project_id", "include", "state", "user_id"):
                for text in (*texts, str(10**400), "-1", "0x10", "1_0", "\u0661"):
                    answer = await http.get(path, params={"user_id": "zoe", name: text})
                    assert answer.status_code in (200, 400, 404), (path, name, text, answer.text)


LOOK_ALIKES = [
    "zoe", "Zoe", "zoe ", " zoe", "zo\u00eb", "zoe\u0308", "zo\u0435", "\uff5aoe", "zoe\u200b", "zoe\u00ad",
    "z%6fe", "zoe\\", "zo%", "zo_", "' OR 1=1 --", '{"$ne":1}', "💩", "u" * 256, "u" * 255,
]  # fmt: skip


async def test_look_alike_names_are_different_users(house):
    async with house() as h, h.http() as http:
        for number, name in enumerate(LOOK_ALIKES):
            await h.add(f"User owns boat number {number}.", user=name)
        for number, name in enumerate(LOOK_ALIKES):
            assert await h.listed(name) == [f"User owns boat number {number}."], name
            found = await http.post("/memory/search", json={"user_id": name, "query": "boat"})
            assert [match["memory"]["user_id"] for match in found.json()["data"]] == [name]
        assert (await h.forget("zoe"))["deleted_count"] == 1
        left = [len(await h.listed(name)) for name in LOOK_ALIKES]
        assert left == [0] + [1] * (len(LOOK_ALIKES) - 1)
