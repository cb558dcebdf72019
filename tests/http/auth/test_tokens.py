"""Tokens of an identity provider: what is believed, and the ways of cheating."""

import base64
import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from proxy import telemetry
from proxy.domain.errors import ConfigError, Unauthorized
from proxy.http.auth.identity import Identified
from proxy.http.auth.jwt import LEEWAY_S, JwtAuth, KeySet, PublicKeys, SharedSecret
from tests.http.auth.asking import scope_of

SECRET = "a secret that both sides have, of more than 32 bytes"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
P256 = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
RSA_JWK: dict[str, Any] = {**RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True), "kid": "r1"}
JWKS = {
    "keys": [
        RSA_JWK,
        {**ECAlgorithm.to_jwk(P256.public_key(), as_dict=True), "kid": "e1", "use": "sig", "alg": "ES256"},
        {**OKPAlgorithm.to_jwk(ED.public_key(), as_dict=True), "kid": "o1"},
        {"kty": "oct", "k": base64.urlsafe_b64encode(SECRET.encode()).decode(), "kid": "s1"},
    ]
}
PEM = RSA.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def claims(**changed: Any) -> dict[str, Any]:
    """Return good claims, but for the ones changed; a claim of None is left out."""
    good = {"sub": "zoe", "aud": "memory", "iss": "https://issuer", "exp": time.time() + 600, "org": "acme"}
    return {name: value for name, value in (good | changed).items() if value is not None}


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "r1", **changed: Any) -> str:
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(claims(**changed), key, algorithm, headers)


def raw(header: Any, payload: Any, signature: bytes = b"") -> str:
    """Return a token of these parts, whatever they are."""
    parts = (
        part if isinstance(part, bytes) else json.dumps(part).encode()
        for part in (header, payload, signature)
    )
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def by_public_key(**options: Any) -> JwtAuth:
    async def fetch() -> bytes:
        return json.dumps(JWKS).encode()

    return JwtAuth(PublicKeys(KeySet(fetch)), "memory", **{"issuer": "https://issuer", **options})


def by_secret(**options: Any) -> JwtAuth:
    return JwtAuth(SharedSecret.of(SECRET, ()), "memory", **{"issuer": "https://issuer", **options})


async def admit(mode: JwtAuth, credential: str) -> Identified:
    return await mode.identify(scope_of(("Authorization", f"Bearer {credential}"), ("User-Agent", "x")))


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (RSA, "RS256", "r1"),
        (RSA, "PS512", "r1"),
        (P256, "ES256", "e1"),
        (ED, "EdDSA", "o1"),
        (RSA, "RS256", None),
    ],
)
async def test_a_good_token_names_its_user_and_does_not_reach_the_upstream(
    key: Any, algorithm: str, kid: str | None
) -> None:
    admitted = await admit(by_public_key(), token(key, algorithm, kid))
    caller = admitted.caller
    assert (caller.tenant, caller.user, caller.label) == ("default", "zoe", "jwt")
    assert caller.rights == {"chat", "memory"}
    assert admitted.headers == [(b"user-agent", b"x")]


async def test_a_shared_secret_will_do_and_a_claim_may_name_the_tenant() -> None:
    mode = by_secret(tenant_claim="org", user_claim="mail")
    admitted = await admit(mode, token(SECRET, "HS256", mail="zoe@acme"))
    assert (admitted.caller.tenant, admitted.caller.user) == ("acme", "zoe@acme")


