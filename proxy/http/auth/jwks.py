"""The public keys of an issuer (a JWK set): fetched, cached, fetched again when a token names a new one.

What a token says about where its key is (`jku`, `x5u`, `jwk` in its header) is not even looked at: the keys
come from the configured URL only, and `kid` is a name to look up, compared exactly.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from proxy import telemetry
from proxy.domain.errors import IdentityUnavailable, ProxyError

Fetch = Callable[[], Awaitable[bytes]]
"""Returns the document at the configured URL, bounded in time and size. Raises ProxyError."""

REFRESH_S = 600.0  # a key that the issuer withdrew is gone after this
RETRY_S = 30.0  # nobody can make us ask more often by naming keys that are not there
FIRST_RETRY_S = 2.0  # until there is a set, nobody can come in
MAX_KEYS = 100
MIN_RSA_BITS = 2048

_FAMILY: dict[str, tuple[str, frozenset[str] | None]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", frozenset(("P-256",))),
    "ES384": ("EC", frozenset(("P-384",))),
    "ES512": ("EC", frozenset(("P-521",))),
    "EdDSA": ("OKP", frozenset(("Ed25519", "Ed448"))),
}
ALGORITHMS = tuple(_FAMILY)
"""What a public key may be used with. No HS*: its `secret` would be the public key, which all know."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """One key of the set."""

    kid: str | None
    family: str
    curve: str | None
    algorithm: str | None  # the only one that it is for, None: any of its family
    key: Any

    def fits(self, algorithm: str) -> bool:
        """True if a signature of this algorithm may be checked with the key."""
        family, curves = _FAMILY[algorithm]
        return (
            self.family == family
            and (curves is None or self.curve in curves)
            and self.algorithm in (None, algorithm)
        )


class KeySet:
    """The issuer's keys. While its endpoint is down, those known stay good."""

    def __init__(self, fetch: Fetch, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch, self._clock = fetch, clock
        self._keys: tuple[PublicKey, ...] | None = None
        self._fetched_at = self._tried_at = float("-inf")
        self._lock = asyncio.Lock()

    async def find(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """Return the key for a token, None if there is none. Without `kid` the set must have only one that
        fits. Raises IdentityUnavailable if there never was a set."""
        found = self._look(kid, algorithm)
        due = self._clock() - self._fetched_at >= REFRESH_S
        # Others need not wait for one who refreshes what they have already.
        if (found is None or due) and not (found is not None and self._lock.locked()):
            await self._refresh()
            found = self._look(kid, algorithm)
        if self._keys is None:
            raise IdentityUnavailable
        return found

    def _look(self, kid: str | None, algorithm: str) -> PublicKey | None:
        fitting = [key for key in self._keys or () if key.fits(algorithm) and (not kid or key.kid == kid)]
        return fitting[0] if len(fitting) == 1 else None

    async def _refresh(self) -> None:
        """Fetch the set, unless that was tried lately; a failure leaves what is known."""
        async with self._lock:
            if self._clock() - self._tried_at < (FIRST_RETRY_S if self._keys is None else RETRY_S):
                return
            self._tried_at = self._clock()
            try:
                self._keys = parsed(await self._fetch())
                self._fetched_at = self._clock()
            except (ProxyError, ValueError) as error:
                telemetry.log.warning("identity.jwks_failed", error=type(error).__name__)
            except asyncio.CancelledError:
                self._tried_at = float("-inf")  # a client that left must not make the others wait
                raise


def parsed(document: bytes) -> tuple[PublicKey, ...]:
    """Return the usable keys of a JWK set. Raises ValueError for what is none."""
    try:
        value = json.loads(document)
    except RecursionError:
        raise ValueError("not a JWK set") from None
    keys = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(keys, list):
        raise ValueError("not a JWK set")
    return tuple(key for one in keys[:MAX_KEYS] if (key := _parsed(one)) is not None)


def _parsed(jwk: Any) -> PublicKey | None:
    """Return a key for signatures; None for any other, symmetric and short ones among them."""
    if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig":
        return None
    family, curve, kid, algorithm = (jwk.get(name) for name in ("kty", "crv", "kid", "alg"))
    if family not in ("RSA", "EC", "OKP") or not isinstance(kid, str | None):
        return None
    if "d" in jwk:  # a private key that was published: whoever can read signs
        return None
    if algorithm is not None and algorithm not in _FAMILY:
        return None
    try:
        key = PyJWK({**jwk, "key_ops": ["verify"]}).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    if family == "RSA" and key.key_size < MIN_RSA_BITS:
        return None
    return PublicKey(kid, family, curve, algorithm, key)
