"""Who is calling: callers, credentials, modes (but for tokens), and the middleware before every route."""

from typing import Any

import pytest

from proxy import telemetry
from proxy.domain.core import Scope
from proxy.domain.errors import (
    ConfigError,
    Forbidden,
    InvalidRequest,
    Unauthorized,
)
from proxy.http.auth.browsers import Browsers
from proxy.http.auth.identity import (
    MAX_CREDENTIAL_CHARS,
    OPEN,
    Area,
    Auth,
    Caller,
    HeaderAuth,
    KeyAuth,
    admit,
    caller_of,
    is_sendable,
    presented,
    replaced,
)
from proxy.http.auth.keys import KeyRing
from proxy.http.router import Application, Apps
from tests.http.auth.asking import Behind, get, scope_of
from tests.http.auth.minting import mint

ZOE = Caller("t", user="zoe")


# ---------------------------------------------------------------- the caller
def test_without_a_fixed_user_the_named_one_is_believed_and_the_body_takes_precedence():
    assert OPEN.scope("alice", None) == Scope("default", "alice")
    assert Caller("t", named="bob").scope(None, "p") == Scope("t", "bob", "p")
    assert Caller("t", named="bob").scope("alice", None) == Scope("t", "alice")
    assert ZOE.scope(None, None) == ZOE.scope("zoe", None) == Scope("t", "zoe")


@pytest.mark.parametrize("other", ["alice", "Zoe", " zoe", "zoe ", "zoe\u200b", "ｚoe", "zoe/"])
def test_a_fixed_user_is_never_another(other):
    for narrow in (ZOE.narrow, lambda user: ZOE.scope(user, None)):
        with pytest.raises(Forbidden):
            narrow(other)
    with pytest.raises(Forbidden):
        Caller("t", user="zoe", named=other).narrow("zoe")  # named by the header


@pytest.mark.parametrize(
    ("user", "project"), [(None, None), ("", None), (" ", None), ("al\ufffdice", None), ("alice", "p\ufffd")]
)
def test_a_missing_or_undecodable_id_is_refused(user, project):
    with pytest.raises(InvalidRequest) as refused:
        OPEN.scope(user, project)
    assert refused.value.param == ("project_id" if project else "user_id")


def test_the_caller_is_read_from_the_scope_with_what_the_headers_name():
    scope = scope_of(("X-Memory-User-Id", "bob"), ("X-Memory-Project-Id", "apollo"))
    with pytest.raises(KeyError):
        caller_of(scope)  # not admitted
    admit(scope, OPEN)
    caller = caller_of(scope)
    assert caller.scope(None, None) == caller.scope(None, "apollo") == Scope("default", "bob", "apollo")
    with pytest.raises(InvalidRequest) as refused:
        caller.scope(None, "zeus")
    assert refused.value.param == "X-Memory-Project-Id"
    assert [caller.sees(project) for project in ("apollo", None, "zeus")] == [True, True, False]
    admit(scope, ZOE)
    with pytest.raises(Forbidden):
        caller_of(scope)


# ---------------------------------------------------------------- credentials
Headers = list[tuple[bytes, bytes]]


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"bearer  mp-1 ")],
        [(b"api-key", b"mp-1")],
        [(b"x-api-key", b" mp-1")],
        [(b"authorization", b"Bearer mp-1"), (b"api-key", b"mp-1"), (b"authorization", b"BEARER mp-1")],
    ],
)
def test_a_key_is_found_wherever_openai_and_azure_clients_put_it(headers):
    assert presented(headers) == "mp-1"


MALFORMED = (
    b"", b"mp-1", b"Bearer", b"Bearer ", b"Basic mp-1", b"Bearer mp-1, Bearer mp-2", b"Bearer mp-1 mp-2",
    b"Bearer mp-\xff", b"Bearer mp-\x00", b"Bearer " + b"m" * (MAX_CREDENTIAL_CHARS + 1),
)  # fmt: skip


