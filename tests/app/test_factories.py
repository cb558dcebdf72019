"""How the settings authenticate."""

import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from proxy.app.factories import auth_of
from proxy.config import load
from proxy.domain.errors import ConfigError
from tests.http.auth.asking import scope_of
from tests.support.upstream import ScriptedUpstream

SECRET = "a secret that both sides have, of more than 32 bytes"
KEYS: Any = None


def of(**identity: Any) -> Any:
    return auth_of(load(None, {}, {"identity": identity, "server": {"host": "memory.lan"}}), KEYS)


def test_only_mode_open_looks_at_the_host_and_knows_the_name_that_it_listens_on():
    for mode, checked in (("open", True), ("keys", False), ("header", False)):
        assert of(mode=mode).browsers.check_host is checked
    of().browsers.visit(scope_of(("Host", "memory.lan:8080"))).require_host()


@pytest.mark.parametrize(
    ("identity", "names"),
    [
        ({"jwt_secret": SECRET}, "jwt_audience"),
        ({"jwt_audience": "a", "jwt_secret": SECRET, "jwt_jwks_url": "https://issuer/jwks"}, "not both"),
        ({"jwt_audience": "a", "jwt_jwks_url": "file:///etc/passwd"}, "jwt_jwks_url"),
        ({"jwt_audience": "a", "jwt_secret": "short"}, "jwt_secret"),
        ({"jwt_audience": "a", "jwt_secret": SECRET, "jwt_algorithms": ["none"]}, "jwt_algorithms"),
        ({"jwt_audience": "a", "jwt_jwks_url": "https://i/j", "jwt_algorithms": ["HS256"]}, "jwt_algorithms"),
    ],
)
def test_settings_of_mode_jwt_that_cannot_be_safe_are_refused(identity, names):
    with pytest.raises(ConfigError) as refused:
        of(mode="jwt", **identity)
    assert names in str(refused.value)


async def test_the_keys_of_an_issuer_are_fetched_from_its_address():
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    document = {"keys": [{**RSAAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": "1"}]}

    async def script(exchange):
        await exchange.reply(json.dumps(document).encode())

    token = jwt.encode({"sub": "zoe", "aud": "a", "exp": time.time() + 60}, private, "RS256", {"kid": "1"})
    async with ScriptedUpstream(script) as issuer:
        auth = of(mode="jwt", jwt_audience="a", jwt_jwks_url=f"{issuer.origin}/jwks").authenticator
        for _ in range(3):
            admitted = await auth.identify(scope_of(("Authorization", f"Bearer {token}")))
            assert admitted.caller.user == "zoe"
        assert len(issuer.requests) == 1


def test_every_page_is_allowed_only_where_a_page_needs_a_credential():
    assert of(mode="keys", allowed_origins=["*"]).browsers.allowed_origins.anyone
    for mode in ("open", "header"):
        with pytest.raises(ConfigError) as refused:
            of(mode=mode, allowed_origins=["https://app.example", "*"])
        assert "identity.allowed_origins" in str(refused.value)
