"""Delete in portions the data ("home") of a user who was forgotten entirely.

Nobody else can find that data any more, and nothing in it changes: it may be deleted in portions, again
after a crash, and by two processes at once. It is counted first; then its entries in the structures that
all users share are removed, which its tables lead to; and then the tables go. The user may have begun anew
meanwhile: what is theirs again stays in the shared lists.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import orjson

from proxy.domain.core import Forgotten, Scope
from proxy.storage.redis import erasing, exchanges, library, orders, queue
from proxy.storage.redis.connection import pairs
from proxy.storage.redis.layout import SessionRow
from proxy.storage.redis.unit import LASTING, Unit, Units, key_of

_ROWS = 400  # of a home's table, read at a time, and taken from the shared lists in one commit
_JOBS = 40  # each is in many lists
_SPANS = 2  # rows of `order`, of some hundred ids each
_TABLES = 200  # in one command


async def clear(units: Units, scope: Scope, token: str, left: str) -> None:
    """Clear the home that the order names. Returns when nothing is left of it."""
    clearing = _Clearing(units, scope, token, left)
    await clearing.count()
    await clearing.unlist()
    await clearing.erase()


class _Clearing:
    """One process at one order."""

    def __init__(self, units: Units, scope: Scope, token: str, left: str) -> None:
        self._units, self._redis = units, units.redis
        self._scope, self._token, self._left = scope, token, left

    async def count(self) -> None:
        """Note in the order what there is, unless that was done: the home may be half cleared by now."""
        order = await self._units.glance(self._scope, partial(orders.find, token=self._token))
        if order is None or order["counts"]:
            return
        names = ("memories", "sessions", "jobs", "dead", "held", "documents", "conversations")
        sizes = await self._redis.pipeline([("HLEN", self._key(name)) for name in names])
        memories, sessions, jobs, dead, held, documents, conversations = map(int, sizes)
        said, kept = dict[str, int](), dict[str, bool]()
        async for rows in self._rows("sessions"):
            said.update((sid, len(row["seqs"])) for sid, row in rows.items())
        async for rows in self._rows("stored"):
            kept.update((id_, not row["deleted"]) for id_, row in rows.items())
        counts = Forgotten(
            memories=memories, exchanges=sum(said.values()), sessions=sessions, jobs=jobs + dead,
            responses=sum(kept.values()), quarantined=held, documents=documents,
            conversations=conversations,
        )  # fmt: skip
        await self._portion(partial(orders.count, token=self._token, counts=counts))

    async def unlist(self) -> None:
        """Take it all from what all users share."""
        async for spans in self._rows("order", _SPANS):
            ids = [id_ for span in spans.values() for id_ in span.values()]
            for some in _some(ids, _ROWS):
                await self._portion(partial(_unlist_memories, ids=some))
        async for responses in self._rows("stored"):
            for some in _some(responses, _ROWS):
                await self._portion(partial(_unlist_responses, ids=some))
        async for talks in self._rows("conversations"):
            for some in _some(talks, _ROWS):
                await self._portion(partial(_unlist_conversations, ids=some))
        async for sessions in self._rows("sessions"):
            for some in _some(sessions, _ROWS):
                open_ = await self._open({sid: sessions[sid] for sid in some})
                await self._portion(partial(_unlist_sessions, sids=some, open_=open_))
        for table in ("jobs", "dead"):
            async for jobs in self._rows(table):
                for some in _some(jobs, _JOBS):
                    await self._portion(partial(_unlist_jobs, ids=some))
        async for documents in self._rows("documents"):
            for some in _some(documents, _ROWS):
                await self._portion(partial(_unlist_documents, ids=some))

    async def erase(self) -> None:
        """Erase the tables. What was large, Redis frees beside what it serves."""
        tables, cursor = self._key("tables"), b"0"
        while True:
            cursor, found = await self._redis.call("SSCAN", tables, cursor, "COUNT", _TABLES)
            for some in _some({name.decode() for name in found} - LASTING, _TABLES):
                await self._redis.call("UNLINK", *map(self._key, some))
                await self._portion(_nothing)
            if int(cursor) == 0:
                break
        await self._redis.call("UNLINK", tables)

    async def _open(self, sessions: dict[str, SessionRow]) -> list[str]:
        """Return the ids of the exchanges that are being answered in these sessions."""
        asked = [
            ("HMGET", self._key(exchanges.name_of(sid)), *map(str, session["open"]))
            for sid, session in sessions.items()
            if session["open"]
        ]
        answers = await self._redis.pipeline(asked)
        return [orjson.loads(row)["id"] for rows in answers for row in rows if row is not None]

    async def _rows(self, table: str, count: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """Yield the rows of a table, about so many at a time; some may come twice."""
        cursor = b"0"
        while True:
            cursor, found = await self._redis.call("HSCAN", self._key(table), cursor, "COUNT", count or _ROWS)
            yield {name: orjson.loads(row) for name, row in pairs(found).items()}
            if int(cursor) == 0:
                return

    async def _portion(self, work: Callable[[Unit], Awaitable[None]]) -> None:
        done = partial(_portion, token=self._token, work=work)
        await self._units.write(self._scope, done)

    def _key(self, table: str) -> str:
        return key_of(self._redis, self._left, table)


async def _portion(unit: Unit, *, token: str, work: Callable[[Unit], Awaitable[None]]) -> None:
    unit.frees = True
    await work(unit)
    await orders.still_at_it(unit, token)


async def _nothing(unit: Unit) -> None:
    pass


async def _unlist_memories(unit: Unit, *, ids: Sequence[str]) -> None:
    ours = await unit.table("memories").many(ids)
    await erasing.unlist(unit, [id_ for id_ in ids if id_ not in ours], ())


async def _unlist_responses(unit: Unit, *, ids: Sequence[str]) -> None:
    ours = await unit.table("stored").many(ids)
    await erasing.unlist(unit, (), [id_ for id_ in ids if id_ not in ours])


async def _unlist_conversations(unit: Unit, *, ids: Sequence[str]) -> None:
    ours = await unit.table("conversations").many(ids)
    erasing.unlist_conversations(unit, [id_ for id_ in ids if id_ not in ours])


async def _unlist_sessions(unit: Unit, *, sids: Sequence[str], open_: Sequence[str]) -> None:
    ours = await unit.table("sessions").many(sids)
    exchanges.unlist_sessions(unit, [sid for sid in sids if sid not in ours], open_)


async def _unlist_jobs(unit: Unit, *, ids: Sequence[str]) -> None:
    await queue.drop(unit, ids)


async def _unlist_documents(unit: Unit, *, ids: Sequence[str]) -> None:
    ours = await unit.table("documents").many(ids)
    library.unlist(unit, [id_ for id_ in ids if id_ not in ours])


def _some(names: Iterable[str], most: int) -> Iterator[list[str]]:
    """Yield the names, as many at a time as one commit may take."""
    listed = list(names)
    for start in range(0, len(listed), most):
        yield listed[start : start + most]
