"""Ownership of responses and conversations, their ids, and encryption for their owners.

Objects that are stored here: OpenAI's clients fetch, delete and continue by id alone: many name a user when
they create, and none when they retrieve. So an object belongs to the user that its request named, else to the
credential (the key) of the request. A request that names a user sees that user's objects and those that its
own credential made without a user; one that names no user sees what its own credential made. Anything else is
absent. A request with neither user nor credential has no owner: what it makes is found by any other such
request that knows the id. Ids are 192 random bits and are never listed, so knowing one is the proof.

What clients store for us (`encrypted_content`) is encrypted with AES-256-GCM. The text has a key of its own,
which is encrypted once for each identity that may read it: the user that the request named, and its
credential. So a client that names its user only sometimes can read its items, and another user cannot. The
server's key is made once and is in the store, for every process and for backups.

Objects that the upstream stores, if several of our users share its key: to the upstream all of them are one
account, and it gives any of them any object whose id they know. So the owner of each object is noted when the
upstream has made it, and for others it does not exist. An object without a note (made elsewhere, or earlier)
is left to the upstream. Output items are noted too; a reference to an item is followed only if it is noted as
the caller's, since its id alone shows its content. An application's key, which names its users itself, sees
what was made for its tenant; a user's key or token sees what was made for that user. In mode `open` users
cannot be distinguished, and nothing is noted. A note holds digests only, under the upstream's id of the
object.

If users have upstream keys of their own, several upstream accounts may use the same id (all have a `resp_1`).
So an id may have further owners, noted with their own upstream key. With the same key the first owner stays:
one account has no id twice, so a second is a mistake, or a trick.
"""

import asyncio
import base64
import binascii
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import product
from secrets import token_bytes, token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

from proxy.domain.core import Scope
from proxy.domain.errors import ClientError, Forbidden, InvalidRequest, NotFound, StoreUnavailable
from proxy.domain.limits import TTLCache
from proxy.domain.ports import Clock
from proxy.domain.responses import ChainStore, Conversation, ConversationStore, StoredResponse
from proxy.http.asgi import Header, Send
from proxy.http.auth.identity import OPEN, Caller
from proxy.http.memory_work import Failed, FailOpen
from proxy.wire.answers import Json, Values
from proxy.wire.body import Body, dump, loads
from proxy.wire.http import CREDENTIALS
from proxy.wire.translation.items import PACKED, Seals

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


# ---------------------------------------------------------------- objects that are stored here
_OURS = "mp"  # letters that are not hexadecimal, unlike in an upstream's ids
# No tenant and no named user can begin like this: ids hold no control characters.
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
        return self.scope != self.credential


def owner_of(
    caller: Caller, headers: Iterable[Header], user: str | None, project: str | None = None
) -> Owner:
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


def unknown_previous(id_: str, continued_by: str = "") -> InvalidRequest:
    """Return the refusal of a request that continues an unknown response, or another's. `continued_by`: the
    response that the request names, if the one before it is missing: half of a conversation is not sent."""
    why = f"Previous response with id '{id_[:80]}' not found."
    if continued_by:
        why = f"{why} '{continued_by[:80]}' continues it: start again with the whole conversation."
    return InvalidRequest(why, param="previous_response_id", code="previous_response_not_found")


# ---------------------------------------------------------------- encryption
_MARK = "mp2."
_NONCE, _KEY, _TAG = 12, 32, 16  # bytes
_WRAP = _NONCE + _KEY + _TAG
_READ_S = 1.0

_SEAL_PLACE, _SEAL_ID = Scope("\x1fseals", "\x1fseals"), "conv_seal"


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
            key = await self.fail_open.attempt("seal", self._read, _READ_S)
            if isinstance(key, bytes):
                self._known.append(key)
        return Sealed(self._known[0], owner) if self._known else PACKED

    async def _read(self) -> bytes:
        found = await self.conversations.get(_SEAL_PLACE, _SEAL_ID)
        if found is None:
            made = dump({"key": token_bytes(_KEY).hex()})
            first = Conversation(id=_SEAL_ID, scope=_SEAL_PLACE, metadata=made, created_at=self.clock())
            # Of several processes one succeeds, and the others read what it has made.
            await self.fail_open.attempt("seal_made", lambda: self.conversations.create(first, ()), _READ_S)
            found = await self.conversations.get(_SEAL_PLACE, _SEAL_ID)
        return bytes.fromhex(loads(found.metadata)["key"]) if found is not None else b""


