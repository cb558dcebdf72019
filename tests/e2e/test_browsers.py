"""Web pages in front of the whole proxy: CORS, and the server's key in mode `open` (cross-site requests, DNS
rebinding)."""

import json
from typing import Any

from tests.support.model import ScriptedModel
from tests.support.serving import connected
from tests.support.upstream import Exchange

JSON = b"content-type: application/json"
EVIL = b"origin: https://evil.example"
APP = b"origin: https://app.example"
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}]}).encode()
SERVER_KEY: dict[str, Any] = {"upstream_extra": {"api_key": "sk-server"}}
ALLOWED: dict[str, Any] = {"identity": {"allowed_origins": ["https://app.example", "app://*", "null"]}}


class WithCors(ScriptedModel):
    """An upstream that answers everything, with a CORS policy of its own."""

    async def __call__(self, exchange: Exchange) -> None:
        cors = [(b"access-control-allow-origin", b"*"), (b"vary", b"accept"), (b"x-limit", b"3")]
        await exchange.reply(b'{"id": "x"}', 200, [*cors, (b"content-type", b"application/json")])


async def send(h, line, *headers, host=b"localhost", body=b""):
    """Send one request with this Host; return status, headers and body."""
    framing = (b"content-length: %d" % len(body),) if body else ()
    async with connected(h.origin) as raw:
        lines = (line + b" HTTP/1.1", b"host: " + host, b"connection: close", *headers, *framing)
        await raw.send(b"\r\n".join((*lines, b"", b"")) + body)
        head, rest = await raw.head(), await raw.rest()
    first, *fields = head.split(b"\r\n")
    pairs = (field.split(b": ", 1) for field in fields)
    return int(first.split()[1]), {name.lower(): value for name, value in pairs}, rest


# ---------------------------------------------------------------- the server's key
ROUTES = [
    (b"POST /v1/chat/completions", BODY), (b"POST /v1/responses", b'{"model": "m", "input": "Hello"}'),
    (b"GET /v1/files", b""), (b"DELETE /v1/files/f1", b""), (b"GET /v1/responses/resp_upstream", b""),
    (b"POST /v1/embeddings", b'{"model": "m", "input": "Hello"}'),
]  # fmt: skip
SUSPECT = [
    (b"localhost", (EVIL,), b"origin_not_allowed"),
    (b"localhost", (b"sec-fetch-site: same-site",), b"origin_not_allowed"),
    (b"localhost", (b"referer: http://evil.example/page",), b"origin_not_allowed"),
    (b"evil.example:8080", (), b"host_not_allowed"),
    (b"evil.example:8080", (b"origin: http://evil.example:8080",), b"origin_not_allowed"),
    (b"localhost", (b"host: evil.example",), b"host_not_allowed"),
]


async def test_the_server_s_key_is_not_used_for_foreign_pages_or_hosts(house):
    async with house(ScriptedModel(), **SERVER_KEY) as h:
        for line, body in ROUTES:
            for host, headers, code in SUSPECT:
                kind = (b"content-type: text/plain",) if body else ()
                status, said, answer = await send(h, line, *headers, *kind, host=host, body=body)
                assert (status, h.upstream.requests) == (403, []), (line, host, headers, answer)
                assert code in answer or b"/v1/responses/" in line
        assert said[b"x-memory-reason"] in (b"foreign_origin", b"foreign_host")
        assert b"identity.allowed_hosts" in answer
        assert (await send(h, b"POST /v1/chat/completions", JSON, body=BODY))[0] == 200
        assert h.upstream.requests[-1].header(b"authorization") == b"Bearer sk-server"
        _, _, metrics = await send(h, b"GET /metrics")
    for reason in (b"foreign_origin", b"foreign_host"):
        assert b'browser_requests_not_trusted_total{reason="%s"}' % reason in metrics


async def test_the_authority_of_an_absolute_target_is_checked_like_the_host(house):
    async with house(WithCors(), **SERVER_KEY) as h:
        for target in (
            b"http://evil.example/v1/files",
            b"http://user@localhost/v1/files",
            b"HTTP://EVIL/v1/x",
        ):
            assert (await send(h, b"GET " + target))[0] == 403, target
            assert (await send(h, b"GET " + target, host=b"evil.example"))[0] == 403, target
        status, _, _ = await send(h, b"GET http://localhost/v1/files", host=b"evil.example")
        assert (status, h.upstream.requests) == (403, [])
        assert (await send(h, b"GET http://127.0.0.1:1/v1/files?a=b"))[0] == 200
        assert [r.target for r in h.upstream.requests] == [b"/v1/files?a=b"]


async def test_an_allowed_page_reads_our_headers_on_every_answer(house):
    async with house(WithCors(), **ALLOWED) as h:
        asked = json.loads(BODY) | {"memory_context": {"user_id": "zoe"}}
        for line, body, status in (
            (b"POST /v1/chat/completions", asked, 200),
            (b"POST /v1/chat/completions", asked | {"stream": True}, 200),
            (b"POST /v1/chat/completions", asked | {"memory_config": 1}, 400),
            (b"POST /v1/memory", {"content": 1}, 400),
            (b"GET /nothing", None, 404),
            (b"GET /v1/models", None, 200),
            (b"GET /health", None, 200),
        ):
            raw = b"" if body is None else json.dumps(body).encode()
            got, said, _ = await send(h, line, APP, JSON, body=raw)
            assert (got, said[b"access-control-allow-origin"]) == (status, b"https://app.example"), line
            assert b"x-request-id" in said[b"access-control-expose-headers"]
            assert b"Origin" in said[b"vary"]
            if status == 200 and body is not None:
                for name in (b"x-memory-status", b"x-memory-session-id", b"server-timing", b"x-limit"):
                    assert name in said[b"access-control-expose-headers"]
        _, said, _ = await send(h, b"GET /v1/models", EVIL)
        assert b"access-control-allow-origin" not in said, "the upstream's would contradict the setting"
