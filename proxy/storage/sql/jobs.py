"""The JobQueue over SQL: see ports.JobQueue for what every method guarantees."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from proxy.domain.core import Batch, Job, Scope
from proxy.domain.errors import NotFound
from proxy.domain.oversight import JobInfo, JobState, QueueCounts
from proxy.storage.sql import owners, queue, rows
from proxy.storage.sql.connection import Connection, Database, Instance

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
            return queue.any_lost(tx, now, self._dead(tx)), queue.next_due(tx, now, upto_lane)

        # Asked with every exchange and seldom fruitful: reading first spares the write, and its fsync. And
        # where many jobs wait, to find the one whose turn it is takes time: no writer needs to wait for that.
        lost, found = await self._database.read(look)
        if lost:
            await self._database.write(lambda tx: queue.reclaim(tx, now, self._dead(tx)))
            _, found = await self._database.read(look)
        while found is not None:
            claiming = partial(
                queue.claim,
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
            owners.lock(tx, job.scope)
            session = queue.leased_session(tx, job)
            if session is None:
                return  # forgotten, or already somebody else's
            if not counted:
                queue.take_back_attempt(tx, job)
            if dead:
                queue.bury(tx, job, session, reason)
            else:
                queue.park(tx, int(job.id), state="queued", due_at=at, reason=reason)

        await self._database.write(work)

    async def wait_for_credential(self, job: Job) -> None:
        def work(tx: Connection) -> None:
            owners.lock(tx, job.scope)
            if queue.leased_session(tx, job) is not None:
                queue.take_back_attempt(tx, job)
                queue.park(tx, int(job.id), state="waiting", due_at=0.0, reason="credential")

        await self._database.write(work)

    async def wake(self, scope: Scope | None) -> bool:
        def work(tx: Connection) -> bool:
            if scope is None:
                return queue.wake_all(tx)
            owner = owners.lock(tx, scope)
            return owner is not None and queue.wake(tx, owner.id)

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
        return await self._database.write(lambda tx: queue.revive(tx, tenant, user, number))

    @property
    def _living(self) -> Instance:
        assert self.instance is not None, "the database is open only after the instance lives"
        return self.instance

    def _dead(self, tx: Connection) -> Sequence[str]:
        """Return the processes that died with a job in their hands."""
        return [name for name in queue.instances(tx, "jobs", "running") if self._living.is_dead(tx, name)]


def _batch(tx: Connection, job: Job, limit: int, context: int) -> Batch:
    owner = owners.lock(tx, job.scope)
    stamp = owner.stamp if owner else owners.NEVER_SEEN
    session = queue.leased_session(tx, job)
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
