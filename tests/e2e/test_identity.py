"""Identity over real sockets, with the OpenAI SDK: who gets in, whose memory it is, what goes upstream."""

import asyncio
import time
from typing import Any

import httpx2
import jwt
import pytest
from openai import AsyncOpenAI, AuthenticationError, NotFoundError, PermissionDeniedError

from proxy.config import Settings
from proxy.http.auth import keys as key_ring
from proxy.storage.sqlite import SqliteStores
from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import House, until
from tests.http.auth.minting import mint
from tests.support.model import ScriptedModel, known

FIGS = ("figs", "User is fond of figs.")
SAID = "I have always been fond of figs, by the way."
ASKED = "Which fruit do I like best?"
SERVERS_KEY = {"upstream_extra": {"api_key": "sk-server"}}
KEYS: dict[str, Any] = {"identity": {"mode": "keys"}, **SERVERS_KEY}


@pytest.fixture
async def keys(tmp_path):
    """The keys of the house's data directory, as another process has them: `memory-proxy keys` is one."""
    stores = SqliteStores(tmp_path / "data")
    await stores.open()
    yield stores.keys
    await stores.close()


async def say(client: AsyncOpenAI, text: str, **extra: Any) -> Any:
    """One turn of a chat; returns the headers of the answer."""
    raw = await client.chat.completions.with_raw_response.create(
        model="m", messages=[{"role": "user", "content": text}], **extra
    )
    return raw.headers


async def memories(h: House, key: str, **params: str) -> list[dict[str, Any]]:
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}) as http:
        answer = await http.get(f"{h.base_url}/memory", params=params)
    assert answer.status_code == 200, answer.text
    data: list[dict[str, Any]] = answer.json()["data"]
    return data


def sent(h: House) -> list[tuple[bytes, bytes | None]]:
    """Return route and Authorization of everything that the upstream got."""
    return [(r.target.partition(b"?")[0], r.header(b"authorization")) for r in h.upstream.requests]


# ---------------------------------------------------------------- keys
async def test_with_nothing_but_its_key_an_unmodified_client_has_a_memory(house, keys):
    zoe, _ = await mint(keys, user="zoe", upstream_key="sk-zoe")
    bob, _ = await mint(keys, user="bob", upstream_key="sk-bob")
    async with house(ScriptedModel(facts=known(FIGS)), **KEYS) as h, h.client(zoe) as client:
        await say(client, SAID)
        (memory,) = await until(lambda: memories(h, zoe))
        assert memory["user_id"] == "zoe"
        assert (await say(client, ASKED))["x-memory-ids"] == memory["id"]
        async with h.client(bob) as other:
            assert (await say(other, ASKED))["x-memory-count"] == "0"
        assert await memories(h, bob) == []
        assert {key for _, key in sent(h)} == {b"Bearer sk-zoe", b"Bearer sk-bob"}
        assert h.model.extractions[0].header(b"authorization") == b"Bearer sk-zoe"


async def test_the_upstream_sees_its_own_key_and_never_ours_on_any_route(house, keys):
    key, _ = await mint(keys, user="zoe", upstream_key="sk-up")
    poor, _ = await mint(keys, user="bob")
    async with house(ScriptedModel(facts=known(FIGS)), **KEYS) as h:
        for ours in (key, poor):
            async with h.client(ours) as client:
                await say(client, SAID)
                await say(client, "Hello", stream=True)
                await client.responses.create(model="m", input="Hello")
            async with httpx2.AsyncClient(timeout=30) as http:
                both = {"api-key": ours, "x-api-key": ours, "cookie": f"a={ours}"}
                await http.post(f"{h.base_url}/embeddings", json={}, headers=both)
            await until(lambda ours=ours: memories(h, ours))
        targets = {target for target, _ in sent(h)}
        assert {b"/v1/chat/completions", b"/v1/responses", b"/v1/embeddings"} <= targets
        assert {auth for _, auth in sent(h)} == {b"Bearer sk-up", b"Bearer sk-server"}
        assert len(h.model.extractions) >= 2
        for request in h.upstream.requests:
            assert b"mp-" not in request.head + request.body


async def test_a_wrong_key_is_refused_by_us_and_nothing_is_forwarded(house, keys, monkeypatch):
    monkeypatch.setattr(key_ring, "PATIENCE_S", 30.0)  # for else a slow store is one that is away
    key, id_ = await mint(keys, user="zoe", upstream_key="sk-up")
    async with house(**KEYS) as h:
        async with h.client(key) as client:
            await say(client, "Hello")
            await keys.revoke(id_, time.time())
            revoked = asked = accepted = time.monotonic()
            async with asyncio.timeout(60):
                while not await refused(client):
                    accepted, asked = asked, time.monotonic()
            assert accepted - revoked < 1.0  # so long may a process believe in a key
        before = len(h.model.chats)  # our own requests for what was said before may still come
        for wrong in (key, "sk-test", "mp-" + "A" * 43):
            async with h.client(wrong) as client:
                with pytest.raises(AuthenticationError) as error:
                    await client.models.list()
                assert error.value.code == "invalid_api_key"
                assert await refused(client)
        assert len(h.model.chats) == before