class Sealed:
    def __init__(self, key: bytes, owner: Owner) -> None:
        """What is sealed for a named user can be read by that user, and by its credential if that names no
        user."""
        self._server = _cipher(key)
        user = dump(["user", owner.scope.tenant, owner.scope.user])
        self._readers, self._reads_as = [user], [user]  # those who may read; the identities that it has
        if owner.credential is not None:
            name = [owner.credential.tenant, owner.credential.user]
            anyone, unnamed = dump(["credential", *name]), dump(["unnamed", *name])
            self._readers = [user if owner.named else unnamed, anyone]
            self._reads_as = [user, unnamed] if owner.named else [anyone]

    def seal(self, kind: str, text: str) -> str:
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
            end = 1 + (raw[0] if raw else 0) * _WRAP
            wraps = [raw[start : start + _WRAP] for start in range(1, end, _WRAP)]
            for wrap, reader in product(wraps[:2], self._reads_as):
                if (own := _decrypted(self._server, wrap, reader)) is not None:
                    text = _decrypted(_cipher(own), raw[end:], kind.encode())
                    return None if text is None else text.decode("utf-8", "surrogatepass")
        except (binascii.Error, ValueError):
            pass
        return None


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


# ---------------------------------------------------------------- objects that the upstream stores
RESPONSE, CONVERSATION = "resp_", "conv_"  # the beginnings of ids
ASK_S, SAVE_S = 2.0, 5.0
SETTLE_S = 0.2  # until a note of another process can be seen
RECENT = 20_000
AT_ONCE = 32  # notes that are read or written at a time for one request
MAX_HEAD_BYTES = 64 * 1024  # of an answer that is searched for the object's id
MAX_BYTES = 16 * 1024 * 1024  # of a document or an event that is searched for ids of items
MAX_ID_CHARS = 512

_NOTES = Scope("\x1fmakers", "\x1fmakers")
_FURTHER = "\x1f"  # between an id and a further owner of it
# LiteLLM's ids are base64, with its padding. A lenient server may cut off a dot at the end, a fragment or a
# NUL, and so read another id.
_PLAIN = re.compile(r"[A-Za-z0-9_-]+(?:[.:~+=-]+[A-Za-z0-9_-]+)*=*")
_ID_WORD = re.compile(r"[\s\x00]*([A-Za-z]+_[A-Za-z0-9_-]+)")
_MADE = {
    kind: re.compile(rb'"id"\s*:\s*"(' + kind.encode() + rb'[\w.:~+=-]{1,500})"')
    for kind in (RESPONSE, CONVERSATION)
}


class NamedId(NamedTuple):
    """An id in a body. `refers`: the upstream looks the object up by it; else it may be the client's own."""

    id: str
    param: str
    refers: bool


# Fields with content that holds no ids of the upstream's, whatever its keys are called.
_OPAQUE = frozenset(
    "metadata client_metadata parameters input_schema schema arguments headers variables filters".split()
)
_OTHER_IDS = frozenset("call_id file_id file_ids user_id session_id project_id".split())
_ITEM_PATH = re.compile(r"(?:input|items)\[\d+\]")


def named_in(body: Body) -> Iterator[NamedId]:
    """Yield every id of an upstream object in a body, at any depth, other than the body's own
    `previous_response_id` and `conversation`."""
    stack: list[tuple[Any, str]] = [
        (value, name) for name, value in body.items() if name not in ("previous_response_id", "conversation")
    ]
    while stack:
        value, path = stack.pop()
        inner: Iterable[tuple[Any, str]] = ()
        if isinstance(value, dict):
            yield from _ids_of(value, path)
            inner = ((v, f"{path}.{name}") for name, v in value.items() if name not in _OPAQUE)
        elif isinstance(value, list) and path not in _OPAQUE:
            inner = ((v, f"{path}[{index}]") for index, v in enumerate(value))
        stack += [pair for pair in inner if isinstance(pair[0], dict | list)]


def _ids_of(value: dict[str, Any], path: str) -> Iterator[NamedId]:
    kind = value.get("type")
    untyped_item = kind is None and "role" not in value and _ITEM_PATH.fullmatch(path) is not None
    refers = kind == "item_reference" or untyped_item
    for name, id_ in value.items():
        is_id = name == "id" or name.endswith("_id") or name in ("container", "conversation")
        if name == "id" and refers and not isinstance(id_, str):
            yield NamedId("", f"{path}.id", True)
        elif is_id and isinstance(id_, str) and id_ and name not in _OTHER_IDS:
            yield NamedId(id_, f"{path}.{name}", refers and name == "id")


def is_plain(id_: str) -> bool:
    """True for an id that every server reads alike."""
    return len(id_) <= MAX_ID_CHARS and _PLAIN.fullmatch(id_) is not None


