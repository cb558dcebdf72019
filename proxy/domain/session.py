"""Sessions: exchanges, the jobs that extract them, and session notes. Frozen values and ports.

Session notes are not memories: they belong to one session and end with it. Anchors are the user's standing
instructions, recent turns are shown in short, and the state sums up everything before them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from proxy.domain.core import DEFAULT_TIMEZONE, Scope, Stamp

# ---------------------------------------------------------------- notes
State = Mapping[str, str | Sequence[str]]

OTHER = "other"
"""The slot of instructions that hold side by side. In any other slot the last instruction replaces the
others."""
EVERY, LATEST = "every", "latest"
"""Slots of an instruction that ends others: all of them, or the one set by the exchange before."""
MOST_ANCHORS = 10
MOST_ANCHOR_CHARS = 200
MOST_LINE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Anchor:
    """A standing instruction in the user's own words. Without words it ends what the slot held."""

    slot: str  # any name, or OTHER; EVERY and LATEST only without words
    text: str
    at: float = 0.0  # when it was said


@dataclass(frozen=True, slots=True)
class RecentTurn:
    said: str
    answered: str
    at: float


@dataclass(frozen=True, slots=True)
class SessionNotes:
    """What a request of the session may be reminded of, each oldest first."""

    anchors: tuple[Anchor, ...] = ()
    lines: tuple[RecentTurn, ...] = ()
    state: State | None = None  # only if the session has more turns than `lines`
    state_at: float = 0.0


NO_NOTES = SessionNotes()


@dataclass(frozen=True, slots=True)
class CoveredState:
    """A session's state, and the marks of the exchanges that it covers (see recall.history)."""

    state: State
    covered: frozenset[str]


# ---------------------------------------------------------------- exchanges and jobs
@dataclass(frozen=True, slots=True, kw_only=True)
class NewExchange:
    """The user's half of an exchange, committed before the answer begins."""

    id: str
    key: str  # equal for the same request sent again: stored once
    standalone: bool = False  # the request holds no history: the same words may be a new exchange
    unnamed: bool = False  # the session id is a fingerprint of the beginning, which others may share
    scope: Scope
    session_id: str
    model: str
    said: str
    at: float
    explicit: bool = False  # "remember that …": extract at once
    personal: bool = False  # says something about the user: extract soon
    anchors: tuple[Anchor, ...] = ()  # its standing instructions for the session
    stateful: bool = False  # later requests may need the session's state (see NoteStore)
    timezone: str | None = None  # from the request; stored as the user's last known zone
    said_at: float | None = None  # see Turn
    default_timezone: str = DEFAULT_TIMEZONE  # if neither the request nor the store names one


@dataclass(frozen=True, slots=True)
class StoredExchange:
    """A committed NewExchange. `id` is that of the first request with its key."""

    id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Outcome:
    answer: str
    whole: bool  # False: broken off by client, upstream or a crash
    response_id: str | None = None
    recalled: tuple[str, ...] = ()  # memories and documents in its context: the answer may repeat them
    calls: bool = False  # not whole because the client runs tools: it probably continues


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
    dated: float | None = None  # when it was said, if the request says that this was before `at`

    @property
    def said_at(self) -> float:
        return self.at if self.dated is None else self.dated


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """What triggers decide on."""

    scope: Scope
    session_id: str
    last_at: float
    last_seq: int
    pending: int  # completed exchanges that are not extracted yet
    explicit: bool  # one of the pending is an explicit request
    personal: bool  # one of the pending says something about the user
    at_work: bool = False  # one of the pending waits for the client's tools


EXPLICIT, ORDINARY, BATCH = LANES = (1, 2, 3)
"""Priorities of jobs, the lowest first: a request to remember, at once; ordinary; idle sessions, last."""


