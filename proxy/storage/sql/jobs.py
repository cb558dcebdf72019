"""The JobQueue over SQL: see session.JobQueue for what every method guarantees.

A job is queued → running → deleted, or back to queued, to waiting (for a credential), or to dead. A session
has at most one job queued or waiting, a user at most one running; two unique indexes hold that. A job
reads exchanges by marking them with its number: what it did not read, it does not settle."""

import asyncio
from collections.abc import Sequence

from proxy.domain.core import Scope
from proxy.domain.errors import LeaseLost
from proxy.domain.session import Batch, Job, JobInfo, JobState, QueueCounts
from proxy.storage.sql import rows
from proxy.storage.sql.database import Connection, Store, column, reads, value, writes
from proxy.storage.sql.sessions import WAKE, dead_instances, wake

_PAUSE_S = 0.01
_LONGEST_ID = 18  # digits: fits SQLite's integers

_DUE = """
    FROM jobs j JOIN sessions n ON n.id = j.session JOIN scopes s ON s.id = j.owner
    WHERE j.state = 'queued' AND j.due_at <= :now AND j.lane <= :lane
      AND NOT EXISTS (SELECT 1 FROM jobs r WHERE r.owner = j.owner AND r.state = 'running')"""
# Lanes first; within a lane the user who was served longest ago.
_NEXT = f"SELECT j.id {_DUE} ORDER BY j.lane, s.served, j.id LIMIT 1"
_IF_DUE = f"""
    SELECT s.id AS owner, s.tenant, s.user, n.project, n.name AS session_id, j.upto, j.lane,
           j.attempts + 1 AS attempts, j.created_at, j.closing
    {_DUE} AND j.id = :job"""
_LEASE = """
    UPDATE jobs SET state = 'running', attempts = attempts + 1, leased_until = ?, instance = ? WHERE id = ?"""
_SUMMED_UP = """
    UPDATE sessions SET unsummarised = (
        SELECT count(*) FROM exchanges WHERE session = :session AND state = 'done' AND seq > :upto)
    WHERE id = :session"""
_LOST = """
    FROM jobs WHERE state = 'running'
    AND (leased_until <= ? OR instance IN (SELECT value FROM json_each(?)))"""
_DEAD = """
    FROM jobs j JOIN scopes s ON s.id = j.owner WHERE j.state = 'dead'
    AND s.tenant = ? AND s.user = coalesce(?, s.user) AND j.id = coalesce(?, j.id)"""
_IS_JOB = """
    SELECT 1 FROM jobs j JOIN scopes s ON s.id = j.owner
    WHERE j.id = ? AND s.tenant = ? AND s.user = coalesce(?, s.user)"""
_WIDEN = "UPDATE jobs SET upto = max(upto, ?), lane = min(lane, ?), closing = max(closing, ?)"
# Waiting is not a failure: the claim does not count.
_TAKE_BACK_ATTEMPT = "UPDATE jobs SET attempts = attempts - 1 WHERE id = ?"
# What the job reads now is marked as its own: `finish` settles exactly that.
_MARK = """
    UPDATE exchanges SET job = :job WHERE seq IN (
        SELECT seq FROM exchanges WHERE session = :session AND extraction = 'pending' AND state = 'done'
        AND seq <= :upto ORDER BY seq LIMIT :limit)"""
_BEFORE = """
    e.seq IN (SELECT seq FROM exchanges WHERE session = :session AND state = 'done' AND seq < :first
              ORDER BY seq DESC LIMIT :limit) ORDER BY e.seq"""
# A dead letter has what it read; another has to read what is pending and not in another job's hands.
_INFOS = """
    SELECT j.id, s.tenant, s.user, n.project, n.name AS session_id, j.state, j.lane, j.attempts,
           CASE j.state WHEN 'dead'
               THEN (SELECT count(*) FROM exchanges e WHERE e.job = j.id AND e.extraction = 'dead')
               ELSE (SELECT count(*) FROM exchanges e
                     WHERE e.session = j.session AND e.extraction = 'pending' AND e.state = 'done'
                     AND e.seq <= j.upto AND coalesce(e.job, j.id) = j.id) END AS exchanges,
           j.created_at, j.due_at, j.reason
    FROM jobs j JOIN sessions n ON n.id = j.session JOIN scopes s ON s.id = j.owner
    WHERE s.tenant = :tenant AND s.user = coalesce(:user, s.user) AND j.state = coalesce(:state, j.state)
      AND j.id > :after
    ORDER BY j.id LIMIT :limit"""


