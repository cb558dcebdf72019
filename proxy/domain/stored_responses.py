"""Frozen values for what the proxy stores of the Responses API on behalf of an upstream that stores
nothing.
"""

from dataclasses import dataclass, field

from proxy.domain.core import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """One response that the proxy keeps for its owner: what GET returns, and what a chain replays."""

    id: str
    scope: Scope
    session_id: str
    previous_id: str | None
    conversation_id: str | None
    response: bytes  # JSON: the response object, `output` included
    input_items: bytes  # JSON: this request's own input items, in order, each with an id
    created_at: float
    expires_at: float | None


@dataclass(frozen=True, slots=True)
class Chain:
    """A response and those of the same user that it continues."""

    responses: tuple[StoredResponse, ...] = ()  # oldest first; none if they are too large
    before: str | None = None  # the id that the oldest one continues and that this user does not have
    size: int = 0  # bytes of all of them, also where they are too large to be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation object of its owner, without its items."""

    id: str
    scope: Scope
    metadata: bytes  # JSON object
    created_at: float
    used_at: float | None = None  # when something was last added; None: it does not expire
    size: int = field(default=0, compare=False)  # bytes of its items, as they were when it was read


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Some items of a conversation, as JSON objects in the order asked for."""

    items: tuple[bytes, ...]
    has_more: bool
