"""Rows of `jobs`: how sessions turn into jobs and jobs change state. Runs inside a unit of work.

A job goes queued → running → gone, or back to queued, to waiting (for a credential), or to dead. A session
has at most one job queued or waiting, a user at most one running. A job reads exchanges by marking their
entries in `unread` as its own: what it did not read, it does not settle.

What replicas share of it (who has something due, what runs, what is how old) is made anew from the rows that
changed, in the same commit: it cannot drift from them.
"""

import re
from collections.abc import Collection, Iterable

import orjson

from proxy.domain.core import Job, NewJob, Scope
from proxy.domain.errors import LeaseLost
from proxy.domain.lanes import LANES, rest_of
from proxy.domain.oversight import JOB_STATES, JobState
from proxy.domain.ports import Trigger
from proxy.storage.redis import orders, unsummarised, waiting
from proxy.storage.redis.layout import JobRow, SessionRow
from proxy.storage.redis.unit import Unit
from proxy.storage.redis.waiting import Waiting

_PENDING = ("queued", "waiting")
_NEVER_SERVED = -(2**52)  # exact in a sorted set's score, with a job's number added
_ID = re.compile(r"[0-9a-f]{32}\.[1-9][0-9]{0,14}", re.ASCII)


def owner(job_id: str) -> str | None:
    """Return the uid of the user whose job it is; None for what is no job's id."""
    return job_id.partition(".")[0] if _ID.fullmatch(job_id) else None


def number(job_id: str) -> int:
    """Return the number of a job by its id: the higher, the later it came."""
    return int(job_id.partition(".")[2])


