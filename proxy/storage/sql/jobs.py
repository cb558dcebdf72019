"""The JobQueue over SQL: see ports.JobQueue for what every method guarantees.

A job goes queued → running → gone, or back to queued, to waiting (for a credential), or to dead. A session
has at most one job queued or waiting, a user at most one running; two unique indexes hold that. A job
reads exchanges by marking them with its number: what it did not read, it does not settle.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from proxy.domain.core import Scope
from proxy.domain.errors import LeaseLost, NotFound
from proxy.domain.ports import Trigger
from proxy.domain.session import Batch, Job, JobInfo, JobState, NewJob, QueueCounts, SessionState, rest_of
from proxy.storage.sql import rows, users
from proxy.storage.sql.database import Connection, Database, Instance

# ---------------------------------------------------------------- rows, inside the writer's transaction
# Exchanges that are answered, not extracted, and not in the hands of a running job.
_STATES = """
    SELECT e.session, max(s.tenant), max(s.user), max(n.project), max(n.name), max(n.last_at),
           max(e.seq), count(*),
           max(e.explicit), max(e.personal), max(e.at_work), max(n.owner), max(n.ended)
    FROM exchanges e JOIN sessions n ON n.id = e.session JOIN scopes s ON s.id = n.owner
    WHERE e.extraction = 'pending' AND e.state = 'done' AND {condition}
      AND e.seq > coalesce(
          (SELECT max(upto) FROM jobs WHERE jobs.session = e.session AND jobs.state = 'running'), 0)
    GROUP BY e.session
"""
_DUE = """
    FROM jobs j JOIN sessions n ON n.id = j.session JOIN scopes s ON s.id = j.owner
    WHERE j.state = 'queued' AND j.due_at <= :now AND j.lane <= :lane
      AND NOT EXISTS (SELECT 1 FROM jobs r WHERE r.owner = j.owner AND r.state = 'running')
"""
# Lanes first; within a lane the user who was served longest ago.
_NEXT = f"SELECT j.id {_DUE} ORDER BY j.lane, s.served, j.id LIMIT 1"
_THE_ONE = f"""
    SELECT s.id, s.tenant, s.user, n.project, n.name, j.upto, j.lane, j.attempts, j.created_at, j.closing
    {_DUE} AND j.id = :job
"""
_NAMED = """
    FROM sessions n JOIN scopes s ON s.id = n.owner
    WHERE s.tenant = :tenant AND s.user = :user AND n.name = :name
      AND (:project IS NULL OR n.project = :project)
"""
_BEING_ANSWERED = f"FROM exchanges WHERE state = 'open' AND session IN (SELECT n.id {_NAMED})"
_SUMMED_UP = """
    UPDATE sessions SET unsummarised = (
        SELECT count(*) FROM exchanges WHERE session = :session AND state = 'done' AND seq > :upto)
    WHERE id = :session
"""
_LOST = """
    FROM jobs WHERE state = 'running'
    AND (leased_until <= ? OR instance IN (SELECT value FROM json_each(?)))
"""


_DEAD = """
    FROM jobs j JOIN scopes s ON s.id = j.owner WHERE j.state = 'dead'
    AND s.tenant = ? AND s.user = coalesce(?, s.user) AND j.id = coalesce(?, j.id)
"""


@dataclass(frozen=True, slots=True)
class PendingSession:
    """A session with work in it."""

    session: int
    owner: int
    state: SessionState
    ended: bool  # by its client: nothing more will come


def pending_sessions(tx: Connection, condition: str, parameters: dict[str, Any]) -> list[PendingSession]:
    """Return the sessions that hold exchanges to extract, selected by constant SQL over `e` and `n`."""
    return [
        PendingSession(
            session, owner,
            SessionState(
                scope=Scope(tenant, user, project), session_id=name, last_at=last_at, last_seq=last_seq,
                pending=count, explicit=bool(explicit), personal=bool(personal), at_work=bool(at_work),
            ),
            bool(ended),
        )
        for (
            session, tenant, user, project, name, last_at, last_seq, count, explicit, personal, at_work,
            owner, ended
        ) in tx.execute(_STATES.format(condition=condition), parameters).fetchall()
    ]  # fmt: skip


def offer(tx: Connection, found: PendingSession, trigger: Trigger, at: float) -> None:
    """Make the job that the trigger asks for, or that the session's end calls for, if any."""
    if wanted := _wanted(found, trigger):
        enqueue(tx, found, wanted, at=at)


