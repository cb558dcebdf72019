"""Stores responses, chains and conversations that the upstream does not store; and background responses.

A background response runs in the task of the request that asked for it, after that request was answered; the
server waits for it at shutdown. It saves itself every BEAT_S. One that is in progress and was not saved for
LEASE_S is dead, in whatever process it ran; so the clocks of machines that share a store must agree to within
LEASE_S - BEAT_S.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proxy.domain.core import Scope, Stamp
from proxy.domain.errors import InvalidRequest, StoreUnavailable
from proxy.domain.limits import TTLCache
from proxy.domain.ports import Clock, MemoryStore
from proxy.domain.responses import Chain, ChainStore, Conversation, ConversationStore, StoredResponse
from proxy.domain.session import StoredExchange
from proxy.http.memory_work import FailOpen
from proxy.http.responses.ownership import Owner, absent, new_id, shelf, unknown_previous
from proxy.http.turns import OFF_LOOP
from proxy.wire.body import dump, loads
from proxy.wire.translation.items import response_of
from proxy.wire.translation.response import items_of

BEAT_S = 5.0
LEASE_S = 15.0
MAX_FINISHED = 200  # with events that can still be streamed
MAX_FINISHED_BYTES = 32 * 2**20

UNDER_WAY = ("queued", "in_progress")
_BEAT = "\x1fbeat_at"  # an additional field, in the store only


class BackgroundResponse:
    """One background response: its state, its events so far, and a way to end it."""

    def __init__(self, id_: str, owner: Owner, response: Callable[[], dict[str, Any]]) -> None:
        """`response` returns the response object as it is now."""
        self.id, self.owner, self.response = id_, owner, response
        self.cancelled = False
        self.size = 0
        self.stop: Callable[[], None] | None = None  # the way to end the work
        self._events: list[bytes] = []  # the n-th has sequence_number n
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()

    def cancel(self) -> None:
        if not self._ended.is_set():
            self.cancelled = True
            if self.stop is not None:
                self.stop()

    def add(self, event: bytes) -> None:
        self._events.append(event)
        self.size += len(event)
        self._wake()

    def end(self) -> None:
        self._ended.set()
        self._wake()

    async def ended(self) -> None:
        """Wait until the response has its final state, in the store too."""
        await self._ended.wait()

    async def follow(self, after: int) -> AsyncIterator[bytes]:
        """Yield the events after the one with this sequence number, those to come included."""
        place = max(after + 1, 0)
        while True:
            changed = self._changed
            if place < len(self._events):
                pieces = self._events[place:]
                place += len(pieces)
                yield b"".join(pieces)
            elif self._ended.is_set():
                return
            else:
                await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class BackgroundRegistry:
    """The background responses of this process, and the last that have ended."""

    def __init__(self) -> None:
        self._running: dict[str, BackgroundResponse] = {}
        least = MAX_FINISHED_BYTES // MAX_FINISHED
        self._done = TTLCache[str, BackgroundResponse](
            MAX_FINISHED_BYTES, size_of=lambda live: max(live.size, least)
        )

    def begin(self, live: BackgroundResponse) -> None:
        self._running[live.id] = live

    def end(self, live: BackgroundResponse) -> None:
        """Note its end; its events can be streamed for some time."""
        self._running.pop(live.id, None)
        live.end()
        self._done.put(live.id, live)

    def under_way(self, owner: Owner, response_id: str) -> BackgroundResponse | None:
        """Return the response if it is being made here, and the owner may see it."""
        return _visible(self._running.get(response_id), owner)

    def recent(self, owner: Owner, response_id: str) -> BackgroundResponse | None:
        """Return the response if it is being made here or was lately."""
        return self.under_way(owner, response_id) or _visible(self._done.get(response_id), owner)


def _visible(live: BackgroundResponse | None, owner: Owner) -> BackgroundResponse | None:
    """Return the response if the owner may see it, by the rules of ResponseStore.find."""
    if live is None:
        return None
    made_by = live.owner
    mine = (live.owner.scope.tenant, live.owner.scope.user) == (owner.scope.tenant, owner.scope.user)
    same_credential = owner.credential is not None and made_by.credential == owner.credential
    return live if mine or (same_credential and not (owner.named and made_by.named)) else None


# ---------------------------------------------------------------- as it is stored
def with_beat(response: dict[str, Any], now: float) -> bytes:
    """Return what to store of a response that is under way."""
    return dump({**response, _BEAT: now})


def shown(stored: StoredResponse, now: float) -> tuple[dict[str, Any], bool]:
    """Return a stored response as its owner gets it, and whether its process died, so that it has failed and
    the store does not know yet."""
    response: dict[str, Any] = loads(stored.response)
    beat_at = response.pop(_BEAT, None)
    died = response.get("status") in UNDER_WAY and (beat_at is None or now - beat_at > LEASE_S)
    if died:
        error = {"code": "server_error", "message": "The server stopped before the response was complete."}
        response = {**response, "status": "failed", "error": error}
    return response, died


# ---------------------------------------------------------------- the store
Item = dict[str, Any]

STAMP_S = 1.0  # without a stamp, the response is made but not stored
APPEND_TRIES = 16  # each loses to a forget in between
SAVE_S = 5.0  # the last event waits for the save, since its client may continue the response at once
LONGEST_CHAIN = 5_000  # responses
MOST_REPLAYED_BYTES = 64 * 2**20  # of what a request continues: no model reads as much
_LARGE_BYTES, _SELDOM = 256 * 1024, 1 / 64  # of a response after which the user's are counted
PAGE = 100
MOST_PAGES = 100  # of one conversation


@dataclass(frozen=True, slots=True)
class ChainHistory:
    """What a request continues. `session_id`: that of the chain's first response, "" without a chain."""

    items: tuple[Item, ...] = ()
    session_id: str = ""
    size: int = 0  # bytes of JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class NewResponse:
    id: str
    owner: Owner
    generation: int | None  # None: it could not be read, and nothing can be stored
    session_id: str
    previous_id: str | None
    conversation_id: str | None
    response: bytes
    input_items: Sequence[Item]
    created_at: float
    size: int = 0  # about how many bytes the input items have
    recalled: tuple[str, ...] = ()
    exchange: StoredExchange | None = None  # that it is the answer of