class SqlJobs(Store):
    """Jobs of all processes that share the database."""

    async def claim(self, now: float, lease_s: float, *, upto_lane: int = 3) -> Job | None:
        # Asked with every exchange and seldom fruitful: reading first spares the write, and its fsync. And
        # where many jobs wait, to find the next one takes time: no writer needs to wait for that.
        lost, found = await self._look(now, upto_lane)
        if lost:
            await self._reclaim(now)
            _, found = await self._look(now, upto_lane)
        while found is not None:
            if (job := await self._lease(found, now, lease_s, upto_lane)) is not None:
                return job
            last, (_, found) = found, await self._look(now, upto_lane)  # another was faster
            if found == last:  # its user is being written about: that takes milliseconds
                await asyncio.sleep(_PAUSE_S)
        return None

    @reads
    def _look(self, tx: Connection, now: float, upto_lane: int) -> tuple[bool, int | None]:
        """Return whether there are jobs to reclaim, and the next job."""
        dead = dead_instances(tx, "jobs", "running", self._living)
        lost = value(tx, f"SELECT 1 {_LOST} LIMIT 1", (now, rows.as_json(dead)))
        return lost is not None, value(tx, _NEXT, {"now": now, "lane": upto_lane})

    @writes
    def _reclaim(self, tx: Connection, now: float) -> None:
        """Put back the jobs with an expired lease or a dead process."""
        lost = (now, rows.as_json(dead_instances(tx, "jobs", "running", self._living)))
        rows.lock_owners(tx, f"SELECT owner {_LOST}", lost)
        for job_id in column(tx, f"SELECT id {_LOST}", lost):
            _park(tx, job_id, state="queued", due_at=0.0)

    @writes
    def _lease(self, tx: Connection, job_id: int, now: float, lease_s: float, upto_lane: int) -> Job | None:
        """Lease the job; None if it is no longer due, or another transaction has its user."""
        locked = (
            "SELECT id FROM scopes WHERE id IN (SELECT owner FROM jobs WHERE id = ?) FOR UPDATE SKIP LOCKED"
        )
        if tx.for_update and tx.execute(locked, (job_id,)).fetchone() is None:
            return None
        found = rows.records(tx, _IF_DUE, {"job": job_id, "now": now, "lane": upto_lane})
        if not found:
            return None
        (row,), until = found, now + lease_s
        served = "UPDATE scopes SET served = (SELECT max(served) + 1 FROM scopes) WHERE id = ?"
        tx.execute(served, (row.pop("owner"),))
        tx.execute(_LEASE, (until, self._living.id, job_id))
        scope, closing = rows.scope_in(row), bool(row.pop("closing"))
        return Job(id=str(job_id), scope=scope, leased_until=until, closing=closing, **row)

    @writes
    def batch(self, tx: Connection, job: Job, *, limit: int, context: int) -> Batch:
        owner = rows.lock_owner(tx, job.scope)
        stamp = owner.stamp if owner else rows.NEVER_SEEN
        session = leased_session(tx, job)
        if session is None:
            return Batch((), (), stamp)
        ours = {"job": int(job.id), "session": session, "upto": job.upto, "limit": limit}
        tx.execute("UPDATE exchanges SET job = NULL WHERE job = :job", ours)
        tx.execute(_MARK, ours)
        pending = rows.exchanges_where(tx, job.scope, job.session_id, "e.job = :job ORDER BY e.seq", ours)
        if not pending:
            return Batch((), (), stamp)
        before = {"session": session, "first": pending[0].seq, "limit": context}
        earlier = rows.exchanges_where(tx, job.scope, job.session_id, _BEFORE, before)
        return Batch(rows.without_tainted(tx, pending), rows.without_tainted(tx, earlier), stamp)

    @writes
    def retry(
        self, tx: Connection, job: Job, *, at: float, reason: str, dead: bool = False, counted: bool = True
    ) -> None:
        rows.lock_owner(tx, job.scope)
        session = leased_session(tx, job)
        if session is None:
            return  # forgotten, or another worker has it
        if not counted:
            tx.execute(_TAKE_BACK_ATTEMPT, (int(job.id),))
        if not dead:
            _park(tx, int(job.id), state="queued", due_at=at, reason=reason)
            return
        # What it read becomes a dead letter with it: no trigger offers that again.
        letters = "UPDATE exchanges SET extraction = 'dead'"
        if not tx.execute(f"{letters} WHERE job = ? AND extraction = 'pending'", (int(job.id),)).rowcount:
            tx.execute(  # it failed before it read anything
                f"{letters}, job = ? WHERE session = ? AND seq <= ? AND extraction = 'pending'"
                " AND state = 'done'",
                (int(job.id), session, job.upto),
            )
        buried = "state = 'dead', reason = ?, leased_until = NULL, instance = NULL"
        tx.execute(f"UPDATE jobs SET {buried} WHERE id = ?", (reason, int(job.id)))

    @writes
    def wait_for_credential(self, tx: Connection, job: Job) -> None:
        rows.lock_owner(tx, job.scope)
        if leased_session(tx, job) is not None:
            tx.execute(_TAKE_BACK_ATTEMPT, (int(job.id),))
            _park(tx, int(job.id), state="waiting", due_at=0.0, reason="credential")

    @writes
    def wake(self, tx: Connection, scope: Scope | None) -> bool:
        if scope is None:
            return tx.execute(WAKE).rowcount > 0
        owner = rows.lock_owner(tx, scope)
        return owner is not None and wake(tx, owner.id)

    @reads
    def counts(self, tx: Connection) -> QueueCounts:
        found = tx.execute("SELECT state, lane, count(*) FROM jobs GROUP BY state, lane").fetchall()
        by_lane = {lane: n for state, lane, n in found if state == "queued"}
        oldest = value(tx, "SELECT min(created_at) FROM jobs WHERE state = 'queued'")
        states = ("queued", "running", "waiting", "dead")
        return QueueCounts(
            **{name: sum(n for state, _, n in found if state == name) for name in states},
            oldest_at=oldest,
            queued_by_lane=(by_lane.get(1, 0), by_lane.get(2, 0), by_lane.get(3, 0)),
        )

    @reads
    def list(
        self, tx: Connection, tenant: str, user: str | None, *,
        state: JobState | None, limit: int, after: str | None = None,
    ) -> Sequence[JobInfo]:  # fmt: skip
        number = 0 if after is None else _number(after)
        if after is not None:
            rows.place_after(tx, _IS_JOB, (number, tenant, user), "No job has this id.")
        asked = {"tenant": tenant, "user": user, "state": state, "limit": limit, "after": number}
        found = rows.records(tx, _INFOS, asked)
        return [JobInfo(id=str(row.pop("id")), scope=rows.scope_in(row), **row) for row in found]

    async def revive(self, tenant: str, user: str | None, job_id: str | None = None) -> int:
        number = None if job_id is None else _number(job_id)
        if job_id is not None and number is None:
            return 0
        return await self._revive((tenant, user, number))

    @writes
    def _revive(self, tx: Connection, asked: tuple[str, str | None, int | None]) -> int:
        rows.lock_owners(tx, f"SELECT j.owner {_DEAD}", asked)
        query = f"SELECT j.id, j.session, j.upto, j.lane, j.closing {_DEAD} ORDER BY j.id"
        dead = tx.execute(query, asked).fetchall()
        for dead_id, session, *width in dead:
            pending = "UPDATE exchanges SET extraction = 'pending', job = NULL"
            tx.execute(f"{pending} WHERE job = ? AND extraction = 'dead'", (dead_id,))
            merged = f"{_WIDEN} WHERE session = ? AND state IN ('queued', 'waiting')"
            if tx.execute(merged, (*width, session)).rowcount:
                tx.execute("DELETE FROM jobs WHERE id = ?", (dead_id,))
            else:
                queued = "state = 'queued', attempts = 0, due_at = 0, reason = ''"
                tx.execute(f"UPDATE jobs SET {queued} WHERE id = ?", (dead_id,))
        return len(dead)


