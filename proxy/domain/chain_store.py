"""The ports of what is stored for an upstream that stores nothing itself: responses, their chains,
conversations. Every method may raise StoreUnavailable.
"""

from collections.abc import Sequence
from typing import Protocol

from proxy.domain.core import Scope
from proxy.domain.stored_responses import Chain, Conversation, ItemPage, StoredResponse


class ChainStore(Protocol):
    """Responses that the proxy keeps for an upstream that keeps none. Every id belongs to one user."""

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
        """Store or replace the response, durable on return. `recalled`: the memories that the model was
        shown, and the responses that it holds items of, so that forgetting one finds it. Returns False, and
        stores nothing, if the user deleted it or forgot something since `generation` (Stamp.generation when
        the request began), or is forgetting what it continues; and if `over` is given and is not the
        `response` that stands there. What a forget since then has looked at and left is stored all the same:
        where `over` stands there, or where the response is of the `exchange`, which began under
        `generation`, and belongs to no conversation. `said`: items that are appended to its conversation, as
        ConversationStore.add does, if and only if it is stored."""
        ...

    async def get(self, scope: Scope, response_id: str, now: float) -> StoredResponse | None:
        """Return the user's response; None if absent, expired, or another's."""
        ...

    async def chain(
        self, scope: Scope, response_id: str, now: float, *, limit: int, most_bytes: int
    ) -> Chain:
        """Return the response and those it continues, at most the newest `limit`; empty if the response is
        absent, expired, or another's. Of more than `most_bytes`, only the size is read."""
        ...

    async def delete(self, scope: Scope, response_id: str) -> bool:
        """Delete the user's response; False if there is none."""
        ...

    async def trim(self, scope: Scope, most_bytes: int) -> int:
        """Delete the oldest of the user's responses, and the conversations that were not used for longest,
        until the others have no more bytes; the last one is never deleted. Returns how many."""
        ...

    async def expire(self, now: float, *, unused_since: float | None = None) -> int:
        """Delete the responses that have expired, and the conversations that were last used before
        `unused_since`; returns how many."""
        ...


class ConversationStore(Protocol):
    """Conversation objects and their items, in order of arrival. Every id belongs to one user."""

    async def create(self, conversation: Conversation, items: Sequence[tuple[str, bytes]]) -> None:
        """Store a conversation with its first items: (id, JSON)."""
        ...

    async def get(self, scope: Scope, conversation_id: str) -> Conversation | None:
        """Return the user's conversation, with the bytes of its items; None if absent or another's."""
        ...

    async def update(
        self, scope: Scope, conversation_id: str, metadata: bytes, *, at: float | None = None
    ) -> bool:
        """Replace the metadata; False if there is no such conversation of the user. `at`: the time, from
        which on its lifetime counts again."""
        ...

    async def delete(self, scope: Scope, conversation_id: str) -> bool:
        """Delete the user's conversation with its items; False if there is none."""
        ...

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
        """Append items that it does not hold yet, said in the session, durable on return; False if the
        conversation is absent, another's, or was forgotten since `generation`; `only_new`: also if it holds
        one of them, and then none is appended; `at`: as in update. Items that are saved with a response
        count as used at that response's `created_at`."""
        ...

    async def items(
        self, scope: Scope, conversation_id: str, *, limit: int, after: str | None, ascending: bool
    ) -> ItemPage | None:
        """Return items after the one with id `after`; None if the conversation or that item is absent."""
        ...

    async def item(self, scope: Scope, conversation_id: str, item_id: str) -> bytes | None:
        """Return one item."""
        ...

    async def remove(self, scope: Scope, conversation_id: str, item_id: str) -> bool:
        """Delete one item; False if there is none."""
        ...
