"""The set of sessions that hold anything not summarised yet: shared, so that no sweep reads all users.

A session is in the set while its row says that something is unsummarised and no closing job of it is queued.
Whoever changes a session's `unsummarised`, `last_at` or `ended` says so here, in the same unit of work.
"""

from proxy.storage.redis.layout import SessionRow
from proxy.storage.redis.unit import Unit

ENDED_AT = 0.0  # earlier than any time that is asked for: its client said that nothing more will come


def note(unit: Unit, sid: str, session: SessionRow | None) -> None:
    """Let the sweep find the session if anything of it is to be summed up. None: it is being erased."""
    member = f"{unit.uid} {sid}"
    if session is None or not session["unsummarised"]:
        unit.share("ZREM", unit.redis.key("unsummarised"), member)
    else:
        at = ENDED_AT if session["ended"] else session["last_at"]
        unit.share("ZADD", unit.redis.key("unsummarised"), at, member)


def queued(unit: Unit, sid: str) -> None:
    """A closing job sees to the session: its end puts back what it leaves."""
    unit.share("ZREM", unit.redis.key("unsummarised"), f"{unit.uid} {sid}")