async def refused(client: AsyncOpenAI) -> bool:
    try:
        await say(client, "Hello")
    except AuthenticationError:
        return True
    return False


async def test_every_way_to_name_another_user_is_forbidden(house, keys):
    key, _ = await mint(keys, user="zoe")
    alice = {"memory_context": {"user_id": "alice"}}
    async with house(ChatOnly(), **KEYS) as h, h.client(key) as client:
        for extra in ({"extra_body": alice}, {"extra_headers": {"X-Memory-User-Id": "alice"}},
                      {"extra_query": {"user_id": "alice"}},
                      {"extra_body": {**alice, "memory_config": {"enabled": False}}},
                      {"extra_body": {"memory_context": {"user_id": "zoe"}},
                       "extra_headers": {"X-Memory-User-Id": "alice"}}):  # fmt: skip
            with pytest.raises(PermissionDeniedError):
                await say(client, "Hello", **extra)
            with pytest.raises(PermissionDeniedError):
                await client.responses.create(model="m", input="Hello", **extra)
        for extra in (
            {"extra_headers": {"X-Memory-User-Id": "alice"}},
            {"extra_query": {"user_id": "alice"}},
        ):
            with pytest.raises(PermissionDeniedError):
                await client.models.list(**extra)
            with pytest.raises(PermissionDeniedError):
                await client.conversations.create(**extra)
        with pytest.raises(PermissionDeniedError) as refused:
            await client.conversations.create(extra_body=alice)
        assert refused.value.param == "memory_context.user_id"
        assert h.upstream.requests == []
        async with httpx2.AsyncClient(base_url=h.base_url, headers={"api-key": key}) as http:
            body = {"user_id": "alice", "content": "User likes tea.", "query": "tea"}
            answers = [
                await http.get("/memory?user_id=alice"),
                await http.get("/memory", headers={"X-Memory-User-Id": "alice"}),
                await http.delete("/memory?user_id=alice"),
                await http.get("/memory/mem_1?user_id=alice"),
                await http.post("/memory", json={k: body[k] for k in ("user_id", "content")}),
                await http.post("/memory/search", json={k: body[k] for k in ("user_id", "query")}),
            ]
        assert [a.status_code for a in answers] == [403] * 6
        params = [a.json()["error"]["param"] for a in answers]
        assert params == ["user_id", "X-Memory-User-Id", *["user_id"] * 4]


async def test_what_one_key_made_is_absent_for_another_even_by_id(house, keys):
    """The same name in two tenants is two users."""
    zoe, _ = await mint(keys, tenant="acme", user="zoe")
    other, _ = await mint(keys, tenant="acme", user="bob")
    namesake, _ = await mint(keys, tenant="umbrella", user="zoe")
    async with house(ChatOnly(facts=known(FIGS)), **KEYS) as h, h.client(zoe) as client:
        made = await client.responses.create(model="m", input=SAID)
        talk = await client.conversations.create(
            items=[{"type": "message", "role": "user", "content": "Psst"}]
        )
        (memory,) = await until(lambda: memories(h, zoe))
        for foreign in (other, namesake):
            async with h.client(foreign) as stranger:
                for look in (stranger.responses.retrieve, stranger.responses.delete):
                    with pytest.raises(NotFoundError):
                        await look(made.id)
                for ask in (stranger.conversations.retrieve, stranger.conversations.delete):
                    with pytest.raises(NotFoundError):
                        await ask(talk.id)
                assert (await say(stranger, ASKED))["x-memory-count"] == "0"
            assert await memories(h, foreign) == []
            async with httpx2.AsyncClient(base_url=h.base_url, headers={"api-key": foreign}) as http:
                for method in ("GET", "DELETE"):
                    answer = await http.request(method, f"/memory/{memory['id']}")
                    assert answer.status_code == 404
        assert (await client.responses.retrieve(made.id)).id == made.id
        assert (await client.conversations.items.list(talk.id)).data
        assert len(await memories(h, zoe)) == 1


