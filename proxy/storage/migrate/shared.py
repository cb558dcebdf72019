"""Migrate what all users share, and what belongs to none: job numbers, ranks, receipts, keys."""

from base64 import b64encode
from collections.abc import Collection

import orjson

from proxy.domain.core import Scope
from proxy.storage.migrate.source import Refused, Row, Source
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.instance import DEAD_AFTER_S
from proxy.storage.redis.layout import NOBODY, KeyRow, storable
from proxy.storage.redis.unit import Unit, Units, uid

_AT_ONCE = 1000
_KEYS = "api-keys"
_RAISE = """
if tonumber(redis.call('GET', KEYS[1]) or '0') < tonumber(ARGV[1]) then
    redis.call('SET', KEYS[1], ARGV[1])
end
"""


async def refuse_company(redis: Redis) -> None:
    """Raise Refused while a replica works on the target: it would serve half of a user."""
    since = await redis.now() - DEAD_AFTER_S
    if count := int(await redis.call("ZCOUNT", redis.key("instances"), since, "+inf")):
        what = "a replica works" if count == 1 else f"{count} replicas work"
        raise Refused(
            f"{what} on the target: stop it first (one that was killed counts for {DEAD_AFTER_S:.0f} s)"
        )


async def job_numbers(redis: Redis, source: Source) -> int:
    """Return what is added to the numbers of the source's jobs: the same in each run, so that they keep their
    order among each other."""
    held, wanted = redis.key("moved-jobs"), source.last_job()
    known = await redis.call("HGET", held, source.token)
    if known is not None:
        after, room = orjson.loads(known)
        if wanted <= room:
            return int(after)
    after = int(await redis.call("INCRBY", redis.key("job-numbers"), wanted)) - wanted
    await redis.call("HSET", held, source.token, orjson.dumps([after, wanted]))
    return after


async def raise_ranks(redis: Redis, rank: int) -> None:
    """Let who is served from now on come after those whom the source has served."""
    await redis.script(_RAISE, (redis.key("served"),), rank)


async def list_receipts(redis: Redis, source: Source, moved: Collection[Scope]) -> None:
    """List the receipts of the users moved, in the order in which they were issued."""
    wanted: dict[str, dict[str, None]] = {}
    for row in source.receipts():
        scope = Scope(row["tenant"], row["user"])
        if scope in moved:
            wanted.setdefault(scope.tenant, {})[f"{uid(scope)} {row['id']}"] = None
    for tenant, members in wanted.items():
        key = _receipts(redis, tenant)
        listed = {member.decode() for member in await redis.call("LRANGE", key, 0, -1)}
        missing = [member for member in members if member not in listed]
        for start in range(0, len(missing), _AT_ONCE):
            await redis.call("RPUSH", key, *missing[start : start + _AT_ONCE])


async def add_keys(units: Units, source: Source) -> int:
    """Add the API keys that the target does not have; return how many the source has. One revoked on either
    side stays revoked."""
    ours = source.keys()

    async def work(unit: Unit) -> None:
        table = unit.table(_KEYS)
        known: dict[str, KeyRow] = await table.all()
        for row in ours:
            digest, before = row["digest"].hex(), known.get(row["digest"].hex())
            if before is None:
                table.put(digest, _key(row, unit.next()))
            elif before["revoked_at"] is None and row["revoked_at"] is not None:
                table.put(digest, {**before, "revoked_at": row["revoked_at"], "upstream_key": None})

    await units.write(NOBODY, work)
    return len(ours)


def _key(row: Row, seq: int) -> KeyRow:
    sealed = row["upstream_key"]
    return {
        "seq": seq, "id": row["id"], "name": row["name"], "tenant": row["tenant"], "user": row["user"],
        "rights": orjson.loads(row["rights"]),
        "upstream_key": None if sealed is None else b64encode(sealed).decode(),
        "created_at": row["created_at"], "revoked_at": row["revoked_at"],
    }  # fmt: skip


def _receipts(redis: Redis, tenant: str) -> str:
    return redis.key("receipts:" + storable(tenant))
