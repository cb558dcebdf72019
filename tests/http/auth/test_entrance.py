"""The entrance, in front of apps that note what reaches them."""

from typing import Any

import pytest

from proxy import telemetry
from proxy.http.auth.browsers import Browsers
from proxy.http.auth.identity import OPEN, Area, Auth, Caller, HeaderAuth, KeyAuth, caller_of
from proxy.http.auth.keys import KeyRing
from proxy.http.router import Application, Apps
from proxy.storage.sqlite.stores import SqliteStores
from tests.http.auth.asking import Behind, get, scope_of
from tests.http.auth.minting import mint

GUARDED = [Area.MEMORY, Area.MODEL, Area.PASSTHROUGH]
LOCAL = ("Host", "localhost")
EVIL = ("Origin", "https://evil.example")


@pytest.fixture
def by_key(stores: SqliteStores) -> Auth:
    return Auth(KeyAuth(KeyRing(stores.keys)), Browsers.of(["https://app.example"], [], check_host=False))


def bearer(key: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {key}"


# ---------------------------------------------------------------- who gets in
@pytest.mark.parametrize("area", GUARDED)
async def test_without_a_credential_nothing_behind_is_reached(by_key: Auth, area: Area) -> None:
    behind = Behind(by_key, area)
    for headers in ((), (bearer("sk-test"),), (("X-Memory-User-Id", "zoe"),)):
        answer = await get(behind, scope_of(LOCAL, *headers))
        assert (answer.status, answer.code) == (401, "invalid_api_key")
        assert answer.header("www-authenticate") == "Bearer"
    assert behind.seen == []


@pytest.mark.parametrize("area", GUARDED)
async def test_what_is_behind_sees_the_caller_and_the_upstreams_key_and_not_ours(
    by_key: Auth, area: Area, stores: SqliteStores
) -> None:
    key, id_ = await mint(stores.keys, tenant="acme", user="zoe", upstream_key="sk-up")
    behind = Behind(by_key, area)
    assert (await get(behind, scope_of(LOCAL, bearer(key), ("Api-Key", key)))).status == 200
    (seen,) = behind.seen
    assert caller_of(seen) == Caller("acme", "zoe", rights=caller_of(seen).rights, label=f"key:{id_}")
    assert (b"authorization", b"Bearer sk-up") in seen["headers"]
    assert key not in str(seen["headers"])


async def test_rights_are_asked_for_where_they_are_needed(by_key: Auth, stores: SqliteStores) -> None:
    only_memory, _ = await mint(stores.keys, rights="memory")
    for area, status in ((Area.MODEL, 403), (Area.PASSTHROUGH, 403), (Area.MEMORY, 200)):
        answer = await get(Behind(by_key, area), scope_of(LOCAL, bearer(only_memory)))
        assert answer.status == status, area


@pytest.mark.parametrize("area", GUARDED)
@pytest.mark.parametrize(
    ("header", "query", "param"),
    [
        ("alice", b"", "X-Memory-User-Id"),
        ("ZOE", b"", "X-Memory-User-Id"),
        ("zoe\u200b", b"", "X-Memory-User-Id"),
        (None, b"user_id=alice", "user_id"),
        (None, b"a=1&user%5Fid=alice", "user_id"),
        (None, b"user_id=zoe&user_id=alice", "user_id"),
        ("zoe", b"user_id=z%6fe2", "user_id"),
        ("alice", b"user_id=zoe", "X-Memory-User-Id"),
    ],
)
async def test_a_key_of_one_user_names_no_other_in_header_or_query(
    by_key: Auth, area: Area, header: str | None, query: bytes, param: str, stores: SqliteStores
) -> None:
    key, _ = await mint(stores.keys, user="zoe")
    named = [] if header is None else [("X-Memory-User-Id", header)]
    behind = Behind(by_key, area)
    answer = await get(behind, scope_of(LOCAL, bearer(key), *named, query_string=query))
    assert (answer.status, answer.error["param"], behind.seen) == (403, param, [])


async def test_a_key_of_one_user_may_name_that_user(by_key: Auth, stores: SqliteStores) -> None:
    key, _ = await mint(stores.keys, user="zoé")
    behind = Behind(by_key, Area.MEMORY)
    query = b"user_id=zo%C3%A9&limit=2"
    answer = await get(behind, scope_of(LOCAL, bearer(key), ("X-Memory-User-Id", "zoé"), query_string=query))
    assert answer.status == 200


async def test_bytes_that_cannot_be_read_name_nobody(by_key: Auth, stores: SqliteStores) -> None:
    key, _ = await mint(stores.keys, user="zoe")
    answer = await get(Behind(by_key), scope_of(LOCAL, bearer(key), query_string=b"user_id=zo%FFe"))
    assert answer.status == 400


async def test_when_nobody_can_say_who_calls_the_client_is_to_try_again(stores: SqliteStores) -> None:
    await stores.close()
    answer = await get(Behind(Auth(KeyAuth(KeyRing(stores.keys)))), scope_of(bearer("mp-" + "A" * 43)))
    assert (answer.status, answer.code, answer.header("retry-after")) == (503, "identity_unavailable", "1")


# ---------------------------------------------------------------- mode open, and pages
async def test_mode_open_lets_pass_what_passes_untouched() -> None:
    behind = Behind(Auth(), Area.PASSTHROUGH)
    scope = scope_of(("Host", "any.name"), EVIL, bearer("sk-1"), ("X-Memory-Mode", "nonsense"))
    headers = list(scope["headers"])
    assert (await get(behind, scope)).status == 200
    assert behind.seen[0]["headers"] == headers


@pytest.mark.parametrize("mode", ["open", "header"])
async def test_a_foreign_page_gets_no_memory_in_modes_that_need_no_credential(mode: str) -> None:
    header = HeaderAuth.of("x-user", None, ["127.0.0.1"])
    entrance = Auth() if mode == "open" else Auth(header, Browsers(check_host=False))
    scope = scope_of(LOCAL, EVIL, ("X-User", "zoe"))
    refused = await get(Behind(entrance, Area.MEMORY), dict(scope))
    assert (refused.status, refused.code) == (403, "origin_not_allowed")
    assert refused.header("access-control-allow-origin") is None
    behind = Behind(entrance, Area.MODEL)
    assert (await get(behind, dict(scope))).status == 200
    assert caller_of(behind.seen[0]).foreign


async def test_with_a_key_a_page_of_any_origin_may_ask_but_not_read(
    by_key: Auth, stores: SqliteStores
) -> None:
    key, _ = await mint(stores.keys)
    behind = Behind(by_key, Area.MEMORY)
    answer = await get(behind, scope_of(LOCAL, EVIL, bearer(key)))
    assert answer.status == 200
    assert answer.header("access-control-allow-origin") is None
    assert not caller_of(behind.seen[0]).foreign


@pytest.mark.parametrize("area", [Area.MEMORY, Area.PAGE])
async def test_memory_and_the_page_answer_only_under_a_name_of_ours(area: Area) -> None:
    behind = Behind(Auth(), area)
    assert (await get(behind, scope_of(("Host", "evil.example")))).code == "host_not_allowed"
    assert (await get(behind, scope_of(("Host", "127.0.0.1:8080")))).status == 200


async def test_an_allowed_page_may_ask_first_then_send_then_read(by_key: Auth, stores: SqliteStores) -> None:
    key, _ = await mint(stores.keys)
    behind, app = Behind(by_key, Area.MEMORY), ("Origin", "https://app.example")
    asked = scope_of(LOCAL, app, ("Access-Control-Request-Method", "DELETE"), method="OPTIONS")
    preflight = await get(behind, asked)
    assert (preflight.status, behind.seen) == (204, [])
    assert "DELETE" in (preflight.header("access-control-allow-methods") or "")
    assert "authorization" in (preflight.header("access-control-allow-headers") or "")
    for headers, status in (((bearer(key),), 200), ((), 401)):
        answer = await get(behind, scope_of(LOCAL, app, *headers))
        assert answer.status == status
        assert answer.header("access-control-allow-origin") == "https://app.example"
        assert answer.header("vary") == "Origin"


async def test_a_foreign_page_is_told_that_it_may_not(by_key: Auth) -> None:
    for entrance in (by_key, Auth()):
        asked = scope_of(LOCAL, EVIL, ("Access-Control-Request-Method", "GET"), method="OPTIONS")
        answer = await get(Behind(entrance, Area.MEMORY), asked)
        assert (answer.status, answer.header("access-control-allow-origin")) == (403, None)


# ---------------------------------------------------------------- every route
PUBLIC = ["/", "/health", "/ready", "/metrics", "/openapi.json", "/ui", "/ui/", "/ui/app.js"]
PRIVATE = [
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/responses/resp_1",
    "/v1/responses/resp_1/input_items",
    "/v1/responses/resp_1/cancel",
    "/v1/conversations",
    "/v1/conversations/c/items/i",
    "/v1/models",
    "/v1/files/f",
    "/v1/embeddings",
    "/v1/",
    "/v1/memory",
    "/v1/memory/",
    "/v1/memory/search",
    "/v1/memory/mem_1",
    "/v1/memory/mem_1/history",
    "/v1/memory/export",
    "/v1/memory/import",
    "/v1/memory/sessions",
    "/v1/memory/sessions/s/end",
    "/v1/memory/jobs",
    "/v1/memory/jobs/retry",
    "/v1/memory/jobs/j/retry",
    "/v1/memory/quarantine",
    "/v1/memory/quarantine/q/release",
    "/v1/memory/receipts",
    "/v1/memory/me",
    "/v1/memory/../../health",
    "/v1/memory/%2e%2e/ui",
    "/v1/health",
]


MISSPELT = ["/v1//memory", "/v1/ui/../memory", "/v1/x/../../health"]  # lenient servers would read more


def app_of(entrance: Auth) -> tuple[Application, list[str]]:
    """Return routes whose every app notes that it was reached."""
    reached: list[str] = []

    def app(name: str) -> Any:
        async def noted(scope: Any, receive: Any, send: Any) -> None:
            reached.append(name)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})

        return noted

    names = (
        "chat",
        "responses",
        "stored_responses",
        "conversations",
        "memory",
        "operations",
        "passthrough",
    )
    apps = {name: app(name) for name in (*names, "openapi", "ui")}
    return Application(Apps(**apps), entrance, telemetry.Metrics()), reached