@dataclass(frozen=True, slots=True)
class NewJob:
    """Extract the session up to exchange `upto`. A queued job of the session is widened, not doubled."""

    session_id: str
    upto: int
    lane: int
    closing: bool = False  # the session has ended: summarise it


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A claimed extraction, leased to its owner until `leased_until`."""

    id: str
    scope: Scope
    session_id: str
    upto: int
    lane: int
    attempts: int  # 1 on the first try
    leased_until: float
    created_at: float
    closing: bool = False  # the session has ended: summarise it


def rest_of(state: SessionState, *, closing: bool = False) -> NewJob:
    """Return the job that extracts everything pending in a session."""
    lane = EXPLICIT if state.explicit else ORDINARY
    return NewJob(state.session_id, state.last_seq, lane, closing)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one extraction reads: the pending exchanges, and a few before them for context only."""

    pending: tuple[Exchange, ...]
    context: tuple[Exchange, ...]
    stamp: Stamp


# ---------------------------------------------------------------- for users and operators
JobState = Literal["queued", "running", "waiting", "dead"]
"""queued: due now or later; running; waiting: for a credential; dead: given up."""
JOB_STATES: tuple[JobState, ...] = get_args(JobState)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """One session, without what was said."""

    id: str
    scope: Scope
    last_at: float
    exchanges: int
    pending: int  # not extracted yet
    cursor: str  # for `after`: the id, made unambiguous if projects have sessions of the same name


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """One extraction job. `reason` says in a constant word why it waits or died."""

    id: str
    scope: Scope
    session_id: str
    state: JobState
    lane: int
    attempts: int
    exchanges: int  # that it has to read
    created_at: float
    due_at: float
    reason: str


@dataclass(frozen=True, slots=True)
class QueueCounts:
    queued: int = 0
    running: int = 0
    waiting: int = 0  # for a credential
    dead: int = 0
    oldest_at: float | None = None
    queued_by_lane: tuple[int, int, int] = (0, 0, 0)  # lanes 1, 2 and 3


# ---------------------------------------------------------------- ports
Trigger = Callable[[SessionState], NewJob | None]
"""Decides, inside the store's transaction, whether a session's pending exchanges become a job."""


class ExchangeStore(Protocol):
    """Exchanges of sessions, and the triggers that turn them into jobs."""

    async def begin(self, exchange: NewExchange) -> StoredExchange:
        """Commit the user's half, durable on return. The same key again returns the first one's id and
        lets it be answered again; a standalone exchange only if it is recent and nothing was said since.
        The first exchange of a session makes the pending ones of the user's other sessions due."""

    async def resume(
        self, scope: Scope, session_id: str, key: str | None, response_id: str | None = None
    ) -> StoredExchange | None:
        """Return the exchange that the request continues, if its answer is not complete yet (the model called
        tools, or broke off): the session's newest with this `key`; without one, the one answered with
        `response_id`; without either, the last. None if there is none."""

    async def complete(self, begun: StoredExchange, outcome: Outcome, trigger: Trigger) -> bool:
        """Commit the answer and, in the same transaction, the job that `trigger` returns; count an access
        of the memories recalled, and wake the user's jobs that wait for a credential. Returns False, and
        writes nothing, if the exchange was forgotten. Idempotent; a complete answer replaces an incomplete
        one, unless a job has read that."""

    async def abort(self, begun: StoredExchange) -> None:
        """Remove an exchange that got no answer (the upstream refused it)."""

    async def sweep(self, now: float, trigger: Trigger) -> int:
        """Complete exchanges whose process died, and offer every session with pending exchanges and no queued
        job to `trigger`. Returns the number of new jobs."""


class SessionStore(ExchangeStore, Protocol):
    async def recent(self, scope: Scope, session_id: str, limit: int) -> list[Exchange]:
        """Return the session's last exchanges, oldest first."""

    async def session_of(self, scope: Scope, response_id: str) -> str | None:
        """Return the session of this user's response."""

    async def timezone(self, scope: Scope) -> str | None:
        """Return the user's last known time zone; None if no request has named one."""

    async def end(self, scope: Scope, session_id: str, at: float) -> int:
        """Queue the session's pending exchanges at once; return how many. 0: none, or no such session of the
        user (in the scope's project, or in any if it names none)."""

    async def sessions(self, scope: Scope, *, limit: int, after: str | None = None) -> Sequence[SessionInfo]:
        """Return up to `limit` of the user's sessions, the last used first, after the one with this cursor or
        id (NotFound if absent); if several have that id, after the last."""


