"""The memory API, attacked by somebody who has a credential: other people's ids, odd values, many at once."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.domain.ports import KeyStore
from proxy.storage.sqlite.stores import SqliteStores
from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import House, Houses, until
from tests.http.auth.minting import mint
from tests.support.model import ScriptedModel, known

KEYS: dict[str, Any] = {"identity": {"mode": "keys"}}
NDJSON = {"content-type": "application/x-ndjson"}
FIGS = ("figs", "User is fond of figs.")
SAID = "I have always been fond of figs, by the way."


@pytest.fixture
async def keys(tmp_path: Path) -> AsyncIterator[KeyStore]:
    """The keys of the house's data directory."""
    stores = SqliteStores(tmp_path / "data")
    await stores.open()
    yield stores.keys
    await stores.close()


def client(h: House, key: str = "", **headers: str) -> httpx2.AsyncClient:
    told = {"authorization": f"Bearer {key}"} if key else {}
    return httpx2.AsyncClient(base_url=h.base_url, headers={**told, **headers}, timeout=30)


async def chat(http: httpx2.AsyncClient, text: str, **extra: Any) -> httpx2.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **extra}
    answer = await http.post("/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer


async def listed(http: httpx2.AsyncClient, path: str = "/memory") -> list[dict[str, Any]]:
    answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    data: list[dict[str, Any]] = answer.json()["data"]
    return data


# ---------------------------------------------------------------- ids of others
async def test_an_id_of_anothers_is_answered_like_one_that_never_was(house: Houses, keys: KeyStore) -> None:
    zoes, _ = await mint(keys, tenant="acme", user="zoe")
    strangers = [
        (await mint(keys, tenant="acme", user="bob"))[0],
        (await mint(keys, tenant="umbrella", user="zoe"))[0],
    ]
    async with house(ChatOnly(facts=known(FIGS)), **KEYS) as h, client(h, zoes) as zoe:
        await chat(zoe, SAID, memory_context={"session_id": "the-session"})
        (memory,) = await until(lambda: listed(zoe))
        gone = (await zoe.post("/memory", json={"content": "User is fond of plums."})).json()["id"]
        receipt = (await zoe.delete(f"/memory/{gone}")).json()["receipt"]
        for key in strangers:
            async with client(h, key) as stranger:
                for id_ in (memory["id"], "the-session", receipt, memory["evidence"][0]["exchange_id"]):
                    await _compare(stranger, id_)
        assert [m["content"] for m in await listed(zoe)] == ["User is fond of figs."]
        assert [s["id"] for s in await listed(zoe, "/memory/sessions")] == ["the-session"]


async def _compare(stranger: httpx2.AsyncClient, id_: str) -> None:
    """Check that every place for an id says of this one what it says of an id of nobody's."""
    nobodys = id_[:-1] + ("0" if id_[-1] != "0" else "1")
    for method, path, body in (
        ("GET", "/memory/{}", None),
        ("GET", "/memory/{}/history", None),
        ("DELETE", "/memory/{}", None),
        ("DELETE", "/memory/{}?dry_run=true", None),
        ("PATCH", "/memory/{}", {"content": "Mine now."}),
        ("POST", "/memory/jobs/{}/retry", None),
        ("POST", "/memory/quarantine/{}/release", None),
        ("DELETE", "/memory/quarantine/{}", None),
        ("POST", "/memory/sessions/{}/end", None),
        ("GET", "/memory?after={}", None),
        ("GET", "/memory/sessions?after={}", None),
        ("GET", "/memory/jobs?after={}", None),
        ("GET", "/memory/receipts?after={}", None),
        ("GET", "/memory/quarantine?after={}", None),
        ("GET", "/responses/{}", None),
        ("GET", "/conversations/{}", None),
    ):
        told = []
        for each in (id_, nobodys):
            answer = await stranger.request(method, path.format(each), json=body)
            told.append((answer.status_code, answer.text.replace(each, "")))
        assert told[0] == told[1], (method, path)
        assert told[0][0] in (202, 404), (method, path)


async def test_an_import_reaches_nobody_else_whatever_its_lines_claim(house: Houses, keys: KeyStore) -> None:
    zoes, _ = await mint(keys, user="zoe")
    bobs, _ = await mint(keys, user="bob")
    async with (
        house(ChatOnly(facts=known(FIGS)), **KEYS) as h,
        client(h, zoes) as zoe,
        client(h, bobs) as bob,
    ):
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
            await bob.delete(f"/memory/{line['id']}")  # a forget takes what a memory came from
        await bob.delete("/memory")
        assert await listed(zoe) == [memory]
        assert [s["exchanges"] for s in await listed(zoe, "/memory/sessions")] == [1]
        assert (await chat(zoe, "Which fruit do I like best?")).headers["x-memory-ids"] == memory["id"]


# ---------------------------------------------------------------- many at once
async def test_twenty_users_at_once_are_told_nothing_of_each_other(house: Houses, keys: KeyStore) -> None:
    """Their words, their memories and their upstream keys, under one model that answers all of them."""
    users = [f"user-{n}" for n in range(20)]
    minted = {user: (await mint(keys, user=user, upstream_key=f"sk-{user}"))[0] for user in users}
    model = ScriptedModel(facts=lambda said: [
        {"type": "semantic", "content": f"User's boat is called {name}.", "confidence": 0.9, "tags": []}
        for name in map(boat, users) if f"{name}." in said
    ])  # fmt: skip
    async with house(model, **KEYS) as h:

        async def live(user: str) -> None:
            async with client(h, minted[user]) as http:
                await chat(http, f"My boat is called {boat(user)}.")
                (memory,) = await until(lambda: listed(http), within_s=60)
                assert memory["content"] == f"User's boat is called {boat(user)}."
                told = await chat(http, f"What is the name of my boat? ({user})")
                assert told.headers["x-memory-ids"] == memory["id"]

        await asyncio.gather(*map(live, users))
        for request in (*model.chats, *model.extractions):
            key = (request.header(b"authorization") or b"").decode().removeprefix("Bearer sk-")
            text = request.body.decode()
            assert boat(key) in text
            assert not [user for user in users if user != key and boat(user) in text]


def boat(user: str) -> str:
    """Return a name that is no part of another's."""
    return f"Marlin{user.removeprefix('user-').zfill(3)}x"


# ---------------------------------------------------------------- odd values
ODD: list[Any] = [
    None, True, -1, 0, 2**63, 10**400, -(10**400), 1.5e308, "", " ", "\x00", "\ud800", "a" * 300_000,
    "'; DROP TABLE memories; --", '" OR 1=1', "NEAR(a b)", "a* AND NOT (", "content:x", "{}[]()^~:\\",
    "%00%ff", "\u202e\u2028\ufeff", [], {}, [[]], [None], ["a"] * 1_000, {"$ne": None}, "1e9", "../../x",
]  # fmt: skip


async def test_no_odd_value_in_a_body_is_a_failure_of_ours(house: Houses) -> None:
    async with house() as h, client(h) as http:
        made = (await http.post("/memory", json={"user_id": "zoe", "content": "User likes tea."})).json()[
            "id"
        ]
        add: dict[str, Any] = {"user_id": "zoe", "content": "User likes tea."}
        search = {"user_id": "zoe", "query": "tea"}
        shapes: dict[str, tuple[dict[str, Any], str]] = {
            "POST /memory": (add, "content type user_id project_id tags importance expires_at"),
            "POST /memory/search": (
                search,
                "query user_id project_id memory_types limit similarity_threshold",
            ),
            f"PATCH /memory/{made}?user_id=zoe": (
                {},
                "content type tags importance expires_at project_id archived",
            ),
            "POST /memory/import?user_id=zoe": (add, "id content created_at evidence history weight"),
        }
        for call, (body, fields) in shapes.items():
            method, path = call.split(" ")
            headers = NDJSON if "import" in path else {"content-type": "application/json"}
            for raw in [_raw({**body, field: odd}) for field in fields.split() for odd in ODD]:
                answer = await http.request(method, path, content=raw, headers=headers)
                assert answer.status_code < 500, (call, raw[:200], answer.text)
        assert (await http.get("/memory/me")).status_code == 200


def _raw(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "raw",
    [
        b'{"user_id": "zoe", "content": NaN}',
        b'{"user_id": "zoe", "importance": Infinity, "content": "x"}',
        b"[" * 100_000,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b"\xff\xfe{}",
        b'{"user_id": "zoe", "content": "\\ud800"}',
        b"null",
        b'"text"',
    ],
)
async def test_what_is_no_json_object_of_ours_is_refused(house: Houses, raw: bytes) -> None:
    async with house() as h, client(h) as http:
        for path in ("/memory", "/memory/search"):
            answer = await http.post(path, content=raw, headers={"content-type": "application/json"})
            assert answer.status_code == 400, answer.text


async def test_no_odd_value_in_a_query_is_a_failure_of_ours(house: Houses) -> None:
    async with house() as h, client(h) as http:
        await http.post("/memory", json={"user_id": "zoe", "content": "User likes tea."})
        texts = [odd for odd in ODD if isinstance(odd, str) and odd.isprintable() and len(odd) < 1_000]
        for path in ("/memory", "/memory/sessions", "/memory/jobs", "/memory/receipts", "/memory/quarantine"):
            for name in ("q", "after", "limit", "type", "project_id", "include", "state", "user_id"):
                for text in (*texts, str(10**400), "-1", "0x10", "1_0", "\u0661"):
                    answer = await http.get(path, params={"user_id": "zoe", name: text})
                    assert answer.status_code in (200, 400, 404), (path, name, text, answer.text)


async def test_look_alike_names_are_different_users(house: Houses) -> None:
    names = [
        "zoe",
        "Zoe",
        "zoe ",
        "zo\u00eb",
        "zoe\u0308",
        "zo\u0435",
        "\uff5aoe",
        "zoe\u200b",
        "zoe\u00ad",
        "z%6fe",
        "zoe\\",
    ]
    async with house() as h, client(h) as http:
        for name in names:
            await http.post(
                "/memory", json={"user_id": name, "content": f"User {names.index(name)} likes tea."}
            )
        for name in names:
            found = await http.post("/memory/search", json={"user_id": name, "query": "who likes tea?"})
            got = [match["memory"]["user_id"] for match in found.json()["data"]]
            assert got == [name]
            page = await http.get("/memory", params={"user_id": name})
            assert [m["user_id"] for m in page.json()["data"]] == [name]
        await http.delete("/memory", params={"user_id": "zoe"})
        left = [(await http.get("/memory", params={"user_id": name})).json()["total"] for name in names]
        assert left == [0] + [1] * (len(names) - 1)
