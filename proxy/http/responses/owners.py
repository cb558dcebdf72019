"""Ownership of stored responses and conversations, and the ids under which clients get them.

OpenAI's clients fetch, delete and continue by id alone: many name a user when they create, and nobody when
they retrieve. So an object belongs to the user that its request named, else to the credential (the key) that
the request carried. A request that names a user sees that user's objects and those of its own credential
that were made for nobody; one that names nobody sees what its own credential made. Anything else is absent.

A request with neither user nor credential belongs to nobody: what it makes is found by any other such
request that knows the id. Ids are 192 random bits and are never listed, so knowing one is the proof.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from secrets import token_hex

from proxy.domain.core import Scope
from proxy.http.asgi import Header
from proxy.http.auth.identity import OPEN, Caller
from proxy.upstream.headers import CREDENTIALS

# Ours are told from an upstream's by letters that are not hexadecimal.
_OURS = "mp"
# No named user can begin like this: ids hold no control characters.
_UNNAMED = "\x1f"


def new_id(kind: str) -> str:
    """Return an id that cannot be guessed: `resp_mp…`, `conv_mp…`."""
    return f"{kind}_{_OURS}{token_hex(24)}"


def is_ours(id_: object) -> bool:
    """True for an id that this proxy, and no upstream, has handed out."""
    return isinstance(id_, str) and id_.partition("_")[2].startswith(_OURS)


def shelf(holder: Scope, id_: str) -> Scope:
    """Return one of many places to keep something small about an object. What a store keeps for one user it
    may write one after the other; notes about everybody's objects must not wait for each other so."""
    number = blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=1).hexdigest()
    return Scope(holder.tenant, f"{holder.user}\x1f{number}")


@dataclass(frozen=True, slots=True)
class Owner:
    """Who asks. `credential` is None where the credential itself stands for one user."""

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
    # A key of ours is told from others by its id: the upstream's, in the headers now, may be shared.
    told = credential_of(headers) if caller.label == OPEN.label else caller.label
    credential = Scope(caller.tenant, _UNNAMED + told)
    return Owner(credential if user is None else Scope(caller.tenant, user, project), credential)


def credential_of(headers: Iterable[Header]) -> str:
    """Return a digest of the credential that the upstream is asked with, "nobody" without one."""
    for name, value in headers:
        if name in CREDENTIALS and value.strip():
            return blake2b(value.strip(), digest_size=16, person=b"memory-proxy").hexdigest()
    return "nobody"
