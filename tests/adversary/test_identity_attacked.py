"""Who may reach what, attacked: credentials, spellings of paths, framing, what a shared upstream keeps."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest

from proxy.domain.ports import KeyStore
from proxy.http.router import canonical
from proxy.storage.sqlite.stores import SqliteStores
from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import House, Houses
from tests.http.auth.minting import mint
from tests.support.model import ScriptedModel
from tests.support.serving import ask, connected
from tests.support.upstream import Exchange

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
JSON = b"content-type: application/json"
KEYS: dict[str, Any] = {"identity": {"mode": "keys"}, "upstream_extra": {"api_key": "sk-server"}}


@pytest.fixture
async def keys(tmp_path: Path) -> AsyncIterator[KeyStore]:
    """The keys of the house's data directory."""
    stores = SqliteStores(tmp_path / "data")
    await stores.open()
    yield stores.keys
    await stores.close()


def bearer(key: str) -> bytes:
    return b"authorization: Bearer " + key.encode()


def client(h: House, key: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=h.base_url, headers={"authorization": f"Bearer {key}"})


# ---------------------------------------------------------------- which key pays
@pytest.mark.parametrize(
    "named", [b"authorization", b"close, Authorization", b"api-key, x-api-key, authorization"]
)
@pytest.mark.parametrize("path", [b"chat/completions", b"responses", b"embeddings"])
async def test_no_client_makes_the_server_pay_by_calling_its_own_credential_hop_by_hop(
    house: Houses, keys: KeyStore, named: bytes, path: bytes
) -> None:
    key, _ = await mint(keys, user="zoe", upstream_key="sk-zoe")
    async with house(ScriptedModel(), **KEYS) as h:
        headers = (bearer(key), JSON, b"connection: " + named)
        await ask(h.origin, b"POST /v1/" + path, headers, json.dumps(CHAT).encode())
        assert [r.header(b"authorization") for r in h.upstream.requests] == [b"Bearer sk-zoe"]


@pytest.mark.parametrize(
    "place", ["/files/{}", "/files?key={}", "/files?a=b&x={}&c", "/chat/completions?api-key={}"]
)
async def test_a_key_in_the_url_goes_no_further(house: Houses, keys: KeyStore, place: str) -> None:
    key, _ = await mint(keys, user="zoe")
    async with house(ChatOnly(), **KEYS) as h, client(h, key) as http:
        for spelling in (key, key.replace("-", "%2D")):
            answer = await http.post(place.format(spelling), json=CHAT)
            assert answer.status_code == 401
            assert key not in answer.text
        assert h.upstream.requests == []


# ---------------------------------------------------------------- spellings
@pytest.mark.parametrize(
    "target",
    [
        b"POST /v1//chat/completions",
        b"POST /v1/./chat/completions",
        b"POST /v1/x/../chat/completions",
        b"POST /v1/chat/completions/",
        b"POST /v1/chat/completions;a=b",
        b"POST /v1/chat%2f%2fcompletions",
        b"POST /v1/%2e/responses",
        b"POST /v1/responses/",
        b"GET /v1//responses/resp_1",
        b"GET /v1/responses//resp_1",
        b"GET /v1/responses/./resp_1",
        b"DELETE /v1/x%5c..%5cresponses%5cresp_1",
        b"GET /v1//conversations/conv_1",
        b"GET /v1/x/../memory",
        b"GET /v1//memory",
        b"GET /v1/../admin",
        b"GET /v1/%2e%2e/admin",
        b"GET /v1/%2e%2e%2fadmin",
        b"GET /v1/..;/admin",
        b"GET /v1/Responses/resp_0",
        b"GET /v1/RESPONSES/resp_0/input_items",
        b"GET /v1/%72%65sponses%2fresp_0",
        b"GET /v1/%2572esponses/resp_0",
        b"GET /v1/%ef%bd%92esponses/resp_0",
        b"GET /v1/responses/resp_0%00",
        b"GET /v1/responses/resp_0.",
        b"GET /v1/responses/resp_0%20",
        b"GET /v1/responses/resp_0%23x",
        b"GET /v1/responses/resp_0%3fx",
        b"GET /v1/responses/resp_0%2541",
        b"GET /v1/responses/resp_0%2finput_items",
        b"GET /v1/responses/resp_0%e2%80%8b",
        b"POST /v1/Responses/compact",
        b"POST /v1/responses/Compact",
        b"POST /v1/responses./compact",
        b"GET /v1/Conversations/conv_1",
        b"POST /v1/Chat/Completions",
        b"POST /v1/chat/completions%00",
        b"POST /v1/chat/completions.",
        b"POST /v1/v1/chat/completions",
        b"POST /v1/chat/completions/chat/completions",
        b"GET /v1/v1/responses/resp_0",
    ],
)
async def test_no_spelling_of_a_guarded_path_goes_past_the_guard_to_the_upstream(
    house: Houses, keys: KeyStore, target: bytes
) -> None:
    key, _ = await mint(keys, user="zoe")
    async with house(ChatOnly(), **KEYS) as h:
        body = json.dumps(CHAT | {"memory_context": {"user_id": "zoe"}}).encode()
        head, _ = await ask(h.origin, target, (bearer(key), JSON), body)
        assert head.split()[1] == b"404"
        assert h.upstream.requests == []
        head, _ = await ask(h.origin, target, (JSON,), body)
        assert head.split()[1] == b"401"