class Queue:
    """A user's jobs in one unit of work. What is changed counts once `settle` was called."""

    def __init__(self, unit: Unit, jobs: dict[str, JobRow]) -> None:
        self._unit, self._jobs = unit, jobs
        self._dead: dict[str, JobRow] = {}  # letters that this unit has written
        self._changed: dict[str, None] = {}
        self._sessions: dict[str, None] = {}
        self._is_outdated = False  # something shared does not agree with the rows

    @classmethod
    async def of(cls, unit: Unit) -> "Queue":
        return cls(unit, await unit.table("jobs").all())

    # ------------------------------------------------------------ looking
    def leased(self, job: Job) -> JobRow | None:
        """Return the job's row while the lease is the job's; its end tells one lease from the next."""
        row = self._jobs.get(job.id)
        held = row is not None and row["state"] == "running" and row["leased_until"] == job.leased_until
        return row if held else None

    def running(self) -> str | None:
        """Return the id of the user's running job."""
        return next((id_ for id_, row in self._jobs.items() if row["state"] == "running"), None)

    async def waiting(self, sids: Iterable[str]) -> dict[str, Waiting]:
        """Return those of the sessions that hold exchanges to extract."""
        return await waiting.among(self._unit, list(sids), self._jobs.values())

    def pending(self, sid: str) -> str | None:
        """Return the id of the session's job that is queued or waits."""
        return next(
            (id_ for id_, row in self._jobs.items() if row["sid"] == sid and row["state"] in _PENDING), None
        )

    # ------------------------------------------------------------ coming in
    def touch(self, sid: str) -> None:
        """Say that the session, or what is unread of it, has changed."""
        self._sessions[sid] = None

    async def offer(self, found: Waiting, trigger: Trigger, at: float) -> bool:
        """Make the job that the trigger asks for, or that the session's end calls for; return whether there
        is one."""
        wanted = wanted_of(found, trigger)
        if wanted is not None:
            await self.put(found.sid, wanted, at=at)
        return wanted is not None

    async def put(self, sid: str, wanted: NewJob, *, at: float) -> str:
        """Queue a job for the session, or widen the one that is queued or waits; return its id."""
        if (known := self.pending(sid)) is not None:
            self._widen(known, wanted.upto, wanted.lane, wanted.closing)
            return known
        count = int(await self._unit.redis.call("INCR", self._unit.redis.key("job-numbers")))
        id_ = f"{self._unit.uid}.{count}"
        row: JobRow = {
            "seq": count, "sid": sid, "upto": wanted.upto, "lane": wanted.lane, "state": "queued",
            "attempts": 0, "due_at": 0.0, "delayed": False, "leased_until": None, "instance": None,
            "created_at": at, "reason": "", "closing": wanted.closing,
        }  # fmt: skip
        self._put(id_, row)
        return id_

    def hurry(self, sid: str) -> None:
        """Make the session's queued job due at once."""
        known = self.pending(sid)
        if known is not None and (row := self._jobs[known])["state"] == "queued":
            self._put(known, {**row, "due_at": 0.0, "delayed": False})

    def ripen(self, job_id: str, now: float) -> None:
        """A queued job that was put back until a time before `now` is due."""
        row = self._jobs.get(job_id)
        if row is not None and row["delayed"] and row["due_at"] <= now:
            self._put(job_id, {**row, "delayed": False})
        else:
            self._changed[job_id] = None  # what led here is outdated

    def wake(self) -> bool:
        """Make the user's jobs due that wait for a credential; return whether there were any."""
        waiting_ = [(id_, row) for id_, row in self._jobs.items() if row["state"] == "waiting"]
        for id_, row in waiting_:
            self._put(id_, {**row, "state": "queued", "due_at": 0.0, "delayed": False})
        return bool(waiting_)

    # ------------------------------------------------------------ running
    async def claim(self, instance: str, now: float, lease_s: float, upto_lane: int) -> Job | None:
        """Lease the user's next due job to the instance; None where there is none, or one is running."""
        due = self._due(upto_lane)
        if due is None:
            self._is_outdated = True  # what led here is
            return None
        row: JobRow = {
            **self._jobs[due], "state": "running", "attempts": self._jobs[due]["attempts"] + 1,
            "leased_until": now + lease_s, "instance": instance,
        }  # fmt: skip
        session: SessionRow = await self._unit.table("sessions").get(row["sid"])
        rank = await self._unit.redis.call("INCR", self._unit.redis.key("served"))
        self._unit.set_number("served", int(rank))
        self._put(due, row)
        scope = self._unit.scope
        return Job(
            id=due, scope=Scope(scope.tenant, scope.user, session["project"]), session_id=session["name"],
            upto=row["upto"], lane=row["lane"], attempts=row["attempts"], leased_until=now + lease_s,
            created_at=row["created_at"], closing=row["closing"],
        )  # fmt: skip

    async def finish(self, job: Job) -> None:
        """Settle what the job has read; it queues again where exchanges are left.

        Raises LeaseLost if the lease is no longer the job's.
        """
        row = self.leased(job)
        if row is None:
            raise LeaseLost("another has the job, or it was forgotten")
        sid = row["sid"]
        entries = await waiting.unread(self._unit, sid)
        left = [entry for entry in entries if entry["dead"] or entry["job"] != job.id]
        waiting.put(self._unit, sid, left)
        if any(not entry["dead"] and entry["seq"] <= row["upto"] for entry in left):
            self._put(job.id, {**row, "attempts": 0})
            self.park(job.id, state="queued")
            return
        self._remove(job.id)
        if job.closing:
            await self._summed_up(sid, job.upto)

    def park(self, job_id: str, *, state: JobState, due_at: float = 0.0, reason: str = "") -> None:
        """Take a running job off its owner and let it wait, together with what was queued behind it."""
        behind = self.pending(self._jobs[job_id]["sid"])
        if behind is not None and behind != job_id:
            other = self._jobs[behind]
            self._remove(behind)
            self._widen(job_id, other["upto"], other["lane"], other["closing"])
        self._put(job_id, {
            **self._jobs[job_id], "state": state, "due_at": due_at,
            "delayed": state == "queued" and due_at > 0, "reason": reason, "leased_until": None,
            "instance": None,
        })  # fmt: skip

    def reclaim(self, job_id: str, now: float, dead: Collection[str | None]) -> None:
        """Put the job back if its lease ran out or its process died."""
        row = self._jobs.get(job_id)
        if row is None or row["state"] != "running" or row["leased_until"] is None:
            self._changed[job_id] = None
        elif row["leased_until"] <= now or row["instance"] in dead:
            self.park(job_id, state="queued")

    def take_back_attempt(self, job: Job) -> None:
        """Count the claim as no attempt: waiting is no failure."""
        row = self._jobs[job.id]
        self._put(job.id, {**row, "attempts": row["attempts"] - 1})

    # ------------------------------------------------------------ dead letters
    async def bury(self, job: Job, reason: str) -> None:
        """Make the job a dead letter, and what it read with it: no trigger offers that again."""
        row = self._jobs[job.id]
        entries = await waiting.unread(self._unit, row["sid"])
        read = {entry["seq"] for entry in entries if not entry["dead"] and entry["job"] == job.id}
        if not read:  # it never came so far as to read
            read = {entry["seq"] for entry in entries if not entry["dead"] and entry["seq"] <= job.upto}
        waiting.put(
            self._unit,
            row["sid"],
            [{**e, "job": job.id, "dead": True} if e["seq"] in read else e for e in entries],
        )
        self._remove(job.id)
        self._dead[job.id] = {
            **row, "state": "dead", "reason": reason, "leased_until": None, "instance": None,
        }  # fmt: skip
        self._unit.table("dead").put(job.id, self._dead[job.id])

    async def revive(self, job_id: str | None) -> int:
        """Queue dead letters again, each with what it had read; return how many."""
        table = self._unit.table("dead")
        letters: dict[str, JobRow] = await (table.all() if job_id is None else table.many((job_id,)))
        for id_ in sorted(letters, key=number):
            row = letters[id_]
            entries = await waiting.unread(self._unit, row["sid"])
            waiting.put(
                self._unit,
                row["sid"],
                [{**e, "job": None, "dead": False} if e["job"] == id_ and e["dead"] else e for e in entries],
            )
            table.drop(id_)
            self._changed[id_] = None
            if (known := self.pending(row["sid"])) is not None:
                self._widen(known, row["upto"], row["lane"], row["closing"])
            else:
                self._put(id_, {
                    **row, "state": "queued", "attempts": 0, "due_at": 0.0, "delayed": False, "reason": "",
                })  # fmt: skip
        return len(letters)

    def drop(self, job_ids: Iterable[str]) -> None:
        """Erase jobs, whatever their state."""
        for id_ in job_ids:
            self._remove(id_)
            self._unit.table("dead").drop(id_)

    async def drop_of(self, sid: str) -> None:
        """Erase all jobs of a session, which is being erased."""
        letters: dict[str, JobRow] = await self._unit.table("dead").all()
        rows = {**letters, **self._jobs}
        self.drop([id_ for id_, row in rows.items() if row["sid"] == sid])
        self.touch(sid)

    # ------------------------------------------------------------ making known
    def announce_all(self) -> None:
        """Say anew which jobs are due, and which are not: a forget has begun, or is over."""
        self._changed.update(dict.fromkeys(self._jobs))

    async def settle(self) -> None:
        """Let the others know what has changed."""
        for id_ in self._changed:
            self._announce(id_)
        if self._changed or self._is_outdated:
            self._announce_due()
        if not self._sessions:
            return
        found = await self.waiting(self._sessions)
        rows: dict[str, SessionRow] = await self._unit.table("sessions").many(self._sessions)
        for sid in self._sessions:
            offered = found.get(sid) if self.pending(sid) is None else None
            waiting.announce(self._unit, sid, offered)
            if self._is_closing(sid):
                unsummarised.queued(self._unit, sid)
            else:
                unsummarised.note(self._unit, sid, rows.get(sid))

    def _announce(self, id_: str) -> None:
        row = self._jobs.get(id_) or self._dead.get(id_)
        state = row["state"] if row else None
        share, key = self._unit.share, self._unit.redis.key
        for each in JOB_STATES:
            if row and each == state:
                share("ZADD", key(f"jobs:{each}"), row["seq"], id_)
            else:
                share("ZREM", key(f"jobs:{each}"), id_)
        if row and state == "queued":
            share("ZADD", key("queued-since"), row["created_at"], id_)
        else:
            share("ZREM", key("queued-since"), id_)
        if row and state == "queued" and row["delayed"]:
            share("ZADD", key("later"), row["due_at"], id_)
        else:
            share("ZREM", key("later"), id_)
        if row and state == "running":
            lease = orjson.dumps([row["leased_until"], row["instance"]])
            share("HSET", key("running"), id_, lease)
        else:
            share("HDEL", key("running"), id_)

    def _announce_due(self) -> None:
        served = self._unit.number("served")
        for lane in LANES:
            numbers = (
                [] if self._is_held_up() else [row["seq"] for row in self._ripe() if row["lane"] == lane]
            )
            if numbers:
                rank = served or _NEVER_SERVED + min(numbers)
                self._unit.share("ZADD", self._unit.redis.key(f"due:{lane}"), rank, self._unit.uid)
            else:
                self._unit.share("ZREM", self._unit.redis.key(f"due:{lane}"), self._unit.uid)

    # ------------------------------------------------------------ rows
    def _is_closing(self, sid: str) -> bool:
        jobs = (*self._jobs.values(), *self._dead.values())
        return any(row["sid"] == sid and row["closing"] for row in jobs)

    def _ripe(self) -> list[JobRow]:
        return [row for row in self._jobs.values() if row["state"] == "queued" and not row["delayed"]]

    def _due(self, upto_lane: int) -> str | None:
        due = [(row["lane"], row["seq"]) for row in self._ripe() if row["lane"] <= upto_lane]
        return f"{self._unit.uid}.{min(due)[1]}" if due and not self._is_held_up() else None

    def _is_held_up(self) -> bool:
        """One job at a time; and nothing of a user is read by a model while it may be forgotten."""
        return self.running() is not None or orders.are_standing(self._unit)

    def _put(self, id_: str, row: JobRow) -> None:
        self._jobs[id_] = row
        self._unit.table("jobs").put(id_, row)
        self._changed[id_] = None
        self.touch(row["sid"])

    def _remove(self, id_: str) -> None:
        self._changed[id_] = None
        if (row := self._jobs.pop(id_, None)) is not None:
            self._unit.table("jobs").drop(id_)
            self.touch(row["sid"])

    def _widen(self, id_: str, upto: int, lane: int, closing: bool) -> None:
        row = self._jobs[id_]
        self._put(id_, {
            **row, "upto": max(row["upto"], upto), "lane": min(row["lane"], lane),
            "closing": row["closing"] or closing,
        })  # fmt: skip

    async def _summed_up(self, sid: str, upto: int) -> None:
        session: SessionRow = await self._unit.table("sessions").get(sid)
        left = sum(seq > upto and seq not in session["open"] for seq in session["seqs"])
        self._unit.table("sessions").put(sid, {**session, "unsummarised": left})


def wanted_of(found: Waiting, trigger: Trigger) -> NewJob | None:
    """Return the job that the trigger asks for, or that the session's end calls for."""
    return trigger(found.state) or (rest_of(found.state) if found.ended else None)


# ---------------------------------------------------------------- for who does other things in the same unit
async def finish(unit: Unit, job: Job) -> None:
    """Settle what the job has read. Raises LeaseLost if the lease is no longer the job's."""
    queue = await Queue.of(unit)
    await queue.finish(job)
    await queue.settle()


async def leased(unit: Unit, job: Job) -> JobRow | None:
    """Return the job's row while the lease is the job's."""
    row: JobRow | None = await unit.table("jobs").get(job.id)
    held = row is not None and row["state"] == "running" and row["leased_until"] == job.leased_until
    return row if held else None


async def put(unit: Unit, sid: str, wanted: NewJob, *, at: float) -> None:
    """Queue a job for a session, or widen the one that is queued or waits."""
    queue = await Queue.of(unit)
    await queue.put(sid, wanted, at=at)
    await queue.settle()


async def drop(unit: Unit, job_ids: Iterable[str]) -> None:
    """Erase jobs, whatever their state."""
    queue = await Queue.of(unit)
    queue.drop(job_ids)
    await queue.settle()
