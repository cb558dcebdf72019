"""Mode `jwt`: the token of an identity provider says who calls.

What a token may decide is written here and nowhere else: the algorithms are those that the configured kind
of key allows (never `none`; never HS* with public keys), `exp` and `aud` must be there, and the user and
tenant must be strings that can name one. Any doubt is a 401 that does not say which: only the log does, by
the name of the check, once a minute for each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import jwt
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
from proxy.domain.errors import ConfigError, Unauthorized
from proxy.http.auth import jwks
from proxy.http.auth.caller import OPEN_TENANT, Caller
from proxy.http.auth.credential import keep_out_of_target, presented, replaced
from proxy.http.auth.modes import USER_RIGHTS, Admitted
from proxy.http.reply import ASGIScope, Header
from proxy.wire.extensions import is_placeholder, is_usable_id

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


class Keys(Protocol):
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

    keys: jwks.KeySet
    algorithms: tuple[str, ...] = jwks.ALGORITHMS

    @classmethod
    def of(cls, fetch: jwks.Fetch, algorithms: Sequence[str]) -> "PublicKeys":
        """Return the keys for these settings. Raises ConfigError."""
        allowed = _allowed(algorithms, jwks.ALGORITHMS, jwks.ALGORITHMS, "a JWKS")
        return cls(jwks.KeySet(fetch), allowed)

    async def key_for(self, kid: str | None, algorithm: str) -> Any | None:
        """Return the key of this name, if it is for this algorithm."""
        found = await self.keys.find(kid, algorithm)
        return None if found is None else found.key


@dataclass(frozen=True, slots=True)
class ByToken:
    """Mode `jwt`."""

    keys: Keys
    audience: str
    issuer: str | None = None
    user_claim: str = "sub"
    tenant_claim: str | None = None
    ambient: bool = False
    anyone: Caller | None = None
    seldom: telemetry.Seldom = field(default_factory=telemetry.Seldom)

    async def admit(self, scope: ASGIScope) -> Admitted:
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
        return Admitted(caller, replaced(headers, token, None))

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
