"""The Stores port: all stores of a process together, and what their maintenance needs.

Every method may raise StoreUnavailable.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from proxy.domain.calls import Calls
from proxy.domain.chain_store import ChainStore, ConversationStore
from proxy.domain.documents import DocumentStore, PassageIndex
from proxy.domain.note_store import NoteStore
from proxy.domain.ports import (
    EmbeddingModel,
    FormStore,
    JobQueue,
    KeyStore,
    MemoryStore,
    Quarantine,
    Receipts,
    SessionStore,
)


class KeptMemories(MemoryStore, Protocol):
    """Memories with their upkeep."""

    async def stamp_model(self, embedding: EmbeddingModel) -> None:
        """Bind the store to the model whose vectors it holds. Raises WrongModel where it is another's."""
        ...

    async def resume_forgets(self) -> int:
        """Go on with what a crash, or a caller that gave up, broke off; return how many forgets."""
        ...

    async def expire(self, now: float) -> int:
        """Erase memories that expired more than a day ago, each user's with a receipt; return how many."""
        ...


class KeptSessions(SessionStore, Protocol):
    """Sessions with their upkeep."""

    async def prune(self, before: float) -> int:
        """Delete the exchanges from before `before` that are extracted, and the sessions last used before
        it that are empty now. Returns the number of exchanges."""
        ...


class Vectors(Protocol):
    """The vectors of all users, for `memory-proxy reembed`."""

    async def begin(self, embedding: EmbeddingModel, *, anew: bool = False) -> int:
        """Make the model the store's and return its generation: the last one, where it is this model's
        already and not all is to be done `anew`."""
        ...

    async def count(self, generation: int) -> int:
        """Return how many memories have no vector of the generation."""
        ...

    async def stale(self, generation: int, after: Any, limit: int) -> Sequence[Any]:
        """Return the next memories (with `content`) without a vector of the generation, in a fixed order."""
        ...

    async def put(self, generation: int, made: Sequence[tuple[Any, bytes | None]]) -> int:
        """Store the vectors, durable on return, and return how many. What was changed or forgotten since it
        was read is left as it is. Raises WrongModel if the store has another model by now."""
        ...


class Stores(Protocol):
    """All of them, over one place. Until `open()` has succeeded, and whenever the place is out of reach,
    their methods raise StoreUnavailable; they recover by themselves once it is back."""

    @property
    def memories(self) -> KeptMemories: ...
    @property
    def sessions(self) -> KeptSessions: ...
    @property
    def notes(self) -> NoteStore: ...
    @property
    def jobs(self) -> JobQueue: ...
    @property
    def chains(self) -> ChainStore: ...
    @property
    def conversations(self) -> ConversationStore: ...
    @property
    def quarantine(self) -> Quarantine: ...
    @property
    def calls(self) -> Calls: ...
    @property
    def forms(self) -> FormStore: ...
    @property
    def keys(self) -> KeyStore: ...
    @property
    def receipts(self) -> Receipts: ...
    @property
    def documents(self) -> DocumentStore: ...
    @property
    def passages(self) -> PassageIndex: ...
    @property
    def vectors(self) -> Vectors: ...

    @property
    def place(self) -> str:
        """Where everything is kept, for people: no credential in it."""
        ...

    @property
    def is_open(self) -> bool:
        """True once `open()` has succeeded."""
        ...

    @property
    def failure(self) -> str:
        """Why the last `open()` failed, for operators; "" if it succeeded."""
        ...

    @property
    def trouble(self) -> str:
        """What is wrong with the place, in a constant word; "" while all that is asked of it works."""
        ...

    @property
    def is_readable(self) -> bool:
        """False while reading is what fails, and not only writing."""
        ...

    async def open(self) -> None:
        """Open the place, made if need be. A failed `open()` may be repeated."""
        ...

    def on_queued(self, wake: Callable[[], None]) -> None:
        """Call `wake` when another process has queued a job, where the database announces that."""
        ...

    async def upkeep(self) -> None:
        """Do every few seconds what is left over by whoever died."""
        ...

    async def deliver(self) -> None:
        """Send the external vector index, if there is one and it is up, what it lacks. To be
        called every few seconds; while the index hangs it may take as long."""
        ...

    async def reindex(self, report: Callable[[int, int], None]) -> int:
        """Fill the external vector index again; return how many memories were sent, 0 without one.
        `report`: called with how many were sent and how many there are to send."""
        ...

    async def close(self) -> None:
        """Finish what was accepted; other processes may take over what is open."""
        ...