@pytest.mark.parametrize(
    "headers",
    [
        [], [(b"cookie", b"mp-1")], *([(b"authorization", value)] for value in MALFORMED),
        [(b"api-key", b" ")], [(b"authorization", b"Bearer mp-1"), (b"authorization", b"Bearer mp-2")],
        [(b"authorization", b"Bearer mp-1"), (b"x-api-key", b"sk-2")],
        [(b"api-key", b"mp-1"), (b"x-api-key", b"")],
        [(b"authorization", b"Basic eA=="), (b"api-key", b"mp-1")],
    ],
)  # fmt: skip
def test_no_credential_two_or_a_malformed_one_is_unauthorized(headers):
    with pytest.raises(Unauthorized) as refused:
        presented(headers)
    assert "mp-" not in refused.value.message


def test_the_upstream_gets_its_own_key_and_ours_in_no_header():
    names = (b"authorization", b"api-key", b"x-api-key", b"cookie")
    headers = [*((name, b"Bearer mp-1; a=b") for name in names), (b"user-agent", b"test")]
    assert replaced(headers, "mp-1", None) == headers[-1:]
    assert replaced(headers, "mp-1", "sk-up") == [headers[-1], (b"authorization", b"Bearer sk-up")]
    assert is_sendable("sk-Ab_1")
    for key in ("", "a b", "a\r\nx: y", "ключ", "a\x00", "m" * (MAX_CREDENTIAL_CHARS + 1)):
        assert not is_sendable(key)


# ---------------------------------------------------------------- modes


@pytest.mark.parametrize(
    ("user", "rights"), [("zoe", {"chat", "memory"}), (None, {"chat", "memory", "admin"})]
)
async def test_a_key_stands_for_tenant_user_rights_and_upstream_key(stores, user, rights):
    key, id_ = await mint(
        stores.keys, tenant="acme", user=user, upstream_key="sk-up", rights="chat,memory,admin"
    )
    found = await KeyAuth(KeyRing(stores.keys)).identify(scope_of(("X-Api-Key", key)))
    assert found.caller == Caller("acme", user, rights=frozenset(rights), label=f"key:{id_}")
    assert found.headers == [(b"authorization", b"Bearer sk-up")]


async def test_anything_but_a_valid_key_is_unauthorized(stores):
    mode = KeyAuth(KeyRing(stores.keys))
    key, id_ = await mint(stores.keys)
    await stores.keys.revoke(id_, 2.0)
    for wrong in (key, key[:-1], key.upper(), key + "A", id_, "sk-test", "mp-' OR 1=1 --", "mp-" + "A" * 43):
        with pytest.raises(Unauthorized) as refused:
            await mode.identify(scope_of(("Authorization", f"Bearer {wrong}")))
        assert wrong not in refused.value.message


BEHIND = HeaderAuth.of("X-Forwarded-User", None, ["10.0.0.5", "192.168.0.0/16", "fd00::/8"])


@pytest.mark.parametrize("peer", ["10.0.0.5", "192.168.7.1", "::ffff:10.0.0.5", "fd00::1"])
async def test_a_trusted_peer_names_the_user_and_the_header_goes_no_further(peer):
    scope = scope_of(("X-Forwarded-User", "zoe"), ("Authorization", "Bearer sk-1"), client=(peer, 1_000))
    found = await BEHIND.identify(scope)
    assert (found.caller.user, found.caller.label) == ("zoe", "header")
    assert found.headers == [(b"authorization", b"Bearer sk-1")]


@pytest.mark.parametrize(
    "address",
    [
        None, "", "unix", "10.0.0.6", "127.0.0.1", "10.0.0.50", "::1", "10.0.0.5.", "::ffff:10.0.0.6",
        "0xa.0.0.5",
    ],
)  # fmt: skip
async def test_other_peers_are_unauthorized_whatever_their_headers_say(address):
    claims = (("X-Forwarded-For", "10.0.0.5"), ("X-Real-Ip", "10.0.0.5"), ("Forwarded", "for=10.0.0.5"))
    client = None if address is None else (address, 1)
    with pytest.raises(Unauthorized):
        await BEHIND.identify(scope_of(("X-Forwarded-User", "zoe"), *claims, client=client))


