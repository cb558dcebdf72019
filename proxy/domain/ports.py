"""What the parts need from outside, as Protocols, and the Stores that bundle them.

Every async method may raise StoreUnavailable (stores), EmbeddingFailed (embedder) or
CompletionFailed (completer); other errors are named at the method.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from proxy.domain.core import (
    Applied,
    Change,
    Event,
    ForgetCounts,
    Hit,
    Memory,
    MemoryFilter,
    Page,
    QuarantinedCandidate,
    Receipt,
    Scope,
    Search,
    Stamp,
    Turn,
)
from proxy.domain.documents import DocumentStore, PassageIndex
from proxy.domain.limits import CallQuota, Rate, RateVerdict
from proxy.domain.responses import ChainStore, ConversationStore
from proxy.domain.session import (
    Batch,
    Exchange,
    Job,
    JobInfo,
    JobState,
    NewExchange,
    NewJob,
    NoteStore,
    Outcome,
    QueueCounts,
    SessionInfo,
    SessionState,
    StoredExchange,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One of the proxy's own API keys, without the key itself."""

    id: str  # public: what the operator sees and revokes by
    name: str
    tenant: str
    user: str | None  # fixed by the key, or None: the caller may name one
    rights: frozenset[str]  # of RIGHTS
    upstream_key: bytes | None  # sealed with the key itself: only who presents the key can open it
    created_at: float
    revoked_at: float | None = None


RIGHTS = frozenset(("chat", "memory", "admin"))
"""chat: the model. memory: the memory API, own scope. admin: all users of the tenant, jobs, receipts."""


Clock = Callable[[], float]
"""Returns Unix seconds."""

Trigger = Callable[[SessionState], NewJob | None]
"""Decides, inside the store's transaction, whether a session's pending exchanges become a job."""


class FormStore(Protocol):
    """What models were found to take, as `upstream.forms` writes it: rows by key, each with `until`."""

    async def load(self) -> Mapping[str, str]:
        """Return all rows."""
        ...

    async def save(self, rows: Mapping[str, str], most: int) -> None:
        """Add these rows, or replace them, and keep the `most` that are valid the longest."""
        ...


def latest_forms(rows: Mapping[str, str]) -> list[str]:
    """Return the keys of a FormStore's rows, those first that are valid the longest, unreadable ones last."""

    def until(key: str) -> float:
        try:
            return float(json.loads(rows[key])["until"])
        except (ValueError, TypeError, LookupError):
            return 0.0

    return sorted(rows, key=until, reverse=True)


ProfileKind = Literal["", "rule", "trait"]
"""How a memory holds in every conversation: as a rule for answers, as a trait of the user, or "": not."""

SortProfile = Callable[[Sequence[bytes]], Sequence[ProfileKind]]
"""Sorts memories by their vectors. Called in a reader's thread."""


class Snapshot(Protocol):
    """A scope's memories as they were when it was taken: for the request that took it, and no other."""

    @property
    def profile(self) -> Sequence[tuple[Memory, ProfileKind]]:
        """The user's memories that hold in every conversation, of any project, the latest first."""
        ...

    def search(self, search: Search) -> Sequence[Hit] | None:
        """Return what MemoryStore.search would have then, at once; None if the memories are not at hand, or
        once the user forgot something."""
        ...


