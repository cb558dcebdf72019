"""The NoteStore over Redis: see note_store.NoteStore for what every method guarantees.

Anchors are a log (anchors.py). Lines are no rows of their own but the exchanges' beginnings. The sweep for
sessions that have ended asks the set that all users share (unsummarised.py), and reads of users' data only
the rows of sessions that it names.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import orjson

from proxy.domain.core import Exchange, Job, NewJob, Scope, Stamp
from proxy.domain.lanes import BATCH
from proxy.domain.note_store import Episode, Unread
from proxy.domain.notes import MOST_LINE_CHARS, NOTHING, Line, SessionNotes, Standing, State
from proxy.storage.redis import exchanges, orders, queue, unsummarised, waiting
from proxy.storage.redis.anchors import in_force, logged
from proxy.storage.redis.connection import scored
from proxy.storage.redis.layout import ExchangeRow, JobRow, MemoryRow, SessionRow, StateRow, sid, storable
from proxy.storage.redis.unit import Unit, Units, home_of, key_of

_LOOK_AT_ONCE = 16  # exchanges, where it is the last ones that are likely to be it
_CLOSE_AT_ONCE = 100  # sessions that one `close` looks at
_ASK_AT_ONCE = 1000  # of those in the shared set
_BLANK = "\t\n\r "


class RedisNotes:
    """Notes of all replicas."""

    def __init__(self, units: Units) -> None:
        self._units = units

    async def notes(
        self, scope: Scope, session_id: str, *, after: str | None = None, lines: int = 0
    ) -> SessionNotes:
        named = sid(scope.project, session_id)

        async def work(unit: Unit) -> SessionNotes:
            anchors = unit.table(f"anchors:{named}")
            state = (unit.table("states"), (named,) if lines else ())
            await unit.fetch((unit.table("sessions"), (named,)), (anchors, None), state)
            session: SessionRow | None = await unit.table("sessions").get(named)
            if session is None or orders.are_standing(unit):
                return NOTHING
            log = await logged(anchors)
            if log and after is not None:
                said_by = await _answered_with(unit, named, session, storable(after))
                log = [row for row in log if row["exchange"] <= said_by]
            told = SessionNotes(in_force(log))
            return await _with_lines(unit, named, session, told, lines) if lines else told

        return await self._units.read(scope, work)

    async def standing(self, scope: Scope, session_id: str) -> Standing | None:
        named = sid(scope.project, session_id)

        async def work(unit: Unit) -> Standing | None:
            session, state = await _session_and_state(unit, named)
            if session is None or state is None:
                return None
            return Standing(state["content"], frozenset(state["marks"]))

        return await self._units.glance(scope, work)

    async def unread(self, scope: Scope, session_id: str, *, limit: int) -> Unread | None:
        named = sid(scope.project, session_id)

        async def work(unit: Unit) -> Unread | None:
            session, state = await _session_and_state(unit, named)
            if session is None or not session["stateful"]:
                return None
            told = state["upto"] if state else 0
            # Up to the first that is still being answered: a state leaves no gap.
            until = min(session["open"], default=None)
            wanted = [seq for seq in _answered(session) if seq > told and (until is None or seq < until)]
            found = await exchanges.read(unit, scope, session_id, named, wanted[:limit])
            rows = await _rows(unit, named, wanted[:limit])
            content = state["content"] if state else None
            return Unread(content, tuple(found), tuple(row["key"] for row in rows), unit.stamp)

        return await self._units.read(scope, work)

    async def keep_state(
        self, scope: Scope, session_id: str, state: State, upto: Exchange, marks: Sequence[str],
        *, expect: Stamp,
    ) -> bool:  # fmt: skip
        named = sid(scope.project, session_id)

        async def work(unit: Unit) -> bool:
            session, before = await _session_and_state(unit, named)
            if session is None or unit.stamp.generation != expect.generation:
                return False
            if before is not None and before["upto"] >= upto.seq:
                return False
            known = before["marks"] if before else []
            row: StateRow = {
                "upto": upto.seq,
                "content": {name: _written(told) for name, told in state.items()},
                "at": upto.at,
                "marks": list(dict.fromkeys((*known, *map(storable, marks)))),
            }
            unit.table("states").put(named, row)
            return True

        return await self._units.write(scope, work)

    async def episode(self, job: Job, *, limit: int) -> Episode | None:
        async def work(unit: Unit) -> Episode | None:
            leased = await queue.leased(unit, job)
            if leased is None or await waiting.to_extract(unit, leased["sid"], job.upto, job.id):
                return None
            session: SessionRow = await unit.table("sessions").get(leased["sid"])
            rows = await _rows(unit, leased["sid"], session["seqs"])
            told = [seq for seq in _answered(session) if seq <= job.upto]
            found = await exchanges.read(
                unit, job.scope, job.session_id, leased["sid"], told[-limit:], aloud=False
            )
            return Episode(tuple(found), await _summary(unit, rows))

        return await self._units.read(job.scope, work)

    async def close(self, *, idle_since: float, left_since: float, now: float) -> int:
        ended: dict[str, list[str]] = {}
        for user, named in await self._ended(idle_since, left_since):
            ended.setdefault(user, []).append(named)
        closed = 0
        for user, scope in (await self._units.scopes(ended)).items():

            async def work(unit: Unit, sids: Sequence[str] = tuple(ended[user])) -> int:
                rows: dict[str, SessionRow] = await unit.table("sessions").many(sids)
                in_order = sorted(sids, key=lambda each: rows[each]["seq"] if each in rows else 0)
                since = (idle_since, left_since)
                return sum([await self._close(unit, each, since, now) for each in in_order])

            closed += await self._units.write(scope, work)
        return closed

    async def _ended(self, idle_since: float, left_since: float) -> list[tuple[str, str]]:
        """Return (uid, sid) of sessions that have ended by what is known of them now, the first of them."""
        redis, start = self._units.redis, 0
        found: list[str] = []
        last = max(idle_since, left_since)
        while len(found) < _CLOSE_AT_ONCE:
            page = await redis.call(
                "ZRANGEBYSCORE", redis.key("unsummarised"), "-inf", last,
                "WITHSCORES", "LIMIT", start, _ASK_AT_ONCE,
            )  # fmt: skip
            used = scored(page)
            found += [member for member, at in used if at <= idle_since]
            found += await self._left([member for member, at in used if at > idle_since])
            if len(used) < _ASK_AT_ONCE:
                break
            start += _ASK_AT_ONCE
        split = (member.partition(" ") for member in found[:_CLOSE_AT_ONCE])
        return [(user, named) for user, _, named in split]

    async def _left(self, members: Sequence[str]) -> list[str]:
        """Return those of the sessions whose user has begun another since."""
        redis, asked = self._units.redis, [member.split(" ") for member in members]
        owners = await redis.pipeline(
            [("HMGET", key_of(redis, user, "owner"), "session", "home") for user, _ in asked]
        )
        rows = await redis.pipeline(
            [
                ("HGET", key_of(redis, home_of(user, int(number or 0)), "sessions"), named)
                for (user, named), (_, number) in zip(asked, owners, strict=True)
            ]
        )
        found = zip(members, owners, rows, strict=True)
        return [
            member for member, (last, _), row in found if row and orjson.loads(row)["seq"] < int(last or 0)
        ]

    async def _close(self, unit: Unit, named: str, since: tuple[float, float], now: float) -> bool:
        """Queue the closing job of a session, or note that it needs none."""
        session: SessionRow | None = await unit.table("sessions").get(named)
        if session is None or not session["unsummarised"]:
            unsummarised.note(unit, named, session)
            return False
        if not await _has_ended(unit, session, *since):
            return False
        if await _is_closing(unit, named):
            unsummarised.queued(unit, named)
            return False
        answered = _answered(session)
        if len(answered) < 2:
            changed: SessionRow = {**session, "unsummarised": 0}
            unit.table("sessions").put(named, changed)
            unsummarised.note(unit, named, changed)
            return False
        closing = NewJob(session["name"], answered[-1], BATCH, closing=True)
        await queue.put(unit, named, closing, at=now)
        return True


async def _has_ended(unit: Unit, session: SessionRow, idle_since: float, left_since: float) -> bool:
    if session["ended"] or session["last_at"] <= idle_since:
        return True
    if session["last_at"] > left_since:
        return False
    others: dict[str, SessionRow] = await unit.table("sessions").all()
    return any(other["seq"] > session["seq"] for other in others.values())


async def _is_closing(unit: Unit, named: str) -> bool:
    for table in ("jobs", "dead"):
        jobs: dict[str, JobRow] = await unit.table(table).all()
        if any(job["sid"] == named and job["closing"] for job in jobs.values()):
            return True
    return False


async def _session_and_state(unit: Unit, named: str) -> tuple[SessionRow | None, StateRow | None]:
    sessions, states = unit.table("sessions"), unit.table("states")
    await unit.fetch((sessions, (named,)), (states, (named,)))
    if orders.are_standing(unit):
        return None, None
    return await sessions.get(named), await states.get(named)


async def _answered_with(unit: Unit, named: str, session: SessionRow, answer: str) -> int:
    """Return the seq of the last exchange with this answer, -1 if there is none."""
    wanted, answered = answer.strip(_BLANK), _answered(session)[::-1]
    for start in range(0, len(answered), _LOOK_AT_ONCE):
        for row in await _rows(unit, named, answered[start : start + _LOOK_AT_ONCE]):
            if row["answer"].strip(_BLANK) == wanted:
                return row["seq"]
    return -1


async def _with_lines(
    unit: Unit, named: str, session: SessionRow, told: SessionNotes, limit: int
) -> SessionNotes:
    answered = _answered(session)
    lines = tuple(
        Line(row["said"][: MOST_LINE_CHARS + 1], row["answer"][: MOST_LINE_CHARS + 1], row["at"])
        for row in await _rows(unit, named, answered[-limit:])
    )
    state: StateRow | None = await unit.table("states").get(named)
    if state is None or len(answered) <= limit:
        return replace(told, lines=lines)
    return replace(told, lines=lines, state=state["content"], state_at=state["at"])


async def _summary(unit: Unit, rows: Iterable[ExchangeRow]) -> str | None:
    """Return the memory that sums up the session of these exchanges."""
    cited: dict[str, list[str]] = await unit.table("cited").many(row["id"] for row in rows)
    ids = {id_ for by in cited.values() for id_ in by}
    memories: dict[str, MemoryRow] = await unit.table("memories").many(ids)
    found = [
        (row["seq"], id_)
        for id_, row in memories.items()
        if row["source"] == "summary" and row["superseded_by"] is None and not row["archived"]
    ]
    return max(found)[1] if found else None


async def _rows(unit: Unit, named: str, seqs: Iterable[int]) -> list[ExchangeRow]:
    return list((await unit.table(f"exchanges:{named}").many(map(str, seqs))).values())


def _answered(session: SessionRow) -> list[int]:
    """Return the exchanges that have been answered, in order."""
    still = set(session["open"])
    return [seq for seq in session["seqs"] if seq not in still]


def _written(told: str | Sequence[str]) -> str | list[str]:
    return storable(told) if isinstance(told, str) else [storable(each) for each in told]
