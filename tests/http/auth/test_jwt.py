"""Tokens of an identity provider: which are accepted, and where their keys come from."""

import asyncio
import base64
import json
import time
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from proxy import telemetry
from proxy.domain.errors import ConfigError, IdentityUnavailable, Unauthorized, UpstreamTimeout
from proxy.http.auth.identity import Identified
from proxy.http.auth.jwt import (
    FIRST_RETRY_S,
    LEEWAY_S,
    REFRESH_S,
    RETRY_S,
    JwtAuth,
    PublicKeys,
    SharedSecret,
    parse_key_set,
)
from tests.http.auth.asking import scope_of

SECRET = "a secret that both sides have, of more than 32 bytes"
RSA, OTHER_RSA = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
WEAK_RSA = rsa.generate_private_key(public_exponent=65537, key_size=1024)
P256 = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
JWK: dict[str, Any] = {**RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True), "kid": "r1"}
JWKS = {
    "keys": [
        JWK,
        {**ECAlgorithm.to_jwk(P256.public_key(), as_dict=True), "kid": "e1", "use": "sig", "alg": "ES256"},
        {**OKPAlgorithm.to_jwk(ED.public_key(), as_dict=True), "kid": "o1"},
        {"kty": "oct", "k": base64.urlsafe_b64encode(SECRET.encode()).decode(), "kid": "s1"},
    ]
}
PEM = RSA.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def claims(**changed: Any) -> dict[str, Any]:
    """Return good claims, except the changed ones; a claim of None is left out."""
    good = {"sub": "zoe", "aud": "memory", "iss": "https://issuer", "exp": time.time() + 600, "org": "acme"}
    return {name: value for name, value in (good | changed).items() if value is not None}


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "r1", **changed: Any) -> str:
    return jwt.encode(claims(**changed), key, algorithm, {} if kid is None else {"kid": kid})


def raw(header: Any, payload: Any, signature: bytes = b"") -> str:
    """Return a token of these parts, valid or not."""
    parts = (each if isinstance(each, bytes) else json.dumps(each).encode() for each in (header, payload))
    return ".".join(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in (*parts, signature))


def signed(header: Any, payload: Any, secret: bytes) -> str:
    """Return a token signed by HS256, whatever its header says."""
    signing = raw(header, payload).rpartition(".")[0]
    signature = jwt.get_algorithm_by_name("HS256").sign(signing.encode(), secret)
    return raw(header, payload, signature)


def by_public_key(**options: Any) -> JwtAuth:
    async def fetch() -> bytes:
        return json.dumps(JWKS).encode()

    return JwtAuth(PublicKeys(fetch), "memory", **{"issuer": "https://issuer", **options})


def by_secret(**options: Any) -> JwtAuth:
    return JwtAuth(SharedSecret.of(SECRET, ()), "memory", **{"issuer": "https://issuer", **options})


async def identified(mode: JwtAuth, credential: str) -> Identified:
    return await mode.identify(scope_of(("Authorization", f"Bearer {credential}"), ("User-Agent", "x")))


# ---------------------------------------------------------------- tokens
@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (RSA, "RS256", "r1"), (RSA, "PS512", "r1"), (P256, "ES256", "e1"), (ED, "EdDSA", "o1"),
        (RSA, "RS256", None),
    ],
)  # fmt: skip
async def test_a_good_token_names_its_user_and_does_not_reach_the_upstream(key, algorithm, kid):
    found = await identified(by_public_key(), token(key, algorithm, kid))
    assert (found.caller.tenant, found.caller.user, found.caller.label) == ("default", "zoe", "jwt")
    assert found.caller.rights == {"chat", "memory"}
    assert found.headers == [(b"user-agent", b"x")]


async def test_a_shared_secret_works_with_other_claims_and_clocks_that_differ_a_little():
    now, mode = time.time(), by_secret(tenant_claim="org", user_claim="mail")
    times = {"exp": now - LEEWAY_S / 2, "nbf": now + LEEWAY_S / 2}
    caller = (await identified(mode, token(SECRET, "HS256", mail="zoe@acme", **times))).caller
    assert (caller.tenant, caller.user) == ("acme", "zoe@acme")


