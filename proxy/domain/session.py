"""Sessions: exchanges, the jobs that extract them, and session notes. Frozen values, and the port for notes.

Session notes are not memories: they belong to one session and end with it. Anchors are the user's standing
instructions, lines are the last turns in short, and the state sums up everything before them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, get_args

from proxy.domain import timezones
from proxy.domain.core import DEFAULT_TIMEZONE, Scope, Stamp

# ---------------------------------------------------------------- notes
State = Mapping[str, str | Sequence[str]]

OTHER = "other"
"""The slot of instructions of which several hold side by side. Of any other slot the last one said holds."""
EVERY, LATEST = "every", "latest"
"""Slots of an instruction that ends others: all of them; the one that the exchange before has set."""
MOST_ANCHORS = 10
MOST_ANCHOR_CHARS = 200
MOST_LINE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Anchor:
    """A standing instruction in the user's own words; without words, the end of what the slot held."""

    slot: str  # any name, OTHER; EVERY or LATEST only without words
    text: str
    at: float = 0.0  # when it was said


@dataclass(frozen=True, slots=True)
class RecentTurn:
    """One turn in short."""

    said: str
    answered: str
    at: float


@dataclass(frozen=True, slots=True)
class SessionNotes:
    """What a request of the session may be reminded of. Everything oldest first."""

    anchors: tuple[Anchor, ...] = ()
    lines: tuple[RecentTurn, ...] = ()
    state: State | None = None  # only where there were more turns than `lines` tell
    state_at: float = 0.0


NO_NOTES = SessionNotes()


@dataclass(frozen=True, slots=True)
class CoveredState:
    """A session's state, and the marks of the exchanges that it stands for (see recall.history)."""

    state: State
    covered: frozenset[str]


# ---------------------------------------------------------------- exchanges and jobs
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
class StoredExchange:
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


JobState = Literal["queued", "running", "waiting", "dead"]
"""Of an extraction job: due, or due later; being served; in want of a credential; given up for good."""


JOB_STATES: tuple[JobState, ...] = get_args(JobState)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """One conversation as far as memory keeps it. Never what was said."""

    id: str
    scope: Scope
    last_at: float
    exchanges: int
    pending: int  # not extracted yet
    cursor: str  # for `after`: the id, made unambiguous where projects have sessions of the same name


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """One extraction job. `reason` says why it waits or died, in a constant word."""

    id: str
    scope: Scope
    session_id: str
    state: JobState
    lane: int
    attempts: int
    exchanges: int  # what it has to read
    created_at: float
    due_at: float
    reason: str


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Jobs by state."""

    queued: int = 0
    running: int = 0
    waiting: int = 0  # for a credential
    dead: int = 0
    oldest_at: float | None = None


EXPLICIT, ORDINARY, BATCH = LANES = (1, 2, 3)


def rest_of(state: SessionState, *, closing: bool = False) -> NewJob:
    """Return the job that reads all that a session holds."""
    lane = EXPLICIT if state.explicit else ORDINARY
    return NewJob(state.session_id, state.last_seq, lane, closing)


@dataclass(frozen=True, slots=True)
class UncoveredExchanges:
    """What a session's state does not tell yet: the exchanges since, oldest first, with their keys."""

    state: State | None
    exchanges: tuple[Exchange, ...]
    keys: tuple[str, ...]
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class Episode:
    """A session that can be summed up: its answered exchanges, oldest first, and the memory that summed it
    up before."""

    exchanges: tuple[Exchange, ...]
    before: str | None


class NoteStore(Protocol):
    """What is stored of a session in addition to its exchanges (see domain.notes). Anchors are stored with
    the exchange that states them (NewExchange.anchors); they and the state are erased with it.
    Nothing is shown while something of the user is being forgotten."""

    async def notes(
        self, scope: Scope, session_id: str, *, after: str | None = None, lines: int = 0
    ) -> SessionNotes:
        """Return the anchors in force and, with `lines`, the last turns in short and the state where it tells
        of more. `after`: only the anchors that were said by the time of this answer; for a conversation
        that has its session by its beginning, which another may share."""
        ...

    async def standing(self, scope: Scope, session_id: str) -> CoveredState | None:
        """Return the session's state and the marks of what it stands for; None without."""
        ...

    async def unread(self, scope: Scope, session_id: str, *, limit: int) -> UncoveredExchanges | None:
        """Return up to `limit` answered exchanges that the state does not tell yet; None where nobody wants
        the session's state (NewExchange.stateful)."""
        ...

    async def keep_state(
        self, scope: Scope, session_id: str, state: State, upto: Exchange, marks: Sequence[str],
        *, expect: Stamp,
    ) -> bool:  # fmt: skip
        """Replace the state, which now tells of all up to the exchange, and add the marks, durable on return.
        Returns False, and keeps nothing, if the user forgot something since `expect`, or if the state tells
        of that exchange already."""
        ...

    async def episode(self, job: Job, *, limit: int) -> Episode | None:
        """Return the session up to the job's last exchange, at most the last `limit`; None while some of it
        is still to be extracted by other jobs, or if it was forgotten."""
        ...

    async def close(self, *, idle_since: float, left_since: float, now: float) -> int:
        """Queue a closing job for each session with anything that is not summed up yet and that has ended:
        its client said so, it was last used before `idle_since`, or before `left_since` and its user has
        begun another. A session of one exchange needs no summary. Returns how many."""
        ...
