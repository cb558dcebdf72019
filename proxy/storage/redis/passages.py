"""The PassageIndex over Redis: see documents.PassageIndex for what every method guarantees.

Searches are exact, in arrays of each replica's own; what they find counts only if its row is still there.
Vectors that are to be made are made by one replica a document: who is at it says so, for a time.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from proxy.domain.core import Scope
from proxy.domain.documents import Look, PassageHit, Pending
from proxy.domain.errors import StoreUnavailable
from proxy.domain.ports import EmbeddingModel
from proxy.storage.exact.library import FoundPassage
from proxy.storage.redis import library, model
from proxy.storage.redis.layout import DocumentRow, PassageRow
from proxy.storage.redis.library import TO_EMBED, document_of, passage_of
from proxy.storage.redis.passage_index import Libraries, State
from proxy.storage.redis.unit import Unit, Units, uid

LEASE_S = 30  # of a document: who has made nothing for so long is dead, or cannot
_LOOK_AT = 200  # documents that wait; other replicas may be at the first of them
_TAKE = 4  # documents at a time
# Documents that wait for vectors and that nobody else is at: from now on they are this process's.
_TAKEN = """
local found = {}
local waiting = redis.call('ZRANGE', KEYS[1], '-inf', '(' .. ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[5])
for _, member in ipairs(waiting) do
    local holder = redis.call('GET', KEYS[1] .. ':' .. member)
    if not holder then redis.call('SET', KEYS[1] .. ':' .. member, ARGV[2], 'EX', ARGV[3]) end
    if not holder or holder == ARGV[2] then
        found[#found + 1] = member
        if #found == tonumber(ARGV[4]) then break end
    end
end
return found
"""
_GIVEN_BACK = """
for at = 2, #ARGV do
    local lease = KEYS[1] .. ':' .. ARGV[at]
    if redis.call('GET', lease) == ARGV[1] then redis.call('DEL', lease) end
end
"""


@dataclass(frozen=True, slots=True)
class OursPending(Pending):
    """A Pending that leads to its document: a number says nothing of whose it is."""

    scope: Scope
    document_id: str


class RedisPassages:
    """Passages of all replicas. `embedding`: whose vectors this process makes."""

    def __init__(
        self, units: Units, embedding: Callable[[], EmbeddingModel | None], *, index_bytes: int
    ) -> None:
        self._units, self._embedding = units, embedding
        self._libraries = Libraries(units.redis, index_bytes)
        self._token = secrets.token_hex(8)
        self._taken: set[str] = set()  # since vectors were last asked for: others may have them by now

    async def holds(self, scope: Scope) -> bool:
        async def work(unit: Unit) -> bool:
            return unit.number("documents") > 0

        return await self._units.glance(scope, work)

    async def search(self, scope: Scope, look: Look) -> Sequence[PassageHit]:
        redis = self._units.redis
        unit, held, newest = await asyncio.gather(
            Unit.begin(redis, scope), model.held(redis, self._embedding()), model.newest(redis)
        )
        if not unit.number("documents"):
            return ()
        state = State(unit.uid, unit.home, unit.number("library"), held.generations)
        shelf = await self._libraries.current(state)
        return await _hits(unit, await shelf.search(scope.project, look), newest)

    async def pending(self, limit: int) -> Sequence[Pending]:
        redis = self._units.redis
        newest, ours = await asyncio.gather(model.newest(redis), model.held(redis, self._embedding()))
        if newest != ours.generation:
            return ()  # another process is about to give them vectors of another model, or there is none
        taken = await redis.script(
            _TAKEN, [redis.key(TO_EMBED)], newest, self._token, LEASE_S, _TAKE, _LOOK_AT
        )
        self._taken = {member.decode() for member in taken}
        members = [member.decode().split(" ") for member in taken]
        scopes = await self._units.scopes(user for user, _ in members)
        found: list[Pending] = []
        for user, document_id in members:
            if user in scopes and len(found) < limit:
                read = partial(_waiting, document_id=document_id, newest=newest, limit=limit - len(found))
                found += await self._units.glance(scopes[user], read)
        return found

    async def fill(self, made: Sequence[tuple[Pending, bytes | None]]) -> int:
        redis = self._units.redis
        generation = (await model.held(redis, self._embedding())).generation
        by_user: dict[Scope, dict[str, dict[int, bytes | None]]] = {}
        for one, vector in made:
            assert isinstance(one, OursPending)
            by_user.setdefault(one.scope, {}).setdefault(one.document_id, {})[one.seq] = vector
        count = 0
        for scope, of_user in by_user.items():
            count += await self._units.write(scope, partial(self._fill, made=of_user, generation=generation))
        return count

    async def _fill(self, unit: Unit, *, made: dict[str, dict[int, bytes | None]], generation: int) -> int:
        redis = self._units.redis
        count = await library.fill(unit, made, generation)
        for document_id in await unit.table("documents").many(made) if count else ():
            lease = redis.key(f"{TO_EMBED}:{unit.uid} {document_id}")
            unit.share("SET", lease, self._token, "EX", LEASE_S)
        return count

    def let_go(self, scope: Scope) -> None:
        """Drop what is held in memory of a user."""
        self._libraries.let_go(uid(scope))

    async def close(self) -> None:
        """End what is being read, and leave to others at once what waits for vectors."""
        await self._libraries.close()
        if self._taken:
            redis = self._units.redis
            with suppress(StoreUnavailable):
                await redis.script(_GIVEN_BACK, [redis.key(TO_EMBED)], self._token, *self._taken)


async def _hits(unit: Unit, found: dict[str, list[FoundPassage]], newest: int) -> list[PassageHit]:
    """Return what is found as far as it is there: it may have been replaced or forgotten meanwhile."""
    documents, tables = unit.table("documents"), {id_: unit.table(f"passages:{id_}") for id_ in found}
    names = {id_: [str(one.seq) for one in hits] for id_, hits in found.items()}
    await unit.fetch((documents, found), *((table, names[id_]) for id_, table in tables.items()))
    rows: dict[str, DocumentRow] = await documents.many(found)
    hits = []
    for id_, row in rows.items():
        document = document_of(unit.scope, id_, row, newest)
        passages: dict[str, PassageRow] = await tables[id_].many(names[id_])
        hits += [
            PassageHit(document, passage_of(passages[str(one.seq)]), one.own, one.section)
            for one in found[id_]
            if str(one.seq) in passages
        ]
    return hits


async def _waiting(unit: Unit, *, document_id: str, newest: int, limit: int) -> list[OursPending]:
    """Return the first passages of the document that have no vector of the newest generation."""
    row: DocumentRow | None = await unit.table("documents").get(document_id)
    if row is None:  # deleted just now
        return []
    numbers = zip(library.numbers_of(row), row["generations"], strict=True)
    wanted = [str(number) for number, generation in numbers if generation < newest][:limit]
    found: dict[str, PassageRow] = await unit.table(f"passages:{document_id}").many(wanted)
    return [
        OursPending(int(name), passage.headings, passage.text, unit.scope, document_id)
        for name, passage in ((name, passage_of(row)) for name, row in found.items())
    ]
