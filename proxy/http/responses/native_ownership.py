"""Access control for objects that the upstream keeps, where several of our users share its key: who made
what.

To the upstream all of them are one account: it gives any of them any response or conversation whose id they
know. So the maker of each object is noted when the upstream has made it, and for anybody else it does not
exist. An object without a note (it was made elsewhere, or before there were notes) is left to the upstream.

An application's key, which names its users itself, sees what was made for any of its tenant; a user's key
or token sees what was made for that user. In mode `open` users cannot be told apart, and nothing is noted.
A note holds digests only: it is found by the upstream's id of the object, and names nobody.

Where users have upstream keys of their own, several upstream accounts may give the same id (all have a
`resp_1`). So an id has a first maker, and others beside it, noted with their own upstream key. With the
same key the first maker stays: one account has no id twice, so a second is a mistake, or a trick.

Output items are noted too. A reference to an item is followed only if the item is noted as the caller's:
unlike a response, an item without a note is refused, since its id alone shows what it says.


Ids of responses, conversations and items as a native upstream knows them: their form, where a request's
body names them, and where an answer brings new ones.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

from proxy.domain.core import Scope
from proxy.domain.errors import ClientError, InvalidRequest, StoreUnavailable
from proxy.domain.limits import TTLCache
from proxy.domain.ports import Clock
from proxy.domain.responses import ChainStore, StoredResponse
from proxy.http.asgi import Send
from proxy.http.auth.identity import OPEN, Caller
from proxy.http.failopen import Failed, FailOpen
from proxy.http.responses.owners import absent, shelf
from proxy.wire.body import Body, dump, loads

LONGEST_DOCUMENT = 16 * 1024 * 1024  # bytes of an answer that is read for ids
LONGEST_EVENT = 1024 * 1024  # bytes of one event of a stream

# LiteLLM's ids are base64, with its padding. A dot at the end, a fragment or a NUL may be cut off by a server
# that is lenient, which then reads another id.
_PLAIN = re.compile(r"[A-Za-z0-9_-]+(?:[.:~+=-]+[A-Za-z0-9_-]+)*=*")
_LONGEST = 512
# Where a body holds what is no id of the upstream's, whatever its key is called.
_NOT_WALKED = frozenset(
    "metadata client_metadata parameters input_schema schema arguments headers variables filters".split()
)
_OTHER_IDS = frozenset("call_id file_id file_ids user_id session_id project_id".split())
_AN_ITEM = re.compile(r"(?:input|items)\[\d+\]")
# Events that hold items: some servers send only the last one.
_TELLING = re.compile(rb"response\.(?:output_item\.|completed|incomplete)")
_ID_WORD = re.compile(r"[\s\x00]*([A-Za-z]+_[A-Za-z0-9_-]+)")


def is_plain(id_: str) -> bool:
    """True for an id that every server reads alike."""
    return len(id_) <= _LONGEST and _PLAIN.fullmatch(id_) is not None


def spellings(id_: str) -> tuple[str, ...]:
    """Return the ids that some server could read where this one is written: all in lower case."""
    word = _ID_WORD.match(id_)
    return tuple(dict.fromkeys((id_.lower(), word[1].lower()) if word else (id_.lower(),)))


# ---------------------------------------------------------------- in requests
@dataclass(frozen=True, slots=True)
class NamedId:
    """An id in a body. `refers`: the upstream looks the object up by it; else it may be the client's own."""

    id: str
    param: str
    refers: bool


def named_in(body: Body) -> Iterator[NamedId]:
    """Yield every id of an object of the upstream's that a body names, at any depth.

    `previous_response_id` and `conversation` of the body itself are checked by `require_all`.
    """
    stack: list[tuple[Any, str]] = [
        (value, name) for name, value in body.items() if name not in ("previous_response_id", "conversation")
    ]
    while stack:
        value, path = stack.pop()
        if isinstance(value, dict):
            yield from _of_object(value, path)
            stack += [
                (inner, f"{path}.{name}")
                for name, inner in value.items()
                if isinstance(inner, dict | list) and name not in _NOT_WALKED
            ]
        elif isinstance(value, list) and path not in _NOT_WALKED:
            stack += [
                (inner, f"{path}[{index}]")
                for index, inner in enumerate(value)
                if isinstance(inner, dict | list)
            ]