class MemoryStore(Protocol):
    """Memories of many users; every read and write stays inside one scope."""

    async def search(self, scope: Scope, search: Search) -> Sequence[Hit]:
        """Return the union of the best by cosine and the best by BM25 among the scope's current
        memories (see Memory.is_current), each with both scores. Cost does not grow with other users'.
        """
        ...

    def snapshot(self, scope: Scope, sort: SortProfile | None = None) -> Awaitable[Snapshot | None]:
        """Begin to read the scope's memories, and return what to await: None from a store that has none at
        hand. `sort`: finds the profile. To be called before the question's vector is made: then nothing waits
        for the store. It may be cancelled. Raises StoreUnavailable, at once or where it is awaited."""
        ...

    async def readings(self, scope: Scope, ids: Sequence[str]) -> Sequence[bytes | None]:
        """Return what was stored as the reading of each of the user's memories; None where there is none."""
        ...

    async def stamp(self, scope: Scope) -> Stamp:
        """Return the user's stamp; (0, 0) for a user never seen."""
        ...

    async def apply(
        self, scope: Scope, changes: Sequence[Change], *, expect: Stamp, done: Job | None = None
    ) -> Applied:
        """Apply all changes and finish `done` in one transaction, durable on return, within the quota.

        Raises Conflict, with nothing applied, if the user's stamp is no longer `expect`, and LeaseLost if
        `done`'s lease was lost. A Create whose id or current (user, project, type, normalised content) exists
        is dropped, and the answer says so; Supersede or Confirm of an absent memory stores the new one or
        nothing. An Edit whose memory is absent raises NotFound, one that would say what another current
        memory says Duplicate.
        """
        ...

    async def touch(self, scope: Scope, ids: Sequence[str], at: float) -> None:
        """Count an access of memories that still exist, as often as each id is given. Does not change the
        stamp."""
        ...

    async def get(self, where: MemoryFilter, memory_id: str) -> Memory | None:
        """Return the memory, also a superseded one; None if absent or outside `where`."""
        ...

    async def list(
        self,
        where: MemoryFilter,
        *,
        limit: int,
        after: str | None = None,
        oldest_first: bool = False,
        total: bool = True,
    ) -> Page:
        """Return memories newest first, after the memory with id `after` (unknown id: NotFound). Of a whole
        tenant, each user's are in that order; how the users' mix is the store's affair. No page reads the
        memories behind it, however many there are; `total` may read them all."""
        ...

    async def history(self, where: MemoryFilter, ids: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        """Return the events, oldest first, of those of the memories that `where` holds, by id."""
        ...

    async def forget(
        self, where: MemoryFilter, memory_id: str | None = None, *, by: str, dry_run: bool = False
    ) -> ForgetCounts:
        """Erase, durable on return, everything `where` (a user is required) or the one memory covers:
        memories with the older ones they superseded, history, the exchanges they came from, the answers
        that were given with them in view, and for a whole scope its sessions, jobs, quarantine, responses
        and conversations. Raises the user's generation and keeps a receipt that names `by`; of a memory
        that is not there neither. Other requests are served meanwhile, however much there is; a forget
        that a crash broke off goes on at the next start. `dry_run`: count only, change nothing.
        """
        ...


class SessionStore(Protocol):
    """Exchanges of sessions, and the triggers that turn them into jobs."""

    async def begin(self, exchange: NewExchange) -> StoredExchange:
        """Commit the user's half, durable on return. The same key again returns the first one's id and
        lets it be answered anew; of a standalone exchange only if nothing was said since, and lately.
        With a session's first exchange, the user's other sessions' pending ones become due."""
        ...

    async def resume(
        self, scope: Scope, session_id: str, key: str | None, response_id: str | None = None
    ) -> StoredExchange | None:
        """Return the exchange that the request goes on with, if the end of its answer is not here yet: the
        model called tools, or broke off. It is the session's newest with the `key` of its request, where that
        is known; else the one that `response_id` was answered to; without either the last. None for any
        other: nothing goes on with an answer to something else."""
        ...

    async def complete(self, begun: StoredExchange, outcome: Outcome, trigger: Trigger) -> bool:
        """Commit the answer and, in the same transaction, the job that `trigger` asks for; count an access
        of the memories recalled, and wake the user's jobs that wait for a credential. Returns False, and
        writes nothing, if the exchange was forgotten meanwhile. Idempotent; but an answer that is not whole
        gives way to one that is, unless a job has read it."""
        ...

    async def abort(self, begun: StoredExchange) -> None:
        """Remove an exchange that got no answer (the upstream refused it)."""
        ...

    async def recent(self, scope: Scope, session_id: str, limit: int) -> list[Exchange]:
        """Return the session's last exchanges, oldest first."""
        ...

    async def session_of(self, scope: Scope, response_id: str) -> str | None:
        """Return the session in which this user's response was made."""
        ...

    async def timezone(self, scope: Scope) -> str | None:
        """Return the user's last known time zone, None where no request has named one. Forgotten with the
        whole user."""
        ...

    async def sweep(self, now: float, trigger: Trigger) -> int:
        """Complete exchanges whose process died, and offer every session with pending exchanges and
        no queued job to `trigger`. Returns the number of jobs made."""
        ...

    async def end(self, scope: Scope, session_id: str, at: float) -> int:
        """Queue what the session holds unextracted, at once; returns how many exchanges. 0: nothing left,
        or no such session of the user (in the scope's project, or in any where it names none)."""
        ...

    async def sessions(self, scope: Scope, *, limit: int, after: str | None = None) -> Sequence[SessionInfo]:
        """Return up to `limit` of the user's sessions, the last used first, after the one with the cursor or
        id `after` (NotFound: none); of several with that id, after the last."""
        ...


class JobQueue(Protocol):
    """Extraction jobs: at least once, one at a time per user, survives kill -9."""

    async def claim(self, now: float, lease_s: float, *, upto_lane: int = 3) -> Job | None:
        """Lease the most urgent due job, or one whose lease ran out or whose owner died; of the lanes up to
        `upto_lane`."""
        ...

    async def batch(self, job: Job, *, limit: int, context: int) -> Batch:
        """Return what the job has to extract, oldest first; empty if it was forgotten."""
        ...

    async def retry(
        self, job: Job, *, at: float, reason: str, dead: bool = False, counted: bool = True
    ) -> None:
        """Put the job back until `at`, or among the dead letters. `reason` holds no content. Not `counted`:
        the job was not at fault, and this was no attempt."""
        ...

    async def wait_for_credential(self, job: Job) -> None:
        """Park the job until `wake` is called for its user."""
        ...

    async def wake(self, scope: Scope | None) -> bool:
        """Make the user's waiting jobs due, or, for None, everybody's; return whether there were any."""
        ...

    async def counts(self) -> QueueCounts:
        """Return the numbers of jobs by state."""
        ...

    async def list(
        self, tenant: str, user: str | None, *, state: JobState | None, limit: int, after: str | None = None
    ) -> Sequence[JobInfo]:
        """Return up to `limit` jobs of the user, or of the whole tenant, oldest first."""
        ...

    async def revive(self, tenant: str, user: str | None, job_id: str | None = None) -> int:
        """Queue dead letters again, with what they had read: one job, or all; returns how many."""
        ...


class Quarantine(Protocol):
    """Candidates that their owner should look at. They enter and leave through MemoryStore.apply."""

    async def held(
        self, scope: Scope, *, limit: int, after: str | None = None
    ) -> Sequence[QuarantinedCandidate]:
        """Return up to `limit` of the user's held candidates (in the scope's project, if it names one),
        newest first."""
        ...

    async def find(self, scope: Scope, held_id: str) -> QuarantinedCandidate | None:
        """Return one; None if absent or another's."""
        ...


class Receipts(Protocol):
    """Proofs of what was forgotten."""

    async def list(
        self, tenant: str, user: str | None, *, limit: int, after: str | None = None
    ) -> Sequence[Receipt]:
        """Return up to `limit` receipts of the user, or of the whole tenant, newest first."""
        ...


class KeyStore(Protocol):
    """The proxy's own API keys, found by a digest: the keys themselves are kept nowhere."""

    async def add(self, key: Key, digest: bytes) -> None:
        """Store a new key, durable on return."""
        ...

    async def find(self, digest: bytes) -> Key | None:
        """Return the key with this digest, also a revoked one."""
        ...

    async def list(self) -> Sequence[Key]:
        """Return all keys, the newest first."""
        ...

    async def revoke(self, key_id: str, at: float) -> bool:
        """Revoke a key, durable on return; False if there is none, or it was revoked before."""
        ...


class RateLimits(Protocol):
    """How often each subject has asked of late."""

    async def ask(self, subject: str, rate: Rate) -> RateVerdict:
        """Return the verdict on a request that the subject makes now; one that may pass is counted."""
        ...


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """What the thresholds, the weight and the collection's stamp belong to."""

    name: str
    dimension: int
    similarity_threshold: float  # cosine from which a memory may belong to a query
    related_threshold: float  # cosine from which one memory may restate or change another
    dense_weight: float = 0.65  # the cosine's share of the fused order; the rest is the words'


class Embedder(Protocol):
    """Texts to unit vectors. Many models read a question otherwise than what may answer it."""

    @property
    def model(self) -> EmbeddingModel: ...

    def begin(self, text: str) -> None:
        """Begin to embed a question that is about to be asked for, if that can be done meanwhile. A hint: it
        never fails, and may be wrong."""
        ...

    async def embed_query(self, text: str) -> bytes:
        """Return the float32 unit vector, as bytes, of a question that texts are looked up with. Raises
        EmbeddingFailed."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return one float32 unit vector, as bytes, for each text that is found or compared. Long texts are
        truncated by the model. Raises EmbeddingFailed."""
        ...

    def understands(self, text: str) -> bool:
        """False where too much of the text is unknown to the model: its vector would mean nothing."""
        ...


class Reranker(Protocol):
    """Reads a question and a text together: slower than comparing vectors, and better."""

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return how well each text answers the query, in order, as logits: the difference of two is the
        logarithm of their odds. Raises RerankFailed."""
        ...

    def understands(self, text: str) -> bool:
        """False where the model cannot read the text: its scores would mean nothing."""
        ...


class TokenCounter(Protocol):
    """Counts tokens as the model's tokenizer would, or nearly."""

    def count(self, text: str, model: str) -> int: ...


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One of our own LLM calls."""

    role: str  # "memory_extraction" | "memory_rewrite" | …
    system: str
    user: str
    model: str  # the conversation's; a model configured for the role wins
    scope: Scope
    session_id: str
    schema: Mapping[str, Any] | None = None  # JSON schema of the answer, for models that can be held to one


class Completer(Protocol):
    """Our own LLM calls."""

    async def complete(self, request: CompletionRequest) -> str:
        """Return the answer's text. Raises CredentialNeeded, CompletionRefused, CompletionPostponed or
        CompletionFailed."""
        ...


class Recorder(Protocol):
    """Writes exchanges down; what the request path needs of the write path."""

    async def begin(self, turn: Turn, key: str) -> StoredExchange | None:
        """Commit what the user said, durable on return. `key` is equal for the same request sent again. None:
        the user wants nothing of it stored."""
        ...

    async def resume(self, turn: Turn, key: str | None) -> StoredExchange | None:
        """Return the exchange that the turn goes on with (see SessionStore.resume)."""
        ...

    async def finish(self, begun: StoredExchange, outcome: Outcome) -> None:
        """Commit the answer, and an extraction job if one is due."""
        ...

    def keep(self, begun: StoredExchange, outcome: Outcome) -> None:
        """Finish later: it failed, or was not even tried."""
        ...

    async def abandon(self, begun: StoredExchange) -> None:
        """Take back an exchange that got no answer."""
        ...


# ---------------------------------------------------------------- all stores together
class MemoryMaintenance(MemoryStore, Protocol):
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


class SessionMaintenance(SessionStore, Protocol):
    """Sessions with their upkeep."""

    async def prune(self, before: float) -> int:
        """Delete the exchanges from before `before` that are extracted, and the sessions last used before
        it that are empty now. Returns the number of exchanges."""
        ...


class VectorStore(Protocol):
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
    def memories(self) -> MemoryMaintenance: ...
    @property
    def sessions(self) -> SessionMaintenance: ...
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
    def calls(self) -> CallQuota: ...
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
    def vectors(self) -> VectorStore: ...

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
