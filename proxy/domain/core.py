"""Core value types: scopes, memories, searches, conversations. Frozen, no I/O.

Times are Unix seconds (UTC, float). Vectors are float32 and unit length. Text is what a person wrote.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from itertools import dropwhile, takewhile
from typing import Literal


# ---------------------------------------------------------------- response headers
class Status(StrEnum):
    """Value of the response header X-Memory-Status."""

    INJECTED = "injected"
    NONE = "none"
    SKIPPED = "skipped"
    OFF = "off"
    DEGRADED = "degraded"


class Reason(StrEnum):
    """Value of the response header X-Memory-Reason, and its meaning; docs/memory.md lists both."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> "Reason":
        made = str.__new__(cls, word)
        made._value_, made.meaning = word, meaning
        return made

    # The request has no memory: status off.
    NOT_JSON = "not_json", "the body is not a JSON object; it is forwarded unchanged"
    OTHER_PATH = (
        "other_path",
        "memory works on /v1/chat/completions and /v1/responses; this path is forwarded",
    )
    FOREIGN_ORIGIN = "foreign_origin", "sent by a web page of another origin (`identity.allowed_origins`)"
    FOREIGN_HOST = "foreign_host", "refused: unknown host name (`identity.allowed_hosts`)"
    DISABLED = "disabled", "the request or the settings disable reading and storing"
    NO_USER = "no_user", "the request names no user"
    UNFILLED_USER = "unfilled_user", "the user is an unfilled placeholder, such as `{{USER_ID}}`"
    HOUSEKEEPING = "housekeeping", "a chat program's own request: a title, tags, a search query, a summary"
    COMPACTION = "compaction", "the conversation is being compacted (`compaction_trigger`)"
    READ_OFF = "read_off", "the request disables reading (`X-Memory-Mode: write`)"
    # Nothing is searched for: status skipped.
    TOOL_FORCED = "tool_forced", "`tool_choice` forces a tool call"
    NO_QUERY = "no_query", "the last user message contains no words of the user (an image, a reminder)"
    GREETING = "greeting", "small talk: a greeting, thanks, an acknowledgement"
    SELF_CONTAINED = "self_contained", "a task that includes all it needs: translate, calculate, rewrite …"
    TOOL_ANSWERS = "tool_answers", "live data or a task for a tool: the weather, a price, the time in a city"
    GENERAL_FACT = "general_fact", "a question of general knowledge"
    SHORT_QUERY = "short_query", "the message is shorter than `retrieval.min_query_chars`"
    FIRST_TURN = "first_turn", "the first message of a conversation (`retrieval.skip_first_turn`)"
    PLAN = "plan", "the model of `memory_plan` cancelled the search"
    # Searched for, and nothing to show: status none.
    NO_MEMORIES = "no_memories", "the user has no memories"
    BELOW_THRESHOLD = "below_threshold", "no memory is near enough to the question"
    DOUBTED = "doubted", "only uncertain preferences were found; they are shown once the user repeats them"
    UNANSWERED = "unanswered", "the memories that were found do not help with the message"
    ALREADY_VISIBLE = "already_visible", "the conversation already shows all that was found"
    FORGOTTEN = "forgotten", "the message asks to forget all that was found; it is hidden and deleted"
    OVER_BUDGET = "over_budget", "no memory fits into `memory.budget_tokens`"
    NO_PLACE = "no_place", "the request has no user message of a known form to insert memory at"
    REFUSED = "refused", "the upstream refused the request with memory and accepted it without"
    # Injected all the same.
    PROFILE = "profile", "the block holds only what applies to every conversation: standing rules, traits"
    SESSION = "session", "the block holds only the session's notes"
    # Memory failed, the request did not: status degraded.
    DEADLINE = "deadline", "memory was not ready within `memory.deadline_ms`"
    BUSY = "busy", "too many concurrent searches for this process within `memory.deadline_ms`"
    STORE_UNAVAILABLE = "store_unavailable", "the store is unavailable"
    EMBEDDING_FAILED = "embedding_failed", "the embedding model failed"
    ERROR = "error", "an operation that memory needs timed out"
    MEMORY_ERROR = "memory_error", "any other failure; the log names it"


# ---------------------------------------------------------------- memory types
@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    parent: str | None  # a filter on the parent matches this kind too
    pack_order: int  # when the token budget is short, lower goes in first


KINDS = {
    kind.name: kind
    for kind in (
        Kind("preference", parent="semantic", pack_order=1),
        Kind("episodic", parent=None, pack_order=2),
        Kind("semantic", parent=None, pack_order=3),
        Kind("procedural", parent=None, pack_order=4),
        Kind("reflective", parent=None, pack_order=5),  # concluded from other memories: not the user's words
    )
}


STATED_KINDS = tuple(name for name in sorted(KINDS) if name != "reflective")
"""The types of what a conversation states."""


def with_children(types: tuple[str, ...]) -> frozenset[str]:
    """Return the types and every kind whose parent is among them."""
    return frozenset(k.name for k in KINDS.values() if k.name in types or k.parent in types)