def due(tx: Connection, condition: str, trigger: Trigger) -> list[tuple[int, NewJob]]:
    """Return the jobs to be made for the sessions that `pending` finds, each with the session's row."""
    found = [(each.session, _wanted(each, trigger)) for each in pending_sessions(tx, condition, {})]
    return [(session, wanted) for session, wanted in found if wanted is not None]


def _wanted(found: PendingSession, trigger: Trigger) -> NewJob | None:
    return trigger(found.state) or (rest_of(found.state) if found.ended else None)


def enqueue(tx: Connection, found: PendingSession, wanted: NewJob, *, at: float) -> None:
    """Queue a job for the session, or widen the one that is queued or waits."""
    put(tx, found.session, found.owner, wanted, at=at)


def put(tx: Connection, session: int, owner: int, wanted: NewJob, *, at: float) -> None:
    """The same, of a session by its row."""
    tx.execute(
        "INSERT INTO jobs (session, owner, upto, lane, state, created_at, closing)"
        " VALUES (?, ?, ?, ?, 'queued', ?, ?)"
        " ON CONFLICT (session) WHERE state IN ('queued', 'waiting')"
        " DO UPDATE SET upto = max(jobs.upto, excluded.upto), lane = min(jobs.lane, excluded.lane),"
        " closing = max(jobs.closing, excluded.closing)",
        (session, owner, wanted.upto, wanted.lane, at, wanted.closing),
    )


def end(tx: Connection, scope: Scope, name: str, at: float) -> int:
    """Queue at once what the user's sessions of this name hold, and what is still being answered in them
    as soon as it is; return how many exchanges. A later exchange takes a session up again."""
    ours = {"tenant": scope.tenant, "user": scope.user, "project": scope.project, "name": name}
    tx.execute(f"UPDATE sessions SET ended = 1 WHERE id IN (SELECT n.id {_NAMED})", ours)
    (count,) = tx.execute(f"SELECT count(*) {_BEING_ANSWERED}", ours).fetchone()
    for found in pending_sessions(tx, f"n.id IN (SELECT n.id {_NAMED})", ours):
        enqueue(tx, found, rest_of(found.state, closing=True), at=at)
        tx.execute("UPDATE jobs SET due_at = 0 WHERE session = ? AND state = 'queued'", (found.session,))
        count += found.state.pending
    return int(count)


def any_lost(tx: Connection, now: float, dead: Sequence[str]) -> bool:
    """Return whether `reclaim` would find a job."""
    return tx.execute(f"SELECT 1 {_LOST} LIMIT 1", (now, rows.as_json(dead))).fetchone() is not None


def next_due(tx: Connection, now: float, upto_lane: int) -> int | None:
    """Return the job whose turn it is. Looks at all that are queued."""
    row = tx.execute(_NEXT, {"now": now, "lane": upto_lane}).fetchone()
    return int(row[0]) if row else None


def wake(tx: Connection, owner: int) -> bool:
    """Make the user's jobs due that wait for a credential; return whether there were any."""
    woken = "UPDATE jobs SET state = 'queued', due_at = 0 WHERE owner = ? AND state = 'waiting'"
    return tx.execute(woken, (owner,)).rowcount > 0


def wake_all(tx: Connection) -> bool:
    """The same of all users."""
    return tx.execute("UPDATE jobs SET state = 'queued', due_at = 0 WHERE state = 'waiting'").rowcount > 0


def reclaim(tx: Connection, now: float, dead: Sequence[str]) -> None:
    """Put back the jobs whose lease ran out or whose process died."""
    users.lock_all(tx, f"SELECT owner {_LOST}", (now, rows.as_json(dead)))
    lost = tx.execute(f"SELECT id {_LOST}", (now, rows.as_json(dead))).fetchall()
    for (job_id,) in lost:
        park(tx, job_id, state="queued", due_at=0.0)


