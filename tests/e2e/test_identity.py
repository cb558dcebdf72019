"""Identity over real sockets, with the OpenAI SDK: who gets in, whose memory it is, what goes upstream."""

import time
from typing import Any

import jwt
import pytest

from proxy.app.server import _config
from proxy.config import Settings
from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import House, context, until
from tests.http.auth.minting import mint
from tests.support.model import ScriptedModel, known

FIGS = ("figs", "User is fond of figs.")
SAID = "I have always been fond of figs, by the way."
ASKED = "Which fruit do I like best?"
SERVERS_KEY = {"upstream_extra": {"api_key": "sk-server"}}
KEYS: dict[str, Any] = {"identity": {"mode": "keys"}, **SERVERS_KEY}


async def say(h: House, key: str, text: str, **fields: Any) -> Any:
    """One turn of a chat with a key; returns the answer."""
    return await h.complete({"messages": [{"role": "user", "content": text}], **fields}, key)


def sent(h: House) -> list[tuple[bytes, bytes | None]]:
    """Return route and Authorization of everything that the upstream got."""
    return [(r.target.partition(b"?")[0], r.header(b"authorization")) for r in h.upstream.requests]


# ---------------------------------------------------------------- keys
async def test_with_nothing_but_its_key_an_unmodified_client_has_a_memory(house, keys):
    zoe, _ = await mint(keys, user="zoe", upstream_key="sk-zoe")
    bob, _ = await mint(keys, user="bob", upstream_key="sk-bob")
    async with house(ScriptedModel(facts=known(FIGS)), **KEYS) as h:
        await say(h, zoe, SAID)
        (memory,) = await until(lambda: h.memories(None, zoe))
        assert memory["user_id"] == "zoe"
        assert (await say(h, zoe, ASKED)).headers["x-memory-ids"] == memory["id"]
        assert (await say(h, bob, ASKED)).headers["x-memory-count"] == "0"
        assert await h.listed(None, bob) == []
        assert {key for _, key in sent(h)} == {b"Bearer sk-zoe", b"Bearer sk-bob"}
        assert h.model.extractions[0].header(b"authorization") == b"Bearer sk-zoe"


async def test_the_upstream_sees_its_own_key_and_never_ours_on_any_route(house, keys):
    key, _ = await mint(keys, user="zoe", upstream_key="sk-up")
    poor, _ = await mint(keys, user="bob")
    async with house(ScriptedModel(facts=known(FIGS)), **KEYS) as h:
        for ours in (key, poor):
            await say(h, ours, SAID)
            await say(h, ours, "Hello", stream=True)
            await h.post("/responses", {"model": "m", "input": "Hello"}, ours)
            both = {"api-key": ours, "x-api-key": ours, "cookie": f"a={ours}"}
            await h.post("/embeddings", {}, ours, **both)
            await until(lambda ours=ours: h.listed(None, ours))
        targets = {target for target, _ in sent(h)}
        assert {b"/v1/chat/completions", b"/v1/responses", b"/v1/embeddings"} <= targets
        assert {auth for _, auth in sent(h)} == {b"Bearer sk-up", b"Bearer sk-server"}
        assert len(h.model.extractions) >= 2
        for request in h.upstream.requests:
            assert b"mp-" not in request.head + request.body


async def test_a_wrong_key_is_refused_by_us_and_nothing_is_forwarded(house, keys):
    key, id_ = await mint(keys, user="zoe", upstream_key="sk-up")
    async with house(**KEYS) as h:
        assert (await say(h, key, "Hello")).status_code == 200
        await keys.revoke(id_, time.time())
        await until(lambda: say(h, key, "Hello"), lambda answer: answer.status_code == 401)
        before = len(h.model.chats)  # our own requests for what was said before may still come
        for wrong in (key, "sk-test", "mp-" + "A" * 43):
            for path in ("/chat/completions", "/embeddings"):
                refused = await h.post(path, {"model": "m", "messages": []}, wrong)
                assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        assert len(h.model.chats) == before


async def test_every_way_to_name_another_user_is_forbidden(house, keys):
    key, _ = await mint(keys, user="zoe")
    alice, header = context("alice"), {"X-Memory-User-Id": "alice"}
    async with house(ChatOnly(), **KEYS) as h, h.http(key) as http:
        for path in ("/chat/completions", "/responses", "/conversations"):
            for named, param in (
                ({"json": alice}, "memory_context.user_id"),
                ({"json": {}, "headers": header}, "X-Memory-User-Id"),
                ({"json": context("zoe"), "headers": header}, "X-Memory-User-Id"),
                ({"json": {}, "params": {"user_id": "alice"}}, "user_id"),
            ):
                refused = await http.post(path, **named)
                assert (refused.status_code, refused.json()["error"]["param"]) == (403, param), path
        disabled = {**alice, "memory_config": {"enabled": False}}
        assert (await http.post("/chat/completions", json=disabled)).status_code == 403
        assert (await http.get("/models", headers=header)).status_code == 403
        assert (await http.get("/memory", headers=header)).status_code == 403
        assert h.upstream.requests == []


