"""Access control for objects that the upstream stores, if several of our users share its key.

To the upstream all of them are one account: it gives any of them any response or conversation whose id they
know. So the owner of each object is noted when the upstream has made it, and for others it does not exist. An
object without a note (made elsewhere, or earlier) is left to the upstream. Output items are noted too; a
reference to an item is followed only if it is noted as the caller's, since its id alone shows its content.

An application's key, which names its users itself, sees what was made for its tenant; a user's key or token
sees what was made for that user. In mode `open` users cannot be distinguished, and nothing is noted. A note
holds digests only, under the upstream's id of the object.

If users have upstream keys of their own, several upstream accounts may use the same id (all have a `resp_1`).
So an id may have further owners, noted with their own upstream key. With the same key the first owner stays:
one account has no id twice, so a second is a mistake, or a trick.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

from proxy.domain.core import Scope
from proxy.domain.errors import ClientError, InvalidRequest, StoreUnavailable
from proxy.domain.limits import TTLCache
from proxy.domain.ports import Clock
from proxy.domain.responses import ChainStore, StoredResponse
from proxy.http.asgi import Header, Send
from proxy.http.auth.identity import OPEN, Caller
from proxy.http.memory_work import Failed, FailOpen
from proxy.http.responses.owners import absent, credential_of, is_ours, shelf
from proxy.wire.answers import Json, Values
from proxy.wire.body import Body, dump, loads

RESPONSE, CONVERSATION = "resp_", "conv_"  # the beginnings of ids
ASK_S, SAVE_S = 2.0, 5.0
SETTLE_S = 0.2  # until a note of another process can be seen
RECENT = 20_000
AT_ONCE = 32  # notes that are read or written at a time for one request
MAX_HEAD_BYTES = 64 * 1024  # of an answer that is searched for the object's id
MAX_BYTES = 16 * 1024 * 1024  # of a document or an event that is searched for ids of items
MAX_ID_CHARS = 512

# No tenant or user can have these names: ids hold no control characters.
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


# ---------------------------------------------------------------- ids in requests
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


def _ids_of(value: Mapping[str, Any], path: str) -> Iterator[NamedId]:
    kind = value.get("type")
    untyped_item = kind is None and "role" not in value and _ITEM_PATH.fullmatch(path) is not None
    refers = kind == "item_reference" or untyped_item
    for name, inner in value.items():
        if name == "id" and refers and not isinstance(inner, str):
            yield NamedId("", f"{path}.id", True)
        elif isinstance(inner, str) and inner and name not in _OTHER_IDS:
            if name == "id":
                yield NamedId(inner, f"{path}.id", refers)
            elif name.endswith("_id") or name in ("container", "conversation"):
                yield NamedId(inner, f"{path}.{name}", False)


def is_plain(id_: str) -> bool:
    """True for an id that every server reads alike."""
    return len(id_) <= MAX_ID_CHARS and _PLAIN.fullmatch(id_) is not None


def _spellings(id_: str) -> tuple[str, ...]:
    """Return the ids, in lower case, that some server could read in this one."""
    word = _ID_WORD.match(id_)
    return tuple(dict.fromkeys((id_.lower(), word[1].lower()) if word else (id_.lower(),)))


# ---------------------------------------------------------------- owners
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
        """Return the ids of a further owner's notes: for its tenant's keys, and for its user."""
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
    def watcher(
        self, send: Send, kind: str, maker: Maker, body: Body, *, makes: bool = True, lists: bool = False
    ) -> "IdWatcher":
        """Return a `send` that claims for the maker what the upstream makes. `body`: the request's. `makes`:
        the answer holds a new object, else only items of one; `lists`: it may be a list of new items."""
        sent = (each.id for each in named_in(body))
        return IdWatcher(send, kind, partial(self._claim, maker), sent, makes=makes, lists=lists)

    async def note(self, maker: Maker, ids: Iterable[str]) -> None:
        """Store that the maker made the objects. Never raises."""
        ids = tuple(dict.fromkeys(id_.lower() for id_ in ids if not is_ours(id_)))
        self._claim(maker, ids)
        for start in range(0, len(ids), AT_ONCE):
            await asyncio.gather(*(self._save(id_, maker) for id_ in ids[start : start + AT_ONCE]))

    def _claim(self, maker: Maker, ids: Iterable[str]) -> None:
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
                await self._notes.save(self._note_of(name, maker, now), generation=0)

        await self._fail_open.attempt("note", save, SAVE_S)

    def _note_of(self, id_: str, maker: Maker, now: float) -> StoredResponse:
        return StoredResponse(
            id=id_,
            scope=shelf(_NOTES, id_),
            session_id="",
            previous_id=None,
            conversation_id=None,
            response=dump({"by": list(maker)}),
            input_items=b"[]",
            created_at=now,
            expires_at=now + self._ttl_s if id_.startswith(RESPONSE) else None,
        )

    # ------------------------------------------------------------ reading notes
    async def require(self, caller: Caller, id_: str, refusal: ClientError, *, noted: bool = False) -> None:
        """Raise the refusal if another made the object, StoreUnavailable if that cannot be known. `noted`:
        also if its maker is not known."""
        owned: bool | None = None
        for spelling in _spellings(id_):
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
            checks = (self._require_named(caller, each) for each in named[start : start + AT_ONCE])
            # The first refusal is the answer; the other checks are awaited, so that none is abandoned.
            for outcome in await asyncio.gather(*checks, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _require_plain(self, caller: Caller, id_: str, refusal: ClientError) -> None:
        """As `require`; also refuses ids that servers may read differently."""
        if id_ and not is_plain(id_):
            raise refusal
        await self.require(caller, id_, refusal)

    async def _require_named(self, caller: Caller, named: NamedId) -> None:
        refusal = absent("Item", named.id, named.param)
        if named.refers and named.id and not is_plain(named.id):
            raise refusal
        await self.require(caller, named.id, refusal, noted=named.refers)

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


def unknown_previous(id_: str) -> InvalidRequest:
    """Return the refusal of a request that continues an unknown response, or another's."""
    why = f"Previous response with id '{id_[:80]}' not found."
    return InvalidRequest(why, param="previous_response_id", code="previous_response_not_found")