def _of_object(value: Mapping[str, Any], path: str) -> Iterator[NamedId]:
    kind = value.get("type")
    refers = kind == "item_reference" or (
        kind is None and "role" not in value and _AN_ITEM.fullmatch(path) is not None
    )
    for name, inner in value.items():
        if not isinstance(inner, str) or not inner or name in _OTHER_IDS:
            if name == "id" and refers and not isinstance(inner, str):
                yield NamedId("", f"{path}.id", True)
            continue
        if name == "id":
            yield NamedId(inner, f"{path}.id", refers)
        elif name.endswith("_id") or name in ("container", "conversation"):
            yield NamedId(inner, f"{path}.{name}", False)


# ---------------------------------------------------------------- in answers
def made_in(value: Any, *, lists: bool = False) -> Iterator[str]:
    """Yield the ids of the output items of a response object, of an event, or (`lists`) of a list's items."""
    if not isinstance(value, dict):
        return
    response = value.get("response")
    holder = response if isinstance(response, dict) else value
    for name in ("output", "data") if lists else ("output",):
        items = holder.get(name)
        for item in items if isinstance(items, list) else ():
            yield from _id_of(item)
    yield from _id_of(value.get("item"))


def _id_of(item: Any) -> Iterator[str]:
    if isinstance(item, dict):
        for name in ("id", "container_id"):
            id_ = item.get(name)
            if isinstance(id_, str) and is_plain(id_):
                yield id_


class IdReader:
    """Finds the ids of items in an answer as it passes: of a document at its end, of a stream in each event
    that adds or ends an item, and in the last. What is longer than a bound is passed over."""

    def __init__(self, *, lists: bool = False) -> None:
        self._lists = lists
        self._is_stream: bool | None = None
        self._held = bytearray()

    def feed(self, piece: bytes, *, last: bool) -> list[str]:
        """Return the ids that this piece completes."""
        if self._is_stream is None and (start := piece.lstrip()):
            self._is_stream = not start.startswith((b"{", b"["))
        self._held += piece
        if self._is_stream:
            return self._lines(last)
        if len(self._held) > LONGEST_DOCUMENT:
            self._held.clear()
            self._is_stream = True  # of which nothing more is an event
        if not last:
            return []
        document, self._held = bytes(self._held), bytearray()
        return list(made_in(_loaded(document), lists=self._lists))

    def _lines(self, last: bool) -> list[str]:
        whole, newline, rest = self._held.rpartition(b"\n")
        if last:
            whole, rest = self._held, bytearray()
        elif not newline:
            if len(self._held) > LONGEST_EVENT:
                self._held.clear()
            return []
        self._held = bytearray(rest)
        found: list[str] = []
        for line in bytes(whole).splitlines() if _TELLING.search(whole) else ():
            if line.startswith(b"data:") and _TELLING.search(line):
                found += made_in(_loaded(line[5:]))
        return found


def _loaded(document: bytes) -> Any:
    try:
        return loads(document) if document.strip() else None
    except (ValueError, RecursionError):
        return None


# ---------------------------------------------------------------- who made what
LOOK_BYTES = 64 * 1024  # how far into an answer the object's id is looked for: it stands at the beginning
ASK_S = 2.0
SAVE_S = 5.0
RECENT = 20_000
AT_ONCE = 32  # notes that are read or written at a time for one request
SETTLE_S = 0.2  # until a note of another process can be seen
RESPONSE, CONVERSATION = "resp_", "conv_"  # how ids begin

# No tenant or user can be called so: ids hold no control characters.
_NOTES = Scope("\x1fmakers", "\x1fmakers")
_BESIDE = "\x1f"  # between an id and a maker of it that is not the first
_MADE = {
    kind: re.compile(rb'"id"\s*:\s*"(' + kind.encode() + rb'[\w.:~+=-]{1,500})"')
    for kind in (RESPONSE, CONVERSATION)
}