def _number(job_id: str) -> int | None:
    return int(job_id) if job_id.isascii() and job_id.isdecimal() and len(job_id) <= _LONGEST_ID else None


# ---------------------------------------------------------------- changes of a job's state
def leased_session(tx: Connection, job: Job) -> int | None:
    """Return the job's session while the lease is the job's. A lease is known by its end."""
    query = """
        SELECT session FROM jobs WHERE id = ? AND state = 'running' AND leased_until = ?
        AND owner = (SELECT id FROM scopes WHERE tenant = ? AND user = ?)"""
    asked = (int(job.id), job.leased_until, job.scope.tenant, job.scope.user)
    session: int | None = value(tx, query, asked)
    return session


def finish(tx: Connection, job: Job) -> None:
    """Settle what the job has read; it queues again where exchanges are left.

    Raises LeaseLost if the lease is no longer the job's."""
    session = leased_session(tx, job)
    if session is None:
        raise LeaseLost("another has the job, or it was forgotten")
    ours = {"job": int(job.id), "session": session}
    tx.execute("UPDATE exchanges SET extraction = 'done' WHERE job = :job AND extraction = 'pending'", ours)
    left = """
        SELECT 1 FROM exchanges JOIN jobs ON jobs.id = :job WHERE exchanges.session = :session
        AND extraction = 'pending' AND exchanges.state = 'done' AND seq <= upto LIMIT 1"""
    if value(tx, left, ours):
        tx.execute("UPDATE jobs SET attempts = 0 WHERE id = :job", ours)
        _park(tx, int(job.id), state="queued", due_at=0.0)
    else:
        tx.execute("DELETE FROM jobs WHERE id = :job", ours)
        if job.closing:
            tx.execute(_SUMMED_UP, {"session": session, "upto": job.upto})


def _park(tx: Connection, job_id: int, *, state: JobState, due_at: float, reason: str = "") -> None:
    """Take a running job off its owner and let it wait, together with what was queued after it."""
    for other, *width in tx.execute(
        "SELECT id, upto, lane, closing FROM jobs WHERE id <> ? AND state IN ('queued', 'waiting')"
        " AND session = (SELECT session FROM jobs WHERE id = ?)",
        (job_id, job_id),
    ).fetchall():
        tx.execute("DELETE FROM jobs WHERE id = ?", (other,))
        tx.execute(f"{_WIDEN} WHERE id = ?", (*width, job_id))
    parked = "state = ?, due_at = ?, reason = ?, leased_until = NULL, instance = NULL"
    tx.execute(f"UPDATE jobs SET {parked} WHERE id = ?", (state, due_at, reason, job_id))