@pytest.mark.parametrize(
    "method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW"]
)
async def test_without_a_credential_every_route_is_closed_but_the_public_ones(
    by_key: Auth, method: str
) -> None:
    routes, reached = app_of(by_key)
    for path in (*PRIVATE, *MISSPELT):
        answer = await get(routes, scope_of(LOCAL, method=method, path=path))
        assert answer.status == 401, path
    assert reached == []
    for path in PUBLIC:
        assert (await get(routes, scope_of(LOCAL, method=method, path=path))).status == 200, path
    assert set(reached) == {"operations", "openapi", "ui"}


async def test_with_a_credential_every_route_leads_where_it_should(
    by_key: Auth, stores: SqliteStores
) -> None:
    key, _ = await mint(stores.keys)
    routes, reached = app_of(by_key)
    for path in PRIVATE:
        await get(routes, scope_of(LOCAL, bearer(key), method="POST", path=path))
    assert len(reached) == len(PRIVATE)
    assert set(reached) == {
        "chat",
        "responses",
        "stored_responses",
        "conversations",
        "memory",
        "passthrough",
    }
    for path in MISSPELT:
        assert (await get(routes, scope_of(LOCAL, bearer(key), path=path))).status == 404, path
    assert len(reached) == len(PRIVATE)


async def test_a_spelling_of_v1_that_no_upstream_would_know_is_nothing(by_key: Auth) -> None:
    routes, reached = app_of(by_key)
    answer = await get(routes, scope_of(path="/v1/memory", raw_path=b"/%76%31/memory"))
    assert (answer.status, reached) == (404, [])


def test_mode_open_is_one_tenant_whose_users_are_believed() -> None:
    assert (OPEN.tenant, OPEN.user, OPEN.label) == ("default", None, "open")
