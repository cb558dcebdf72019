"""The port for session notes: what is stored of a session beside its exchanges. It may raise
StoreUnavailable.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.domain.core import Exchange, Job, Scope, Stamp
from proxy.domain.notes import SessionNotes, Standing, State


@dataclass(frozen=True, slots=True)
class Unread:
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

    async def standing(self, scope: Scope, session_id: str) -> Standing | None:
        """Return the session's state and the marks of what it stands for; None without."""
        ...

    async def unread(self, scope: Scope, session_id: str, *, limit: int) -> Unread | None:
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
