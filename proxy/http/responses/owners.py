"""Ownership of stored responses and conversations, their ids, and encryption for their owners.

OpenAI's clients fetch, delete and continue by id alone: many name a user when they create, and none when they
retrieve. So an object belongs to the user that its request named, else to the credential (the key) of the
request. A request that names a user sees that user's objects and those that its own credential made without a
user; one that names no user sees what its own credential made. Anything else is absent.

A request with neither user nor credential has no owner: what it makes is found by any other such request that
knows the id. Ids are 192 random bits and are never listed, so knowing one is the proof.

What clients store for us (`encrypted_content`) is encrypted with AES-256-GCM. The text has a key of its own,
which is encrypted once for each identity that may read it: the user that the request named, and its
credential. So a client that names its user only sometimes can read its items, and another user cannot. The
server's key is made once and is in the store, for every process and for backups.
"""

import base64
import binascii
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from secrets import token_bytes, token_hex
from typing import TYPE_CHECKING

from proxy.domain.core import Scope
from proxy.domain.errors import Forbidden, NotFound
from proxy.domain.ports import Clock
from proxy.domain.responses import Conversation, ConversationStore
from proxy.http.asgi import Header
from proxy.http.auth.identity import OPEN, Caller
from proxy.http.memory_work import FailOpen
from proxy.wire.body import dump, loads
from proxy.wire.http import CREDENTIALS
from proxy.wire.translation.items import PACKED, Seals

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


# Letters that are not hexadecimal, unlike in an upstream's ids.
_OURS = "mp"
# No named user can begin like this: ids hold no control characters.
_UNNAMED = "\x1f"


def new_id(kind: str) -> str:
    """Return an id that cannot be guessed: `resp_mp…`, `conv_mp…`."""
    return f"{kind}_{_OURS}{token_hex(24)}"


def is_ours(id_: object) -> bool:
    """True for an id that this proxy, and no upstream, has handed out."""
    return isinstance(id_, str) and id_.partition("_")[2].startswith(_OURS)


def absent(what: str, id_: str, param: str) -> NotFound:
    """Return the refusal of an object that does not exist, or is another's."""
    return NotFound(f"{what} with id '{id_[:80]}' not found.", param=param)


def shelf(holder: Scope, id_: str) -> Scope:
    """Return one of 256 scopes for small rows about objects. A store may serialise the writes to one scope;
    those about different objects must not wait for each other."""
    number = blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=1).hexdigest()
    return Scope(holder.tenant, f"{holder.user}\x1f{number}")


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner that a request acts for. `credential` is None if the credential fixes the user."""

    scope: Scope
    credential: Scope | None

    @property
    def named(self) -> bool:
        """True if the request is on behalf of a user."""
        return self.scope != self.credential


def owner_of(
    caller: Caller, headers: Iterable[Header], user: str | None, project: str | None = None
) -> Owner:
    """Return the owner of what a request makes or asks for."""
    if caller.user is not None:
        return Owner(Scope(caller.tenant, caller.user, project), None)
    # A key of ours is identified by its id: the upstream's key, in the headers now, may be shared.
    name = credential_of(headers) if caller.label == OPEN.label else caller.label
    credential = Scope(caller.tenant, _UNNAMED + name)
    return Owner(credential if user is None else Scope(caller.tenant, user, project), credential)


def refuse_foreign_pages(caller: Caller) -> None:
    """Raise Forbidden for a web page of another origin: stored objects hold what users said."""
    if caller.foreign:
        raise Forbidden(
            "Web pages of this origin, and requests under this host name, may not use what is stored here"
            " (identity.allowed_origins, identity.allowed_hosts).",
            param="origin",
            code="origin_not_allowed",
        )


def credential_of(headers: Iterable[Header]) -> str:
    """Return a digest of the credential for the upstream, a constant without one."""
    for name, value in headers:
        if name in CREDENTIALS and value.strip():
            return blake2b(value.strip(), digest_size=16, person=b"memory-proxy").hexdigest()
    return "nobody"


_MARK = "mp2."
_NONCE, _KEY, _TAG = 12, 32, 16  # bytes
_WRAP = _NONCE + _KEY + _TAG
READ_S = 1.0

# No tenant or user can be called so: ids hold no control characters.
_PLACE = Scope("\x1fseals", "\x1fseals")
_ID = "conv_seal"


@dataclass(slots=True)
class SealKey:
    """The server's key: read once in each process."""

    conversations: ConversationStore
    fail_open: FailOpen
    clock: Clock
    _known: list[bytes] = field(default_factory=list)

    async def seals(self, owner: Owner) -> Seals:
        """Return the owner's seals. While the store cannot give the key, what is sealed is only packed, and
        what was sealed before cannot be read."""
        if not self._known:
            key = await self.fail_open.attempt("seal", self._read, READ_S)
            if isinstance(key, bytes):
                self._known.append(key)
        return Sealed(self._known[0], owner) if self._known else PACKED

    async def _read(self) -> bytes:
        found = await self.conversations.get(_PLACE, _ID)
        if found is None:
            made = dump({"key": token_bytes(_KEY).hex()})
            first = Conversation(id=_ID, scope=_PLACE, metadata=made, created_at=self.clock())
            # Of several processes one succeeds, and the others read what it has made.
            await self.fail_open.attempt("seal_made", lambda: self.conversations.create(first, ()), READ_S)
            found = await self.conversations.get(_PLACE, _ID)
        return bytes.fromhex(loads(found.metadata)["key"]) if found is not None else b""


