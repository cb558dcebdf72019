"""Our own API keys: how they are made, sealed, and found.

A key is 256 random bits, so its SHA-256 is as good as any slow hash: there is nothing to guess. The data
file holds that digest, and the upstream key sealed with a key derived (HKDF) from the API key itself: the
file alone reveals neither.

`KeyRing` is a short-lived cache, so that requests do not wait for the store. An entry is fresh for FRESH_S: a
key revoked or created now is refused or accepted within a second. While one request asks the store again, the
others use the known entry. If the store is unreachable, unknown keys are refused, but a key that was valid
within the last GRACE_S keeps working, because a request must succeed when memory fails. The price is that a
key revoked while the store is unreachable works until then.
"""

import asyncio
import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from proxy import telemetry
from proxy.domain.errors import StoreError
from proxy.domain.limits import TTLCache
from proxy.domain.ports import Key, KeyStore

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


PREFIX = "mp-"
_SHAPE = re.compile(r"mp-[A-Za-z0-9_-]{40,128}")
_FORMAT = b"\x01"
_NONCE_BYTES = 12
_PURPOSE = b"memory-proxy upstream key 1"


class BrokenSeal(Exception):
    """The sealed upstream key was not sealed with this API key, or is damaged."""


def new_key() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def new_id() -> str:
    """Return the public id of a new key: what is shown and revoked by."""
    return secrets.token_hex(6)


def is_key(text: str) -> bool:
    """True if the text has the shape of our keys: nothing else is worth a look into the store."""
    return _SHAPE.fullmatch(text) is not None


def digest_of(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()


def seal(key: str, upstream_key: str) -> bytes:
    """Return the upstream key as it may be stored (AES-256-GCM under a key derived from the API key)."""
    nonce = os.urandom(_NONCE_BYTES)
    return _FORMAT + nonce + _cipher(key).encrypt(nonce, upstream_key.encode("ascii"), _PURPOSE)


def unseal(key: str, sealed: bytes) -> str:
    """Return the upstream key. Raises BrokenSeal."""
    from cryptography.exceptions import InvalidTag

    nonce, text = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
    try:
        if not sealed.startswith(_FORMAT):
            raise BrokenSeal
        return _cipher(key).decrypt(nonce, text, _PURPOSE).decode("ascii")
    except (InvalidTag, ValueError) as error:
        raise BrokenSeal from error


def _cipher(key: str) -> "AESGCM":
    # 7 MB that only processes with keys of their own need.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(key.encode("ascii"))
    return AESGCM(derived)


# ---------------------------------------------------------------- the cache
FRESH_S = 0.8
ASKING_S = 0.15  # how long others rely on what is known while one asks; together below a second
GRACE_S = 300.0
PATIENCE_S = 0.5  # with the store, for a key that is known; one that is not waits longer
FIRST_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A valid key, and the upstream key that it stands for. Held in memory only."""

    key: Key
    upstream_key: str | None


@dataclass(slots=True)
class _Known:
    found: FoundKey | None  # None: no such key, revoked, or damaged
    asked_at: float  # when this was last believed to be so
    valid_at: float  # when the store last said that the key is valid
    asking: bool = False


class KeyRing:
    """Finds keys. Bounded: unknown keys, which any client can make up, never displace known ones."""

    def __init__(
        self, store: KeyStore, *, clock: Callable[[], float] = time.monotonic, limit: int = 10_000
    ) -> None:
        self._store, self._clock = store, clock
        self._valid = TTLCache[bytes, _Known](limit)
        self._refused = TTLCache[bytes, _Known](limit)
        self._seldom = telemetry.ThrottledLog(clock)

    async def find(self, presented: str) -> FoundKey | None:
        """Return the valid key that this is, None for none. Raises StoreError if that cannot be found out."""
        digest, asked_at = digest_of(presented), self._clock()
        known = self._valid.get(digest) or self._refused.get(digest)
        if known is not None:
            age = asked_at - known.asked_at
            if age < FRESH_S or (known.asking and age < FRESH_S + ASKING_S):
                return known.found
            known.asking = True
        try:
            async with asyncio.timeout(PATIENCE_S if known and known.found else FIRST_PATIENCE_S):
                key = await self._store.find(digest)
        except (StoreError, TimeoutError) as error:
            now = self._clock()
            if known is None or known.found is None or now - known.valid_at > GRACE_S:
                if isinstance(error, StoreError):
                    raise
                raise StoreError("the key store does not answer") from error
            known.asked_at = now  # it was valid recently: do not ask again for a while
            self._seldom.warning("identity.store_unavailable", error=type(error).__name__)
            return known.found
        finally:
            if known is not None:
                known.asking = False
        found = None
        if key is not None and key.revoked_at is None:
            try:
                sealed = key.upstream_key
                found = FoundKey(key, None if sealed is None else unseal(presented, sealed))
            except BrokenSeal:
                # The server's own upstream key must not step in for it: the key is as good as revoked.
                telemetry.log.error("identity.seal_broken", key=key.id)
        other, cache = (self._valid, self._refused) if found is None else (self._refused, self._valid)
        other.pop(digest)
        cache.put(digest, _Known(found, asked_at, asked_at))
        return found
