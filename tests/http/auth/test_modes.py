"""Modes `open`, `keys` and `header`: who is believed, and what passes on."""

from typing import Any

import pytest

from proxy.domain.errors import ConfigError, IdentityUnavailable, StoreUnavailable, Unauthorized
from proxy.domain.ports import Key
from proxy.http.auth.identity import OPEN, HeaderAuth, KeyAuth, OpenAuth
from proxy.http.auth.keys import KeyRing
from proxy.storage.sqlite.stores import SqliteStores
from tests.http.auth.asking import scope_of
from tests.http.auth.minting import mint

BEHIND = HeaderAuth.of("X-Forwarded-User", None, ["10.0.0.5", "192.168.0.0/16", "fd00::/8"])


async def test_in_mode_open_the_clients_credential_is_the_upstreams() -> None:
    scope = scope_of(("Authorization", "Bearer sk-1"), ("X-Forwarded-User", "bob"))
    admitted = await OpenAuth().identify(scope)
    assert admitted.caller is OPEN
    assert admitted.headers == scope["headers"]


# ---------------------------------------------------------------- keys
async def test_a_key_stands_for_its_tenant_user_and_upstream_key(stores: SqliteStores) -> None:
    key, id_ = await mint(stores.keys, tenant="acme", user="zoe", upstream_key="sk-up")
    admitted = await KeyAuth(KeyRing(stores.keys)).identify(scope_of(("X-Api-Key", key)))
    caller = admitted.caller
    assert (caller.tenant, caller.user, caller.label) == ("acme", "zoe", f"key:{id_}")
    assert admitted.headers == [(b"authorization", b"Bearer sk-up")]


async def test_a_key_for_one_user_is_never_an_admins(stores: SqliteStores) -> None:
    mode = KeyAuth(KeyRing(stores.keys))
    all_rights = "chat,memory,admin"
    for user, rights in (("zoe", {"chat", "memory"}), (None, {"chat", "memory", "admin"})):
        key, _ = await mint(stores.keys, user=user, rights=all_rights)
        assert (await mode.identify(scope_of(("api-key", key)))).caller.rights == rights


async def test_what_is_not_a_valid_key_is_unauthorized(stores: SqliteStores) -> None:
    mode = KeyAuth(KeyRing(stores.keys))
    key, id_ = await mint(stores.keys)
    await stores.keys.revoke(id_, 2.0)
    for wrong in (key, key[:-1], key.upper(), key + "A", id_, "sk-test", "mp-' OR 1=1 --", "mp-" + "A" * 43):
        with pytest.raises(Unauthorized) as refused:
            await mode.identify(scope_of(("Authorization", f"Bearer {wrong}")))
        assert wrong not in refused.value.message


async def test_without_the_store_nobody_is_let_in_and_nobody_is_told_that_the_key_is_wrong() -> None:
    class Gone:
        async def find(self, digest: bytes) -> Key | None:
            raise StoreUnavailable("gone")

    gone: Any = Gone()
    with pytest.raises(IdentityUnavailable):
        await KeyAuth(KeyRing(gone)).identify(scope_of(("api-key", "mp-" + "A" * 43)))


# ---------------------------------------------------------------- header
@pytest.mark.parametrize("peer", ["10.0.0.5", "192.168.7.1", "::ffff:10.0.0.5", "fd00::1"])
async def test_a_trusted_peer_names_the_user_and_the_header_goes_no_further(peer: str) -> None:
    scope = scope_of(("X-Forwarded-User", "zoe"), ("Authorization", "Bearer sk-1"), client=(peer, 1_000))
    admitted = await BEHIND.identify(scope)
    assert (admitted.caller.user, admitted.caller.label) == ("zoe", "header")
    assert admitted.headers == [(b"authorization", b"Bearer sk-1")]


@pytest.mark.parametrize(
    "client",
    [
        None,
        ("", 0),
        ("unix", 0),
        ("10.0.0.6", 1),
        ("127.0.0.1", 1),
        ("10.0.0.50", 1),
        ("::1", 1),
        ("10.0.0.5.", 1),
        ("::ffff:10.0.0.6", 1),
        ("0xa.0.0.5", 1),
        ("10.0.0.5, 10.0.0.6", 1),
    ],
)
async def test_anybody_else_is_unauthorized_whatever_they_say_of_themselves(client: Any) -> None:
    for more in (
        (),
        (("X-Forwarded-For", "10.0.0.5"), ("X-Real-Ip", "10.0.0.5"), ("Forwarded", "for=10.0.0.5")),
    ):
        with pytest.raises(Unauthorized):
            await BEHIND.identify(scope_of(("X-Forwarded-User", "zoe"), *more, client=client))


@pytest.mark.parametrize(
    "said",
    [
        [],
        [b""],
        [b"  "],
        [b"zoe", b"zoe"],
        [b"zoe", b"bob"],
        [b"zoe", b""],
        [b"z\xff"],
        [b"z\x00"],
        [b"z" * 257],
        [b"zo\xef\xbf\xbde"],
        [b"\x1fnobody"],
    ],
)
async def test_a_header_that_is_not_there_once_with_a_name_is_unauthorized(said: list[bytes]) -> None:
    scope = scope_of(client=("10.0.0.5", 1))
    scope["headers"] = [(b"x-forwarded-user", value) for value in said]
    with pytest.raises(Unauthorized):
        await BEHIND.identify(scope)


async def test_the_tenant_may_come_from_a_header_too_and_then_it_must() -> None:
    mode = HeaderAuth.of("x-user", "x-org", ["10.0.0.5"])
    scope = scope_of(("X-User", "zoe"), ("X-Org", "acme"), client=("10.0.0.5", 1))
    admitted = await mode.identify(scope)
    assert (admitted.caller.tenant, admitted.caller.user, admitted.headers) == ("acme", "zoe", [])
    with pytest.raises(Unauthorized):
        await mode.identify(scope_of(("X-User", "zoe"), client=("10.0.0.5", 1)))


@pytest.mark.parametrize(
    ("user_header", "peers"),
    [
        ("x-user", []),
        ("x-user", ["10.0.0.5/8"]),
        ("x-user", ["proxy"]),
        ("x-user", ["*"]),
        ("x user", ["10.0.0.5"]),
        ("", ["10.0.0.5"]),
        ("x-usér", ["10.0.0.5"]),
    ],
)
def test_settings_that_would_trust_nobody_or_anybody_are_refused(user_header: str, peers: list[str]) -> None:
    with pytest.raises(ConfigError):
        HeaderAuth.of(user_header, None, peers)
