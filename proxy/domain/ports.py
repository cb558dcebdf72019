"""What the parts need from outside, as Protocols. Those of sessions, documents, responses and changes are
next to their values.

Every async method may raise StoreUnavailable (stores), EmbeddingFailed (embedder) or
CompletionFailed (completer); other errors are named at the method.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from proxy.domain.changes import (
    Applied,
    Change,
    Event,
    TimelineEvent,
)
from proxy.domain.core import (
    Entity,
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
)
from proxy.domain.limits import Rate, RateVerdict
from proxy.domain.session import (
    Job,
)

Clock = Callable[[], float]
"""Returns Unix seconds."""

ProfileKind = Literal["", "rule", "trait", "pinned", "core"]
"""How a memory applies to every conversation: as a rule for answers, as a trait of the user, as pinned by the
user, as used in many answers, or "": it does not."""

SortProfile = Callable[[Sequence[bytes]], Sequence[ProfileKind]]
"""Classifies memories by their vectors. Called in a reader's thread."""


# ---------------------------------------------------------------- memories
class Snapshot(Protocol):
    """A scope's memories at the moment it was taken, for the request that took it."""

    @property
    def profile(self) -> Sequence[tuple[Memory, ProfileKind]]:
        """The user's memories that apply to every conversation, of any project, the latest first."""

    @property
    def has_faded(self) -> bool:
        """True if there are memories that lack of use has archived."""

    def search(self, search: Search) -> Sequence[Hit] | None:
        """Return what MemoryStore.search would have returned, without waiting; None if the memories are not
        in memory, or once the user forgot something."""