async def test_what_one_key_made_is_absent_for_another_even_by_id(house, keys):
    """The same name in two tenants is two users."""
    zoe, _ = await mint(keys, tenant="acme", user="zoe")
    others = [await mint(keys, tenant="acme", user="bob"), await mint(keys, tenant="umbrella", user="zoe")]
    async with house(ChatOnly(facts=known(FIGS)), **KEYS) as h:
        made = (await h.post("/responses", {"model": "m", "input": SAID}, zoe)).json()["id"]
        psst = {"items": [{"type": "message", "role": "user", "content": "Psst"}]}
        talk = (await h.post("/conversations", psst, zoe)).json()["id"]
        (memory,) = await until(lambda: h.memories(None, zoe))
        own = (f"/responses/{made}", f"/conversations/{talk}", f"/memory/{memory['id']}")
        for other, _ in others:
            async with h.http(other) as http:
                for path in own:
                    assert (await http.get(path)).status_code == 404, path
                    assert (await http.delete(path)).status_code == 404, path
            assert (await say(h, other, ASKED)).headers["x-memory-count"] == "0"
            assert await h.listed(None, other) == []
        for path in own:
            await h.get(path, zoe)


async def test_a_key_without_a_user_names_one_and_stays_in_its_tenant(house, keys):
    app, _ = await mint(keys, tenant="acme")
    second, _ = await mint(keys, tenant="acme")
    foreign, _ = await mint(keys, tenant="umbrella")
    async with house(ChatOnly(facts=known(FIGS)), **KEYS) as h:
        assert (await say(h, app, SAID)).headers["x-memory-reason"] == "no_user"
        await say(h, app, SAID, **context("alice"))
        assert len(await until(lambda: h.listed("alice", app))) == 1
        assert len(await h.listed("alice", second)) == 1
        assert await h.listed("alice", foreign) == []
        nameless = (await h.post("/responses", {"model": "m", "input": "Psst"}, app)).json()["id"]
        for other in (second, foreign):
            async with h.http(other) as stranger:
                assert (await stranger.get(f"/responses/{nameless}")).status_code == 404
        await h.get(f"/responses/{nameless}", app)


async def test_chats_continue_when_the_store_fails_and_strangers_stay_out(house, keys):
    key, _ = await mint(keys, user="zoe")
    async with house(**KEYS) as h:
        await say(h, key, "Hello")
        await h.app.routes.auth.authenticator.keys._store._database.close()
        assert (await say(h, key, "Hello")).headers["x-memory-status"] in ("degraded", "skipped")
        assert (await h.post("/embeddings", {}, "mp-" + "A" * 43)).status_code == 503


# ---------------------------------------------------------------- jwt, header, open
SECRET = "a secret that both sides have, of more than 32 bytes"


async def test_a_token_is_a_user_and_stays_here(house):
    def token(user):
        return jwt.encode({"sub": user, "aud": "memory", "exp": time.time() + 60}, SECRET, "HS256")

    identity = {"mode": "jwt", "jwt_secret": SECRET, "jwt_audience": "memory"}
    async with house(ScriptedModel(facts=known(FIGS)), identity=identity, **SERVERS_KEY) as h:
        await say(h, token("zoe"), SAID)
        assert len(await until(lambda: h.listed(None, token("zoe")))) == 1
        assert await h.listed(None, token("bob")) == []
        assert {auth for _, auth in sent(h)} == {b"Bearer sk-server"}


async def test_behind_a_trusted_proxy_its_header_is_the_user_and_the_clients_key_is_the_upstreams(house):
    async with house(ChatOnly(facts=known(FIGS)), identity={"mode": "header"}) as h:
        assert (await say(h, "sk-own", SAID)).status_code == 401
        async with h.http("sk-own", **{"x-forwarded-user": "zoe"}) as http:
            said = {"model": "m", "messages": [{"role": "user", "content": SAID}]}
            await http.post("/chat/completions", json=said)
            await until(lambda: http.get("/memory"), lambda page: len(page.json()["data"]) == 1)
        assert {auth for _, auth in sent(h)} == {b"Bearer sk-own"}
        assert all(r.header(b"x-forwarded-user") is None for r in h.upstream.requests)


def test_the_server_takes_the_peer_from_the_socket_and_from_nowhere_else():
    assert _config(None, Settings()).proxy_headers is False


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example", "Origin": "http://evil.example"}]
)
async def test_a_foreign_page_plants_and_reads_nothing_and_still_gets_the_models_answer(house, headers):
    async with house(ChatOnly(facts=known(FIGS))) as h, h.http() as http:
        await h.add(FIGS[1], user="zoe")
        planted = await h.tell(SAID, "zoe", **headers)
        assert (planted.status_code, planted.headers["x-memory-reason"]) == (200, "foreign_origin")
        assert planted.headers["x-memory-store"] == "off"
        said = [{"role": "user", "content": SAID}]
        assert h.model.chats[-1].json == {"model": "m", "messages": said}
        made = await h.post("/responses", {"model": "m", "input": "Psst"} | context("zoe"))
        answers = [
            await http.get("/memory?user_id=zoe", headers=headers),
            await http.delete("/memory?user_id=zoe", headers=headers),
            await http.get(f"/responses/{made.json()['id']}?user_id=zoe", headers=headers),
            await http.post("/conversations", json={}, headers=headers),
        ]
        assert [a.status_code for a in answers] == [403] * 4