DEFAULT_TIMEZONE = "UTC"


# ---------------------------------------------------------------- who
@dataclass(frozen=True, slots=True)
class Scope:
    """The owner of memories. In a request `project=None` means all of the user's memories; a project means
    its own and those of no project."""

    tenant: str
    user: str
    project: str | None = None


@dataclass(frozen=True, slots=True)
class Stamp:
    """The state of one user's memories: `generation` rises with every forget, `version` with every change of
    what a search could return. Writers pass the stamp that they began under."""

    generation: int
    version: int


# ---------------------------------------------------------------- memories
Source = Literal[
    "api", "explicit", "verbatim", "extracted", "assistant", "summary", "consolidated", "reflection"
]
"""How a memory was made; "assistant": from what the assistant said, "summary": of a whole session,
"consolidated": from memories that it supersedes, "reflection": inferred from memories or answers."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a memory comes from: the exchange, and the verbatim words in it."""

    session_id: str
    exchange_id: str
    span: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One remembered fact. It is not changed in place: a changed fact is a new memory that supersedes it."""

    id: str
    scope: Scope
    type: str
    content: str
    source: Source
    created_at: float
    updated_at: float
    valid_from: float
    valid_to: float | None = None
    superseded_by: str | None = None
    expires_at: float | None = None
    archived: bool = False
    importance: float = 0.5
    weight: float = 1.0
    confidence: float = 1.0
    tags: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    access_count: int = 0
    last_accessed: float | None = None
    pinned: bool = False  # by its owner: it belongs to the profile, and does not fade
    uses: int = 0  # answers that used it
    used_at: float | None = None
    archived_by: str | None = None  # see Archive
    core: bool = False  # pinned, or used so often that it belongs to the profile
    sources: tuple[str, ...] = ()  # ids of the memories that it was made from
    contradicted_by: str | None = None  # id of a newer one; both cannot hold, and neither is certain

    @property
    def held_until(self) -> float:
        """When a superseded memory stopped to hold."""
        return self.updated_at if self.valid_to is None else self.valid_to

    def is_current(self, now: float) -> bool:
        """True while the memory may be returned by a search."""
        expired = self.expires_at is not None and self.expires_at <= now
        return not (self.archived or self.superseded_by or expired)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An extracted fact that the write gate has not admitted yet."""

    type: str
    content: str
    confidence: float = 0.8
    tags: tuple[str, ...] = ()
    evidence: str = ""  # verbatim span, "" where the model gave none
    replaces: str | None = None  # id of the existing memory it replaces
    source: Source = "extracted"
    importance: float = 0.5
    observed_at: float = 0.0  # when it was said
    timezone: str = DEFAULT_TIMEZONE  # the user's, at that time
    expires_at: float | None = None
    origin: Evidence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """What memories name. `kind`: "person", "place", "project", "thing", or "name" if only its form is known.
    `memories`: how many current ones name it; `linked`: ids of entities that these name, too."""

    id: str
    kind: str
    name: str
    aliases: tuple[str, ...] = ()
    memories: int = 0
    linked: tuple[str, ...] = ()


# ---------------------------------------------------------------- search
@dataclass(frozen=True, slots=True)
class Search:
    """A search inside one scope, by `vector`, by `terms`, or by both."""

    vector: bytes | None  # float32, unit length
    terms: tuple[str, ...]
    limit: int = 50  # per list: the best `limit` by cosine and the best `limit` by BM25
    types: frozenset[str] | None = None  # None: all
    now: float = 0.0
    vectors: int = 0  # how many of the best by cosine are returned with their vectors
    faded: bool = False  # among the memories that were archived for lack of use, instead of the current ones


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory found. `cosine` is None where either side has no vector; `bm25` is 0 without a shared term."""

    memory: Memory
    cosine: float | None
    bm25: float
    vector: bytes | None = field(default=None, compare=False, repr=False)  # if requested


@dataclass(frozen=True, slots=True)
class Ranked:
    """A memory with its final score in [0, 1], and why it was chosen, without content."""

    memory: Memory
    score: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFilter:
    """Which memories to list. `user=None`: all users of the tenant (GET by id in open mode, an export)."""

    tenant: str
    user: str | None
    project: str | None = None  # exactly this project's
    type: str | None = None
    text: str | None = None  # substring, case-insensitive
    include_inactive: bool = False  # archived, superseded, expired too
    include_archived: bool = False  # archived too
    only_archived: bool = False
    now: float = 0.0
    # Times need a user; the list is then ordered by when the memories became true, the latest first.
    as_of: float | None = None  # as it was at this moment: what was current, in its wording of then
    since: float | None = None  # became true at this moment or later
    until: float | None = None  # and before this one

    @property
    def is_timed(self) -> bool:
        return (self.as_of, self.since, self.until) != (None, None, None)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, newest first. `total` counts all that match; None if it was not requested."""

    items: tuple[Memory, ...]
    total: int | None
    has_more: bool