@dataclass(frozen=True, slots=True)
class ResponseStore:
    """Responses and conversations of all owners. Raises StoreUnavailable unless documented otherwise."""

    responses: ChainStore
    conversations: ConversationStore
    memories: MemoryStore
    fail_open: FailOpen
    clock: Clock
    ttl_s: float
    conversation_ttl_s: float
    most_bytes: int = 0  # of one user's responses and conversations; 0: no limit
    most_replayed_bytes: int = MOST_REPLAYED_BYTES

    # ------------------------------------------------------------ what a request continues
    async def earlier(
        self, owner: Owner, response_id: str | None, conversation_id: str | None
    ) -> ChainHistory:
        """Return the items of the chain or the conversation, oldest first. Raises InvalidRequest,
        NotFound."""
        if response_id is not None:
            return await self._chain(owner, response_id)
        if conversation_id is None:
            return ChainHistory()
        conversation = await self.conversation(owner, conversation_id)
        if conversation is None:
            raise absent("Conversation", conversation_id, "conversation")
        if conversation.size > self.most_replayed_bytes:
            raise self._too_much("conversation", "The conversation holds")
        said = await self._all_items(conversation)
        size = sum(map(len, said))
        return ChainHistory(tuple(await OFF_LOOP.run(size, lambda: [*map(loads, said)])), size=size)

    async def _chain(self, owner: Owner, response_id: str) -> ChainHistory:
        chain: list[StoredResponse] = []
        next_id: str | None = response_id
        left = self.most_replayed_bytes
        # A chain that began without a user and continues with one is in two scopes: one part per round.
        while next_id is not None:
            now, part = self.clock(), Chain()
            for scope in await self._scopes(owner, next_id):
                # Only its size if that is more than is left.
                part = await self.responses.chain(
                    scope, next_id, now, limit=LONGEST_CHAIN - len(chain), most_bytes=left
                )
                if part.size:
                    break
            if not part.size:
                raise unknown_previous(next_id, "" if next_id == response_id else response_id)
            left -= part.size
            if left < 0:
                raise self._too_much("previous_response_id", "The responses that it continues hold")
            chain = [*part.responses, *chain]
            next_id = part.before
            if next_id is not None and len(chain) >= LONGEST_CHAIN:
                raise InvalidRequest(
                    f"It continues more than {LONGEST_CHAIN} responses. Start a new chain, or compact it.",
                    param="previous_response_id",
                    code="array_above_max_length",
                )
        last_size = len(chain[-1].response) + len(chain[-1].input_items)
        last, _ = await OFF_LOOP.run(last_size, shown, chain[-1], self.clock())
        if last["status"] in UNDER_WAY:
            raise InvalidRequest(
                f"The response '{response_id[:80]}' is still being made: wait for its end.",
                param="previous_response_id",
            )

        def replayed() -> tuple[Item, ...]:
            parts = ((loads(each.input_items), items_of(loads(each.response))) for each in chain)
            return tuple(item for asked, answered in parts for item in (*asked, *answered))

        size = self.most_replayed_bytes - left
        return ChainHistory(await OFF_LOOP.run(size, replayed), chain[0].session_id, size)

    async def referenced(self, owner: Owner, item_ids: Iterable[str]) -> dict[str, Item]:
        """Return the items, by id, that are output of responses which the owner may see."""
        wanted = set(item_ids)
        found: dict[str, Item] = {}
        for response_id in {made_in for item_id in wanted if (made_in := response_of(item_id))}:
            if stored := await self.find(owner, response_id):
                items = items_of(loads(stored.response))
                found |= {item["id"]: item for item in items if item["id"] in wanted}
        return found

    async def generation(self, owner: Owner) -> int | None:
        """Return what to save under, None where nothing can be saved now. Never raises."""
        stamp = await self.fail_open.attempt("stamp", lambda: self.memories.stamp(owner.scope), STAMP_S)
        return stamp.generation if isinstance(stamp, Stamp) else None

    # ------------------------------------------------------------ responses
    async def find(self, owner: Owner, response_id: str) -> StoredResponse | None:
        """Return the response if the owner may see it."""
        now = self.clock()
        for scope in await self._scopes(owner, response_id):
            if found := await self.responses.get(scope, response_id, now):
                return found
        return None

    async def _scopes(self, owner: Owner, response_id: str) -> list[Scope]:
        if owner.credential is None:
            return [owner.scope]
        if owner.named:
            return [owner.scope, owner.credential]
        where, now = shelf(owner.credential, response_id), self.clock()
        pointer = await self.responses.get(where, response_id, now)
        named = [] if pointer is None else [Scope(owner.scope.tenant, loads(pointer.response))]
        return [owner.scope, *named]

    async def seen(self, owner: Owner, response_id: str) -> bytes | None:
        """Return the response as it is stored now, None if it is absent or cannot be read."""
        stored = await self.fail_open.attempt("status", lambda: self.find(owner, response_id), SAVE_S)
        return stored.response if isinstance(stored, StoredResponse) else None

    async def keep(
        self, made: NewResponse, *, over: bytes | None = None, output: Sequence[Item] | None = None
    ) -> bool:
        """Save the response, durable on return, and with `output` also append question and answer to its
        conversation. Returns False, with nothing saved, if its owner has forgotten or deleted it, if the
        stored response is not `over`, or if the store cannot be reached: the client has its answer anyway."""
        if (generation := made.generation) is None:
            return False
        stored = StoredResponse(
            id=made.id,
            scope=made.owner.scope,
            session_id=made.session_id,
            previous_id=made.previous_id,
            conversation_id=made.conversation_id,
            response=made.response,
            input_items=await OFF_LOOP.run(made.size, dump, made.input_items),
            created_at=made.created_at,
            expires_at=made.created_at + self.ttl_s,
        )

        begun = made.exchange
        exchange = begun.id if begun is not None and begun.generation == generation else None

        async def save() -> bool:
            if (credential := made.owner.credential) is not None and made.owner.named:
                pointer = replace(  # by which a credential that names no user finds what it made for one
                    stored,
                    scope=shelf(credential, stored.id),
                    session_id="",
                    previous_id=None,
                    conversation_id=None,
                    response=dump(stored.scope.user),
                    input_items=b"[]",
                )
                await self.responses.save(pointer, generation=0)
            said = await self._said(made, output)
            return await self.responses.save(
                stored,
                generation=generation,
                recalled=made.recalled,
                over=over,
                exchange=exchange,
                said=said,
            )

        saved = await self.fail_open.attempt("keep", save, SAVE_S)
        if saved is True:
            await self._trim(stored.scope, len(stored.response) + len(stored.input_items))
        return saved is True

    async def _trim(self, scope: Scope, size: int) -> None:
        """Delete the user's oldest responses beyond the limit, after `size` more bytes. Never raises."""
        # After small ones only now and then.
        if self.most_bytes and (size >= _LARGE_BYTES or random.random() < _SELDOM):
            await self.fail_open.attempt("trim", lambda: self.responses.trim(scope, self.most_bytes), SAVE_S)

    async def delete(self, owner: Owner, response_id: str) -> bool:
        """Delete the response if the owner may see it."""
        found = await self.find(owner, response_id)
        if found is None:
            return False
        if owner.credential is not None:
            await self.responses.delete(shelf(owner.credential, response_id), response_id)
        return await self.responses.delete(found.scope, response_id)

    # ------------------------------------------------------------ conversations
    async def converse(self, owner: Owner, items: Sequence[Item], metadata: Any) -> Conversation:
        now = self.clock()
        made = Conversation(
            id=new_id("conv"), scope=owner.scope, metadata=dump(metadata), created_at=now, used_at=now
        )
        numbered = _numbered(items)
        await self.conversations.create(made, numbered)
        await self._point(owner, made)
        await self._trim(made.scope, _bytes(numbered))
        return made

    async def conversation(self, owner: Owner, conversation_id: str) -> Conversation | None:
        """Return the conversation if the owner may see it."""
        found = await self._living(owner.scope, conversation_id)
        if found is not None or owner.credential is None:
            return found
        if owner.named:
            return await self._living(owner.credential, conversation_id)
        pointer = await self.conversations.get(shelf(owner.credential, conversation_id), conversation_id)
        if pointer is None:
            return None
        return await self._living(Scope(owner.scope.tenant, loads(pointer.metadata)), conversation_id)

    async def _living(self, scope: Scope, conversation_id: str) -> Conversation | None:
        found = await self.conversations.get(scope, conversation_id)
        if found is None or found.used_at is None:
            return found
        return found if found.used_at + self.conversation_ttl_s > self.clock() else None

    async def describe(self, owner: Owner, conversation: Conversation, metadata: Any) -> None:
        at = self.clock()
        await self.conversations.update(conversation.scope, conversation.id, dump(metadata), at=at)
        await self._touch(owner, conversation, at)

    async def add(self, made: NewResponse, output: Sequence[Item]) -> None:
        """Append question and answer to the response's conversation. Never raises: the client has its
        answer anyway."""
        id_, generation = made.conversation_id, made.generation
        if id_ is None or generation is None:
            return

        async def work() -> None:
            if said := await self._said(made, output):
                await self.conversations.add(
                    made.owner.scope,
                    id_,
                    said,
                    generation=generation,
                    session_id=made.session_id or None,
                    at=self.clock(),
                )
                await self._trim(made.owner.scope, _bytes(said))

        await self.fail_open.attempt("converse", work, SAVE_S)

    async def _said(self, made: NewResponse, output: Sequence[Item] | None) -> list[tuple[str, bytes]]:
        """Return what to append to the response's conversation, which belongs to its owner from now on."""
        if output is None or made.conversation_id is None:
            return []
        conversation = await self.conversation(made.owner, made.conversation_id)
        if conversation is None:
            return []
        if made.owner.named and conversation.scope == made.owner.credential:
            # What users say must be stored where their forgetting finds it.
            held = [loads(item) for item in await self._all_items(conversation)]
            await self.conversations.create(replace(conversation, scope=made.owner.scope), _numbered(held))
            await self.conversations.delete(conversation.scope, conversation.id)
            await self._point(made.owner, conversation)
        await self._touch(made.owner, conversation, self.clock())
        items = [*made.input_items, *output]
        return await OFF_LOOP.run(made.size + len(made.response), _numbered, items)

    async def append(self, owner: Owner, conversation: Conversation, items: Sequence[Item]) -> None:
        """Append items that the owner brings: all of them are stored on return. Raises InvalidRequest for an
        item that the conversation holds, NotFound where it has gone."""
        where, id_, at, numbered = conversation.scope, conversation.id, self.clock(), _numbered(items)
        for _ in range(APPEND_TRIES):
            stamp = await self.memories.stamp(where)
            if await self.conversations.add(
                where, id_, numbered, generation=stamp.generation, only_new=True, at=at
            ):
                await self._touch(owner, conversation, at)
                await self._trim(where, _bytes(numbered))
                return
            # The conversation was forgotten, or holds one of them, or something else was forgotten.
            if await self.conversations.get(where, id_) is None:
                raise absent("Conversation", id_, "conversation_id")
            for index, item in enumerate(items):
                if await self.conversations.item(where, id_, item["id"]) is not None:
                    raise InvalidRequest(
                        f"The conversation holds an item with the id '{item['id'][:80]}' already.",
                        param=f"items[{index}].id",
                        code="duplicate_item",
                    )
        raise StoreUnavailable("the user's memories keep being forgotten")

    async def drop_conversation(self, owner: Owner, conversation: Conversation) -> None:
        """Delete the conversation that `conversation` returned, with its items."""
        await self.conversations.delete(conversation.scope, conversation.id)
        if owner.credential is not None:
            await self.conversations.delete(shelf(owner.credential, conversation.id), conversation.id)

    async def _point(self, owner: Owner, made: Conversation) -> None:
        if owner.named and owner.credential is not None:
            pointer = shelf(owner.credential, made.id)
            sign = replace(made, scope=pointer, metadata=dump(owner.scope.user))
            await self.conversations.create(sign, ())

    async def _touch(self, owner: Owner, used: Conversation, at: float) -> None:
        """Renew the pointer of `_point` with the conversation."""
        if owner.credential is None:
            return
        where = shelf(owner.credential, used.id)
        if owner.named:
            await self.conversations.update(where, used.id, dump(owner.scope.user), at=at)
        elif pointer := await self.conversations.get(where, used.id):
            await self.conversations.update(where, used.id, pointer.metadata, at=at)

    async def _all_items(self, conversation: Conversation) -> list[bytes]:
        items: list[bytes] = []
        for _ in range(MOST_PAGES):
            after = loads(items[-1])["id"] if items else None
            page = await self.conversations.items(
                conversation.scope, conversation.id, limit=PAGE, after=after, ascending=True
            )
            if page is None or not page.items:
                break
            items += page.items
            if sum(map(len, items)) > self.most_replayed_bytes:
                raise self._too_much("conversation", "The conversation holds")
            if not page.has_more:
                break
        return items

    def _too_much(self, param: str, what: str) -> InvalidRequest:
        most = f"{self.most_replayed_bytes / 2**20:.3g} MB"
        return InvalidRequest(
            f"{what} more than {most}. Start a new one, or compact it.",
            param=param,
            code="string_above_max_length",
        )


def _bytes(items: Iterable[tuple[str, bytes]]) -> int:
    return sum(len(item) for _, item in items)


def _numbered(items: Iterable[Item]) -> list[tuple[str, bytes]]:
    return [(str(item["id"]), dump(item)) for item in items]