async def test_clocks_may_differ_a_little() -> None:
    now = time.time()
    await admit(by_secret(), token(SECRET, "HS256", exp=now - LEEWAY_S / 2, nbf=now + LEEWAY_S / 2))


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": None},
        {"exp": time.time() - LEEWAY_S - 5},
        {"exp": 0},
        {"exp": "never"},
        {"exp": [2**40]},
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"nbf": time.time() + 100_000},
        {"nbf": float("inf")},
        {"iat": float("inf")},
        {"aud": None},
        {"aud": "other"},
        {"aud": "memory2"},
        {"aud": "mem"},
        {"aud": []},
        {"aud": ["other"]},
        {"aud": {"memory": 1}},
        {"aud": [["memory"]]},
        {"iss": None},
        {"iss": "https://evil"},
        {"iss": "https://issue"},
        {"iss": ["https://issuer"]},
        {"sub": None},
        {"sub": ""},
        {"sub": "  "},
        {"sub": 7},
        {"sub": True},
        {"sub": ["zoe"]},
        {"sub": {"$ne": 1}},
        {"sub": "z" * 257},
        {"sub": "zoe\n"},
        {"sub": "zoe\x00"},
        {"sub": "zoe\ufffd"},
        {"sub": "\x1fnobody"},
    ],
    ids=lambda claim: f"{next(iter(claim))} is wrong",  # the same in every process: some hold the time
)
async def test_a_claim_that_is_not_right_is_unauthorized(changed: dict[str, Any]) -> None:
    unsigned = claims(**changed)
    header = {"alg": "HS256", "typ": "JWT"}
    signing = raw(header, unsigned).rpartition(".")[0]
    signature = jwt.get_algorithm_by_name("HS256").sign(signing.encode(), SECRET.encode())
    with pytest.raises(Unauthorized):
        await admit(by_secret(), raw(header, unsigned, signature))


@pytest.mark.parametrize("org", [None, "", 5, ["acme"], "a\x1f"])
async def test_a_tenant_that_is_not_named_is_not_the_default_one(org: Any) -> None:
    with pytest.raises(Unauthorized):
        await admit(by_secret(tenant_claim="org"), token(SECRET, "HS256", org=org))


def forged() -> dict[str, str]:
    """Return tokens that nobody may be let in with, by what is wrong with them."""
    good = token()
    head, payload, signature = good.split(".")
    jwk = RSAAlgorithm.to_jwk(OTHER_RSA.public_key(), as_dict=True)
    payload_of_another = raw({}, claims(sub="alice")).split(".")[1]
    hmac = jwt.get_algorithm_by_name("HS256")

    def hs256_with(secret: bytes) -> str:
        signing = raw({"alg": "HS256", "kid": "r1"}, claims()).rpartition(".")[0]
        return (
            signing + "." + base64.urlsafe_b64encode(hmac.sign(signing.encode(), secret)).decode().rstrip("=")
        )

    return {
        "none": raw({"alg": "none"}, claims()),
        "None": raw({"alg": "None", "kid": "r1"}, claims()),
        "no alg": raw({"kid": "r1"}, claims()),
        "alg is a list": raw({"alg": ["RS256"], "kid": "r1"}, claims()),
        "alg is null": raw({"alg": None}, claims()),
        "public key as secret": hs256_with(PEM),
        "JWK as secret": hs256_with(json.dumps(RSA_JWK).encode()),
        "secret published in the set": token(SECRET, "HS256", "s1"),
        "secret, without its name": token(SECRET, "HS256", None),
        "another's signature": token(OTHER_RSA),
        "another's key in the header": jwt.encode(claims(), OTHER_RSA, "RS256", {"kid": "r1", "jwk": jwk}),
        "jku": jwt.encode(claims(), OTHER_RSA, "RS256", {"kid": "x", "jku": "http://127.0.0.1:9/jwks"}),
        "x5u": jwt.encode(claims(), OTHER_RSA, "RS256", {"x5u": "http://127.0.0.1:9/x"}),
        "kid is a path": token(OTHER_RSA, kid="../../../../dev/null"),
        "kid is a URL": token(OTHER_RSA, kid="http://127.0.0.1:9/key"),
        "kid is SQL": token(OTHER_RSA, kid="x' UNION SELECT 'a"),
        "kid in other letters": token(RSA, kid="R1"),
        "kid is empty": raw({"alg": "RS256", "kid": ""}, claims(), b"x"),
        "kid is a number": raw({"alg": "RS256", "kid": 1}, claims(), b"x"),
        "kid is an object": raw({"alg": "RS256", "kid": {"a": 1}}, claims(), b"x"),
        "kid is huge": token(kid="k" * 1_000),
        "key of another kind": token(P256, "ES256", "r1"),
        "key for another algorithm": jwt.encode(claims(), RSA, "RS256", {"kid": "e1"}),
        "crit": jwt.encode(claims(), RSA, "RS256", {"kid": "r1", "crit": ["x"], "x": 1}),
        "b64 false": raw({"alg": "RS256", "kid": "r1", "b64": False}, claims(), b"x"),
        "payload changed": f"{head}.{payload_of_another}.{signature}",
        "signature cut": f"{head}.{payload}.{signature[:-4]}",
        "no signature": f"{head}.{payload}.",
        "two parts": f"{head}.{payload}",
        "four parts": f"{good}.{signature}",
        "one word": "zoe",
        "only dots": "..",
        "header is a list": raw([], claims(), b"x"),
        "header is deep": raw(b"[" * 6_000, claims(), b"x"),
        "header is no JSON": raw(b"\xff\xfe", claims(), b"x"),
        "payload is a list": jwt.api_jws.encode(b"[1]", RSA, "RS256", {"kid": "r1"}),
        "payload is no JSON": jwt.api_jws.encode(b"\xff", RSA, "RS256", {"kid": "r1"}),
        "payload is deep": jwt.api_jws.encode(b"[" * 6_000, RSA, "RS256", {"kid": "r1"}),
        "five parts, encrypted": ".".join([raw({"alg": "dir", "enc": "A128GCM"}, {})] * 2)[:200],
    }


