"""What the parts talk about: plain frozen values, no I/O, nothing of ours imported but such values.

Times are Unix seconds (UTC, float). Vectors are float32 and unit length. Text is what a person wrote.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import dropwhile, takewhile
from typing import Literal

from proxy.domain import timezones
from proxy.domain.kinds import KINDS as KINDS
from proxy.domain.kinds import Kind as Kind
from proxy.domain.kinds import with_children as with_children
from proxy.domain.notes import Anchor
from proxy.domain.reasons import Reason as Reason
from proxy.domain.reasons import Status as Status

DEFAULT_TIMEZONE = timezones.DEFAULT


# ---------------------------------------------------------------- who
@dataclass(frozen=True, slots=True)
class Scope:
    """Whose memory it is. `project=None` in a request means all of the user's memories; with a
    project, that project's and those of no project. A memory of `project=None` belongs to no project."""

    tenant: str
    user: str
    project: str | None = None


@dataclass(frozen=True, slots=True)
class Stamp:
    """The state of one user's memories: `generation` rises with every forget, `version` with every
    change of what a search could return. Writers hand back the stamp that they began under."""

    generation: int
    version: int


# ---------------------------------------------------------------- memories
Source = Literal["api", "explicit", "verbatim", "extracted", "assistant", "summary"]
"""How a memory came to be; "assistant": from what the assistant said, "summary": of a whole session."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a memory comes from: the exchange, and the verbatim words in it."""

    session_id: str
    exchange_id: str
    span: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One thing remembered. Never changed in place: a changed fact is a new memory that supersedes."""

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

    def is_current(self, now: float) -> bool:
        """True while the memory may be returned by a search."""
        expired = self.expires_at is not None and self.expires_at <= now
        return not (self.archived or self.superseded_by or expired)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A fact that was extracted and not yet admitted."""

    type: str
    content: str
    confidence: float = 0.8
    tags: tuple[str, ...] = ()
    evidence: str = ""  # verbatim span, "" where the model gave none
    replaces: str | None = None  # id of the existing memory it replaces
    source: Source = "extracted"
    importance: float = 0.5
    observed_at: float = 0.0  # when it was said
    timezone: str = DEFAULT_TIMEZONE  # the user's, then
    expires_at: float | None = None
    origin: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Create:
    """Store a new memory. `vector` is None where no embedder was at hand: lexical search only.

    With a `history` it comes from outside: the history stands in place of "created", and where another
    user of the tenant has its id, it gets one of its own. No id then names the memories of two users."""

    memory: Memory
    vector: bytes | None
    history: tuple["Event", ...] = ()
    reading: bytes | None = field(default=None, repr=False)  # see judging.Judge.readings


@dataclass(frozen=True, slots=True)
class Supersede:
    """Store `memory` and close `old_id`: it stays readable in the history and is never current again."""

    old_id: str
    memory: Memory
    vector: bytes | None
    reading: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Confirm:
    """The same fact was stated again: refresh `updated_at`, keep the better confidence, add the evidence. One
    that expires does so at `expires_at` if that is later; one that never does stays so."""

    id: str
    at: float
    confidence: float
    evidence: tuple[Evidence, ...] = ()
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """Correct a memory by hand, under its own id: the old content goes to the history."""

    memory: Memory
    vector: bytes | None
    reading: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Hold:
    """Put a doubtful candidate into quarantine: it is no memory until its owner says so."""

    id: str
    candidate: Candidate
    reason: str  # a constant word
    at: float


@dataclass(frozen=True, slots=True)
class Release:
    """Take a held candidate out of quarantine: it was looked at. What becomes of it are other changes."""

    id: str


Change = Create | Supersede | Confirm | Edit | Hold | Release


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a memory's history."""

    at: float
    action: str  # "created" | "confirmed" | "superseded" | "updated" | "archived" | "imported"
    by: str  # the memory's source, or the id of what superseded it
    content: str


