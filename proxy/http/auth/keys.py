"""Our own API keys: how they are made, found and sealed. Pure; where they are stored is the store's affair.

A key is 256 random bits, so its SHA-256 is as good as any slow hash: there is nothing to guess. The data
file holds that digest, and the upstream key sealed with a key derived (HKDF) from the API key itself: who
has the file alone has neither, who presents the API key gives us what opens the seal.
"""

import os
import re
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING

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
    """Return a new API key."""
    return PREFIX + secrets.token_urlsafe(32)


def new_id() -> str:
    """Return the public id of a new key: what is shown and revoked by."""
    return secrets.token_hex(6)


def is_key(text: str) -> bool:
    """True if the text has the shape of our keys: nothing else is worth a look into the store."""
    return _SHAPE.fullmatch(text) is not None


def digest_of(key: str) -> bytes:
    """Return what the store finds the key by."""
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