WRONG_CLAIMS: dict[str, list[Any]] = {
    "exp": [None, time.time() - LEEWAY_S - 5, 0, "never", [2**40], float("inf"), float("nan")],
    "nbf": [time.time() + 100_000, float("inf")],
    "iat": [float("inf")],
    "aud": [None, "other", "memory2", "mem", [], ["other"], {"memory": 1}, [["memory"]]],
    "iss": [None, "https://evil", "https://issue", ["https://issuer"]],
    "sub": [None, "", "  ", 7, ["zoe"], {"$ne": 1}, "z" * 257, "zoe\n", "zoe\x00", "zoe\ufffd"],
    "org": [None, "", 5, ["acme"], "a\x1f"],
}


@pytest.mark.parametrize("claim", WRONG_CLAIMS)
async def test_a_wrong_claim_is_unauthorized(claim):
    for value in WRONG_CLAIMS[claim]:
        forged = signed({"alg": "HS256", "typ": "JWT"}, claims(**{claim: value}), SECRET.encode())
        with pytest.raises(Unauthorized):
            await identified(by_secret(tenant_claim="org"), forged)


def forgeries() -> dict[str, str]:
    """Return tokens that must not be accepted, by what is wrong with them."""
    good = token()
    head, payload, signature = good.split(".")
    other_jwk = RSAAlgorithm.to_jwk(OTHER_RSA.public_key(), as_dict=True)
    other_payload = raw({}, claims(sub="alice")).split(".")[1]
    return {
        "none": raw({"alg": "none"}, claims()),
        "public key as secret": signed({"alg": "HS256", "kid": "r1"}, claims(), PEM),
        "JWK as secret": signed({"alg": "HS256", "kid": "r1"}, claims(), json.dumps(JWK).encode()),
        "secret published in the set": token(SECRET, "HS256", "s1"),
        "signature of another key": token(OTHER_RSA),
        "another key in the header": jwt.encode(
            claims(), OTHER_RSA, "RS256", {"kid": "r1", "jwk": other_jwk}
        ),
        "jku": jwt.encode(claims(), OTHER_RSA, "RS256", {"kid": "x", "jku": "http://127.0.0.1:9/jwks"}),
        "kid is a path": token(OTHER_RSA, kid="../../../../dev/null"),
        "key of another kind": token(P256, "ES256", "r1"),
        "key for another algorithm": jwt.encode(claims(), RSA, "RS256", {"kid": "e1"}),
        "crit": jwt.encode(claims(), RSA, "RS256", {"kid": "r1", "crit": ["x"], "x": 1}),
        "b64 false": raw({"alg": "RS256", "kid": "r1", "b64": False}, claims(), b"x"),
        "payload changed": f"{head}.{other_payload}.{signature}",
        "signature cut": f"{head}.{payload}.{signature[:-4]}",
        "no signature": f"{head}.{payload}.",
        "two parts": f"{head}.{payload}",
        "one word": "zoe",
        "header is deep": raw(b"[" * 6_000, claims(), b"x"),
        "payload is deep": jwt.api_jws.encode(b"[" * 6_000, RSA, "RS256", {"kid": "r1"}),
    }


async def test_forged_tokens_are_unauthorized_without_a_reason():
    mode = by_public_key()
    for what, forged in forgeries().items():
        with pytest.raises(Unauthorized) as refused:
            await identified(mode, forged)
        assert refused.value.message == "The token is not valid here, or has expired.", what


@pytest.mark.parametrize(
    ("made", "check"),
    [
        (lambda: token(exp=time.time() - 600), "exp"),
        (lambda: token(aud="other"), "aud"),
        (lambda: token(OTHER_RSA), "signature"),
        (lambda: token(kid="x"), "unknown key"),
        (lambda: "zoe", "malformed"),
    ],
)
async def test_the_log_names_the_failed_check_once_a_minute_and_nothing_of_the_token(
    made, check, monkeypatch
):
    lines = list[Any]()
    only_info = SimpleNamespace(info=lambda event, **facts: lines.append((event, facts)))
    monkeypatch.setattr(telemetry, "log", only_info)
    mode = by_public_key()
    for _ in range(3):
        with pytest.raises(Unauthorized):
            await identified(mode, made())
    assert lines == [("identity.token_refused", {"check": check})]


@pytest.mark.parametrize("algorithms", [["none"], ["HS256"], ["RS256", "HS512"], ["rs256"], [""]])
def test_algorithms_that_would_confuse_keys_are_refused(algorithms):
    with pytest.raises(ConfigError):
        PublicKeys(Issuer().fetch, algorithms)


@pytest.mark.parametrize(("secret", "algorithms"), [("short", ()), (SECRET, ["none"]), (SECRET, ["RS256"])])
def test_a_secret_that_could_be_guessed_or_misused_is_refused(secret, algorithms):
    with pytest.raises(ConfigError) as refused:
        SharedSecret.of(secret, algorithms)
    assert SECRET not in str(refused.value)