# ---------------------------------------------------------------- search
@dataclass(frozen=True, slots=True)
class Search:
    """What to look for inside one scope. At least one of `vector` and `terms` is given."""

    vector: bytes | None  # float32, unit length
    terms: tuple[str, ...]
    limit: int = 50  # per list: the best `limit` by cosine and the best `limit` by BM25
    types: frozenset[str] | None = None  # None: all
    now: float = 0.0
    vectors: int = 0  # how many of the best by cosine are to come with their vectors


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory found. `cosine` is None where either side has no vector; `bm25` is 0 without a shared term."""

    memory: Memory
    cosine: float | None
    bm25: float
    vector: bytes | None = field(default=None, compare=False, repr=False)  # where it was asked for


@dataclass(frozen=True, slots=True)
class Ranked:
    """A hit with its final score in [0, 1] and why it was chosen, in a few words without content."""

    memory: Memory
    score: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFilter:
    """Which memories to list. `user=None`: any user's of the tenant (open mode's GET by id, an export)."""

    tenant: str
    user: str | None
    project: str | None = None  # exactly this project's
    type: str | None = None
    text: str | None = None  # substring, case-insensitive
    include_inactive: bool = False  # archived, superseded, expired too
    include_archived: bool = False  # archived too
    now: float = 0.0


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, newest first. `total` counts all that match, None where nobody asked."""

    items: tuple[Memory, ...]
    total: int | None
    has_more: bool


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a forget removed, or would remove: counts only. `receipt` is the id of its receipt."""

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
    """One message as memory sees it: its role and its plain text (text parts joined by newlines)."""

    role: str  # "system" | "developer" | "user" | "assistant" | "tool"
    text: str
    typed: str | None = None  # what the user typed of it (see wire.authorship); None: all
    pasted: bool = False  # what the user did not type of it, the user pasted

    @property
    def words(self) -> str:
        """The user's own words: the text without what was put around them."""
        return self.text if self.typed is None else self.typed

    @property
    def identity(self) -> str:
        """What stays the same when a client sends the message again: clients leave their wrapping out of the
        history, or write another one."""
        return self.typed if self.typed and not self.pasted else self.text

    @property
    def is_clients(self) -> bool:
        """True for a user's message of which the client wrote everything."""
        return self.typed == "" and not self.pasted


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """What one request asks of memory, defaults filled in."""

    read: bool
    write: bool
    types: tuple[str, ...] | None
    limit: int
    threshold: float | None  # None: the embedding model's own
    compress: bool = False  # a long history may give way to the session's state


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One intercepted request, as the client sent it, before anything is injected."""

    request_id: str
    scope: Scope
    session_id: str
    model: str
    messages: tuple[Message, ...]
    options: MemoryOptions
    at: float
    timezone: str | None = None  # the user's, where the request says it or it is known
    said_at: float | None = None  # when it was said, where that was before the request: an old conversation
    tool_forced: bool = False  # tool_choice demands a tool call
    may_loop: bool = (
        False  # the answer may take several requests: tools are offered, described in the text, or were used
    )
    named: bool = False  # the client named the session itself; else its beginning did
    standalone: bool = False  # of a named session, and with nothing of its history in it
    continues: str | None = None  # the response that the upstream is to go on from
    left_out: tuple[Message, ...] = ()  # of the conversation: the session's state takes their place
    shown: frozenset[str] = frozenset()  # memories that what it continues was given: the upstream holds them

    @property
    def query(self) -> str:
        """The user's own words in the last user message, or in the one before it where that has none (an
        image alone, a reminder of the client's); "" where there are none."""
        asked = self._asked
        return "" if asked is None else asked.words

    @property
    def pastes(self) -> bool:
        """True if the message that holds the query holds something pasted, too."""
        asked = self._asked
        return asked is not None and asked.pasted

    @property
    def _asked(self) -> Message | None:
        talk = (m for m in reversed(self.messages) if m.role not in ("system", "developer"))
        asked = takewhile(lambda m: m.role == "user", dropwhile(lambda m: m.role != "user", talk))
        return next((m for m in asked if m.words.strip()), None)

    @property
    def said(self) -> str:
        """The user's new words: those of the user messages after the last assistant message, joined."""
        since = takewhile(lambda m: m.role != "assistant", reversed(self.messages))
        new = [m.words for m in since if m.role == "user" and m.words]
        return "\n\n".join(reversed(new))

    @property
    def resumes(self) -> bool:
        """True if it brings what tools returned, and nothing new of the user's: the answer goes on."""
        last = next((m.role for m in reversed(self.messages) if m.role not in ("system", "developer")), "")
        return last == "tool" and not self.said.strip()


