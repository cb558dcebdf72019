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
from typing import Any, Protocol

import jwt
from jwt import PyJWK
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuedAtError,
    InvalidIssuerError,
    InvalidSignatureError,
    MissingRequiredClaimError,
    PyJWTError,
)

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
                self._keys = parse_key_set(await self._fetch())
                self._fetched_at = self._clock()
            except (ProxyError, ValueError) as error:
                telemetry.log.warning("identity.jwks_failed", error=type(error).__name__)
            except asyncio.CancelledError:
                self._tried_at = float("-inf")  # a client that left must not make the others wait
                raise


def parse_key_set(document: bytes) -> tuple[PublicKey, ...]:
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


# ---------------------------------------------------------------- tokens
LEEWAY_S = 30
MIN_SECRET_BYTES = 32  # of a shared secret: shorter ones can be guessed from one token
HMAC_ALGORITHMS = ("HS256", "HS384", "HS512")
_MAX_KID_CHARS = 512

_CHECKS: tuple[tuple[type[Exception], str], ...] = (
    (ExpiredSignatureError, "exp"),
    (ImmatureSignatureError, "nbf"),
    (InvalidIssuedAtError, "iat"),
    (InvalidAudienceError, "aud"),
    (InvalidIssuerError, "iss"),
    (InvalidSignatureError, "signature"),
)
"""Which check failed, as the log names it; what is none of these is malformed."""


class _Failed(Exception):
    """A check of ours failed. It says which, in words of ours: nothing of the token."""


class TokenKeys(Protocol):
    """Where the key for a token comes from."""

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Those that the key may be used with."""
        ...

    async def key_for(self, kid: str | None, algorithm: str) -> Any | None:
        """Return the key, None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class SharedSecret:
    """A secret that both sides have."""

    secret: bytes
    algorithms: tuple[str, ...] = ("HS256",)

    @classmethod
    def of(cls, secret: str, algorithms: Sequence[str]) -> "SharedSecret":
        """Return the keys for these settings. Raises ConfigError."""
        if len(secret.encode()) < MIN_SECRET_BYTES:
            raise ConfigError(f"identity.jwt_secret must have at least {MIN_SECRET_BYTES} bytes")
        return cls(secret.encode(), _allowed(algorithms, HMAC_ALGORITHMS, ("HS256",), "a secret"))

    async def key_for(self, kid: str | None, algorithm: str) -> Any | None:
        """Return the secret."""
        return self.secret


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """The public keys of an issuer."""

    keys: KeySet
    algorithms: tuple[str, ...] = ALGORITHMS

    @classmethod
    def of(cls, fetch: Fetch, algorithms: Sequence[str]) -> "PublicKeys":
        """Return the keys for these settings. Raises ConfigError."""
        allowed = _allowed(algorithms, ALGORITHMS, ALGORITHMS, "a JWKS")
        return cls(KeySet(fetch), allowed)

    async def key_for(self, kid: str | None, algorithm: str) -> Any | None:
        """Return the key of this name, if it is for this algorithm."""
        found = await self.keys.find(kid, algorithm)
        return None if found is None else found.key


@dataclass(frozen=True, slots=True)
class JwtAuth:
    """Mode `jwt`."""

    keys: TokenKeys
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
            user = _name(claims, self.user_claim)
            tenant = OPEN_TENANT if self.tenant_claim is None else _name(claims, self.tenant_claim)
        except (_Failed, PyJWTError, ValueError, TypeError, RecursionError) as error:
            self.seldom.info("identity.token_refused", check=_check_of(error))
            raise Unauthorized("The token is not valid here, or has expired.") from None
        caller = Caller(tenant, user=user, rights=USER_RIGHTS, label="jwt")
        return Identified(caller, replaced(headers, token, None))

    async def _checked(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a valid token. Raises _Failed, PyJWTError or ValueError for any other."""
        header = jwt.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self.keys.algorithms:
            raise _Failed("alg")
        if "crit" in header:  # extensions that must be understood, and none is
            raise _Failed("crit")
        if kid is not None and not (isinstance(kid, str) and 0 < len(kid) <= _MAX_KID_CHARS):
            raise _Failed("kid")
        key = await self.keys.key_for(kid, algorithm)
        if key is None:
            raise _Failed("unknown key")
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


def _check_of(error: Exception) -> str:
    if isinstance(error, _Failed):
        return str(error)
    if isinstance(error, MissingRequiredClaimError):
        return f"no {error.claim}"
    return next((check for kind, check in _CHECKS if isinstance(error, kind)), "malformed")


def _name(claims: Mapping[str, Any], claim: str) -> str:
    value = claims.get(claim)
    if not isinstance(value, str) or not is_usable_id(value) or is_placeholder(value):
        raise _Failed(f"claim {claim}")
    return value


def _allowed(
    wanted: Sequence[str], possible: Sequence[str], default: tuple[str, ...], kind: str
) -> tuple[str, ...]:
    if unfit := [name for name in wanted if name not in possible]:
        raise ConfigError(
            f"identity.jwt_algorithms: {unfit[0]!r} cannot be used with {kind}; possible: "
            f"{', '.join(possible)}"
        )
    return tuple(wanted) or default