# ---------------------------------------------------------------- ids in answers
class IdWatcher:
    """A `send` that reads the ids of what the upstream has made in its answer: `id`, the first of its kind,
    and those of items. `claim` is called with new ids before the client has them."""

    def __init__(
        self,
        send: Send,
        kind: str,
        claim: Callable[[Iterable[str]], None],
        sent: Iterable[str] = (),
        *,
        makes: bool = True,
        lists: bool = False,
    ) -> None:
        """`sent`: ids in the request, which are not new. For the others see NativeOwnership.watcher."""
        self.id = ""
        self.items: list[str] = []
        self._send, self._claim, self._sent = send, claim, frozenset(sent)
        self._made, self._makes, self._lists = _MADE[kind], makes, lists
        self._head = b""
        self._values: Values | None = None

    @property
    def ids(self) -> list[str]:
        """All ids that were read."""
        return [self.id, *self.items] if self.id else self.items

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            succeeded = message["status"] < 300
            self._makes = self._makes and succeeded
            self._values = Values("", "", MAX_BYTES) if succeeded else None
        else:
            piece = message.get("body", b"")
            if self._makes:
                self._search(piece)
            if self._values is not None:
                self._claim_items(self._values, piece, last=not message.get("more_body", False))
        await self._send(message)

    def _claim_items(self, values: Values, piece: bytes, *, last: bool) -> None:
        """Claim what the piece completes: items are in events that add or end one, in the last event, and in
        documents."""
        read = [*values.feed(piece), *(values.end() if last else ())]
        lists = self._lists and not values.streamed
        found = dict.fromkeys(id_ for value in read for id_ in _items_in(value, lists=lists))
        new = [id_ for id_ in found if id_ not in self._sent and id_ not in self.items]
        self.items += new
        self._claim(new)

    def _search(self, piece: bytes) -> None:
        """Look for the object's id: it is at the beginning of an answer."""
        self._head += piece
        if made := self._made.search(self._head):
            self.id = made[1].decode()
            self._claim((self.id,))
        if self.id or len(self._head) > MAX_HEAD_BYTES:
            self._makes, self._head = False, b""


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