async def test_a_configured_tenant_header_is_required():
    mode = HeaderAuth.of("x-user", "x-org", ["10.0.0.5"])
    found = await mode.identify(scope_of(("X-User", "zoe"), ("X-Org", "acme"), client=("10.0.0.5", 1)))
    assert (found.caller.tenant, found.caller.user, found.headers) == ("acme", "zoe", [])
    with pytest.raises(Unauthorized):
        await mode.identify(scope_of(("X-User", "zoe"), client=("10.0.0.5", 1)))


@pytest.mark.parametrize(
    ("user_header", "peers"),
    [("x-user", []), ("x-user", ["10.0.0.5/8"]), ("x-user", ["proxy"]), ("x-user", ["*"]),
     ("x user", ["10.0.0.5"]), ("", ["10.0.0.5"]), ("x-usér", ["10.0.0.5"])],
)  # fmt: skip
def test_settings_that_trust_no_peer_or_all_are_refused(user_header, peers):
    with pytest.raises(ConfigError):
        HeaderAuth.of(user_header, None, peers)


# ---------------------------------------------------------------- the middleware
LOCAL = ("Host", "localhost")
EVIL = ("Origin", "https://evil.example")
PAGE = ("Origin", "https://app.example")


@pytest.fixture
def by_key(stores):
    return Auth(KeyAuth(KeyRing(stores.keys)), Browsers.of(["https://app.example"], [], check_host=False))


