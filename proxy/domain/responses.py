"""What the proxy stores of the Responses API for an upstream that stores nothing: values and ports."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proxy.domain.core import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """One stored response: what GET returns, and what a chain replays."""

    id: str
    scope: Scope
    session_id: str
    previous_id: str | None
    conversation_id: str | None
    response: bytes  # JSON: the response object, `output` included
    input_items: bytes  # JSON: this request's own input items, each with an id
    created_at: float
    expires_at: float | None


@dataclass(frozen=True, slots=True)
class Chain:
    """A response and those of the same user that it continues."""

    responses: tuple[StoredResponse, ...] = ()  # oldest first; none if they are too large
    before: str | None = None  # the id that the oldest one continues, which this user does not have
    size: int = 0  # bytes of all of them, even if they are too large to be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation object, without its items."""

    id: str
    scope: Scope
    metadata: bytes  # JSON object
    created_at: float
    used_at: float | None = None  # when something was last added; None: it does not expire
    size: int = field(default=0, compare=False)  # bytes of its items when it was read


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Items of a conversation as JSON objects, in the requested order."""

    items: tuple[bytes, ...]
    has_more: bool


class ChainStore(Protocol):
    """Responses stored for an upstream that stores none. Every id belongs to one user."""

    async def save(
        self,
        response: StoredResponse,
        *,
        generation: int,
        recalled: Sequence[str] = (),
        over: bytes | None = None,
        exchange: str | None = None,
        said: Sequence[tuple[str, bytes]] = (),
    ) -> bool:
        """Store or replace the response, durable on return.

        Returns False, and stores nothing, if the user deleted it, forgot something since `generation` (of
        the stamp when the request began), or is forgetting what it continues; and if `over` is given and
        is not the stored `response`. It is stored despite a later forget if that forget has checked it and
        left it: if `over` is still stored, or if it answers the `exchange`, which began under
        `generation`, and belongs to no conversation. `recalled`: the memories in its context, and the
        responses whose items it holds, so that forgetting one finds it. `said`: items to append to its
        conversation, if it is stored."""

    async def get(self, scope: Scope, response_id: str, now: float) -> StoredResponse | None:
        """Return the user's response; None if absent, expired, or another user's."""

    async def chain(
        self, scope: Scope, response_id: str, now: float, *, limit: int, most_bytes: int
    ) -> Chain:
        """Return the response and those it continues, at most the newest `limit`; empty if the response is
        absent, expired, or another user's. If they exceed `most_bytes`, only the size is read."""

    async def delete(self, scope: Scope, response_id: str) -> bool:
        """Delete the user's response; False if there is none."""

    async def trim(self, scope: Scope, most_bytes: int) -> int:
        """Delete the user's oldest responses and least recently used conversations until the rest fits, the
        last one excepted. Returns how many."""

    async def expire(self, now: float, *, unused_since: float | None = None) -> int:
        """Delete expired responses, and conversations last used before `unused_since`; return how many."""


class ConversationStore(Protocol):
    """Conversation objects and their items, in order of arrival. Every id belongs to one user."""

    async def create(self, conversation: Conversation, items: Sequence[tuple[str, bytes]]) -> None:
        """Store a conversation with its first items: (id, JSON)."""

    async def get(self, scope: Scope, conversation_id: str) -> Conversation | None:
        """Return the user's conversation, with the size of its items; None if absent or another user's."""

    async def update(
        self, scope: Scope, conversation_id: str, metadata: bytes, *, at: float | None = None
    ) -> bool:
        """Replace the metadata; False if the user has no such conversation. `at`: restarts its lifetime."""

    async def delete(self, scope: Scope, conversation_id: str) -> bool:
        """Delete the user's conversation with its items; False if there is none."""

    async def add(
        self,
        scope: Scope,
        conversation_id: str,
        items: Sequence[tuple[str, bytes]],
        *,
        generation: int,
        session_id: str | None = None,
        only_new: bool = False,
        at: float | None = None,
    ) -> bool:
        """Append items that it does not hold yet, said in the session, durable on return. False, and
        nothing is appended, if the conversation is absent, another user's, or was forgotten since
        `generation`; `only_new`: also if it holds one of them. `at`: as in update; with a response its
        `created_at`."""

    async def items(
        self, scope: Scope, conversation_id: str, *, limit: int, after: str | None, ascending: bool
    ) -> ItemPage | None:
        """Return items after the one with id `after`; None if the conversation or that item is absent."""

    async def item(self, scope: Scope, conversation_id: str, item_id: str) -> bytes | None: ...

    async def remove(self, scope: Scope, conversation_id: str, item_id: str) -> bool:
        """Delete one item; False if there is none."""