class Sealed:
    """Implements Seals for one owner."""

    def __init__(self, key: bytes, owner: Owner) -> None:
        self._server = _cipher(key)
        self._readers, self._reads_as = _identities(owner)

    def seal(self, kind: str, text: str) -> str:
        """Return the text as one opaque word."""
        own = token_bytes(_KEY)
        wraps = b"".join(_encrypted(self._server, own, reader) for reader in self._readers)
        body = _encrypted(_cipher(own), text.encode("utf-8", "surrogatepass"), kind.encode())
        raw = bytes((len(self._readers),)) + wraps + body
        return _MARK + base64.urlsafe_b64encode(raw).decode("ascii")

    def open(self, kind: str, sealed: object) -> str | None:
        """Return the text if the owner may read it, also what was only packed."""
        if not isinstance(sealed, str) or not sealed.startswith(_MARK):
            return PACKED.open(kind, sealed)
        try:
            raw = base64.urlsafe_b64decode(sealed[len(_MARK) :])
            return self._opened(kind.encode(), raw)
        except (binascii.Error, ValueError):
            return None

    def _opened(self, kind: bytes, raw: bytes) -> str | None:
        end = 1 + (raw[0] if raw else 0) * _WRAP
        wraps = [raw[start : start + _WRAP] for start in range(1, end, _WRAP)]
        for wrap in wraps[:2]:
            for reader in self._reads_as:
                own = _decrypted(self._server, wrap, reader)
                if own is not None:
                    text = _decrypted(_cipher(own), raw[end:], kind)
                    return None if text is None else text.decode("utf-8", "surrogatepass")
        return None


def _identities(owner: Owner) -> tuple[list[bytes], list[bytes]]:
    """Return the identities that may read what the owner seals, and those that it reads as. What is sealed
    for a named user can be read by that user, and by its credential if it names no user."""
    user = dump(["user", owner.scope.tenant, owner.scope.user])
    if owner.credential is None:
        return [user], [user]
    name = [owner.credential.tenant, owner.credential.user]
    anyone, unnamed = dump(["credential", *name]), dump(["unnamed", *name])
    if owner.named:
        return [user, anyone], [user, unnamed]
    return [unnamed, anyone], [anyone]


def _cipher(key: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 7 MB that few processes need

    return AESGCM(key)


def _encrypted(cipher: "AESGCM", text: bytes, about: bytes) -> bytes:
    nonce = os.urandom(_NONCE)
    return nonce + cipher.encrypt(nonce, text, about)


def _decrypted(cipher: "AESGCM", sealed: bytes, about: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], about)
    except (InvalidTag, ValueError):
        return None