class Level(StrEnum):
    """How much of memory works. Order matters: each is worse than the one before."""

    FULL = "full"
    UNJUDGED = "unjudged"
    LEXICAL = "lexical"
    SESSION = "session"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the read path made of a turn. `block` is the text to insert, "" for nothing."""

    status: Status
    reason: Reason | None = None
    block: str = ""
    memory_ids: tuple[str, ...] = ()  # of the memories in it, and behind them of the documents
    tokens: int = 0
    level: Level = Level.FULL
    to_forget: tuple[str, ...] | None = ()  # memories that the message asks to forget; None: not known yet


# ---------------------------------------------------------------- the write path
@dataclass(frozen=True, slots=True, kw_only=True)
class NewExchange:
    """The user's half of an exchange, committed before the answer begins."""

    id: str
    key: str  # equal for the same request sent again: stored once
    standalone: bool = False  # the request holds no history: the same words may be said anew
    unnamed: bool = False  # the session is known by its first words: another conversation may have the same
    scope: Scope
    session_id: str
    model: str
    said: str
    at: float
    explicit: bool = False  # "remember that …": extract at once
    personal: bool = False  # says something about the user: extract soon
    anchors: tuple[Anchor, ...] = ()  # standing instructions in it, for the session
    stateful: bool = False  # the session's later requests may need its state (see NoteStore)
    timezone: str | None = None  # what the request says; stored as the user's last known zone
    said_at: float | None = None  # see Turn
    default_timezone: str = DEFAULT_TIMEZONE  # where the request says none and none is known of the user


@dataclass(frozen=True, slots=True)
class Begun:
    """Receipt for a committed NewExchange. `id` is the stored one: of the first request with this key."""

    id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the exchange ended."""

    answer: str
    whole: bool  # False: broken off by client, upstream or a crash
    response_id: str | None = None
    recalled: tuple[str, ...] = ()  # memories and documents that the model was shown: it may repeat them
    calls: bool = False  # not whole, for the client's tools are at work: it most likely goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """User text and answer, as committed. `seq` orders the exchanges of one store."""

    seq: int
    id: str
    scope: Scope
    session_id: str
    model: str
    said: str
    answer: str
    at: float
    whole: bool
    timezone: str = DEFAULT_TIMEZONE  # the user's, when it was said
    dated: float | None = None  # when it was said, where the request says that this was before `at`

    @property
    def said_at(self) -> float:
        """When it was said, Unix seconds."""
        return self.at if self.dated is None else self.dated

    @property
    def local(self) -> datetime:
        """When it was said, in the user's time zone."""
        return timezones.local(self.said_at, self.timezone)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """What triggers are decided on."""

    scope: Scope
    session_id: str
    last_at: float
    last_seq: int
    pending: int  # completed exchanges not yet extracted
    explicit: bool  # one of the pending is an explicit ask
    personal: bool  # one of the pending says something about the user
    at_work: bool = False  # one of the pending waits for what the client's tools return


@dataclass(frozen=True, slots=True)
class NewJob:
    """Extract what the session holds up to `upto`. A queued job of the session is widened, not doubled."""

    session_id: str
    upto: int
    lane: int  # 1 explicit, 2 ordinary, 3 batch: lower first
    closing: bool = False  # the session has come to its end: sum it up


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A claimed extraction: leased to its owner until `leased_until`."""

    id: str
    scope: Scope
    session_id: str
    upto: int
    lane: int
    attempts: int  # 1 on the first try
    leased_until: float
    created_at: float
    closing: bool = False  # the session has come to its end: sum it up


@dataclass(frozen=True, slots=True)
class Batch:
    """What one extraction reads: the pending exchanges, and a few before them for context only."""

    pending: tuple[Exchange, ...]
    context: tuple[Exchange, ...]
    stamp: Stamp
