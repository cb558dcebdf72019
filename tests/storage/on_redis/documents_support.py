"""What has to follow from users' documents, held to the documents themselves."""

from proxy.storage.redis import library
from proxy.storage.redis.connection import Redis, pairs, scored
from proxy.storage.redis.layout import title_key
from proxy.storage.redis.unit import Unit, Units


async def library_agreement(redis: Redis) -> None:
    """Hold counters, names, rows of passages and what all users share to what the documents' rows say."""
    to_embed: dict[str, float] = {}
    ids: dict[str, dict[str, str]] = {}
    users = pairs(await redis.call("HGETALL", redis.key("users")))
    for scope in (await Units(redis).scopes(users)).values():
        unit = await Unit.begin(redis, scope)
        rows = await unit.table("documents").all()
        for id_, row in rows.items():
            to_embed[f"{unit.uid} {id_}"] = min(row["generations"])
            ids.setdefault(scope.tenant, {})[id_] = unit.uid
        await _of_user(unit, rows)
    assert len(to_embed) > 2
    listed = await redis.call("ZRANGE", redis.key(library.TO_EMBED), 0, -1, "WITHSCORES")
    assert dict(scored(listed)) == to_embed
    for tenant, of_tenant in ids.items():
        kept = pairs(await redis.call("HGETALL", library.ids_key(redis, tenant)))
        assert {id_: user.decode() for id_, user in kept.items()} == of_tenant


async def _of_user(unit: Unit, rows: dict[str, library.DocumentRow]) -> None:
    assert unit.number("documents") == len(rows)
    assert unit.number("passages") == sum(len(row["generations"]) for row in rows.values())
    titles = {title_key(row["project"], row["name"]): id_ for id_, row in rows.items()}
    assert await unit.table("titles").all() == titles
    taken: set[int] = set()
    for id_, row in rows.items():
        numbers = library.numbers_of(row)
        assert taken.isdisjoint(numbers)
        taken.update(numbers)
        assert set(await unit.table(f"passages:{id_}").all()) == set(map(str, numbers))
        assert set(await unit.blobs(f"passage-terms:{id_}").all()) == set(map(str, numbers))
        assert set(await unit.blobs(f"passage-vectors:{id_}").all()) <= set(map(str, numbers))
    assert max(taken, default=0) <= unit.number("last")
