"""The shared index of sessions with unread exchanges: those that are answered and not yet extracted.

The states of the sessions that hold some, and have no job to come for it, are shared in one hash: a sweep
asks its trigger about them without reading anybody's data. They follow from the rows, in the same commit.
"""

from bisect import insort
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import orjson

from proxy.domain.core import Scope, SessionState
from proxy.storage.redis.layout import ExchangeRow, JobRow, SessionRow, UnreadRow
from proxy.storage.redis.unit import Unit

HASH = "waiting"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A session with work in it."""

    sid: str
    state: SessionState
    ended: bool  # by its client: nothing more will come


async def unread(unit: Unit, sid: str) -> list[UnreadRow]:
    """Return what of the session is answered and not extracted, dead letters' included, oldest first."""
    return list(await unit.table("unread").get(sid) or ())


def put(unit: Unit, sid: str, entries: list[UnreadRow]) -> None:
    """Write down what is unread now."""
    if entries:
        unit.table("unread").put(sid, entries)
    else:
        unit.table("unread").drop(sid)


async def answered(unit: Unit, sid: str, row: ExchangeRow, *, at_work: bool) -> None:
    """An exchange has its answer, if only a broken one: it can be read. `at_work`: tools are, for its end."""
    entries = await unread(unit, sid)
    new: UnreadRow = {
        "seq": row["seq"], "explicit": row["explicit"], "personal": row["personal"], "job": None,
        "dead": False, "at_work": at_work,
    }  # fmt: skip
    insort(entries, new, key=lambda entry: entry["seq"])
    put(unit, sid, entries)


async def ended(unit: Unit, sid: str, seq: int) -> None:
    """An exchange has the end of its answer."""
    entries = await unread(unit, sid)
    if any(entry["seq"] == seq for entry in entries):
        put(unit, sid, [{**e, "at_work": False} if e["seq"] == seq else e for e in entries])


async def gone(unit: Unit, sid: str, seqs: Collection[int]) -> None:
    """Exchanges are erased."""
    entries = await unread(unit, sid)
    left = [entry for entry in entries if entry["seq"] not in seqs]
    if len(left) < len(entries):
        put(unit, sid, left)


async def to_extract(unit: Unit, sid: str, upto: int, job_id: str) -> bool:
    """Return whether the session holds anything up to `upto` for other jobs than this one to extract."""
    return any(
        not entry["dead"] and entry["seq"] <= upto and entry["job"] != job_id
        for entry in await unread(unit, sid)
    )


async def among(unit: Unit, sids: Collection[str], jobs: Iterable[JobRow]) -> dict[str, Waiting]:
    """Return those of the sessions that hold exchanges to extract, none of them in the hands of a running
    job, in the order in which the sessions began."""
    sessions, entries = unit.table("sessions"), unit.table("unread")
    await unit.fetch((entries, sids), (sessions, sids))
    rows: dict[str, SessionRow] = await sessions.many(sids)
    found: dict[str, list[UnreadRow]] = await entries.many(rows)
    read = {job["sid"]: job["upto"] for job in jobs if job["state"] == "running"}
    waiting = (
        _waiting(unit.scope, sid, rows[sid], found[sid], read.get(sid, 0))
        for sid in sorted(found, key=lambda sid: rows[sid]["seq"])
    )
    return {each.sid: each for each in waiting if each is not None}


def announce(unit: Unit, sid: str, waiting: Waiting | None) -> None:
    """Let sweeps find the session, or (None) not."""
    field = f"{unit.uid} {sid}"
    if waiting is None:
        unit.share("HDEL", unit.redis.key(HASH), field)
    else:
        unit.share("HSET", unit.redis.key(HASH), field, _encoded(waiting))


def decoded(field: str, value: bytes) -> Waiting:
    """Return what was announced; earlier versions said nothing of tools."""
    tenant, user, project, name, last_at, last_seq, pending, explicit, personal, ended, *tools = orjson.loads(
        value
    )
    state = SessionState(
        scope=Scope(tenant, user, project), session_id=name, last_at=last_at, last_seq=last_seq,
        pending=pending, explicit=explicit, personal=personal, at_work=any(tools),
    )  # fmt: skip
    return Waiting(field.partition(" ")[2], state, ended)


def _encoded(waiting: Waiting) -> bytes:
    state = waiting.state
    return orjson.dumps([
        state.scope.tenant, state.scope.user, state.scope.project, state.session_id, state.last_at,
        state.last_seq, state.pending, state.explicit, state.personal, waiting.ended,
        state.at_work,
    ])  # fmt: skip


def _waiting(
    scope: Scope, sid: str, session: SessionRow, entries: Iterable[UnreadRow], read: int
) -> Waiting | None:
    """`read`: up to which exchange a running job has the session in its hands."""
    left = [entry for entry in entries if not entry["dead"] and entry["seq"] > read]
    if not left:
        return None
    state = SessionState(
        scope=Scope(scope.tenant, scope.user, session["project"]), session_id=session["name"],
        last_at=session["last_at"], last_seq=left[-1]["seq"], pending=len(left),
        explicit=any(entry["explicit"] for entry in left), personal=any(entry["personal"] for entry in left),
        at_work=any(entry.get("at_work") for entry in left),
    )  # fmt: skip
    return Waiting(sid, state, session["ended"])