class MemoryReader(Protocol):
    """Memories of many users; every read stays inside one scope."""

    async def search(self, scope: Scope, search: Search) -> Sequence[Hit]:
        """Return the union of the best by cosine and the best by BM25 among the scope's current memories,
        each with both scores. The cost does not grow with the number of users."""

    def snapshot(self, scope: Scope, sort: SortProfile | None = None) -> Awaitable[Snapshot | None]:
        """Begin to read the scope's memories; await the result, None from a store that has none in memory.
        `sort` finds the profile. Call it before the question is embedded, so that nothing waits for the
        store. It may be cancelled. Raises StoreUnavailable, at once or when awaited."""

    async def readings(self, scope: Scope, ids: Sequence[str]) -> Sequence[bytes | None]:
        """Return the stored reading of each of the user's memories (see Judge), None without one."""

    async def get(self, where: MemoryFilter, memory_id: str) -> Memory | None:
        """Return the memory, also a superseded one; None if absent or outside `where`."""

    async def list(
        self,
        where: MemoryFilter,
        *,
        limit: int,
        after: str | None = None,
        oldest_first: bool = False,
        total: bool = True,
    ) -> Page:
        """Return memories newest first, after the memory with id `after` (unknown id: NotFound). For a whole
        tenant only each user's own order is guaranteed. The cost of a page does not grow with the number of
        memories; `total` may read them all."""

    async def history(self, where: MemoryFilter, ids: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        """Return, by id, the events (oldest first) of the memories that are inside `where`."""


class MemoryStore(MemoryReader, Protocol):
    """Memories with their changes, each inside one scope too."""

    async def stamp(self, scope: Scope) -> Stamp:
        """Return the user's stamp; (0, 0) for an unknown user."""

    async def apply(
        self, scope: Scope, changes: Sequence[Change], *, expect: Stamp, done: Job | None = None
    ) -> Applied:
        """Apply all changes and finish `done` in one transaction, durable on return, within the quota.

        Raises Conflict, with nothing applied, if the user's stamp is no longer `expect`, and LeaseLost if
        `done`'s lease was lost. A Create whose id or current (user, project, type, normalised content)
        exists is dropped and reported; Supersede or Confirm of an absent memory stores the new one or
        nothing. An Edit of an absent memory raises NotFound, one that would duplicate another current
        memory Duplicate.
        """

    async def touch(self, scope: Scope, ids: Sequence[str], at: float) -> None:
        """Count an access of existing memories, once per id given. Does not change the stamp."""

    async def forget(
        self, where: MemoryFilter, memory_id: str | None = None, *, by: str, dry_run: bool = False
    ) -> ForgetCounts:
        """Erase, durable on return, everything that `where` (a user is required) or the one memory covers:
        memories with the older ones they superseded, history, the exchanges they came from, the answers
        given with them in context, and for a whole scope its sessions, jobs, quarantine, responses and
        conversations. Raises the user's generation and stores a receipt that names `by`; neither if the
        one memory is absent. Other requests are served while it runs; after a crash it continues at the
        next start. `dry_run`: count only.
        """


class Timeline(Protocol):
    """What happened to a user's memories, and what they said before. The cost of a page does not grow with
    the number of memories."""

    async def events(
        self, where: MemoryFilter, *, limit: int, after: str | None = None
    ) -> Sequence[TimelineEvent]:
        """Return up to `limit` events inside `where` (a user is required; its `since`, `until` and `project`
        count), the latest first, after the one with id `after` (unknown id: NotFound)."""

    async def earlier(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Sequence[Memory]]:
        """Return, by id, what the user's memories superseded in one or several steps, the latest first; only
        those that superseded something, and only the last few steps."""


class EntityStore(Protocol):
    """People, places, projects and things that a user's memories name, merged by name and alias. They are
    written with the memories, and erased with the last one that names them."""

    async def list(self, where: MemoryFilter, *, limit: int, after: str | None = None) -> Sequence[Entity]:
        """Return up to `limit` entities that current memories inside `where` (a user is required) name, the
        latest first, after the one with id `after` (unknown id: NotFound)."""

    async def memories(
        self, where: MemoryFilter, entity_id: str, *, limit: int, after: str | None = None
    ) -> Page:
        """Return the current memories inside `where` that name the entity, newest first; no total. Raises
        NotFound for an entity, or a memory `after`, that is not the user's."""

    async def linked(self, scope: Scope, ids: Sequence[str], *, now: float, limit: int) -> Sequence[Memory]:
        """Return current memories that name what one of these memories names, newest first, without these.
        Names in many memories are not followed."""

    async def knows(self, scope: Scope, names: Sequence[str], *, now: float) -> bool:
        """Return whether a current or archived memory of the scope certainly names one of these."""


class Quarantine(Protocol):
    """Candidates for their owner to review. They enter and leave through MemoryStore.apply."""

    async def held(
        self, scope: Scope, *, limit: int, after: str | None = None
    ) -> Sequence[QuarantinedCandidate]:
        """Return up to `limit` of the user's candidates (in the scope's project, if it names one), newest
        first."""

    async def find(self, scope: Scope, held_id: str) -> QuarantinedCandidate | None:
        """Return one; None if absent or another user's."""


class Receipts(Protocol):
    async def list(
        self, tenant: str, user: str | None, *, limit: int, after: str | None = None
    ) -> Sequence[Receipt]:
        """Return up to `limit` receipts of the user, or of the whole tenant, newest first."""


# ---------------------------------------------------------------- keys, limits, learnt request forms
RIGHTS = frozenset(("chat", "memory", "admin"))
"""chat: the model. memory: the memory API, own scope. admin: all users of the tenant, jobs, receipts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One of the proxy's own API keys, without its secret."""

    id: str  # public: operators list and revoke by it
    name: str
    tenant: str
    user: str | None  # fixed by the key, or None: the caller may name one
    rights: frozenset[str]  # of RIGHTS
    upstream_key: bytes | None  # encrypted with the key's secret
    created_at: float
    revoked_at: float | None = None


class KeyStore(Protocol):
    """The proxy's own API keys by their digest; their secrets are not stored."""

    async def add(self, key: Key, digest: bytes) -> None:
        """Store a new key, durable on return."""

    async def find(self, digest: bytes) -> Key | None:
        """Return the key with this digest, also a revoked one."""

    async def list(self) -> Sequence[Key]:
        """Return all keys, the newest first."""

    async def revoke(self, key_id: str, at: float) -> bool:
        """Revoke a key, durable on return; False if it is absent or revoked already."""


class RateLimits(Protocol):
    async def ask(self, subject: str, rate: Rate) -> RateVerdict:
        """Decide on a request that the subject makes now, and count it if it may pass."""


class FormStore(Protocol):
    """The request forms that models were found to accept (upstream.forms): rows by key, each with `until`."""

    async def load(self) -> Mapping[str, str]: ...

    async def save(self, rows: Mapping[str, str], most: int) -> None:
        """Add or replace these rows, and keep the `most` that are valid the longest."""


# ---------------------------------------------------------------- models
@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """An embedding model: the stamp of stores, and the constants that depend on it."""

    name: str
    dimension: int
    similarity_threshold: float  # cosine from which a memory may belong to a query
    related_threshold: float  # cosine from which one memory may restate or change another
    dense_weight: float = 0.65  # the cosine's share of the fused order; the rest is BM25's


class Embedder(Protocol):
    """Texts to float32 unit vectors, as bytes. Many models embed a question differently from a passage."""

    @property
    def model(self) -> EmbeddingModel: ...

    def begin(self, text: str) -> None:
        """Begin to embed a question that is about to be requested. A hint: it never fails."""

    async def embed_query(self, text: str) -> bytes:
        """Return the vector of a question. Raises EmbeddingFailed."""

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return one vector for each text to find or compare. The model truncates long texts. Raises
        EmbeddingFailed."""

    def understands(self, text: str) -> bool:
        """False if too much of the text is unknown to the model for its vector to mean anything."""


class Reranker(Protocol):
    """Reads a question and a text together: slower than comparing vectors, and better."""

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return how well each text answers the query, in order, as logits. Raises RerankFailed."""

    def understands(self, text: str) -> bool:
        """False if the model cannot read the text."""


class TokenCounter(Protocol):
    """Counts tokens as the model's tokenizer would, or nearly."""

    def count(self, text: str, model: str) -> int: ...


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    role: str  # "memory_extraction" | "memory_rewrite" | …
    system: str
    user: str
    model: str  # the conversation's; a model configured for the role wins
    scope: Scope
    session_id: str
    schema: Mapping[str, Any] | None = None  # JSON schema of the answer, for models that support one


class Completer(Protocol):
    async def complete(self, request: CompletionRequest) -> str:
        """Return the answer's text. Raises CredentialNeeded, CompletionRefused, CompletionPostponed or
        CompletionFailed."""


# ---------------------------------------------------------------- the judge
# Every score is a probability. Heads are calibrated on held-out users, so that 0.5 is the operating point.
@dataclass(frozen=True, slots=True)
class Needs:
    """What an answer to a message needs. `memory` is calibrated separately, since a missed memory is worse
    than a wasted search; the others give the reason if no memory is needed."""

    memory: float
    small_talk: float
    world: float
    tool: float
    self_contained: float


@dataclass(frozen=True, slots=True)
class Asks:
    """What a message asks the assistant to do with its memory, each judged independently."""

    remember: float
    forget: float
    off_record: float
    rule: float  # a standing instruction: "always answer in Spanish"


@dataclass(frozen=True, slots=True)
class Reading:
    """One pass of the encoder over a message: the vector to search with (float32, unit length) and what the
    message-level heads say. `states`: the hidden states, for `Judge.helps` only."""

    vector: bytes
    needs: Needs
    asks: Asks
    states: bytes = b""


class MemoryText(NamedTuple):
    content: str
    vector: bytes | None = None


StoredReadings = Callable[[Sequence[int]], Awaitable[Sequence[bytes | None]]]
"""Returns the stored readings (see `Judge.readings`) of the memories at these indices, None if absent."""


@dataclass(frozen=True, slots=True)
class Relation:
    """How a newer fact relates to an older one; the three sum to 1."""

    same: float
    changed: float  # both cannot be true now: the newer one replaces the older one
    apart: float


@dataclass(frozen=True, slots=True)
class Statement:
    """The judgement of a candidate extracted from a message. Labels as in training/data/README.md.

    `follows`: it follows from the user's own words. `user`, `other`, `impersonal`: who the fact is about;
    they sum to 1. `sense`: how it was said, by label ("stated", "hedged", "hypothetical", "fiction",
    "quoted", "sarcastic", "transient", "instruction", "rule", "remember", "forget", "off_record"); they
    sum to 1.
    """

    follows: float
    user: float
    other: float
    impersonal: float
    sense: dict[str, float]

    @property
    def main_sense(self) -> str:
        return max(self.sense, key=self.sense.__getitem__)


@dataclass(frozen=True, slots=True)
class ProfileScores:
    """Whether a memory applies to every conversation. `rule`: how to answer (language, tone, units, form of
    address). `trait`: what most answers about the user's life must respect (diet, health, accessibility)."""

    rule: float
    trait: float


class Judge(Protocol):
    """The heads. Every method raises EmbeddingFailed if the models cannot be used."""

    def begin(self, text: str) -> None:
        """Start to read a message that is about to be passed to `read`. A hint: it never fails."""

    async def read(self, text: str, *, closely: bool = False) -> Reading:
        """Return what the message-level heads say about a user's message. A message that makes no sense
        alone is passed after the user's message before it, joined by a newline. `closely`: verify
        everything that it asks of memory; else only whether it asks to forget, which the answer depends
        on."""

    async def helps(
        self, message: Reading, memories: Sequence[MemoryText], stored: StoredReadings | None = None
    ) -> list[float]:
        """Return for each memory whether it helps to answer the message. `stored` is called for the few
        memories that are read together with the message; one without a stored reading of this model is
        read from its content, which takes longer."""

    async def readings(self, contents: Sequence[str]) -> list[bytes | None]:
        """Return what to store with each memory (2 kB), so that `helps` need not read it for each message;
        None if this judge reads no memories."""

    async def covers(self, message: str, contents: Sequence[str]) -> list[float]:
        """Return for each memory whether a message that asks to forget something refers to it."""

    def profile(self, vectors: Sequence[bytes]) -> list[ProfileScores]:
        """Return for each memory's vector whether it applies to every conversation."""

    async def relations(self, pairs: Sequence[tuple[str, str]]) -> list[Relation]:
        """Return the relation of each pair (older fact, newer fact)."""

    async def statements(self, pairs: Sequence[tuple[str, str]]) -> list[Statement]:
        """Return the judgement of each pair (message, candidate). 128 tokens are read, both texts
        together: of a long message pass the part around the evidence."""