def claim(
    tx: Connection, job_id: int, instance: str, now: float, lease_s: float, upto_lane: int
) -> Job | None:
    """Lease the job to the instance; None if it is no longer due, or another transaction has its user."""
    if not users.lock_free(tx, "SELECT owner FROM jobs WHERE id = ?", (job_id,)):
        return None
    row = tx.execute(_THE_ONE, {"job": job_id, "now": now, "lane": upto_lane}).fetchone()
    if row is None:
        return None
    owner, tenant, user, project, name, upto, lane, attempts, created_at, closing = row
    tx.execute("UPDATE scopes SET served = (SELECT max(served) + 1 FROM scopes) WHERE id = ?", (owner,))
    tx.execute(
        "UPDATE jobs SET state = 'running', attempts = attempts + 1, leased_until = ?, instance = ?"
        " WHERE id = ?",
        (now + lease_s, instance, job_id),
    )
    return Job(
        id=str(job_id), scope=Scope(tenant, user, project), session_id=name, upto=upto, lane=lane,
        attempts=attempts + 1, leased_until=now + lease_s, created_at=created_at,
        closing=bool(closing),
    )  # fmt: skip


def leased_session(tx: Connection, job: Job) -> int | None:
    """Return the job's session while the lease is the job's; its end tells one lease from the next."""
    row = tx.execute(
        "SELECT session FROM jobs WHERE id = ? AND state = 'running' AND leased_until = ?"
        " AND owner = (SELECT id FROM scopes WHERE tenant = ? AND user = ?)",
        (int(job.id), job.leased_until, job.scope.tenant, job.scope.user),
    ).fetchone()
    return int(row[0]) if row else None


def finish(tx: Connection, job: Job) -> None:
    """Settle what the job has read; it queues again where exchanges are left.

    Raises LeaseLost if the lease is no longer the job's.
    """
    session = leased_session(tx, job)
    if session is None:
        raise LeaseLost("another has the job, or it was forgotten")
    ours = {"job": int(job.id), "session": session}
    tx.execute("UPDATE exchanges SET extraction = 'done' WHERE job = :job AND extraction = 'pending'", ours)
    left = tx.execute(
        "SELECT 1 FROM exchanges JOIN jobs ON jobs.id = :job WHERE exchanges.session = :session"
        " AND extraction = 'pending' AND exchanges.state = 'done' AND seq <= upto LIMIT 1",
        ours,
    ).fetchone()
    if left:
        tx.execute("UPDATE jobs SET attempts = 0 WHERE id = :job", ours)
        park(tx, int(job.id), state="queued", due_at=0.0)
    else:
        tx.execute("DELETE FROM jobs WHERE id = :job", ours)
        if job.closing:
            tx.execute(_SUMMED_UP, {"session": session, "upto": job.upto})


def park(tx: Connection, job_id: int, *, state: JobState, due_at: float, reason: str = "") -> None:
    """Take a running job off its owner and let it wait, together with what was queued behind it."""
    for other, upto, lane, closing in tx.execute(
        "SELECT id, upto, lane, closing FROM jobs WHERE id <> ? AND state IN ('queued', 'waiting')"
        " AND session = (SELECT session FROM jobs WHERE id = ?)",
        (job_id, job_id),
    ).fetchall():
        tx.execute("DELETE FROM jobs WHERE id = ?", (other,))
        tx.execute(
            "UPDATE jobs SET upto = max(upto, ?), lane = min(lane, ?), closing = max(closing, ?)"
            " WHERE id = ?",
            (upto, lane, closing, job_id),
        )
    tx.execute(
        "UPDATE jobs SET state = ?, due_at = ?, reason = ?, leased_until = NULL, instance = NULL"
        " WHERE id = ?",
        (state, due_at, reason, job_id),
    )


def take_back_attempt(tx: Connection, job: Job) -> None:
    """Count the claim as no attempt: waiting is no failure."""
    tx.execute("UPDATE jobs SET attempts = attempts - 1 WHERE id = ?", (int(job.id),))


def bury(tx: Connection, job: Job, session: int, reason: str) -> None:
    """Make the job a dead letter, and what it read with it: no trigger offers that again."""
    job_id = int(job.id)
    read = tx.execute(
        "UPDATE exchanges SET extraction = 'dead' WHERE job = ? AND extraction = 'pending'", (job_id,)
    ).rowcount
    if not read:  # it never came so far as to read
        tx.execute(
            "UPDATE exchanges SET extraction = 'dead', job = ? WHERE session = ? AND seq <= ?"
            " AND extraction = 'pending' AND state = 'done'",
            (job_id, session, job.upto),
        )
    tx.execute(
        "UPDATE jobs SET state = 'dead', reason = ?, leased_until = NULL, instance = NULL WHERE id = ?",
        (reason, job_id),
    )


