"""The ChainStore over Redis: see ports.ChainStore for what every method guarantees.

A response that its owner deleted leaves a row without content: a background response still under way
cannot store itself again, and a chain passes over the gap. A response that has expired is kept from `get`
at once, but its row stays while a living one continues it: a chain in use does not lose its beginning.

Rows tell of what a response is, and are small; bodies are apart. `next` leads from a response to those that
continue it, whether or not it is kept itself. The shared set says when to look whether a response can go.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from proxy.domain.core import Scope
from proxy.domain.stored_responses import Chain, StoredResponse
from proxy.storage.redis import conversations, exchanges, orders
from proxy.storage.redis.layout import ConversationRow, StoredRow, storable
from proxy.storage.redis.unit import Unit, Units

_EXPIRE_AT_ONCE = 200  # rows of a unit: other writers of the user start anew because of it
_LOOK_AGAIN_S = 3600.0  # at what has expired and is still continued by something living


class RedisChains:
    """Stored responses of all replicas."""

    def __init__(self, units: Units) -> None:
        self._units = units

    async def save(
        self,
        response: StoredResponse,
        *,
        generation: int,
        recalled: Sequence[str] = (),
        over: bytes | None = None,
        exchange: str | None = None,
        said: Sequence[tuple[str, bytes]] = (),
    ) -> bool:
        """As the port says; False also if the owner has deleted this response. `recalled`: the memories
        that the model was shown, since the answer may repeat them; none: those of the last save."""

        async def work(unit: Unit) -> bool:
            late = unit.stamp.generation != generation
            if late and not await _is_left(unit, response, recalled, of=(exchange, generation), over=over):
                return False
            if over is not None and await unit.blobs("bodies").get(f"{storable(response.id)} r") != over:
                return False
            saved = await _save(unit, response, recalled)
            if saved and said:
                await conversations.append_said(unit, response, said)
            return saved

        return await self._units.write(response.scope, work)

    async def get(self, scope: Scope, response_id: str, now: float) -> StoredResponse | None:
        id_ = storable(response_id)

        async def work(unit: Unit) -> StoredResponse | None:
            bodies = unit.blobs("bodies")
            await unit.fetch((unit.table("stored"), (id_,)), (bodies, _bodies(id_)))
            row: StoredRow | None = await unit.table("stored").get(id_)
            if row is None or row["deleted"] or _has_expired(row, now):
                return None
            return await _response(unit, scope, id_, row)

        return await self._units.glance(scope, work)

    async def chain(
        self, scope: Scope, response_id: str, now: float, *, limit: int, most_bytes: int
    ) -> Chain:
        id_ = storable(response_id)

        async def work(unit: Unit) -> Chain:
            line: dict[str, StoredRow] = await unit.table("stored").follow(id_, "previous_id", limit)
            if id_ not in line or line[id_]["deleted"] or _has_expired(line[id_], now):
                return Chain()
            before = list(line.values())[-1]["previous_id"]
            kept = {each: row for each, row in reversed(line.items()) if not row["deleted"]}
            size = sum(row.get("size", 0) for row in kept.values())
            if size > most_bytes:
                return Chain(size=size)
            await unit.fetch((unit.blobs("bodies"), [body for each in kept for body in _bodies(each)]))
            found = [await _response(unit, scope, each, row) for each, row in kept.items()]
            whole = tuple(response for response in found if response is not None)
            return Chain(whole, before, sum(len(r.response) + len(r.input_items) for r in whole))

        return await self._units.read(scope, work)

    async def delete(self, scope: Scope, response_id: str) -> bool:
        id_ = storable(response_id)

        async def work(unit: Unit) -> bool:
            row: StoredRow | None = await unit.table("stored").get(id_)
            if row is None or row["deleted"]:
                return False
            unit.table("stored").put(id_, {**row, "deleted": True, "recalled": []})
            _drop_bodies(unit, id_)
            return True

        return await self._units.write(scope, work)

    async def trim(self, scope: Scope, most_bytes: int) -> int:
        async def work(unit: Unit) -> int:
            stored: dict[str, StoredRow] = await unit.table("stored").all()
            talks: dict[str, ConversationRow] = await unit.table("conversations").all()
            kept = [(row["created_at"], row["seq"], id_) for id_, row in stored.items() if not row["deleted"]]
            kept += [
                (at, 0, id_)
                for id_, talk in talks.items()
                if (at := talk.get("used_at", talk["created_at"])) is not None
            ]
            total, trimmed = 0, 0
            for place, (_, seq, id_) in enumerate(sorted(kept, reverse=True)):
                total += (stored[id_] if seq else talks[id_]).get("size", 0)
                if not place or total <= most_bytes:
                    continue
                trimmed += 1
                if seq:
                    await _erase(unit, id_, stored[id_])
                else:
                    conversations.drop(unit, id_)
            return trimmed

        return await self._units.write(scope, work)

    async def expire(self, now: float, *, unused_since: float | None = None) -> int:
        """As the port says, without the responses that something living continues."""
        total = await self._due("expiring-responses", now, lambda unit, ids: _expire(unit, ids, now))
        if unused_since is None:
            return total
        return total + await self._due(
            conversations.USED, unused_since, lambda unit, ids: conversations.expire(unit, ids, unused_since)
        )

    async def _due(self, name: str, upto: float, work: Callable[[Unit, list[str]], Awaitable[int]]) -> int:
        """Have the work done for what a shared set has up to then, user by user; returns its sum."""
        redis, total = self._units.redis, 0
        shared = redis.key(name)
        while True:
            due = await redis.call("ZRANGEBYSCORE", shared, "-inf", upto, "LIMIT", 0, _EXPIRE_AT_ONCE)
            ids: dict[str, list[str]] = {}
            for entry in due:
                user, _, id_ = entry.decode().partition(" ")
                ids.setdefault(user, []).append(id_)
            owners = await self._units.scopes(ids)
            for user in ids:
                if user in owners:
                    total += await self._units.write(owners[user], partial(_apply, work=work, ids=ids[user]))
                else:  # the user was deleted: it would come back for ever
                    await redis.call("ZREM", shared, *(f"{user} {each}" for each in ids[user]))
            if len(due) < _EXPIRE_AT_ONCE:
                return total


async def _apply(unit: Unit, *, work: Callable[[Unit, list[str]], Awaitable[int]], ids: list[str]) -> int:
    return await work(unit, ids)


async def _is_left(
    unit: Unit,
    response: StoredResponse,
    recalled: Sequence[str],
    *,
    of: tuple[str | None, int],
    over: bytes | None,
) -> bool:
    """True where a forget that came meanwhile has looked at the response, which is stored already, or at
    the exchange that it is of, and has taken nothing that the model was shown.

    While a forget of much is under way, that is not known yet."""
    exchange, generation = of
    if over is not None and response.conversation_id is None:
        return True
    if orders.are_standing(unit):
        return False
    if over is not None:
        return True
    if exchange is None or response.conversation_id is not None:
        return False
    previous = response.previous_id
    if previous is not None and await unit.table("stored").get(storable(previous)) is None:
        return False
    return await exchanges.is_left(unit, exchange, generation, recalled)


async def drop(unit: Unit, ids: Iterable[str]) -> None:
    """Erase responses that are being forgotten, with their bodies; what they continue may be able to go."""
    rows: dict[str, StoredRow] = await unit.table("stored").many(ids)
    previous = {row["previous_id"] for row in rows.values() if row["previous_id"] is not None}
    await unit.fetch((unit.table("next"), previous), (unit.table("stored"), previous))
    for id_, row in rows.items():
        await _erase(unit, id_, row)
    for id_, row in (await unit.table("stored").many(previous)).items():
        _look_at(unit, id_, row)


async def _save(unit: Unit, response: StoredResponse, recalled: Sequence[str]) -> bool:
    stored, following, id_ = unit.table("stored"), unit.table("next"), storable(response.id)
    previous = None if response.previous_id is None else storable(response.previous_id)
    await unit.fetch((stored, (id_,)), (following, () if previous is None else (previous,)))
    before: StoredRow | None = await stored.get(id_)
    if before is not None and before["deleted"]:
        return False
    conversation = response.conversation_id
    row: StoredRow = {
        "seq": before["seq"] if before else unit.next(),
        "project": None if response.scope.project is None else storable(response.scope.project),
        "session": storable(response.session_id),
        "previous_id": previous,
        "conversation_id": None if conversation is None else storable(conversation),
        "created_at": response.created_at,
        "expires_at": response.expires_at,
        # What the model was shown once, it was shown: a later save may not know of it.
        "recalled": list(map(storable, recalled)) or (before["recalled"] if before else []),
        "deleted": False,
        "size": len(response.response) + len(response.input_items),
    }
    if before is not None and before["previous_id"] not in (None, previous):
        await _unlink(unit, id_, before)
        for freed, old in (await stored.many((before["previous_id"],))).items():
            _look_at(unit, freed, old)
    if previous is not None and id_ not in (known := await following.get(previous) or []):
        following.put(previous, [*known, id_])
    stored.put(id_, row)
    unit.blobs("bodies").put(f"{id_} r", response.response)
    unit.blobs("bodies").put(f"{id_} i", response.input_items)
    _look_at(unit, id_, row)
    return True


async def _expire(unit: Unit, ids: Sequence[str], now: float) -> int:
    """Erase those of the responses that have expired and that nothing living continues; then those before
    them that nothing living continues any more. Return how many."""
    stored = unit.table("stored")
    await unit.fetch((stored, ids), (unit.table("next"), ids))
    rows: dict[str, StoredRow] = await stored.many(ids)
    for id_ in ids:
        _stop_looking(unit, id_)
    left = sorted(rows, key=lambda each: rows[each]["seq"])  # the newest, which others lead to, from the end
    needed: set[str] = set()
    gone = 0
    while left:
        id_ = left.pop()
        row: StoredRow | None = await stored.get(id_)
        if row is None:
            continue
        if not _has_expired(row, now):
            _look_at(unit, id_, row)
        elif await _is_needed(unit, id_, now, needed):
            needed.add(id_)
            unit.share("ZADD", unit.redis.key("expiring-responses"), now + _LOOK_AGAIN_S, f"{unit.uid} {id_}")
        else:
            await _erase(unit, id_, row)
            gone += 1
            left += [row["previous_id"]] if row["previous_id"] is not None else []
    return gone


async def _is_needed(unit: Unit, id_: str, now: float, needed: set[str]) -> bool:
    """Return whether something living continues the response, directly or through others. `needed`: what is
    known to be."""
    front, seen = [id_], {id_}
    while front:
        following: dict[str, list[str]] = await unit.table("next").many(front)
        later = {each for ids in following.values() for each in ids} - seen
        rows: dict[str, StoredRow] = await unit.table("stored").many(later)
        if any(each in needed or not _has_expired(row, now) for each, row in rows.items()):
            return True
        seen |= later
        front = list(rows)
    return False


async def _erase(unit: Unit, id_: str, row: StoredRow) -> None:
    unit.table("stored").drop(id_)
    _drop_bodies(unit, id_)
    _stop_looking(unit, id_)
    await _unlink(unit, id_, row)


async def _unlink(unit: Unit, id_: str, row: StoredRow) -> None:
    """Let what the response continues no longer lead to it."""
    following, previous = unit.table("next"), row["previous_id"]
    left = [each for each in await following.get(previous) or [] if each != id_] if previous else []
    if previous and left:
        following.put(previous, left)
    elif previous:
        following.drop(previous)


def _look_at(unit: Unit, id_: str, row: StoredRow) -> None:
    if row["expires_at"] is None:
        _stop_looking(unit, id_)
    else:
        unit.share("ZADD", unit.redis.key("expiring-responses"), row["expires_at"], f"{unit.uid} {id_}")


def _stop_looking(unit: Unit, id_: str) -> None:
    unit.share("ZREM", unit.redis.key("expiring-responses"), f"{unit.uid} {id_}")


def _drop_bodies(unit: Unit, id_: str) -> None:
    for body in _bodies(id_):
        unit.blobs("bodies").drop(body)


def _bodies(id_: str) -> tuple[str, str]:
    return f"{id_} r", f"{id_} i"


def _has_expired(row: StoredRow, now: float) -> bool:
    return row["expires_at"] is not None and row["expires_at"] <= now


async def _response(unit: Unit, scope: Scope, id_: str, row: StoredRow) -> StoredResponse | None:
    """Return the response; None if its bodies were erased since its row was read."""
    bodies = await unit.blobs("bodies").many(_bodies(id_))
    if len(bodies) < 2:
        return None
    response, input_items = bodies.values()
    return StoredResponse(
        id=id_,
        scope=Scope(scope.tenant, scope.user, row["project"]),
        session_id=row["session"],
        previous_id=row["previous_id"],
        conversation_id=row["conversation_id"],
        response=response,
        input_items=input_items,
        created_at=row["created_at"],
        expires_at=row["expires_at"],
    )
