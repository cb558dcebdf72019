"""Retention: remove exchanges that are extracted and old, and sessions that are empty then.

All users share a list of sessions by when their oldest exchange was. A session that was looked at and keeps
something older has a later place in it: nothing is looked at twice for one time.
"""

from collections.abc import Sequence

from proxy.storage.redis import exchanges, waiting
from proxy.storage.redis.layout import ExchangeRow, JobRow, SessionRow
from proxy.storage.redis.unit import Unit, Units

_SESSIONS_AT_ONCE = 200
_EXCHANGES_AT_ONCE = 200  # of a session, in one commit
_READ_AT_ONCE = 50


async def prune(units: Units, before: float) -> int:
    """Delete the exchanges from before `before` that are extracted, and the sessions last used before it
    that are empty now. Returns the number of exchanges."""
    key, pruned = units.redis.key("oldest"), 0
    while True:
        found = await units.redis.call(
            "ZRANGEBYSCORE", key, "-inf", f"({before!r}", "LIMIT", 0, _SESSIONS_AT_ONCE
        )
        old: dict[str, list[str]] = {}
        for member in found:
            owner, _, ours = member.decode().partition(" ")
            old.setdefault(owner, []).append(ours)
        scopes = await units.scopes(old)
        for owner, sids in old.items():
            if owner not in scopes:
                await units.redis.call("ZREM", key, *(f"{owner} {ours}" for ours in sids))
                continue
            for ours in sids:

                async def work(unit: Unit, ours: str = ours) -> int:
                    return await _prune(unit, ours, before)

                pruned += await units.write(scopes[owner], work)
        if not found:
            return pruned


async def _prune(unit: Unit, ours: str, before: float) -> int:
    """Remove what is old of one session; say when to look again."""
    member = f"{unit.uid} {ours}"
    session: SessionRow | None = await unit.table("sessions").get(ours)
    if session is None:
        unit.share("ZREM", unit.redis.key("oldest"), member)
        return 0
    gone, again_at = await _old(unit, ours, session, before)
    unit.frees = bool(gone)
    if gone:
        await exchanges.drop(unit, ours, gone, old=True)
    empty = len(gone) == len(session["seqs"])
    if empty and session["last_at"] < before and not await _has_jobs(unit, ours):
        await exchanges.drop_session(unit, ours)
    else:
        unit.share("ZADD", unit.redis.key("oldest"), again_at, member)
    return len(gone)


async def _old(unit: Unit, ours: str, session: SessionRow, before: float) -> tuple[Sequence[int], float]:
    """Return which exchanges go now, and when the session is to be looked at again: at once if there are
    more than one commit takes."""
    kept = {entry["seq"] for entry in await waiting.unread(unit, ours)} | set(session["open"])
    gone: list[int] = []
    stays = False
    for start in range(0, len(session["seqs"]), _READ_AT_ONCE):
        seqs = session["seqs"][start : start + _READ_AT_ONCE]
        found: dict[str, ExchangeRow] = await exchanges.table(unit, ours).many(map(str, seqs))
        old = [row for row in found.values() if row["at"] < before]
        gone += [row["seq"] for row in old if row["seq"] not in kept]
        stays = stays or any(row["seq"] in kept for row in old)
        if len(gone) >= _EXCHANGES_AT_ONCE:
            return gone, min(row["at"] for row in old)
        if young := [row["at"] for row in found.values() if row["at"] >= before]:
            return gone, before if stays else min(young)
    return gone, before


async def _has_jobs(unit: Unit, ours: str) -> bool:
    jobs: dict[str, JobRow] = {**await unit.table("jobs").all(), **await unit.table("dead").all()}
    return any(row["sid"] == ours for row in jobs.values())