@dataclass(frozen=True, slots=True)
class NativeOwnership:
    """The notes of all processes that share the store."""

    notes: ChainStore
    fail_open: FailOpen
    clock: Clock
    ttl_s: float  # of a response's note; those of conversations stay: the upstream keeps them
    _recent: TTLCache[str, list[str]] = field(default_factory=partial(TTLCache, RECENT))

    def claim(self, caller: Caller, user: str | None, ids: Iterable[str], credential: str) -> None:
        """Know at once, in this process, that the caller made the objects: see note."""
        if tells_apart(caller):
            mine = [*_digests(caller.tenant, caller.user or user), credential]
            for id_ in map(str.lower, ids):
                known = self._recent.get(id_)
                names = _others(id_, mine) if _is_beside(mine, known) else () if known else (id_,)
                self._note_recent(names, mine)

    async def note(self, caller: Caller, user: str | None, ids: Iterable[str], credential: str) -> None:
        """Remember that the caller made the objects, for the user that its request named, with this
        credential of the upstream's (see credential_of). Never raises."""
        if not tells_apart(caller):
            return
        ids = tuple(dict.fromkeys(map(str.lower, ids)))
        self.claim(caller, user, ids, credential)
        mine = [*_digests(caller.tenant, caller.user or user), credential]
        for start in range(0, len(ids), AT_ONCE):
            await asyncio.gather(*(self._save(id_, mine) for id_ in ids[start : start + AT_ONCE]))

    async def _save(self, id_: str, mine: list[str]) -> None:
        async def save() -> None:
            now = self.clock()
            found = await self.notes.get(shelf(_NOTES, id_), id_, now)
            names: Sequence[str] = (id_,)
            if found is not None:
                first = list(loads(found.response)["by"])
                names = _others(id_, mine) if _is_beside(mine, first) else ()
                self._note_recent((id_,), first)
                self._note_recent(names, mine)
            for name in names:
                await self.notes.save(_note(name, mine, now, self.ttl_s), generation=0)

        await self.fail_open.attempt("note", save, SAVE_S)

    async def require(self, caller: Caller, id_: str, refusal: ClientError, *, noted: bool = False) -> None:
        """Raise the refusal if another made the object, StoreUnavailable if that cannot be known. `noted`:
        also if it is not known who did."""
        if not tells_apart(caller):
            return
        for spelling in spellings(id_):
            owned = await self._owned(caller, spelling)
            if owned is False:
                raise refusal
            if owned is None and spelling != id_ and await self._owned(caller, id_) is False:
                raise refusal  # noted before ids were noted in lower case
        if noted and owned is None:
            await asyncio.sleep(SETTLE_S)
            if not await self._owned(caller, id_.lower()):
                raise refusal

    async def _owned(self, caller: Caller, id_: str) -> bool | None:
        """True if the object is the caller's, False if it is another's, None if there is no note of it."""
        tenant, user = _digests(caller.tenant, caller.user)
        place, mine = (0, tenant) if caller.user is None else (1, user)
        beside = f"{id_}{_BESIDE}{mine}"
        recent = self._recent.get(id_)
        if (recent and recent[place] == mine) or beside in self._recent:
            return True
        first = recent or await self._noted(id_)
        if not first:
            return None
        if first[place] == mine:
            self._note_recent((id_,), first)
            return True
        with suppress(StoreUnavailable):  # then the first maker stays the owner
            if await self._noted(beside):
                return True
        return False

    async def require_all(self, caller: Caller, body: Body) -> None:
        """The same for every id that a body names: what a request continues, refers to or brings."""
        if not tells_apart(caller):
            return
        previous, conversation = body.get("previous_response_id"), body.get("conversation")
        if isinstance(conversation, dict):
            conversation = conversation.get("id")
        if isinstance(previous, str):
            _require_plain(previous, unknown_previous(previous))
            await self.require(caller, previous, unknown_previous(previous))
        if isinstance(conversation, str):
            refusal = absent("Conversation", conversation, "conversation")
            _require_plain(conversation, refusal)
            await self.require(caller, conversation, refusal)
        named = list(dict.fromkeys(named_in(body)))
        for start in range(0, len(named), AT_ONCE):
            # The first refusal is the answer; the others are awaited, so that none is left alone.
            asked = (self._require_named(caller, each) for each in named[start : start + AT_ONCE])
            for outcome in await asyncio.gather(*asked, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _require_named(self, caller: Caller, named: NamedId) -> None:
        refusal = absent("Item", named.id, named.param)
        if named.refers:
            _require_plain(named.id, refusal)
        await self.require(caller, named.id, refusal, noted=named.refers)

    def _note_recent(self, names: Iterable[str], made_by: list[str]) -> None:
        for name in names:
            self._recent.put(name, made_by)

    async def _noted(self, id_: str) -> list[str]:
        found = await self.fail_open.attempt(
            "maker", lambda: self.notes.get(shelf(_NOTES, id_), id_, self.clock()), ASK_S
        )
        if isinstance(found, Failed):
            raise StoreUnavailable("who made this cannot be known now")
        return [] if found is None else list(loads(found.response)["by"])


class IdWatcher:
    """A `send` that sees, in an answer on its way to the client, the ids of what the upstream has made: `id`,
    the first of its kind, and the items. `claim` is called with new ids before the client has them."""

    def __init__(
        self,
        send: Send,
        kind: str,
        claim: Callable[[Iterable[str]], None] = lambda ids: None,
        sent: Iterable[str] = (),
        *,
        makes: bool = True,
        lists: bool = False,
    ) -> None:
        """`sent`: ids that the request brings, and that are no news. `makes`: the answer holds a new object,
        else only items of one; `lists`: it may be a list of new items."""
        self.id = ""
        self.items: list[str] = []
        self._made = _MADE[kind]
        self._claim, self._sent = claim, frozenset(sent)
        self._send, self._seen, self._looks = send, b"", makes
        self._lists = lists
        self._reader: IdReader | None = None

    @property
    def ids(self) -> list[str]:
        """All that was seen."""
        return [self.id, *self.items] if self.id else self.items

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            made = message["status"] < 300
            self._looks = self._looks and made
            self._reader = IdReader(lists=self._lists) if made else None
        else:
            piece = message.get("body", b"")
            if self._looks:
                self._look(piece)
            if self._reader is not None:
                self._read(self._reader.feed(piece, last=not message.get("more_body", False)))
        await self._send(message)

    def _look(self, piece: bytes) -> None:
        self._seen += piece
        if made := self._made.search(self._seen):
            self.id = made[1].decode()
            self._claim((self.id,))
        if self.id or len(self._seen) > LOOK_BYTES:
            self._looks, self._seen = False, b""

    def _read(self, found: Sequence[str]) -> None:
        new = [id_ for id_ in dict.fromkeys(found) if id_ not in self._sent and id_ not in self.items]
        if new:
            self.items += new
            self._claim(new)


def _require_plain(id_: str, refusal: ClientError) -> None:
    """Raise the refusal for an id that servers may read in several ways."""
    if id_ and not is_plain(id_):
        raise refusal


def tells_apart(caller: Caller | None) -> bool:
    """True if the caller's credential is one of several that share the upstream's key."""
    return caller is not None and caller.label != OPEN.label


def in_plain(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return a request's headers, asking for an answer in which the id can be read."""
    return [*(h for h in headers if h[0] != b"accept-encoding"), (b"accept-encoding", b"identity")]


def unknown_previous(id_: str) -> InvalidRequest:
    """Return what a request that continues a foreign response is refused with."""
    return InvalidRequest(
        f"Previous response with id '{id_[:80]}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


def _digests(tenant: str, user: str | None) -> list[str]:
    return [
        blake2b(name.encode(), digest_size=16).hexdigest() for name in (tenant, f"{tenant}\0{user or ''}")
    ]


def _is_beside(mine: list[str], first: list[str] | None) -> bool:
    """True if the first maker of an id is another, and the upstream was asked with another key then. Notes of
    before there were several say nothing of the key."""
    return first is not None and first[:2] != mine[:2] and first[2:] not in ([], mine[2:])


def _others(id_: str, made_by: list[str]) -> tuple[str, str]:
    """Return what a maker that is not the first is noted under: for its tenant's keys, and for its user."""
    tenant, user = made_by[:2]
    return f"{id_}{_BESIDE}{tenant}", f"{id_}{_BESIDE}{user}"


def _note(id_: str, made_by: list[str], now: float, ttl_s: float) -> StoredResponse:
    return StoredResponse(
        id=id_,
        scope=shelf(_NOTES, id_),
        session_id="",
        previous_id=None,
        conversation_id=None,
        response=dump({"by": made_by}),
        input_items=b"[]",
        created_at=now,
        expires_at=now + ttl_s if id_.startswith(RESPONSE) else None,
    )
