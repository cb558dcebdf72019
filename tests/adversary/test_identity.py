"""Credentials, spellings of paths and framing under attack: no request reaches what is not its own."""

import asyncio
import contextlib
import json

import jwt

from tests.adversary.conftest import KEYS, Gated
from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import context, until
from tests.http.auth.minting import mint
from tests.support.serving import ask, connected

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
BODY = json.dumps(CHAT | context("zoe")).encode()
JSON = b"content-type: application/json"


def bearer(key: str) -> bytes:
    return b"authorization: Bearer " + key.encode()


# ---------------------------------------------------------------- which key pays
async def test_the_server_never_pays_for_a_credential_that_is_named_hop_by_hop(house, keys):
    key, _ = await mint(keys, user="zoe", upstream_key="sk-zoe")
    async with house(**KEYS) as h:
        for named in (b"authorization", b"close, Authorization", b"api-key, x-api-key, authorization"):
            for path in (b"chat/completions", b"responses", b"embeddings"):
                await ask(h.origin, b"POST /v1/" + path, (bearer(key), JSON, b"connection: " + named), BODY)
        assert {r.header(b"authorization") for r in h.upstream.requests} == {b"Bearer sk-zoe"}


async def test_a_key_in_the_url_is_refused_and_not_repeated(house, keys):
    key, _ = await mint(keys, user="zoe")
    async with house(ChatOnly(), **KEYS) as h, h.http(key) as http:
        for place in ("/files/{}", "/files?key={}", "/files?a=b&x={}&c", "/chat/completions?api-key={}"):
            for spelling in (key, key.replace("-", "%2D")):
                answer = await http.post(place.format(spelling), json=CHAT)
                assert (answer.status_code, key in answer.text) == (401, False)
        assert h.upstream.requests == []


# ---------------------------------------------------------------- spellings
GUARDED = b"""
POST //chat/completions         POST /./chat/completions        POST /x/../chat/completions
POST /chat/completions/         POST /chat/completions;a=b      POST /chat%2f%2fcompletions
POST /%2e/responses             POST /responses/                GET //responses/resp_1
GET /responses//resp_1          GET /responses/./resp_1         DELETE /x%5c..%5cresponses%5cresp_1
GET //conversations/conv_1      GET /x/../memory                GET //memory
GET /../admin                   GET /%2e%2e/admin               GET /%2e%2e%2fadmin
GET /..;/admin                  GET /Responses/resp_0           GET /RESPONSES/resp_0/input_items
GET /%72%65sponses%2fresp_0     GET /%2572esponses/resp_0       GET /%ef%bd%92esponses/resp_0
GET /responses/resp_0%00        GET /responses/resp_0.          GET /responses/resp_0%20
GET /responses/resp_0%23x       GET /responses/resp_0%3fx       GET /responses/resp_0%2541
GET /responses/resp_0%2finput_items                             GET /responses/resp_0%e2%80%8b
POST /Responses/compact         POST /responses/Compact         POST /responses./compact
GET /Conversations/conv_1       POST /Chat/Completions          POST /chat/completions%00
POST /chat/completions.         POST /v1/chat/completions       POST /chat/completions/chat/completions
GET /v1/responses/resp_0
""".split()


async def test_no_spelling_of_a_guarded_path_reaches_the_upstream(house, keys):
    key, _ = await mint(keys, user="zoe")
    async with house(ChatOnly(), **KEYS) as h:
        for method, path in zip(GUARDED[::2], GUARDED[1::2], strict=True):
            target = method + b" /v1" + path
            for headers, status in (((bearer(key), JSON), b"404"), ((JSON,), b"401")):
                head, _ = await ask(h.origin, target, headers, BODY)
                assert head.split()[1] == status, target
        assert h.upstream.requests == []


async def test_odd_spellings_of_the_upstreams_own_paths_pass_byte_for_byte(house):
    targets = [b"/v1/files//x", b"/v1/a/../b", b"/v1/models/", b"/v1/", b"/v1/models/a;b"]
    async with house(ChatOnly()) as h:
        for target in targets:
            await ask(h.origin, b"GET " + target)
        assert [r.target for r in h.upstream.requests] == targets
        for line in (b"GET /%76%31/models", b"GET /v%31/models", b"POST /%76%31/chat/completions"):
            head, _ = await ask(h.origin, line, (JSON,) if line.startswith(b"POST") else ())
            assert head.split()[1] in (b"200", b"400", b"404"), line


# ---------------------------------------------------------------- framing
async def test_a_trailer_is_not_a_header(house, keys):
    key, _ = await mint(keys)
    async with asyncio.timeout(60), house(ChatOnly(), **KEYS) as h, connected(h.origin) as raw:
        lines = [b"POST /v1/embeddings HTTP/1.1", b"host: a", JSON, b"transfer-encoding: chunked"]
        head = b"\r\n".join([*lines, b"connection: close", b"", b""])
        trailers = b"\r\n".join([bearer(key), b"x-memory-user-id: zoe", b"", b""])
        await raw.send(head + b"%x\r\n%s\r\n0\r\n" % (len(BODY), BODY) + trailers)
        assert b" 401 " in await raw.head()
        assert h.upstream.requests == []