@pytest.mark.parametrize(
    "target", [b"/v1/files//x", b"/v1/a/../b", b"/v1/models/", b"/v1/", b"/v1/models/a;b"]
)
async def test_odd_spellings_of_what_is_the_upstreams_own_pass_to_the_byte(
    house: Houses, target: bytes
) -> None:
    async with house(ChatOnly()) as h:
        await ask(h.origin, b"GET " + target)
        assert [r.target for r in h.upstream.requests] == [target]


def test_an_ordinary_path_is_plain_already() -> None:
    for path in (
        "/v1/models/org/Some-Model",
        "/v1/files/file-AbC",
        "/v1/x...y",
        "/v1/responses/resp_AbC",
        "/v1/chat/completions",
    ):
        assert canonical(path) == path


# ---------------------------------------------------------------- framing
async def test_a_trailer_is_no_header(house: Houses, keys: KeyStore) -> None:
    key, _ = await mint(keys)
    async with asyncio.timeout(60), house(ChatOnly(), **KEYS) as h, connected(h.origin) as raw:
        body = json.dumps(CHAT).encode()
        lines = [b"POST /v1/embeddings HTTP/1.1", b"host: a", JSON, b"transfer-encoding: chunked"]
        head = b"\r\n".join([*lines, b"connection: close", b"", b""])
        trailers = b"\r\n".join([bearer(key), b"x-memory-user-id: zoe", b"", b""])
        await raw.send(head + b"%x\r\n%s\r\n0\r\n" % (len(body), body) + trailers)
        assert b" 401 " in await raw.head()
        assert h.upstream.requests == []


