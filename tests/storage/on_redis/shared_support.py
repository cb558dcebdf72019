"""What all users share, as it is and as it has to be by the users' own rows."""

import orjson

from proxy.domain.lanes import LANES
from proxy.domain.oversight import JOB_STATES
from proxy.storage.redis import orders
from proxy.storage.redis.connection import pairs, scored
from proxy.storage.redis.unit import Unit, Units

SORTED = (
    *(f"jobs:{state}" for state in JOB_STATES),
    *(f"due:{lane}" for lane in LANES),
    "queued-since",
    "later",
)


async def shared(redis):
    """Return what is shared of sessions and jobs by name: members, and their scores where rows tell them."""
    found = {name: await _sorted(redis, name) for name in SORTED}
    found["oldest"] = set(await _sorted(redis, "oldest"))
    for name in ("running", "waiting"):
        values = pairs(await redis.call("HGETALL", redis.key(name)))
        found[name] = {field: orjson.loads(value) for field, value in values.items()}
    held = pairs(await redis.call("HGETALL", redis.key("open")))
    found["open"] = {field: instance.decode() for field, instance in held.items()}
    return found


async def _sorted(redis, name):
    return dict(scored(await redis.call("ZRANGE", redis.key(name), 0, -1, "WITHSCORES")))


async def by_rows(redis):
    """Return the same by what the users' rows say."""
    found = {name: {} for name in (*SORTED, "running", "waiting", "open")} | {"oldest": set()}
    users = pairs(await redis.call("HGETALL", redis.key("users")))
    for scope in (await Units(redis).scopes(users)).values():
        unit = await Unit.begin(redis, scope)
        jobs = {**await unit.table("jobs").all(), **await unit.table("dead").all()}
        for id_, row in jobs.items():
            _job(found, id_, row)
        if not any(row["state"] == "running" for row in jobs.values()) and not orders.are_standing(unit):
            _due(found, unit, jobs.values())
        for sid, session in (await unit.table("sessions").all()).items():
            found["oldest"].add(f"{unit.uid} {sid}")
            rows = await unit.table(f"exchanges:{sid}").all()
            assert sorted(row["seq"] for row in rows.values()) == session["seqs"]
            assert sorted(row["seq"] for row in rows.values() if row["open"]) == session["open"]
            for row in rows.values():
                if row["open"]:
                    found["open"][f"{unit.uid} {row['id']}"] = row["instance"]
            unread = await unit.table("unread").get(sid) or []
            _waiting(found, unit, sid, session, unread, [row for row in jobs.values() if row["sid"] == sid])
    return found


def _job(found, id_, row):
    found[f"jobs:{row['state']}"][id_] = row["seq"]
    if row["state"] == "queued":
        found["queued-since"][id_] = row["created_at"]
    if row["state"] == "queued" and row["delayed"]:
        found["later"][id_] = row["due_at"]
    if row["state"] == "running":
        found["running"][id_] = [row["leased_until"], row["instance"]]


def _due(found, unit, jobs):
    for lane in LANES:
        numbers = [r["seq"] for r in jobs if (r["state"], r["delayed"], r["lane"]) == ("queued", False, lane)]
        if numbers:
            found[f"due:{lane}"][unit.uid] = unit.number("served") or min(numbers) - 2**52


def _waiting(found, unit, sid, session, unread, jobs):
    read = max((row["upto"] for row in jobs if row["state"] == "running"), default=0)
    left = [entry for entry in unread if not entry["dead"] and entry["seq"] > read]
    if left and not any(row["state"] in ("queued", "waiting") for row in jobs):
        found["waiting"][f"{unit.uid} {sid}"] = [
            unit.scope.tenant, unit.scope.user, session["project"], session["name"], session["last_at"],
            left[-1]["seq"], len(left), any(entry["explicit"] for entry in left),
            any(entry["personal"] for entry in left), session["ended"],
            any(entry.get("at_work") for entry in left),
        ]  # fmt: skip