@pytest.mark.parametrize(
    ("presented", "check"),
    [
        (lambda: token(exp=time.time() - 600), "exp"),
        (lambda: token(exp=None), "no exp"),
        (lambda: token(nbf=time.time() + 600), "nbf"),
        (lambda: token(iat=time.time() + 600), "nbf"),  # the library's one name for "from later"
        (lambda: token(aud="other"), "aud"),
        (lambda: token(iss="https://evil"), "iss"),
        (lambda: token(sub=""), "claim sub"),
        (lambda: token(OTHER_RSA), "signature"),
        (lambda: token(kid="x"), "unknown key"),
        (lambda: forged()["none"], "alg"),
        (lambda: forged()["kid is empty"], "kid"),
        (lambda: "zoe", "malformed"),
        (lambda: forged()["payload is deep"], "malformed"),
    ],
)
async def test_the_log_says_which_check_failed_once_a_minute_and_nothing_of_the_token(
    presented: Callable[[], str], check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = list[Any]()
    only_info = SimpleNamespace(info=lambda event, **facts: lines.append((event, facts)))
    monkeypatch.setattr(telemetry, "log", only_info)
    mode = by_public_key()
    for _ in range(3):
        with pytest.raises(Unauthorized):
            await admit(mode, presented())
    assert lines == [("identity.token_refused", {"check": check})]


@pytest.mark.parametrize("what", sorted(forged()))
async def test_a_forged_token_is_unauthorized(what: str) -> None:
    with pytest.raises(Unauthorized) as refused:
        await admit(by_public_key(), forged()[what])
    assert "valid" in refused.value.message, "and nobody learns what was wrong"


async def test_with_a_secret_configured_no_other_kind_of_key_will_do() -> None:
    for cheat in (
        token(),
        token(P256, "ES256", "e1"),
        token(SECRET + "!", "HS256"),
        raw({"alg": "none"}, claims()),
    ):
        with pytest.raises(Unauthorized):
            await admit(by_secret(), cheat)
    with pytest.raises(Unauthorized):
        await admit(by_secret(), token(SECRET, "HS384"))


@pytest.mark.parametrize("algorithms", [["none"], ["HS256"], ["RS256", "HS512"], ["rs256"], [""]])
def test_settings_that_would_confuse_keys_are_refused(algorithms: list[str]) -> None:
    async def fetch() -> bytes:
        raise AssertionError

    with pytest.raises(ConfigError):
        PublicKeys.of(fetch, algorithms)


@pytest.mark.parametrize(
    ("secret", "algorithms"), [("short", ()), ("", ()), (SECRET, ["none"]), (SECRET, ["RS256"])]
)
def test_a_secret_that_could_be_guessed_or_misused_is_refused(secret: str, algorithms: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        SharedSecret.of(secret, algorithms)
    assert SECRET not in str(refused.value)