async def test_words_like_an_upgrade_in_a_refused_body_take_nothing_from_the_next_request(
    house: Houses,
) -> None:
    async with asyncio.timeout(60), house(ChatOnly(), **KEYS) as h, connected(h.origin) as raw:
        body = b"a\r\nupgrade: " + b"b" * 40 + b"\r\n\r\n"
        await raw.send(b"POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body))
        head = await raw.head()
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        await raw.reader.readexactly(length)
        await raw.send(body, b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        assert b" 200 " in await raw.head()


async def test_a_head_without_end_is_refused(house: Houses) -> None:
    async with asyncio.timeout(60), house(ChatOnly()) as h, connected(h.origin) as raw:
        await raw.send(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n")
        with contextlib.suppress(ConnectionError):  # what is still on its way meets a closed door
            for _ in range(20):
                await raw.send(b"x-a: " + b"a" * 8000 + b"\r\n")
            assert b" 431 " in await raw.head()
            assert b"headers_too_large" in await raw.rest()
        assert h.upstream.requests == []


@pytest.mark.parametrize(
    "framing",
    [
        (b"content-length: 5", b"transfer-encoding: chunked"),
        (b"content-length: 5", b"content-length: 6"),
        (b"content-length: +5",),
        (b"transfer-encoding : chunked",),
        (b"transfer-encoding: xchunked",),
        (b" folded: x",),
        (b"x-memory-user-id : zoe",),
    ],
)
async def test_a_request_that_two_servers_could_frame_differently_is_refused(
    house: Houses, framing: tuple[bytes, ...]
) -> None:
    async with house(ChatOnly()) as h:
        head, _ = await ask(h.origin, b"POST /v1/embeddings", framing)
        assert head.split()[1] == b"400"
        assert h.upstream.requests == []


# ---------------------------------------------------------------- modes header and jwt
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((b"x-forwarded-user: zoe",), b"200"),
        ((b"X-Forwarded-User:\t zoe ",), b"200"),
        ((b"x-forwarded-user: zoe", b"x-forwarded-user: zoe"), b"401"),
        ((b"x-forwarded-user: zoe", b"X-FORWARDED-USER: bob"), b"401"),
        ((b"x-forwarded-user:",), b"401"),
        ((b"x-forwarded-user: zo\xeb",), b"401"),
        ((b"x-forwarded-user: zoe\xef\xbf\xbd",), b"401"),
        ((b"x_forwarded_user: zoe",), b"401"),
        ((b"x-forwarded-user: zoe", b"connection: x-forwarded-user"), b"200"),
        ((b"x-forwarded-user: zoe", b"x-memory-user-id: bob"), b"403"),
        ((b"x-memory-user-id: zoe", b"authorization: Bearer zoe"), b"401"),
        ((b"x-forwarded-user: zoe", b"origin: https://evil.example"), b"403"),
    ],
)
async def test_behind_a_proxy_only_its_one_header_names_the_user(
    house: Houses, headers: tuple[bytes, ...], status: bytes
) -> None:
    async with house(ChatOnly(), identity={"mode": "header"}) as h:
        head, body = await ask(h.origin, b"GET /v1/memory/me", headers)
        assert head.split()[1] == status, body
        if status == b"200":
            assert json.loads(body)["user_id"] == "zoe"


async def test_a_token_that_proves_nothing_opens_no_route(house: Houses) -> None:
    good = {"sub": "zoe", "aud": "memory", "exp": 4_000_000_000}
    secret, other = (
        "a secret that both sides have".ljust(64, "."),
        "a secret of somebody else's".ljust(64, "."),
    )
    none = jwt.encode(good, "", "none")
    signed = jwt.encode(good, secret, "HS256")
    forged = [
        none,
        none.rstrip(".") + "." + signed.rpartition(".")[2],
        signed.rpartition(".")[0] + ".",
        signed[:-2],
        jwt.encode(good, other, "HS256"),
        jwt.encode(good, secret, "HS512"),
        jwt.encode(good | {"aud": "other"}, secret, "HS256"),
        jwt.encode(good | {"exp": 1}, secret, "HS256"),
        jwt.encode({"sub": "zoe", "aud": "memory"}, secret, "HS256"),
        jwt.encode(good | {"sub": "zoe\n"}, secret, "HS256"),
        jwt.encode(good, secret, "HS256", {"crit": ["b64"], "b64": False}),
        "mp-" + "A" * 43,
    ]
    identity = {"mode": "jwt", "jwt_secret": secret, "jwt_audience": "memory"}
    async with house(ChatOnly(), identity=identity, upstream_extra={"api_key": "sk-server"}) as h:
        for token in forged:
            async with client(h, token) as http:
                for method, path in (
                    ("POST", "/chat/completions"), ("POST", "/responses"), ("GET", "/responses/resp_1"),
                    ("POST", "/conversations"), ("GET", "/models"), ("GET", "/memory"), ("GET", "/memory/me"),
                    ("GET", "/memory/export"), ("DELETE", "/memory"), ("POST", "/memory/import"),
                ):  # fmt: skip
                    assert (await http.request(method, path)).status_code == 401, (token, path)
        assert h.upstream.requests == []
        async with client(h, signed) as http:
            assert (await http.get("/memory/me")).json()["user_id"] == "zoe"


# ---------------------------------------------------------------- what the upstream keeps
class Keeper(ScriptedModel):
    """An upstream that keeps responses and conversations itself, for whoever has its key."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    async def __call__(self, exchange: Exchange) -> None:
        request = exchange.request
        path = request.target.partition(b"?")[0].decode()
        if request.method != b"POST" or path not in ("/v1/responses", "/v1/conversations"):
            await exchange.json({"secret": "of whoever made it", "path": path})
            return
        self.made += 1
        kind, name = ("resp", "response") if path == "/v1/responses" else ("conv", "conversation")
        made: dict[str, Any] = {
            "id": f"{kind}_{self.made}",
            "object": name,
            "status": "completed",
            "output": [],
        }
        if request.json.get("stream"):
            await exchange.stream(
                b"event: response.created\ndata: "
                + json.dumps({"type": "response.created", "response": made}).encode()
                + b"\n\n",
                b"event: response.completed\ndata: "
                + json.dumps({"type": "response.completed", "response": made}).encode()
                + b"\n\n",
            )
        else:
            await exchange.json(made)


NATIVE: dict[str, Any] = {"upstream_extra": {"api_key": "sk-server", "responses": "native"}}


async def made_by(zoe: httpx2.AsyncClient, *, stream: bool = False) -> str:
    answer = await zoe.post("/responses", json={"model": "m", "input": "Psst", "stream": stream})
    assert answer.status_code == 200, answer.text
    return answer.text.partition('"id": "')[2].partition('"')[0]


@pytest.mark.parametrize("speech", ["native", "auto"])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_upstream_keeps_for_one_user_is_absent_for_another_of_the_same_upstream_key(
    house: Houses, keys: KeyStore, speech: str, stream: bool
) -> None:
    zoes, _ = await mint(keys, tenant="acme", user="zoe")
    strangers = [await mint(keys, **who) for who in (
        {"tenant": "acme", "user": "bob"}, {"tenant": "umbrella", "user": "zoe"}, {"tenant": "umbrella"},
    )]  # fmt: skip
    extra = {"api_key": "sk-server", "responses": speech}
    parts: dict[str, Any] = {"identity": {"mode": "keys"}, "memory": {"auto_store": False}}
    async with house(Keeper(), upstream_extra=extra, **parts) as h, client(h, zoes) as zoe:
        id_ = await made_by(zoe, stream=stream)
        assert id_ == "resp_1"
        talk = (await zoe.post("/conversations", json={}, headers={"accept-encoding": "gzip"})).json()["id"]
        for stranger, _ in strangers:
            async with client(h, stranger) as other:
                before = len(h.upstream.requests)
                assert [(await reach(other)).status_code for reach in ways_to(id_, talk)] == [
                    404, 404, 404, 404, 400, 400, 400, 404, 404, 404, 404, 404, 404, 404,
                ]  # fmt: skip
                assert len(h.upstream.requests) == before
        for reach in ways_to(id_, talk):
            assert (await reach(zoe)).status_code == 200


def ways_to(id_: str, talk: str) -> list[Callable[[httpx2.AsyncClient], Any]]:
    """Every way to read, continue or change a response and a conversation."""
    previous = {"model": "m", "input": "And?", "previous_response_id": id_}
    # Of a key that stands twice, one server takes the first and another the last.
    twice = (
        f'{{"model": "m", "input": "", "previous_response_id": "resp_none", "previous_response_id": "{id_}"}}'
    )
    inside = {"model": "m", "input": "And?", "conversation": talk}
    return [
        lambda c: c.get(f"/responses/{id_}"),
        lambda c: c.get(f"/responses/{id_.replace('_', '%5F')}/input_items"),
        lambda c: c.delete(f"/responses/{id_}"),
        lambda c: c.post(f"/responses/{id_}/cancel"),
        lambda c: c.post("/responses", json=previous),
        lambda c: c.post("/responses/compact", json=previous),
        lambda c: c.post("/responses", content=twice, headers={"content-type": "application/json"}),
        lambda c: c.post("/responses", json=inside),
        lambda c: c.post("/responses", json=inside | {"conversation": {"id": talk}}),
        lambda c: c.get(f"/conversations/{talk}"),
        lambda c: c.get(f"/conversations/{talk}/items"),
        lambda c: c.post(f"/conversations/{talk}/items", json={"items": []}),
        lambda c: c.post(f"/conversations/{talk}", json={"metadata": {}}),
        lambda c: c.delete(f"/conversations/{talk}"),
    ]


async def test_a_key_that_stands_twice_reaches_the_upstream_once(house: Houses, keys: KeyStore) -> None:
    key, _ = await mint(keys, user="zoe")
    body = '{"model": "m", "input": "", "previous_response_id": "resp_b", "previous_response_id": "resp_a"}'
    async with house(Keeper(), identity={"mode": "keys"}, **NATIVE) as h, client(h, key) as zoe:
        await zoe.post("/responses", content=body, headers={"content-type": "application/json"})
        assert h.upstream.requests[0].body.count(b"previous_response_id") == 1


async def test_who_made_a_response_is_known_after_a_restart_and_names_nobody_on_the_disk(
    house: Houses, keys: KeyStore, tmp_path: Path
) -> None:
    zoes, _ = await mint(keys, user="zoe-the-first")
    bobs, _ = await mint(keys, user="bob")
    identity = {"mode": "keys"}
    no_memory = {"enabled": False}
    async with house(Keeper(), identity=identity, memory=no_memory, **NATIVE) as h, client(h, zoes) as zoe:
        id_ = await made_by(zoe)
    async with house(Keeper(), identity=identity, **NATIVE) as h, client(h, bobs) as bob:
        assert (await bob.get(f"/responses/{id_}")).status_code == 404
        assert (await bob.get("/responses/resp_made_elsewhere")).status_code == 200
        async with client(h, zoes) as zoe:
            assert (await zoe.get(f"/responses/{id_}")).status_code == 200


async def test_while_the_store_fails_own_responses_go_on_and_nobody_reaches_anothers(
    house: Houses, keys: KeyStore
) -> None:
    zoes, _ = await mint(keys, user="zoe")
    bobs, _ = await mint(keys, user="bob")
    parts: dict[str, Any] = {"identity": {"mode": "keys"}, "memory": {"auto_store": False}, **NATIVE}
    async with house(Keeper(), **parts) as h, client(h, zoes) as zoe, client(h, bobs) as bob:
        id_ = await made_by(zoe)
        own = {"model": "m", "input": "And?", "previous_response_id": id_}
        assert (await bob.get("/models")).status_code == 200  # the key is known
        await h.app.routes.auth.authenticator.keys._store._database.close()  # type: ignore[attr-defined]
        assert (await zoe.post("/responses", json=own)).status_code == 200
        assert (await zoe.get(f"/responses/{id_}")).status_code == 200
        assert (await bob.get(f"/responses/{id_}")).status_code == 404
        assert (await bob.get("/responses/resp_unknown_here")).status_code == 503
        assert (await bob.post("/responses", json={"model": "m", "input": "Hi"})).status_code == 200


async def test_in_mode_open_the_upstreams_objects_stay_its_own_affair(house: Houses) -> None:
    async with house(Keeper(), **NATIVE) as h:
        async with httpx2.AsyncClient(base_url=h.base_url, headers={"authorization": "Bearer a"}) as one:
            id_ = await made_by(one)
        async with httpx2.AsyncClient(base_url=h.base_url, headers={"authorization": "Bearer b"}) as two:
            assert (await two.get(f"/responses/{id_}")).status_code == 200


async def test_our_fields_do_not_reach_a_native_upstream_with_a_new_conversation(house: Houses) -> None:
    async with house(Keeper(), **NATIVE) as h, httpx2.AsyncClient(base_url=h.base_url) as http:
        await http.post("/conversations", json={"metadata": {}, "memory_context": {"user_id": "zoe"}})
        assert h.upstream.requests[0].json == {"metadata": {}}
