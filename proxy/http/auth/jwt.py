"""Mode `jwt`: the token of an identity provider identifies the caller.

All rules on tokens are here: the algorithms are those that the configured kind of key allows (never `none`;
never HS* with public keys), `exp` and `aud` are required, and user and tenant must be usable ids. Any doubt
is a 401 without a reason; only the log names the check that failed, once a minute for each.

The issuer's public keys (a JWK set) are fetched, cached, and fetched again when a token names a new one. They
come from the configured URL only: `jku`, `x5u` and `jwk` in a token's header are ignored, and `kid` is a name
to look up, compared exactly.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jwt
from jwt import PyJWK, exceptions
from jwt.exceptions import PyJWTError

from proxy import telemetry
from proxy.domain.errors import ConfigError, IdentityUnavailable, ProxyError, Unauthorized
from proxy.http.asgi import ASGIScope, Header
from proxy.http.auth.identity import (
    OPEN_TENANT,
    USER_RIGHTS,
    Caller,
    Identified,
    keep_out_of_target,
    presented,
    replaced,
)
from proxy.wire.extensions import is_placeholder, is_usable_id

REFRESH_S = 600.0  # a withdrawn key is refused after this
RETRY_S = 30.0  # naming keys that do not exist cannot make us fetch more often
FIRST_RETRY_S = 2.0  # while there is no set, and so no way in
MAX_KEYS = 100
MIN_RSA_BITS = 2048
MIN_SECRET_BYTES = 32  # shorter shared secrets can be guessed from one token
LEEWAY_S = 30
_MAX_KID_CHARS = 512

Fetch = Callable[[], Awaitable[bytes]]
"""Returns the document at the configured URL, bounded in time and size. Raises ProxyError."""

HMAC_ALGORITHMS = ("HS256", "HS384", "HS512")
_FAMILY: dict[str, tuple[str, tuple[str | None, ...]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", (None,))),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    "EdDSA": ("OKP", ("Ed25519", "Ed448")),
}
"""Key type and curves for each algorithm of public keys. No HS*: its `secret` would be the public key."""

_CHECKS: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.ExpiredSignatureError, "exp"),
    (exceptions.ImmatureSignatureError, "nbf"),
    (exceptions.InvalidIssuedAtError, "iat"),
    (exceptions.InvalidAudienceError, "aud"),
    (exceptions.InvalidIssuerError, "iss"),
    (exceptions.InvalidSignatureError, "signature"),
)
"""The names of failed checks in the log; any other is "malformed"."""


# ---------------------------------------------------------------- keys
@dataclass(frozen=True, slots=True)
class SharedSecret:
    secret: bytes
    algorithms: tuple[str, ...] = ("HS256",)

    @classmethod
    def of(cls, secret: str, algorithms: Sequence[str]) -> "SharedSecret":
        if len(secret.encode()) < MIN_SECRET_BYTES:
            raise ConfigError(f"identity.jwt_secret must have at least {MIN_SECRET_BYTES} bytes")
        return cls(secret.encode(), _allowed(algorithms, HMAC_ALGORITHMS, ("HS256",), "a secret"))

    async def key_for(self, kid: str | None, algorithm: str) -> Any | None:
        return self.secret


def _allowed(
    wanted: Sequence[str], possible: Sequence[str], default: tuple[str, ...], kind: str
) -> tuple[str, ...]:
    if unfit := [name for name in wanted if name not in possible]:
        choice = ", ".join(possible)
        raise ConfigError(
            f"identity.jwt_algorithms: {unfit[0]!r} cannot be used with {kind}; possible: {choice}"
        )
    return tuple(wanted) or default


@dataclass(frozen=True, slots=True)
class PublicKey:
    kid: str | None
    family: str
    curve: str | None
    algorithm: str | None  # the only one that it is for, None: any of its family
    key: Any

    def fits(self, kid: str | None, algorithm: str) -> bool:
        """True if the key may check a signature of this algorithm, and has this name, if one is given."""
        family, curves = _FAMILY[algorithm]
        is_kind = self.family == family and self.curve in curves and self.algorithm in (None, algorithm)
        return is_kind and (not kid or self.kid == kid)


class PublicKeys:
    """The public keys of an issuer. While its endpoint is down, known keys stay valid."""

    def __init__(
        self, fetch: Fetch, algorithms: Sequence[str] = (), *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises ConfigError for algorithms that public keys cannot be used with."""
        self.algorithms = _allowed(algorithms, tuple(_FAMILY), tuple(_FAMILY), "a JWKS")
        self._fetch, self._clock = fetch, clock
        self._keys: tuple[PublicKey, ...] | None = None
        self._fetched_at = self._tried_at = float("-inf")
        self._lock = asyncio.Lock()

    async def key_for(self, kid: str | None, algorithm: str) -> Any | None:
        """Return the key for a token, None if there is none. Without `kid` the set must have only one that
        fits. Raises IdentityUnavailable if there never was a set."""
        found = self._look(kid, algorithm)
        due = self._clock() - self._fetched_at >= REFRESH_S
        # Others need not wait for one who refreshes what they have already.
        if found is None or (due and not self._lock.locked()):
            await self._refresh()
            found = self._look(kid, algorithm)
        if self._keys is None:
            raise IdentityUnavailable
        return None if found is None else found.key

    def _look(self, kid: str | None, algorithm: str) -> PublicKey | None:
        fitting = [key for key in self._keys or () if key.fits(kid, algorithm)]
        return fitting[0] if len(fitting) == 1 else None

    async def _refresh(self) -> None:
        """Fetch the set, unless that was tried lately; a failure leaves what is known."""
        async with self._lock:
            if self._clock() - self._tried_at < (FIRST_RETRY_S if self._keys is None else RETRY_S):
                return
            self._tried_at = self._clock()
            try:
                self._keys = parse_key_set(await self._fetch())
                self._fetched_at = self._clock()
            except (ProxyError, ValueError) as error:
                telemetry.log.warning("identity.jwks_failed", error=type(error).__name__)
            except asyncio.CancelledError:
                self._tried_at = float("-inf")  # a client that left must not make the others wait
                raise