def revive(tx: Connection, tenant: str, user: str | None, job_id: int | None) -> int:
    """Queue dead letters again, each with what it had read; return how many."""
    asked = (tenant, user, job_id)
    users.lock_all(tx, f"SELECT j.owner {_DEAD}", asked)
    dead = tx.execute(
        f"SELECT j.id, j.session, j.upto, j.lane, j.closing {_DEAD} ORDER BY j.id", asked
    ).fetchall()
    for dead_id, session, upto, lane, closing in dead:
        tx.execute(
            "UPDATE exchanges SET extraction = 'pending', job = NULL WHERE job = ? AND extraction = 'dead'",
            (dead_id,),
        )
        widened = tx.execute(
            "UPDATE jobs SET upto = max(upto, ?), lane = min(lane, ?), closing = max(closing, ?)"
            " WHERE session = ? AND state IN ('queued', 'waiting')",
            (upto, lane, closing, session),
        ).rowcount
        if widened:
            tx.execute("DELETE FROM jobs WHERE id = ?", (dead_id,))
        else:
            tx.execute(
                "UPDATE jobs SET state = 'queued', attempts = 0, due_at = 0, reason = '' WHERE id = ?",
                (dead_id,),
            )
    return len(dead)


def instances(tx: Connection, table: str, state: str) -> Iterator[str]:
    """Return the processes named in `jobs` or `exchanges` rows of a state (constants, both)."""
    # Not as a parameter: by it no partial index would be found, and all that was ever said be read.
    query = f"SELECT DISTINCT instance FROM {table} WHERE state = '{state}'"
    for (instance,) in tx.execute(query).fetchall():
        yield instance


# ---------------------------------------------------------------- the store
_PAUSE_S = 0.01
_LONGEST_ID = 18  # digits: fits SQLite's integers

# What the job reads now is marked as its own: `finish` settles exactly that.
_MARK = """
    UPDATE exchanges SET job = :job WHERE seq IN (
        SELECT seq FROM exchanges WHERE session = :session AND extraction = 'pending' AND state = 'done'
        AND seq <= :upto ORDER BY seq LIMIT :limit)
"""
_BEFORE = """
    e.seq IN (SELECT seq FROM exchanges WHERE session = :session AND state = 'done' AND seq < :first
              ORDER BY seq DESC LIMIT :limit) ORDER BY e.seq
"""
# A dead letter has what it read; another has to read what is pending and not in another job's hands.
_INFOS = """
    SELECT j.id, s.tenant, s.user, n.project, n.name, j.state, j.lane, j.attempts,
           CASE j.state WHEN 'dead'
               THEN (SELECT count(*) FROM exchanges e WHERE e.job = j.id AND e.extraction = 'dead')
               ELSE (SELECT count(*) FROM exchanges e
                     WHERE e.session = j.session AND e.extraction = 'pending' AND e.state = 'done'
                     AND e.seq <= j.upto AND coalesce(e.job, j.id) = j.id) END,
           j.created_at, j.due_at, j.reason
    FROM jobs j JOIN sessions n ON n.id = j.session JOIN scopes s ON s.id = j.owner
    WHERE s.tenant = :tenant AND s.user = coalesce(:user, s.user) AND j.state = coalesce(:state, j.state)
      AND j.id > :after
    ORDER BY j.id LIMIT :limit
"""