# ---------------------------------------------------------------- the issuer's keys
class Issuer:
    """An endpoint with keys that come and go, and a clock."""

    def __init__(self, *kids: str) -> None:
        self.kids, self.asked, self.now = list(kids), 0, 0.0
        self.document: bytes | None = None
        self.down = False
        self.held: asyncio.Event | None = None
        self.keys = PublicKeys(self.fetch, clock=lambda: self.now)

    async def fetch(self) -> bytes:
        self.asked += 1
        if self.held is not None:
            await self.held.wait()
        if self.down:
            raise UpstreamTimeout("down")
        return self.document or json.dumps({"keys": [JWK | {"kid": kid} for kid in self.kids]}).encode()

    async def knows(self, kid: str | None, algorithm: str = "RS256") -> bool:
        return await self.keys.key_for(kid, algorithm) is not None


async def test_the_set_is_fetched_once_then_when_it_is_old_or_a_new_key_is_named_but_not_often():
    issuer = Issuer("a")
    assert [await issuer.knows("a") for _ in range(3)] == [True] * 3
    assert issuer.asked == 1
    issuer.now, issuer.kids = RETRY_S, ["a", "b"]
    assert await issuer.knows("b")
    assert not any([await issuer.knows(f"made up {n}") for n in range(100)])
    assert issuer.asked == 2
    issuer.now, issuer.kids = RETRY_S + REFRESH_S, ["b"]
    assert not await issuer.knows("a"), "a withdrawn key is refused"
    assert issuer.asked == 3


@pytest.mark.parametrize("document", [b"", b"<html>", b"[]", b'{"keys": 3}', b"[" * 100_000, b"\xff"])
async def test_known_keys_stay_valid_while_the_issuer_is_down_or_broken(document):
    issuer = Issuer("a")
    assert await issuer.knows("a")
    issuer.down, issuer.document, issuer.now = not document, document, REFRESH_S
    assert await issuer.knows("a")
    assert not await issuer.knows("b")
    assert issuer.asked == 2


async def test_without_a_set_callers_are_asked_to_try_again():
    issuer = Issuer("a")
    issuer.down = True
    for _ in range(3):
        with pytest.raises(IdentityUnavailable):
            await issuer.knows("a")
    assert issuer.asked == 1
    issuer.down, issuer.now = False, FIRST_RETRY_S
    assert await issuer.knows("a")


async def test_one_request_fetches_for_all_and_known_keys_do_not_wait():
    issuer = Issuer("a")
    assert await issuer.knows("a")
    issuer.now, issuer.held, issuer.kids = REFRESH_S, asyncio.Event(), ["a", "b"]
    waiting = [asyncio.create_task(issuer.knows("b")) for _ in range(5)]
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        assert await issuer.knows("a")
    issuer.held.set()
    assert await asyncio.gather(*waiting) == [True] * 5
    assert issuer.asked == 2


async def test_a_client_that_leaves_during_the_fetch_does_not_block_the_others():
    issuer = Issuer("a")
    issuer.held = asyncio.Event()
    leaving = asyncio.create_task(issuer.knows("a"))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    issuer.held.set()
    assert await issuer.knows("a")


async def test_a_token_without_a_key_name_needs_a_set_with_one_fitting_key():
    assert await Issuer("a").knows(None)
    assert not await Issuer("a").knows(None, "ES256")
    assert not await Issuer("a", "b").knows(None)
    assert not await Issuer("a", "a").knows("a"), "two keys of one name are none"


def test_only_public_keys_for_signatures_are_used():
    weak = RSAAlgorithm.to_jwk(WEAK_RSA.public_key(), as_dict=True)
    private = RSAAlgorithm.to_jwk(RSA, as_dict=True)
    unfit: list[Any] = [
        {"use": "enc"}, {"kty": "oct", "k": "AAAA"}, {"kty": "nonsense"}, {"kid": 7}, {"alg": "HS256"},
        {"alg": "none"}, {"n": "AQAB"}, {"n": "!"}, {"n": None}, weak, private,
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, {"kty": "EC", "crv": "nonsense"},
    ]  # fmt: skip
    document = {"keys": [*(JWK | each for each in unfit), JWK | {"kid": "good"}, "text", None]}
    assert [k.kid for k in parse_key_set(json.dumps(document).encode())] == ["good"]