def parse_key_set(document: bytes) -> tuple[PublicKey, ...]:
    """Return the usable keys of a JWK set. Raises ValueError for anything else."""
    try:
        value = json.loads(document)
    except RecursionError:
        raise ValueError("not a JWK set") from None
    keys = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(keys, list):
        raise ValueError("not a JWK set")
    return tuple(key for one in keys[:MAX_KEYS] if (key := _parse_key(one)) is not None)


def _parse_key(jwk: Any) -> PublicKey | None:
    """Return a key for signatures; None for any other, symmetric, private and short ones among them."""
    if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig" or "d" in jwk:
        return None
    family, curve, kid, algorithm = (jwk.get(name) for name in ("kty", "crv", "kid", "alg"))
    if family not in ("RSA", "EC", "OKP") or not isinstance(kid, str | None):
        return None
    if algorithm is not None and algorithm not in _FAMILY:
        return None
    try:
        key = PyJWK({**jwk, "key_ops": ["verify"]}).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    if family == "RSA" and key.key_size < MIN_RSA_BITS:
        return None
    return PublicKey(kid, family, None if family == "RSA" else curve, algorithm, key)


# ---------------------------------------------------------------- tokens
class _CheckFailed(Exception):
    """A check of ours failed; the message names it, and nothing of the token."""


@dataclass(frozen=True, slots=True)
class JwtAuth:
    keys: SharedSecret | PublicKeys
    audience: str
    issuer: str | None = None
    user_claim: str = "sub"
    tenant_claim: str | None = None
    ambient: bool = False
    only_caller: Caller | None = None
    seldom: telemetry.ThrottledLog = field(default_factory=telemetry.ThrottledLog)

    async def identify(self, scope: ASGIScope) -> Identified:
        """Check the token; the upstream gets the server's own key, if there is one."""
        headers: list[Header] = scope["headers"]
        token = presented(headers)
        keep_out_of_target(token, scope)
        try:
            claims = await self._checked(token)
            user = _id_in(claims, self.user_claim)
            tenant = OPEN_TENANT if self.tenant_claim is None else _id_in(claims, self.tenant_claim)
        except (_CheckFailed, PyJWTError, ValueError, TypeError, RecursionError) as error:
            check = next((check for kind, check in _CHECKS if isinstance(error, kind)), "malformed")
            if isinstance(error, _CheckFailed):
                check = str(error)
            elif isinstance(error, exceptions.MissingRequiredClaimError):
                check = f"no {error.claim}"
            self.seldom.info("identity.token_refused", check=check)
            raise Unauthorized("The token is not valid here, or has expired.") from None
        caller = Caller(tenant, user=user, rights=USER_RIGHTS, label="jwt")
        return Identified(caller, replaced(headers, token, None))

    async def _checked(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a valid token. Raises _CheckFailed, PyJWTError or ValueError for any other."""
        header = jwt.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self.keys.algorithms:
            raise _CheckFailed("alg")
        if "crit" in header:  # extensions that must be understood, and none is
            raise _CheckFailed("crit")
        if kid is not None and not (isinstance(kid, str) and 0 < len(kid) <= _MAX_KID_CHARS):
            raise _CheckFailed("kid")
        key = await self.keys.key_for(kid, algorithm)
        if key is None:
            raise _CheckFailed("unknown key")
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=self.audience,
            issuer=self.issuer,
            leeway=LEEWAY_S,
            options={"require": ["exp", "aud", *(["iss"] if self.issuer else [])]},
        )
        return claims


def _id_in(claims: Mapping[str, Any], claim: str) -> str:
    value = claims.get(claim)
    if not isinstance(value, str) or not is_usable_id(value) or is_placeholder(value):
        raise _CheckFailed(f"claim {claim}")
    return value
