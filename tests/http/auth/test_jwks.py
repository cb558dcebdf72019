"""The issuer's keys: cached, renewed, and stale rather than none."""

import asyncio
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from proxy.domain.errors import IdentityUnavailable, UpstreamTimeout
from proxy.http.auth.jwt import FIRST_RETRY_S, REFRESH_S, RETRY_S, KeySet, parse_key_set

JWK: dict[str, Any] = RSAAlgorithm.to_jwk(
    rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key(), as_dict=True
)


WEAK: dict[str, Any] = RSAAlgorithm.to_jwk(
    rsa.generate_private_key(public_exponent=65537, key_size=1024).public_key(),
    as_dict=True,
)
PUBLISHED: dict[str, Any] = RSAAlgorithm.to_jwk(
    rsa.generate_private_key(public_exponent=65537, key_size=2048), as_dict=True
)


def key(kid: str | None, **more: Any) -> dict[str, Any]:
    return {**JWK, **({} if kid is None else {"kid": kid}), **more}


class Issuer:
    """An endpoint with keys that come and go, and a clock."""

    def __init__(self, *kids: str) -> None:
        self.kids, self.asked, self.now = list(kids), 0, 0.0
        self.document: bytes | None = None
        self.down = False
        self.held: asyncio.Event | None = None
        self.keys = KeySet(self.fetch, clock=lambda: self.now)

    async def fetch(self) -> bytes:
        self.asked += 1
        if self.held is not None:
            await self.held.wait()
        if self.down:
            raise UpstreamTimeout("down")
        return self.document or json.dumps({"keys": [key(kid) for kid in self.kids]}).encode()

    async def knows(self, kid: str) -> bool:
        return await self.keys.find(kid, "RS256") is not None


async def test_the_set_is_fetched_once_and_again_when_it_is_old() -> None:
    issuer = Issuer("a")
    for _ in range(3):
        assert await issuer.knows("a")
    assert issuer.asked == 1
    issuer.kids = ["b"]
    issuer.now = REFRESH_S
    assert not await issuer.knows("a"), "a key that the issuer withdrew is gone"
    assert issuer.asked == 2


async def test_an_unknown_name_makes_us_ask_but_not_often() -> None:
    issuer = Issuer("a")
    assert await issuer.knows("a")
    issuer.now = RETRY_S
    issuer.kids.append("b")
    assert await issuer.knows("b"), "keys are rotated"
    for n in range(100):
        assert not await issuer.knows(f"made up {n}")
    assert issuer.asked == 2
    issuer.now += RETRY_S
    assert not await issuer.knows("made up")
    assert issuer.asked == 3


@pytest.mark.parametrize("nonsense", [b"", b"<html>", b"[]", b'{"keys": 3}', b"[" * 100_000, b"\xff"])
async def test_while_the_issuer_is_down_or_speaks_nonsense_the_known_keys_stay(nonsense: bytes) -> None:
    issuer = Issuer("a")
    assert await issuer.knows("a")
    issuer.down, issuer.document = not nonsense, nonsense
    issuer.now = REFRESH_S
    assert await issuer.knows("a")
    assert not await issuer.knows("b")
    assert issuer.asked == 2, "and is left alone for a while"


async def test_without_ever_having_had_a_set_nobody_can_say() -> None:
    issuer = Issuer("a")
    issuer.down = True
    for _ in range(3):
        with pytest.raises(IdentityUnavailable):
            await issuer.knows("a")
    assert issuer.asked == 1
    issuer.down = False
    issuer.now = FIRST_RETRY_S
    assert await issuer.knows("a")


async def test_one_asks_for_all_and_those_whose_key_is_known_do_not_wait() -> None:
    issuer = Issuer("a")
    assert await issuer.knows("a")
    issuer.now, issuer.held = REFRESH_S, asyncio.Event()
    issuer.kids.append("b")
    waiting = [asyncio.create_task(issuer.knows("b")) for _ in range(5)]
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        assert await issuer.knows("a")
    issuer.held.set()
    assert await asyncio.gather(*waiting) == [True] * 5
    assert issuer.asked == 2


async def test_a_client_that_leaves_while_we_ask_does_not_keep_the_others_out() -> None:
    issuer = Issuer("a")
    issuer.held = asyncio.Event()
    leaving = asyncio.create_task(issuer.knows("a"))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    issuer.held.set()
    assert await issuer.knows("a")


async def test_a_token_without_a_name_needs_a_set_with_one_key() -> None:
    issuer = Issuer("a")
    assert await issuer.keys.find(None, "RS256") is not None
    assert await issuer.keys.find(None, "ES256") is None
    both = Issuer("a", "b")
    assert await both.keys.find(None, "RS256") is None
    twice = Issuer("a", "a")
    assert not await twice.knows("a"), "two keys of one name are none"


@pytest.mark.parametrize(
    "unfit",
    [
        {"use": "enc"},
        {"kty": "oct", "k": "AAAA"},
        {"kty": "nonsense"},
        {"kid": 7},
        {"alg": "HS256"},
        {"alg": "none"},
        {"n": "AQAB"},
        {"n": "!"},
        {"n": None},
        WEAK,
        PUBLISHED,
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "nonsense"},
    ],
    ids=lambda unfit: str(unfit)[:30],
)
def test_what_is_no_public_key_for_signatures_is_left_out(unfit: dict[str, Any]) -> None:
    document = {"keys": [key("a") | unfit, key("good"), "text", None]}
    assert [k.kid for k in parse_key_set(json.dumps(document).encode())] == ["good"]


def test_a_key_that_is_for_one_algorithm_is_for_no_other() -> None:
    (bound,) = parse_key_set(json.dumps({"keys": [key("a", alg="RS256")]}).encode())
    (free,) = parse_key_set(json.dumps({"keys": [key("a")]}).encode())
    assert (bound.fits("RS256"), bound.fits("PS256"), bound.fits("ES256")) == (True, False, False)
    assert (free.fits("RS256"), free.fits("PS256"), free.fits("ES256")) == (True, True, False)