class Maker(NamedTuple):
    """Digests of an object's tenant and user, and of the upstream credential it was made with."""

    tenant: str
    user: str
    credential: str = ""

    def is_further(self, first: "Maker | None") -> bool:
        """True if the id's first owner is another, who used another upstream key."""
        if first is None or first[:2] == self[:2]:
            return False
        return first.credential not in ("", self.credential)

    def further_names(self, id_: str) -> tuple[str, str]:
        return f"{id_}{_FURTHER}{self.tenant}", f"{id_}{_FURTHER}{self.user}"


def maker_of(caller: Caller, user: str | None, headers: Iterable[Header]) -> Maker:
    """Return the maker of what a request makes, for the user that it names, with the upstream credential in
    its headers."""
    return _maker(caller.tenant, caller.user or user, credential_of(headers))


def _maker(tenant: str, user: str | None, credential: str = "") -> Maker:
    def digest(name: str) -> str:
        return blake2b(name.encode(), digest_size=16).hexdigest()

    return Maker(digest(tenant), digest(f"{tenant}\0{user or ''}"), credential)


def tells_apart(caller: Caller) -> bool:
    """True if the caller's credential is one of several that share the upstream's key."""
    return caller.label != OPEN.label


def in_plain(headers: Iterable[Header]) -> list[Header]:
    """Return a request's headers, asking for an answer without content encoding, to read ids in it."""
    return [*(h for h in headers if h[0] != b"accept-encoding"), (b"accept-encoding", b"identity")]