@dataclass(frozen=True, slots=True)
class ForgetCounts:
    """How much a forget removed, or would remove. `receipt` is the id of its receipt."""

    memories: int = 0
    exchanges: int = 0
    sessions: int = 0
    jobs: int = 0
    responses: int = 0
    quarantined: int = 0
    documents: int = 0
    conversations: int = 0
    receipt: str | None = None


# ---------------------------------------------------------------- conversation
@dataclass(frozen=True, slots=True)
class Message:
    """A message as memory reads it: its role and its plain text (text parts joined by newlines)."""

    role: str  # "system" | "developer" | "user" | "assistant" | "tool"
    text: str
    typed: str | None = None  # the part that the user typed (see wire.authorship); None: all
    pasted: bool = False  # the rest was pasted by the user, not added by the client

    @property
    def words(self) -> str:
        """The user's own words, without what the client wrapped around them."""
        return self.text if self.typed is None else self.typed

    @property
    def identity(self) -> str:
        """What stays the same when a client sends the message again with other wrapping, or none."""
        return self.typed if self.typed and not self.pasted else self.text

    @property
    def is_clients(self) -> bool:
        """True for a user message that the client wrote entirely."""
        return self.typed == "" and not self.pasted


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    read: bool
    write: bool
    types: tuple[str, ...] | None
    limit: int
    threshold: float | None  # None: the embedding model's own
    compress: bool = False  # the session's state may replace old turns of a long history


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One intercepted request as the client sent it, before anything is injected."""

    request_id: str
    scope: Scope
    session_id: str
    model: str
    messages: tuple[Message, ...]
    options: MemoryOptions
    at: float
    timezone: str | None = None  # the user's, from the request or from an earlier one
    said_at: float | None = None  # when it was said, if before the request: an old conversation
    tool_forced: bool = False  # tool_choice forces a tool call
    # The answer may take several requests: tools are offered, described in the text, or were used.
    may_loop: bool = False
    named: bool = False  # the client named the session; else its id is a fingerprint of the beginning
    standalone: bool = False  # of a named session, without any of its history
    continues: str | None = None  # the response that the upstream continues
    left_out: tuple[Message, ...] = ()  # messages that the session's state replaces
    shown: frozenset[str] = frozenset()  # memories injected into what it continues: the upstream has them

    @property
    def query(self) -> str:
        """The user's own words in the last user message, or in the one before it if that has none (an image,
        a client's reminder); "" if there are none."""
        talk = (m for m in reversed(self.messages) if m.role not in ("system", "developer"))
        asked = takewhile(lambda m: m.role == "user", dropwhile(lambda m: m.role != "user", talk))
        return next((m.words for m in asked if m.words.strip()), "")

    @property
    def said(self) -> str:
        """The user's new words: those of the user messages after the last assistant message, joined."""
        since = takewhile(lambda m: m.role != "assistant", reversed(self.messages))
        new = [m.words for m in since if m.role == "user" and m.words]
        return "\n\n".join(reversed(new))

    @property
    def resumes(self) -> bool:
        """True if it holds tool results and no new words of the user: the answer continues."""
        last = next((m.role for m in reversed(self.messages) if m.role not in ("system", "developer")), "")
        return last == "tool" and not self.said.strip()


class Level(StrEnum):
    """How much of memory works, best first."""

    FULL = "full"
    UNJUDGED = "unjudged"
    LEXICAL = "lexical"
    SESSION = "session"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The result of the read path for a turn. `block` is the text to insert, "" for nothing."""

    status: Status
    reason: Reason | None = None
    block: str = ""
    memory_ids: tuple[str, ...] = ()  # of the memories in it, then of the documents
    tokens: int = 0
    level: Level = Level.FULL
    to_forget: tuple[str, ...] | None = ()  # memories that the message asks to forget; None: not judged yet


# ---------------------------------------------------------------- quota, quarantine, receipts
@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one user's memory; 0: none. At a limit the weakest memories are evicted, or new ones are
    refused."""

    memories: int = 0
    content_bytes: int = 0  # UTF-8 bytes of the contents
    evict: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Proof of a forget: what was requested, when, by which credential, and the counts; no content."""

    id: str
    tenant: str
    user: str
    project: str | None
    type: str | None
    memory_id: str | None
    by: str  # the credential's label: "open", "key:…", "jwt", "header", or "retention"
    at: float
    counts: ForgetCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedCandidate:
    id: str
    scope: Scope
    candidate: Candidate
    reason: str
    at: float


# ---------------------------------------------------------------- imported ids
def own_id(scope: Scope, id_: str) -> str:
    """Return the id that replaces an imported one which another user of the tenant already has.

    It depends on the user and the id alone: links between memories and repeated imports still match, and
    the importer learns nothing about others."""
    digest = blake2b(f"{scope.tenant}\0{scope.user}\0{id_}".encode(errors="replace"), digest_size=12)
    return f"mem_{digest.hexdigest()}"
