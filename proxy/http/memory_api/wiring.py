"""The dependencies of the memory API: ports, and callables for what lies behind the write gate."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from proxy.domain.core import Candidate, Event, Memory, MemoryFilter, Ranked, Reason, Scope, Stamp
from proxy.domain.documents import Change, Document, DocumentStore, Format
from proxy.domain.ports import Clock, JobQueue, MemoryStore, Quarantine, Receipts, SessionStore
from proxy.http.auth.identity import Caller
from proxy.http.turns import Zones
from proxy.recall.documents import RankedPassage


@dataclass(frozen=True, slots=True)
class Recalled:
    """What a search found, and why a conversation that begins with its words would be shown no memory; None
    where it would."""

    ranked: Sequence[Ranked]
    unshown: Reason | None


class Recall(Protocol):
    """Searches memories, and asks whether the read path would."""

    async def __call__(
        self,
        scope: Scope,
        query: str,
        *,
        types: tuple[str, ...] | None,
        limit: int,
        threshold: float | None,
        timezone: str,
    ) -> Recalled: ...


class Taken(Protocol):
    """What became of one imported memory: imported, refused with a reason to show, or there already."""

    @property
    def imported(self) -> bool: ...
    @property
    def refusal(self) -> str: ...


class ByHand(Protocol):
    """What people change themselves, through the write gate. Raises InvalidRequest for what it refuses."""

    async def add(self, scope: Scope, candidate: Candidate, said: Collection[str] = ()) -> tuple[Memory, str]:
        """Return the memory that now states it, and "created", "superseded" or "confirmed". `said`: which
        of the candidate's `expires_at`, `importance` and `tags` a memory takes over that it confirms."""
        ...

    async def edit(
        self, where: MemoryFilter, memory_id: str, correct: Callable[[Memory], Memory]
    ) -> Memory | None:
        """Store what `correct` makes of the memory as it is then; None if there is no such memory."""
        ...

    async def release(self, scope: Scope, held_id: str) -> Memory | None:
        """Turn a held candidate into a memory; None if there is no such candidate of the user."""
        ...

    async def discard(self, scope: Scope, held_id: str) -> bool:
        """Erase a held candidate; False if there is no such candidate of the user."""
        ...

    async def bring_in(
        self,
        scope: Scope,
        memories: Sequence[Memory],
        *,
        began: Stamp,
        histories: Mapping[str, Sequence[Event]],
        said: Mapping[str, datetime],
    ) -> Sequence[Taken]:
        """Store memories of one user as they were exported, with their histories, by id; nothing if the user
        forgot since `began`. `said`: by id, the local time against which relative dates are resolved."""
        ...


class AddDocument(Protocol):
    """Takes a document in. Raises InvalidRequest, TooLarge, QuotaExceeded."""

    async def __call__(
        self, scope: Scope, name: str, content: str, format: Format
    ) -> tuple[Document, Change]: ...


class LookUp(Protocol):
    """Searches documents as the read path would."""

    async def __call__(
        self, scope: Scope, query: str, *, limit: int, threshold: float | None
    ) -> Sequence[RankedPassage]: ...


@dataclass(frozen=True, slots=True)
class Documents:
    """What the endpoints of documents work with."""

    store: DocumentStore
    add: AddDocument
    search: LookUp


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the endpoints work with."""

    memories: MemoryStore
    sessions: SessionStore
    jobs: JobQueue
    quarantine: Quarantine
    receipts: Receipts
    documents: Documents
    recall: Recall
    by_hand: ByHand
    identify: Callable[[Request], Caller]
    wake: Callable[[], None]  # tells the worker that a job is due
    forgotten: Callable[[Scope], None]  # is told whose everything was forgotten
    clock: Clock
    zones: Zones
    mode: str  # how callers are identified: "open" | "keys" | "jwt" | "header"
    version: str
    retrieval_limit: int = 10  # of a search that names none
    session_key: Callable[[str], str] = str  # a session's id as the recorder writes it down


Q = TypeVar("Q")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Asked(Generic[Q, B]):
    """One request, checked: who asks, what the path names, query and body as the operation declares them."""

    request: Request
    caller: Caller
    path: Mapping[str, str]
    query: Q
    body: B

    def scope(self, user_id: str | None, project_id: str | None = None) -> Scope:
        """Return the scope asked for. Raises InvalidRequest without a user, Forbidden for another's."""
        return self.caller.scope(user_id, project_id)

    def user_or_all(self, user_id: str | None) -> str | None:
        """Return the user asked for, None for the whole tenant. Raises Forbidden where that is too much."""
        user = self.caller.narrow(user_id)
        if user is None:
            self.caller.require("admin")
        return user


Handler = Callable[[Tools, Asked[Q, B]], Awaitable[Response]]