class SqlJobs:
    """Jobs of all processes that share the file. `instance` is None until the store is open."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.instance: Instance | None = None

    async def claim(self, now: float, lease_s: float, *, upto_lane: int = 3) -> Job | None:
        def look(tx: Connection) -> tuple[bool, int | None]:
            return any_lost(tx, now, self._dead(tx)), next_due(tx, now, upto_lane)

        # Asked with every exchange and seldom fruitful: reading first spares the write, and its fsync. And
        # where many jobs wait, to find the one whose turn it is takes time: no writer needs to wait for that.
        lost, found = await self._database.read(look)
        if lost:
            await self._database.write(lambda tx: reclaim(tx, now, self._dead(tx)))
            _, found = await self._database.read(look)
        while found is not None:
            claiming = partial(
                claim,
                job_id=found,
                instance=self._living.id,
                now=now,
                lease_s=lease_s,
                upto_lane=upto_lane,
            )
            if (job := await self._database.write(claiming)) is not None:
                return job
            last, (_, found) = found, await self._database.read(look)  # another was faster
            if found == last:  # its user is being written about: that takes milliseconds
                await asyncio.sleep(_PAUSE_S)
        return None

    async def batch(self, job: Job, *, limit: int, context: int) -> Batch:
        return await self._database.write(lambda tx: _batch(tx, job, limit, context))

    async def retry(
        self, job: Job, *, at: float, reason: str, dead: bool = False, counted: bool = True
    ) -> None:
        def work(tx: Connection) -> None:
            users.lock(tx, job.scope)
            session = leased_session(tx, job)
            if session is None:
                return  # forgotten, or already somebody else's
            if not counted:
                take_back_attempt(tx, job)
            if dead:
                bury(tx, job, session, reason)
            else:
                park(tx, int(job.id), state="queued", due_at=at, reason=reason)

        await self._database.write(work)

    async def wait_for_credential(self, job: Job) -> None:
        def work(tx: Connection) -> None:
            users.lock(tx, job.scope)
            if leased_session(tx, job) is not None:
                take_back_attempt(tx, job)
                park(tx, int(job.id), state="waiting", due_at=0.0, reason="credential")

        await self._database.write(work)

    async def wake(self, scope: Scope | None) -> bool:
        def work(tx: Connection) -> bool:
            if scope is None:
                return wake_all(tx)
            owner = users.lock(tx, scope)
            return owner is not None and wake(tx, owner.id)

        return await self._database.write(work)

    async def counts(self) -> QueueCounts:
        def work(tx: Connection) -> QueueCounts:
            found = dict(tx.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall())
            (oldest,) = tx.execute("SELECT min(created_at) FROM jobs WHERE state = 'queued'").fetchone()
            return QueueCounts(
                queued=found.get("queued", 0),
                running=found.get("running", 0),
                waiting=found.get("waiting", 0),
                dead=found.get("dead", 0),
                oldest_at=oldest,
            )

        return await self._database.read(work)

    async def list(
        self, tenant: str, user: str | None, *, state: JobState | None, limit: int, after: str | None = None
    ) -> Sequence[JobInfo]:
        whose = {"tenant": tenant, "user": user, "state": state, "limit": limit}

        def work(tx: Connection) -> Sequence[JobInfo]:
            since = _cursor(tx, tenant, user, after)
            return [_info(row) for row in tx.execute(_INFOS, {**whose, "after": since})]

        return await self._database.read(work)

    async def revive(self, tenant: str, user: str | None, job_id: str | None = None) -> int:
        number = None if job_id is None else _number(job_id)
        if job_id is not None and number is None:
            return 0
        return await self._database.write(lambda tx: revive(tx, tenant, user, number))

    @property
    def _living(self) -> Instance:
        assert self.instance is not None, "the database is open only after the instance lives"
        return self.instance

    def _dead(self, tx: Connection) -> Sequence[str]:
        """Return the processes that died with a job in their hands."""
        return [name for name in instances(tx, "jobs", "running") if self._living.is_dead(tx, name)]


def _batch(tx: Connection, job: Job, limit: int, context: int) -> Batch:
    owner = users.lock(tx, job.scope)
    stamp = owner.stamp if owner else users.NEVER_SEEN
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
    return Batch(rows.not_read_aloud(tx, pending), rows.not_read_aloud(tx, earlier), stamp)


def _info(row: tuple[Any, ...]) -> JobInfo:
    id_, tenant, user, project, name, state, lane, attempts, exchanges, created_at, due_at, reason = row
    return JobInfo(
        id=str(id_), scope=Scope(tenant, user, project), session_id=name, state=state, lane=lane,
        attempts=attempts, exchanges=exchanges, created_at=created_at, due_at=due_at, reason=reason,
    )  # fmt: skip


def _cursor(tx: Connection, tenant: str, user: str | None, after: str | None) -> int:
    """Return the number of the job `after`, 0 for none."""
    if after is None:
        return 0
    row = tx.execute(
        "SELECT j.id FROM jobs j JOIN scopes s ON s.id = j.owner"
        " WHERE j.id = ? AND s.tenant = ? AND s.user = coalesce(?, s.user)",
        (_number(after), tenant, user),
    ).fetchone()
    if row is None:
        raise NotFound("No job has this id.", param="after")
    return int(row[0])


def _number(job_id: str) -> int | None:
    """Return the job's row, None for what is no job's id."""
    return int(job_id) if job_id.isascii() and job_id.isdecimal() and len(job_id) <= _LONGEST_ID else None