class NativeOwnership:
    """The notes of all processes that share the store."""

    def __init__(self, notes: ChainStore, fail_open: FailOpen, clock: Clock, ttl_s: float) -> None:
        """`ttl_s`: of a response's note; those of conversations are permanent, as conversations are."""
        self._notes, self._fail_open, self._clock, self._ttl_s = notes, fail_open, clock, ttl_s
        self._recent = TTLCache[str, Maker](RECENT)

    # ------------------------------------------------------------ writing notes
    async def note(self, maker: Maker, ids: Iterable[str]) -> None:
        """Store that the maker made the objects. Never raises."""
        ids = tuple(dict.fromkeys(id_.lower() for id_ in ids if not is_ours(id_)))
        self.claim(maker, ids)
        for start in range(0, len(ids), AT_ONCE):
            await asyncio.gather(*(self._save(id_, maker) for id_ in ids[start : start + AT_ONCE]))

    def claim(self, maker: Maker, ids: Iterable[str]) -> None:
        """Remember the maker in this process, before it is stored."""
        for id_ in (id_.lower() for id_ in ids if not is_ours(id_)):
            known = self._recent.get(id_)
            further = maker.further_names(id_) if maker.is_further(known) else ()
            for name in further if known else (id_,):
                self._recent.put(name, maker)

    async def _save(self, id_: str, maker: Maker) -> None:
        async def save() -> None:
            now = self._clock()
            found = await self._notes.get(shelf(_NOTES, id_), id_, now)
            names: Sequence[str] = (id_,)
            if found is not None:
                first = _maker_in(found)
                names = maker.further_names(id_) if maker.is_further(first) else ()
                self._recent.put(id_, first)
                for name in names:
                    self._recent.put(name, maker)
            for name in names:
                note = StoredResponse(
                    id=name,
                    scope=shelf(_NOTES, name),
                    session_id="",
                    previous_id=None,
                    conversation_id=None,
                    response=dump({"by": list(maker)}),
                    input_items=b"[]",
                    created_at=now,
                    expires_at=now + self._ttl_s if name.startswith(RESPONSE) else None,
                )
                await self._notes.save(note, generation=0)

        await self._fail_open.attempt("note", save, SAVE_S)

    # ------------------------------------------------------------ reading notes
    async def require(self, caller: Caller, id_: str, refusal: ClientError, *, noted: bool = False) -> None:
        """Raise the refusal if another made the object, StoreUnavailable if that cannot be known. `noted`:
        also if its maker is not known."""
        owned: bool | None = None
        word = _ID_WORD.match(id_)  # that some server could read in it
        for spelling in dict.fromkeys((id_.lower(), word[1].lower()) if word else (id_.lower(),)):
            owned = await self._owned(caller, spelling)
            if owned is False:
                raise refusal
        if noted and owned is None:
            await asyncio.sleep(SETTLE_S)
            if not await self._owned(caller, id_.lower()):
                raise refusal

    async def require_all(self, caller: Caller, body: Body) -> None:
        """Require every object that a body continues, refers to or contains."""
        previous, conversation = body.get("previous_response_id"), body.get("conversation")
        if isinstance(conversation, dict):
            conversation = conversation.get("id")
        if isinstance(previous, str):
            await self._require_plain(caller, previous, unknown_previous(previous))
        if isinstance(conversation, str):
            refusal = absent("Conversation", conversation, "conversation")
            await self._require_plain(caller, conversation, refusal)
        named = list(dict.fromkeys(named_in(body)))
        for start in range(0, len(named), AT_ONCE):
            checks = []
            for id_, param, refers in named[start : start + AT_ONCE]:
                check = partial(self._require_plain, noted=True) if refers else self.require
                checks.append(check(caller, id_, absent("Item", id_, param)))
            # The first refusal is the answer; the other checks are awaited, so that none is abandoned.
            for outcome in await asyncio.gather(*checks, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _require_plain(
        self, caller: Caller, id_: str, refusal: ClientError, *, noted: bool = False
    ) -> None:
        """As `require`; also refuses ids that servers may read differently."""
        if id_ and not is_plain(id_):
            raise refusal
        await self.require(caller, id_, refusal, noted=noted)

    async def _owned(self, caller: Caller, id_: str) -> bool | None:
        """True if the object is the caller's, False if it is another's, None if there is no note of it."""
        me = _maker(caller.tenant, caller.user)
        place = 0 if caller.user is None else 1  # a tenant's key sees what any of its users made
        further = me.further_names(id_)[place]
        recent = self._recent.get(id_)
        if (recent is not None and recent[place] == me[place]) or further in self._recent:
            return True
        first = recent or await self._stored_maker(id_)
        if first is None:
            return None
        if first[place] == me[place]:
            self._recent.put(id_, first)
            return True
        with suppress(StoreUnavailable):  # then the first owner stays the owner
            return await self._stored_maker(further) is not None
        return False

    async def _stored_maker(self, id_: str) -> Maker | None:
        found = await self._fail_open.attempt(
            "maker", lambda: self._notes.get(shelf(_NOTES, id_), id_, self._clock()), ASK_S
        )
        if isinstance(found, Failed):
            raise StoreUnavailable("the object's owner cannot be read now")
        return None if found is None else _maker_in(found)


def _maker_in(note: StoredResponse) -> Maker:
    return Maker(*loads(note.response)["by"])


# ---------------------------------------------------------------- ids in answers
class IdWatcher:
    """A `send` that reads the ids of what the upstream has made in its answer: `id`, the first of its kind,
    and those of items. `claim` is called with new ids before the client has them."""

    def __init__(
        self,
        send: Send,
        kind: str,
        claim: Callable[[Iterable[str]], None],
        sent: Body | None = None,
        *,
        makes: bool = True,
        lists: bool = False,
    ) -> None:
        """`sent`: the request's body; ids in it are not new. `makes`: the answer holds a new object, else
        only items of one; `lists`: it may be a list of new items."""
        self.id = ""
        self.items: list[str] = []
        self._send, self._claim = send, claim
        self._sent = frozenset(each.id for each in named_in(sent or {}))
        self._made, self._makes, self._lists = _MADE[kind], makes, lists
        self._head = b""
        self._values: Values | None = None

    @property
    def ids(self) -> list[str]:
        return [self.id, *self.items] if self.id else self.items

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            succeeded = message["status"] < 300
            self._makes = self._makes and succeeded
            self._values = Values("", "", MAX_BYTES) if succeeded else None
        else:
            piece, values = message.get("body", b""), self._values
            if self._makes:  # the object's id is at the beginning of an answer
                self._head += piece
                if made := self._made.search(self._head):
                    self.id = made[1].decode()
                    self._claim((self.id,))
                if self.id or len(self._head) > MAX_HEAD_BYTES:
                    self._makes, self._head = False, b""
            if values is not None:
                # Items are in events that add or end one, in the last event, and in documents.
                read = [*values.feed(piece), *(() if message.get("more_body") else values.end())]
                lists = self._lists and not values.streamed
                found = dict.fromkeys(id_ for value in read for id_ in _items_in(value, lists=lists))
                new = [id_ for id_ in found if id_ not in self._sent and id_ not in self.items]
                self.items += new
                self._claim(new)
        await self._send(message)


def _items_in(value: Json, *, lists: bool) -> Iterator[str]:
    """Yield the ids of the items of a response object, of an event, or (`lists`) of a list."""
    response = value.get("response")
    holder = response if isinstance(response, dict) else value
    items = [value.get("item")]
    for name in ("output", "data") if lists else ("output",):
        if isinstance(holder.get(name), list):
            items += holder[name]
    for item in items:
        if isinstance(item, dict):
            ids = (item.get("id"), item.get("container_id"))
            yield from (id_ for id_ in ids if isinstance(id_, str) and is_plain(id_))