async def test_a_refused_body_that_looks_like_an_upgrade_does_not_affect_the_next_request(house):
    async with asyncio.timeout(60), house(ChatOnly(), **KEYS) as h, connected(h.origin) as raw:
        body = b"a\r\nupgrade: " + b"b" * 40 + b"\r\n\r\n"
        await raw.send(b"POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body))
        head = await raw.head()
        await raw.reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        await raw.send(body, b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        assert b" 200 " in await raw.head()


async def test_an_endless_head_is_refused(house):
    async with asyncio.timeout(60), house(ChatOnly()) as h, connected(h.origin) as raw:
        await raw.send(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(20):
                await raw.send(b"x-a: " + b"a" * 8000 + b"\r\n")
            assert b" 431 " in await raw.head()
            assert b"headers_too_large" in await raw.rest()
        assert h.upstream.requests == []


async def test_a_request_that_two_servers_could_frame_differently_is_refused(house):
    async with house(ChatOnly()) as h:
        for framing in (
            (b"content-length: 5", b"transfer-encoding: chunked"),
            (b"content-length: 5", b"content-length: 6"),
            (b"content-length: +5",),
            (b"transfer-encoding : chunked",),
            (b"transfer-encoding: xchunked",),
            (b" folded: x",),
            (b"x-memory-user-id : zoe",),
        ):
            head, _ = await ask(h.origin, b"POST /v1/embeddings", framing)
            assert head.split()[1] == b"400", framing
        assert h.upstream.requests == []


# ---------------------------------------------------------------- modes header and jwt
async def test_behind_a_proxy_only_its_header_names_the_user(house):
    rows = [
        ((b"x-forwarded-user: zoe",), b"200"),
        ((b"X-Forwarded-User:\t zoe ",), b"200"),
        ((b"x-forwarded-user: zoe", b"connection: x-forwarded-user"), b"200"),
        ((b"x-forwarded-user: zoe", b"x-forwarded-user: zoe"), b"401"),
        ((b"x-forwarded-user: zoe", b"X-FORWARDED-USER: bob"), b"401"),
        ((b"x-forwarded-user:",), b"401"),
        ((b"x-forwarded-user: zo\xeb",), b"401"),
        ((b"x-forwarded-user: zoe\xef\xbf\xbd",), b"401"),
        ((b"x_forwarded_user: zoe",), b"401"),
        ((b"x-memory-user-id: zoe", b"authorization: Bearer zoe"), b"401"),
        ((b"x-forwarded-user: zoe", b"x-memory-user-id: bob"), b"403"),
        ((b"x-forwarded-user: zoe", b"origin: https://evil.example"), b"403"),
    ]
    async with house(ChatOnly(), identity={"mode": "header"}) as h:
        for headers, status in rows:
            head, body = await ask(h.origin, b"GET /v1/memory/me", headers)
            assert head.split()[1] == status, (headers, body)
            if status == b"200":
                assert json.loads(body)["user_id"] == "zoe"


async def test_a_forged_token_opens_no_route(house):
    good = {"sub": "zoe", "aud": "memory", "exp": 4_000_000_000}
    secret, other = "a shared secret".ljust(64, "."), "another secret".ljust(64, ".")
    signed, none = jwt.encode(good, secret, "HS256"), jwt.encode(good, "", "none")
    forged = [none, jwt.encode(good, other, "HS256"), jwt.encode(good | {"exp": 1}, secret, "HS256")]
    calls = """POST /chat/completions POST /responses GET /responses/resp_1 POST /conversations GET /models
        GET /memory GET /memory/me GET /memory/export DELETE /memory POST /memory/import""".split()
    identity = {"mode": "jwt", "jwt_secret": secret, "jwt_audience": "memory"}
    async with house(ChatOnly(), identity=identity, upstream_extra={"api_key": "sk-server"}) as h:
        for token in forged:
            async with h.http(token) as http:
                for method, path in zip(calls[::2], calls[1::2], strict=True):
                    assert (await http.request(method, path)).status_code == 401, (token, path)
        assert h.upstream.requests == []
        async with h.http(signed) as http:
            assert (await http.get("/memory/me")).json()["user_id"] == "zoe"


# ---------------------------------------------------------------- who is who in mode open
async def test_equal_session_ids_of_two_users_and_projects_share_nothing(house):
    async with house(Gated()) as h:
        await h.tell("I like oolong tea.", extra=context(session_id="s", project_id="p"))
        await until(h.listed)
        for who, headers in (
            (context("bob", session_id="s", project_id="p"), {}),
            (context("bob", session_id="s"), {}),
            (context(session_id="s", project_id="q"), {}),
            (context("bob"), {"x-memory-user-id": "alice"}),
        ):
            answer = await h.tell("Which drink do I enjoy?", extra=who, **headers)
            assert answer.headers["x-memory-status"] == "none"


async def test_an_unfilled_placeholder_names_no_user(house):
    async with house(identity={"accept_openai_user": True}) as h:
        unfilled = "{{LIBRECHAT_USER_ID}}"
        for answer in (
            await h.complete(CHAT | context(unfilled)),
            await h.complete(CHAT, **{"x-memory-user-id": unfilled}),
            await h.complete(CHAT | {"user": "undefined"}),
            await h.complete(CHAT | {"safety_identifier": "[object Object]"}),
        ):
            said = answer.headers
            assert answer.status_code == 200
            assert (said["x-memory-reason"], said["x-memory-store"]) == ("unfilled_user", "off")
        empty = {f"x-memory-{name}": "" for name in ("user-id", "project-id", "session-id", "mode")}
        assert (await h.complete(CHAT, **empty)).headers["x-memory-reason"] == "no_user"
        assert (await h.complete(CHAT | context(), **empty)).headers["x-memory-store"] == "queued"
