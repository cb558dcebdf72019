"""Frozen values that owners and operators look at: receipts, quarantine, sessions, jobs, keys, quotas."""

from dataclasses import dataclass
from typing import Literal, get_args

from proxy.domain.core import Candidate, Forgotten, Scope

JobState = Literal["queued", "running", "waiting", "dead"]
"""Of an extraction job: due, or due later; being served; in want of a credential; given up for good."""
JOB_STATES: tuple[JobState, ...] = get_args(JobState)


@dataclass(frozen=True, slots=True)
class Quota:
    """How much one user may have remembered; 0: no limit. At it the weakest go, or new ones are refused."""

    memories: int = 0
    content_bytes: int = 0  # UTF-8 bytes of the contents
    evict: bool = True


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of an `apply`: ids of new memories that found no place in the quota, how many old ones
    had to go for it, and ids of new memories that were dropped because they were known already."""

    refused: tuple[str, ...] = ()
    evicted: int = 0
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Proof that something was forgotten: what was asked for, when, by whom, how much went; no content."""

    id: str
    tenant: str
    user: str
    project: str | None
    type: str | None
    memory_id: str | None
    by: str  # the credential's label: "open", "key:…", "jwt", "header", or "retention"
    at: float
    counts: Forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A candidate in quarantine."""

    id: str
    scope: Scope
    candidate: Candidate
    reason: str
    at: float


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