def bearer(key: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {key}"


async def test_rights_are_required_where_they_are_needed(by_key, stores):
    only_memory, _ = await mint(stores.keys, rights="memory")
    for area, status in ((Area.MODEL, 403), (Area.PASSTHROUGH, 403), (Area.MEMORY, 200)):
        assert (await get(Behind(by_key, area), scope_of(LOCAL, bearer(only_memory)))).status == status


async def test_a_key_of_one_user_names_no_other_in_header_or_query(by_key, stores):
    key, _ = await mint(stores.keys, user="zoé")
    behind = Behind(by_key)
    for header, query, status, param in (
        ("zoé", b"user_id=zo%C3%A9&limit=2", 200, ""),
        ("alice", b"", 403, "X-Memory-User-Id"),
        ("zoé\u200b", b"user_id=zo%C3%A9", 403, "X-Memory-User-Id"),
        (None, b"a=1&user%5Fid=alice", 403, "user_id"),
        (None, b"user_id=zo%C3%A9&user_id=alice", 403, "user_id"),
        (None, b"user_id=zo%FFe", 400, "user_id"),
    ):
        named = [] if header is None else [("X-Memory-User-Id", header)]
        answer = await get(behind, scope_of(LOCAL, bearer(key), *named, query_string=query))
        assert answer.status == status, (header, query)
        assert status == 200 or answer.error["param"] == param, (header, query)
    assert len(behind.seen) == 1


async def test_if_callers_cannot_be_identified_the_client_is_to_try_again(stores):
    await stores.close()
    answer = await get(Behind(Auth(KeyAuth(KeyRing(stores.keys)))), scope_of(bearer("mp-" + "A" * 43)))
    assert (answer.status, answer.code, answer.header("retry-after")) == (503, "identity_unavailable", "1")


async def test_a_foreign_page_gets_no_memory_in_a_mode_that_needs_no_credential():
    auth = Auth(HeaderAuth.of("x-user", None, ["127.0.0.1"]), Browsers(check_host=False))
    scope = scope_of(LOCAL, EVIL, ("X-User", "zoe"))
    refused = await get(Behind(auth, Area.MEMORY), dict(scope))
    assert (refused.status, refused.code) == (403, "origin_not_allowed")
    assert refused.header("access-control-allow-origin") is None
    behind = Behind(auth, Area.MODEL)
    assert (await get(behind, dict(scope))).status == 200
    assert caller_of(behind.seen[0]).foreign


@pytest.mark.parametrize("area", [Area.MEMORY, Area.PAGE])
async def test_memory_and_the_page_answer_only_under_a_name_of_ours(area):
    behind = Behind(Auth(), area)
    assert (await get(behind, scope_of(("Host", "evil.example")))).code == "host_not_allowed"
    assert (await get(behind, scope_of(("Host", "127.0.0.1:8080")))).status == 200


async def test_pages_with_a_key_may_ask_and_only_allowed_ones_may_read(by_key, stores):
    key, _ = await mint(stores.keys)
    behind = Behind(by_key, Area.MEMORY)
    asks = ("Access-Control-Request-Method", "DELETE")
    preflight = await get(behind, scope_of(LOCAL, PAGE, asks, method="OPTIONS"))
    assert (preflight.status, behind.seen) == (204, [])
    assert "DELETE" in (preflight.header("access-control-allow-methods") or "")
    assert "authorization" in (preflight.header("access-control-allow-headers") or "")
    for auth in (by_key, Auth()):
        answer = await get(Behind(auth, Area.MEMORY), scope_of(LOCAL, EVIL, asks, method="OPTIONS"))
        assert (answer.status, answer.header("access-control-allow-origin")) == (403, None)
    for origin, headers, status in (
        (PAGE, (bearer(key),), 200),
        (PAGE, (), 401),
        (EVIL, (bearer(key),), 200),
    ):
        answer = await get(behind, scope_of(LOCAL, origin, *headers))
        readable = answer.header("access-control-allow-origin") == origin[1]
        assert (answer.status, readable, answer.header("vary")) == (status, origin is PAGE, "Origin")


# ---------------------------------------------------------------- every route
PUBLIC = ["/", "/health", "/ready", "/metrics", "/openapi.json", "/ui", "/ui/", "/ui/app.js"]
PRIVATE = {
    "chat": ["chat/completions"],
    "responses": ["responses"],
    "stored_responses": ["responses/resp_1", "responses/resp_1/input_items", "responses/resp_1/cancel"],
    "conversations": ["conversations", "conversations/c/items/i"],
    "memory": ["memory", "memory/", "memory/search", "memory/m/history", "memory/jobs/j/retry",
               "memory/quarantine/q/release", "memory/me", "memory/../../health", "memory/%2e%2e/ui"],
    "mcp": ["../mcp", "../mcp/"],
    "passthrough": ["models", "files/f", "embeddings", "", "health"],
}  # fmt: skip
MISSPELT = ["/v1//memory", "/v1/ui/../memory", "/v1/x/../../health"]  # lenient servers would read more


def _v1(path: str) -> str:
    return path.removeprefix("..") if path.startswith("../") else f"/v1/{path}"


def app_of(auth: Auth) -> tuple[Application, list[str]]:
    """Return an application whose apps note that they were reached."""
    reached: list[str] = []

    def app(name: str) -> Any:
        async def noted(scope: Any, receive: Any, send: Any) -> None:
            reached.append(name)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})

        return noted

    apps = {name: app(name) for name in (*PRIVATE, "operations", "openapi", "ui")}
    return Application(Apps(**apps), auth, telemetry.Metrics()), reached


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "BREW"])
async def test_without_a_credential_every_route_is_closed_except_the_public_ones(by_key, method):
    application, reached = app_of(by_key)
    for path in (*(_v1(path) for paths in PRIVATE.values() for path in paths), *MISSPELT):
        answer = await get(application, scope_of(LOCAL, method=method, path=path))
        assert answer.status == 401, path
    assert reached == []
    for path in PUBLIC:
        assert (await get(application, scope_of(LOCAL, method=method, path=path))).status == 200, path
    assert set(reached) == {"operations", "openapi", "ui"}


async def test_with_a_credential_every_route_leads_to_its_app(by_key, stores):
    key, _ = await mint(stores.keys)
    application, reached = app_of(by_key)
    for name, paths in PRIVATE.items():
        for path in paths:
            await get(application, scope_of(LOCAL, bearer(key), method="POST", path=_v1(path)))
            assert reached.pop() == name, path
    for path in MISSPELT:
        assert (await get(application, scope_of(LOCAL, bearer(key), path=path))).status == 404, path
    encoded = scope_of(LOCAL, bearer(key), method="POST", path="/v1/chat/completions")
    await get(application, encoded | {"raw_path": b"/v1/chat%2Fcompletions"})
    assert reached.pop() == "chat"
    answer = await get(application, scope_of(path="/v1/memory", raw_path=b"/%76%31/memory"))
    assert (answer.status, reached) == (404, [])