async def test_a_key_without_a_user_names_one_and_stays_in_its_tenant(house, keys):
    app, _ = await mint(keys, tenant="acme")
    second, _ = await mint(keys, tenant="acme")
    foreign, _ = await mint(keys, tenant="umbrella")
    alice: Any = {"memory_context": {"user_id": "alice"}}
    async with house(ChatOnly(facts=known(FIGS)), **KEYS) as h, h.client(app) as client:
        assert (await say(client, SAID))["x-memory-reason"] == "no_user"
        await say(client, SAID, extra_body=alice)
        assert len(await until(lambda: memories(h, app, user_id="alice"))) == 1
        assert len(await memories(h, second, user_id="alice")) == 1
        assert await memories(h, foreign, user_id="alice") == []
        nameless = await client.responses.create(model="m", input="Psst")
        for other in (second, foreign):
            async with h.client(other) as stranger:
                with pytest.raises(NotFoundError):
                    await stranger.responses.retrieve(nameless.id)
        assert (await client.responses.retrieve(nameless.id)).id == nameless.id


async def test_chats_continue_when_the_store_fails_and_strangers_stay_out(house, keys):
    key, _ = await mint(keys, user="zoe")
    async with house(**KEYS) as h, h.client(key) as client:
        await say(client, "Hello")
        await h.app.routes.auth.authenticator.keys._store._database.close()  # type: ignore[attr-defined]
        assert (await say(client, "Hello"))["x-memory-status"] in ("degraded", "skipped")
        async with httpx2.AsyncClient(headers={"api-key": "mp-" + "A" * 43}) as http:
            assert (await http.get(f"{h.base_url}/models")).status_code == 503


# ---------------------------------------------------------------- jwt, header, open
SECRET = "a secret that both sides have, of more than 32 bytes"


async def test_a_token_is_a_user_and_stays_here(house):
    def token(user, **changed):
        return jwt.encode({"sub": user, "aud": "memory", "exp": time.time() + 60, **changed}, SECRET, "HS256")

    identity = {"mode": "jwt", "jwt_secret": SECRET, "jwt_audience": "memory"}
    async with house(ScriptedModel(facts=known(FIGS)), identity=identity, **SERVERS_KEY) as h:
        async with h.client(token("zoe")) as client:
            await say(client, SAID)
        assert len(await until(lambda: memories(h, token("zoe")))) == 1
        assert await memories(h, token("bob")) == []
        count = len(h.upstream.requests)
        for wrong in (token("zoe", exp=1), token("zoe", aud="x"), "sk-test"):
            async with h.client(wrong) as client:
                assert await refused(client)
        assert len(h.upstream.requests) == count
        assert {auth for _, auth in sent(h)} == {b"Bearer sk-server"}


async def test_behind_a_trusted_proxy_its_header_is_the_user_and_the_clients_key_is_the_upstreams(house):
    async with house(ChatOnly(facts=known(FIGS)), identity={"mode": "header"}) as h:
        async with h.client("sk-own") as client:
            with pytest.raises(AuthenticationError):
                await say(client, SAID)
            zoe = client.with_options(default_headers={"X-Forwarded-User": "zoe"})
            await say(zoe, SAID)
        async with httpx2.AsyncClient(headers={"x-forwarded-user": "zoe"}) as http:

            async def stored():
                data: list[Any] = (await http.get(f"{h.base_url}/memory")).json()["data"]
                return data

            assert len(await until(stored)) == 1
        assert {auth for _, auth in sent(h)} == {b"Bearer sk-own"}
        assert all(r.header(b"x-forwarded-user") is None for r in h.upstream.requests)


def test_the_server_takes_the_peer_from_the_socket_and_from_nowhere_else():
    from proxy.app.server import _config

    assert _config(None, Settings()).proxy_headers is False


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example", "Origin": "http://evil.example"}]
)
async def test_a_foreign_page_plants_and_reads_nothing_and_still_gets_the_models_answer(house, headers):
    body: dict[str, Any] = {
        "model": "m",
        "memory_context": {"user_id": "zoe"},
        "messages": [{"role": "user", "content": SAID}],
    }
    async with house(ChatOnly(facts=known(FIGS))) as h, httpx2.AsyncClient(base_url=h.base_url) as http:
        await http.post("/memory", json={"user_id": "zoe", "content": "User is fond of figs."})
        planted = await http.post("/chat/completions", json=body, headers=headers)
        assert (planted.status_code, planted.headers["x-memory-reason"]) == (200, "foreign_origin")
        assert planted.headers["x-memory-store"] == "off"
        assert h.model.chats[-1].json == {"model": "m", "messages": body["messages"]}
        made = await http.post(
            "/responses", json={"model": "m", "input": "Psst", "memory_context": {"user_id": "zoe"}}
        )
        assert made.status_code == 200
        answers = [
            await http.get("/memory?user_id=zoe", headers=headers),
            await http.delete("/memory?user_id=zoe", headers=headers),
            await http.get(f"/responses/{made.json()['id']}?user_id=zoe", headers=headers),
            await http.post("/conversations", json={}, headers=headers),
        ]
        assert [a.status_code for a in answers] == [403] * 4
