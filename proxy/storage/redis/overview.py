"""Lists of sessions and jobs for their owners and operators, page by page. Never what was said."""

from collections import Counter
from collections.abc import Iterable, Sequence

from proxy.domain.core import Scope
from proxy.domain.errors import NotFound
from proxy.domain.oversight import JobInfo, SessionInfo
from proxy.storage.redis import exchanges, waiting
from proxy.storage.redis.layout import JobRow, SessionRow, StoredRow, UnreadRow, storable
from proxy.storage.redis.unit import Unit

_MARKED = 64  # characters of a name in a cursor that also names the row


async def session_of(unit: Unit, response_id: str) -> str | None:
    """Return the session that a response was made in. One that we keep has its session also where nothing
    of it was written down, or not yet."""
    if (made := await unit.table("made").get(response_id)) is not None:
        session: SessionRow = await unit.table("sessions").get(exchanges.made_in(made))
        return session["name"]
    stored: StoredRow | None = await unit.table("stored").get(response_id)
    return (stored["session"] or None) if stored else None


# ---------------------------------------------------------------- sessions
async def sessions(unit: Unit, scope: Scope, limit: int, after: str | None) -> Sequence[SessionInfo]:
    """Return up to `limit` of the user's sessions, the last used first."""
    rows: dict[str, SessionRow] = await unit.table("sessions").all()
    names = Counter(row["name"] for row in rows.values())
    listed = [
        (ours, row) for ours, row in rows.items() if scope.project is None or row["project"] == scope.project
    ]
    listed.sort(key=lambda each: _place(each[1]), reverse=True)
    if after is not None:
        start = _start([row for _, row in listed], storable(after))
        listed = [each for each in listed if _place(each[1]) < start]
    page = listed[: max(limit, 0)]
    unread: dict[str, list[UnreadRow]] = await unit.table("unread").many(ours for ours, _ in page)
    return [
        SessionInfo(
            id=row["name"], scope=Scope(scope.tenant, scope.user, row["project"]), last_at=row["last_at"],
            exchanges=len(row["seqs"]),
            pending=len(row["open"]) + sum(not entry["dead"] for entry in unread.get(ours, ())),
            cursor=f"{row['name'][:_MARKED]}@{row['seq']}" if names[row["name"]] > 1 else row["name"],
        )
        for ours, row in page
    ]  # fmt: skip


def _place(row: SessionRow) -> tuple[float, int]:
    return row["last_at"], row["seq"]


def _start(rows: Iterable[SessionRow], after: str) -> tuple[float, int]:
    """Return the place of the session `after`. A bare name that several projects' sessions have means the
    one furthest down the list, so that paging comes to an end."""
    start, _, number = after.rpartition("@")
    seq = int(number) if number.isascii() and number.isdecimal() and len(number) < 19 else None
    meant = [
        (row["name"] == after, *_place(row))
        for row in rows
        if row["name"] == after or (row["seq"] == seq and row["name"][:_MARKED] == start)
    ]
    if not meant:
        raise NotFound("No session has this id.", param="after")
    return min(meant)[1:]


# ---------------------------------------------------------------- jobs
async def jobs(unit: Unit) -> dict[str, JobInfo]:
    """Return the user's jobs by their ids."""
    rows: dict[str, JobRow] = {**await unit.table("jobs").all(), **await unit.table("dead").all()}
    sids = {row["sid"] for row in rows.values()}
    await unit.fetch((unit.table("sessions"), sids), (unit.table("unread"), sids))
    named: dict[str, SessionRow] = await unit.table("sessions").many(sids)
    return {
        id_: _info(unit.scope, id_, row, named[row["sid"]], await waiting.unread(unit, row["sid"]))
        for id_, row in rows.items()
    }


def _info(scope: Scope, id_: str, row: JobRow, session: SessionRow, unread: Iterable[UnreadRow]) -> JobInfo:
    return JobInfo(
        id=id_, scope=Scope(scope.tenant, scope.user, session["project"]), session_id=session["name"],
        state=row["state"], lane=row["lane"], attempts=row["attempts"],
        exchanges=sum(_reads(id_, row, entry) for entry in unread), created_at=row["created_at"],
        due_at=row["due_at"], reason=row["reason"],
    )  # fmt: skip


def _reads(id_: str, row: JobRow, entry: UnreadRow) -> bool:
    """A dead letter has what it read; another has to read what is pending and not in another job's hands."""
    if row["state"] == "dead" or entry["dead"]:
        return row["state"] == "dead" and entry["dead"] and entry["job"] == id_
    return entry["seq"] <= row["upto"] and entry["job"] in (None, id_)