class JobQueue(Protocol):
    """Extraction jobs: at least once, one at a time per user, survives kill -9."""

    async def claim(self, now: float, lease_s: float, *, upto_lane: int = 3) -> Job | None:
        """Lease the most urgent due job of the lanes up to `upto_lane`, or one whose lease ran out or whose
        owner died."""

    async def batch(self, job: Job, *, limit: int, context: int) -> Batch:
        """Return what the job has to extract, oldest first; empty if it was forgotten."""

    async def retry(
        self, job: Job, *, at: float, reason: str, dead: bool = False, counted: bool = True
    ) -> None:
        """Put the job back until `at`, or among the dead letters. `reason` holds no content. Not `counted`:
        it does not count as an attempt, since the job was not at fault."""

    async def wait_for_credential(self, job: Job) -> None:
        """Park the job until `wake` is called for its user."""

    async def wake(self, scope: Scope | None) -> bool:
        """Make the waiting jobs of the user, or of all users, due; return whether there were any."""

    async def counts(self) -> QueueCounts: ...

    async def list(
        self, tenant: str, user: str | None, *, state: JobState | None, limit: int, after: str | None = None
    ) -> Sequence[JobInfo]:
        """Return up to `limit` jobs of the user, or of the whole tenant, oldest first."""

    async def revive(self, tenant: str, user: str | None, job_id: str | None = None) -> int:
        """Queue dead letters again with what they had read: one job, or all; return how many."""


# ---------------------------------------------------------------- notes as stored
@dataclass(frozen=True, slots=True)
class UncoveredExchanges:
    """The exchanges that a session's state does not cover yet, oldest first, with their keys."""

    state: State | None
    exchanges: tuple[Exchange, ...]
    keys: tuple[str, ...]
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class Episode:
    """A session to summarise: its answered exchanges, oldest first, and its earlier summary memory."""

    exchanges: tuple[Exchange, ...]
    before: str | None


class NoteStore(Protocol):
    """Session notes. Anchors are stored with the exchange that states them; they and the state are erased
    with it. Nothing is returned while something of the user is being forgotten. Every method may raise
    StoreUnavailable."""

    async def notes(
        self, scope: Scope, session_id: str, *, after: str | None = None, lines: int = 0
    ) -> SessionNotes:
        """Return the anchors in force and, with `lines`, the last turns and the state if it covers more
        turns. `after`: only anchors said by the time of this answer, for a session id that is a
        fingerprint."""

    async def standing(self, scope: Scope, session_id: str) -> CoveredState | None:
        """Return the session's state and the marks of what it covers; None without one."""

    async def unread(self, scope: Scope, session_id: str, *, limit: int) -> UncoveredExchanges | None:
        """Return up to `limit` answered exchanges that the state does not cover; None if no request needs the
        session's state (NewExchange.stateful)."""

    async def keep_state(
        self, scope: Scope, session_id: str, state: State, upto: Exchange, marks: Sequence[str],
        *, expect: Stamp,
    ) -> bool:  # fmt: skip
        """Replace the state, which now covers everything up to the exchange, and add the marks, durable on
        return. Returns False, and stores nothing, if the user forgot something since `expect`, or if the
        state already covers that exchange."""

    async def episode(self, job: Job, *, limit: int) -> Episode | None:
        """Return the session up to the job's last exchange, at most the last `limit`; None while other jobs
        still have to extract some of it, or if it was forgotten."""

    async def close(self, *, idle_since: float, left_since: float, now: float) -> int:
        """Queue a closing job for each session of two or more exchanges that has ended and is not fully
        summarised: its client ended it, it was last used before `idle_since`, or before `left_since` and its
        user has begun another. Returns how many."""
