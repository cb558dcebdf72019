"""The EvolutionStore over SQL: see domain/changes.py for what every method guarantees.

`fades_at` of a memory is when to check whether it has decayed, no later than it has: being recalled or used
moves the true time on without a write here. NULL means not computed yet. When the policy changes, all are
computed again in portions: `digest` of the user's row is that of the policy, with the last row's number while
it is under way."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from proxy.domain.changes import (
    DAY_S,
    FADED_BY,
    NEVER,
    AnsweredExchange,
    Archive,
    DayCounts,
    EvolutionPolicy,
    Insights,
    Restore,
    ShownMemory,
    StepCounts,
    UseVerdict,
    Visit,
    VisitLease,
)
from proxy.domain.core import Memory, Scope
from proxy.domain.errors import Duplicate
from proxy.domain.ports import EmbeddingModel
from proxy.storage.sql import rows
from proxy.storage.sql.changes import Writer
from proxy.storage.sql.database import Connection, Database, Store, legible, reads, value, writes

# ---------------------------------------------------------------- which user is next
AFTER_CHANGE_S = 30.0  # from a change of memories to the user's visit: changes often come in groups
_DUE = """
    INSERT INTO evolution (owner, due_at) VALUES (?, ?)
    ON CONFLICT (owner) DO UPDATE SET due_at = min(evolution.due_at, excluded.due_at)"""
# A lease that ends later than any lease can was made before the clock was set back.
_FREE = "({0}.leased_until <= :now OR {0}.leased_until > :now + 2 * :lease_s)"
_NO_FORGET = "NOT EXISTS (SELECT 1 FROM forgets f WHERE f.owner = s.id)"
_NEXT = f"""
    SELECT e.owner, s.tenant, s.user, e.settings, e.last_at
    FROM evolution e JOIN scopes s ON s.id = e.owner
    WHERE e.due_at <= :now AND {_FREE.format("e")} AND s.user IS NOT NULL AND {_NO_FORGET}
    ORDER BY e.due_at LIMIT 1"""
_ANSWERED = f"""
    SELECT n.owner, s.tenant, s.user, coalesce(v.settings, '{{}}'), coalesce(v.last_at, 0)
    FROM exchanges e JOIN sessions n ON n.id = e.session JOIN scopes s ON s.id = n.owner
    LEFT JOIN evolution v ON v.owner = n.owner
    WHERE e.judged = 0 AND s.user IS NOT NULL AND {_NO_FORGET} AND (v.owner IS NULL OR {_FREE.format("v")})
    ORDER BY e.seq LIMIT 1"""
# A due user is due again when the lease ends, for the case that the process dies.
_LEASE = f"""
    INSERT INTO evolution (owner, due_at, leased_until) VALUES (:owner, :never, :until)
    ON CONFLICT (owner) DO UPDATE SET leased_until = excluded.leased_until,
    due_at = CASE WHEN :only_use = 1 THEN evolution.due_at ELSE excluded.leased_until END
    WHERE {_FREE.format("evolution")}"""
_RELEASE = """
    UPDATE evolution SET last_at = :at, leased_until = 0,
    due_at = CASE WHEN due_at = :until THEN :due_at ELSE min(due_at, :due_at) END
    WHERE owner = :owner AND leased_until = :until"""
_OWN = """
    SELECT e.settings FROM evolution e JOIN scopes s ON s.id = e.owner WHERE s.tenant = ? AND s.user = ?"""

# ---------------------------------------------------------------- use
_UNJUDGED = f"""
    SELECT e.seq, n.owner, n.project, e.said, e.answer, e.at, e.recalled
    FROM exchanges e JOIN sessions n ON n.id = e.session JOIN scopes s ON s.id = n.owner
    WHERE e.judged = 0 AND s.tenant = :tenant AND s.user = :user AND {_NO_FORGET}
    ORDER BY e.seq LIMIT :limit"""
_SHOWN = "+m.owner = :owner AND m.id IN (SELECT value FROM json_each(:ids)) AND m.superseded_by IS NULL"
_VECTORS = f"""
    SELECT memory, embedding FROM vectors
    WHERE memory IN {rows.seqs_in(":seqs")} AND generation IN {rows.seqs_in(":generations")}"""
_JUDGED = """
    UPDATE exchanges SET judged = 1
    WHERE seq = ? AND judged = 0 AND session IN (SELECT id FROM sessions WHERE owner = ?)"""
_COUNT_USE = """
    INSERT INTO memory_uses (owner, day, memory, used, unused) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (owner, day, memory) DO UPDATE
    SET used = memory_uses.used + excluded.used, unused = memory_uses.unused + excluded.unused"""
_USED = """
    UPDATE memories SET weight = ?, uses = uses + 1, used_at = max(coalesce(used_at, 0), ?) WHERE seq = ?"""
MOST_WEIGHT = 100.0

# ---------------------------------------------------------------- decay
_CURRENT = "m.owner = :owner AND m.superseded_by IS NULL AND m.archived = 0"
_SOONEST = f"SELECT min(m.fades_at) FROM memories m WHERE {_CURRENT}"


def make_due(tx: Connection, owner: int, at: float) -> None:
    """Let the user's next visit be due at `at`, if it is not due earlier."""
    tx.execute(_DUE, (owner, at))


class SqlEvolution(Store):
    """Visits of all processes that share the database."""

    def __init__(self, database: Database, model: Callable[[], EmbeddingModel | None]) -> None:
        super().__init__(database)
        self._model = model

    # ------------------------------------------------------------ visits
    async def claim(self, now: float, lease_s: float) -> VisitLease | None:
        """See EvolutionStore. Asked every few seconds: reading first spares other writers the time."""
        asked = {"now": now, "lease_s": lease_s, "until": now + lease_s, "never": NEVER}
        for query, only_use in ((_NEXT, False), (_ANSWERED, True)):
            found = await self._database.read(lambda tx, query=query: tx.execute(query, asked).fetchone())  # type: ignore[misc]
            if found is None:
                continue
            owner, tenant, user, settings, last_at = found
            lease = {**asked, "owner": owner, "only_use": int(only_use)}
            if await self._database.write(lambda tx, lease=lease: tx.execute(_LEASE, lease).rowcount):  # type: ignore[misc]
                return VisitLease(Scope(tenant, user), _settings(settings), last_at, now + lease_s, only_use)
        return None

    @writes
    def lease(self, tx: Connection, scope: Scope, now: float, lease_s: float) -> VisitLease | None:
        """See EvolutionStore. A user without memories needs no lease."""
        owner, until = rows.find_owner(tx, scope), now + lease_s
        if owner is None:
            return VisitLease(scope, {}, 0.0, until, only_use=True)
        asked = {"owner": owner.id, "now": now, "lease_s": lease_s, "until": until, "never": NEVER}
        if not tx.execute(_LEASE, {**asked, "only_use": 1}).rowcount:
            return None
        row = tx.execute("SELECT settings, last_at FROM evolution WHERE owner = ?", (owner.id,)).fetchone()
        return VisitLease(scope, _settings(row[0]), row[1], until, only_use=True)

    @writes
    def release(self, tx: Connection, lease: VisitLease, at: float, due_at: float) -> None:
        """See EvolutionStore. What became due since the visit began stays due."""
        if (owner := rows.find_owner(tx, lease.scope)) is not None:
            ends = {"at": at, "until": lease.leased_until, "due_at": min(due_at, NEVER), "owner": owner.id}
            tx.execute(_RELEASE, ends)

    @reads
    def own(self, tx: Connection, scope: Scope) -> Mapping[str, Any]:
        return _settings(value(tx, _OWN, (scope.tenant, scope.user)) or "{}")

    @writes
    def set_own(self, tx: Connection, scope: Scope, own: Mapping[str, Any], at: float) -> None:
        owner = rows.ensure_owner(tx, scope).id
        make_due(tx, owner, at)
        tx.execute("UPDATE evolution SET settings = ? WHERE owner = ?", (json.dumps(dict(own)), owner))

    # ------------------------------------------------------------ use
    @reads
    def answered(self, tx: Connection, scope: Scope, limit: int) -> Sequence[AnsweredExchange]:
        found = tx.execute(_UNJUDGED, rows.named(scope, limit=limit)).fetchall()
        generations = rows.as_json(rows.generations_of(tx, self._model()).generations)
        exchanges = []
        for seq, owner, project, said, answer, at, recalled in found:
            shown = rows.memories_where(tx, _SHOWN, {"owner": owner, "ids": recalled})
            asked = {"seqs": rows.as_json(n for n, _ in shown), "generations": generations}
            vectors = dict(tx.execute(_VECTORS, asked).fetchall())
            memories = tuple(ShownMemory(memory, vectors.get(n)) for n, memory in shown)
            where = Scope(scope.tenant, scope.user, project)
            exchanges.append(AnsweredExchange(seq, where, said, answer, at, memories))
        return exchanges

    @writes
    def record_use(
        self, tx: Connection, exchange: AnsweredExchange, verdict: UseVerdict | None, policy: EvolutionPolicy,
        at: float,
    ) -> Mapping[str, Sequence[str]]:  # fmt: skip
        owner = rows.lock_owner(tx, exchange.scope)
        if owner is None or not tx.execute(_JUDGED, (exchange.seq, owner.id)).rowcount or verdict is None:
            return {}
        ids = [shown.memory.id for shown in exchange.shown]
        found = rows.memories_where(tx, _SHOWN, {"owner": owner.id, "ids": rows.as_json(ids)})
        writer, did = self._writer(tx, owner, exchange.scope), defaultdict[str, list[str]](list)
        for seq, memory in found:
            used = memory.id in verdict.used
            tx.execute(_COUNT_USE, (owner.id, int(exchange.at // DAY_S), seq, int(used), int(not used)))
            if used:
                if memory.archived and memory.archived_by in FADED_BY:
                    try:  # what lack of use had archived is current again
                        writer.apply(Restore(memory.id, at, "use"))
                        did["restored"].append(memory.id)
                    except Duplicate:  # another memory states it
                        continue
                weight = max(memory.weight, 1.0 * memory.archived) + policy.use_gain
                weight = min(MOST_WEIGHT, round(weight, 6))
                tx.execute(_USED, (weight, exchange.at, seq))
                if not memory.core and weight > policy.core_above:
                    core = "UPDATE memories SET core = 1, fades_at = NULL, changed = ? WHERE seq = ?"
                    tx.execute(core, (writer.version, seq))
                    did["core"].append(memory.id)
                did["used"].append(memory.id)
            elif not (memory.archived or memory.core or memory.id in verdict.spared):
                weight = max(0.0, round(memory.weight - policy.unused_loss, 6))
                tx.execute("UPDATE memories SET weight = ? WHERE seq = ?", (weight, seq))
                if weight < policy.archive_below:
                    writer.apply(Archive((memory.id,), at, "use"))
                    did["archived"].append(memory.id)
                did["unused"].append(memory.id)
        if did.keys() & {"archived", "restored", "core"}:
            rows.set_version(tx, owner.id, writer.version)
        return did

    # ------------------------------------------------------------ decay
    async def fade(self, visit: Visit, limit: int) -> StepCounts:
        if visit.dry_run:
            return await self._database.read(lambda tx: self._fade(tx, visit, limit))
        return await self._database.write(lambda tx: self._fade(tx, visit, limit))

    def _fade(self, tx: Connection, visit: Visit, limit: int) -> StepCounts:
        owner = rows.find_owner(tx, visit.scope) if visit.dry_run else rows.lock_owner(tx, visit.scope)
        if owner is None:
            return StepCounts()
        # What to check, and the digest to store.
        wanted = visit.policy.digest
        digest = value(tx, "SELECT digest FROM evolution WHERE owner = ?", (owner.id,)) or ""
        known, _, upto = digest.partition("@")
        last = int(upto or 0) if known == wanted else 0
        asked = {"owner": owner.id, "now": visit.now, "limit": limit, "upto": last}

        def those(condition: str) -> list[tuple[int, Memory]]:
            return rows.memories_where(tx, f"{_CURRENT} AND {condition} LIMIT :limit", asked)

        if known != wanted or upto:
            found, more = those("m.seq > :upto ORDER BY m.seq"), True
            digest = f"{wanted}@{found[-1][0]}" if len(found) == limit else wanted
        else:
            new, due = those("m.fades_at IS NULL"), those("m.fades_at <= :now ORDER BY m.fades_at")
            found, digest, more = new + due, wanted, limit in (len(new), len(due))
        faded, rest = [], []
        for seq, memory in found:
            at, core = visit.policy.fades_at(memory), visit.policy.is_core(memory)
            if at is not None and at <= visit.now:
                faded.append(memory.id)
            else:
                rest.append((NEVER if at is None else at, int(core), seq))
        if visit.dry_run:
            return StepCounts({"archived": faded}, more=more)
        tx.executemany("UPDATE memories SET fades_at = ?, core = ? WHERE seq = ?", rest)
        writer = self._writer(tx, owner, visit.scope)
        recast = [seq for seq, memory in found if memory.core != visit.policy.is_core(memory)]
        touched = "UPDATE memories SET changed = ? WHERE seq = ?"
        tx.executemany(touched, [(writer.version, seq) for seq in recast])
        if writer.apply(Archive(tuple(faded), visit.now, "decay")) or recast:
            rows.set_version(tx, owner.id, writer.version)
        make_due(tx, owner.id, NEVER)  # so that there is a row
        tx.execute("UPDATE evolution SET digest = ? WHERE owner = ?", (digest, owner.id))
        soonest = value(tx, _SOONEST, {"owner": owner.id})
        return StepCounts({"archived": faded}, NEVER if soonest is None else soonest, more)

    def _writer(self, tx: Connection, owner: rows.Owner, scope: Scope) -> Writer:
        held = rows.generations_of(tx, self._model())
        return Writer(tx, owner.id, scope, owner.stamp.version + 1, held)

    # ------------------------------------------------------------ insights
    @reads
    def insights(self, tx: Connection, scope: Scope, now: float, days: int) -> Insights:
        owner, today = rows.owner_number(tx, scope), int(now // DAY_S)
        since = today - days + 1
        asked = {"owner": owner, "project": scope.project, "since": since, "never": NEVER}
        asked |= {"at": since * DAY_S}
        by_type = dict(tx.execute(_BY_TYPE, asked).fetchall())
        counts = {
            name: value(tx, f"SELECT count(*) FROM memories m WHERE {_ASKED_FOR} AND {which}", asked)
            for name, which in _COUNTED.items()
        }
        happened = Counter((action, int(at // DAY_S)) for at, action in tx.execute(_EVENTS, asked))
        uses = {day: (used, unused) for day, used, unused in tx.execute(_USES, asked)}
        by_day = [
            DayCounts(
                datetime.fromtimestamp(day * DAY_S, UTC).date().isoformat(),
                used=int(uses.get(day, (0, 0))[0]),
                added=happened["created", day],
                **{action: happened[action, day] for action in ("superseded", "archived")},
            )
            for day in range(since, today + 1)
        ]
        fading = rows.memories_where(tx, _FADING, asked)
        return Insights(
            active=sum(by_type.values()),
            by_type=by_type,
            used=int(sum(used for used, _ in uses.values())),
            unused=int(sum(unused for _, unused in uses.values())),
            by_day=by_day,
            fading=[memory for _, memory in fading],
            **counts,
        )


_ASKED_FOR = "(:project IS NULL OR m.project = :project)"
_COUNTED = {
    "archived": "m.owner = :owner AND m.archived = 1 AND m.superseded_by IS NULL",
    "core": f"{_CURRENT} AND m.core = 1",
    "pinned": f"{_CURRENT} AND m.core = 1 AND m.pinned = 1",
}
_BY_TYPE = f"SELECT m.type, count(*) FROM memories m WHERE {_CURRENT} AND {_ASKED_FOR} GROUP BY m.type"
_EVENTS = f"""
    SELECT e.at, e.action FROM events e JOIN memories m ON m.seq = e.memory
    WHERE e.owner = :owner AND e.at >= :at AND {_ASKED_FOR}"""
_USES = f"""
    SELECT u.day, sum(u.used), sum(u.unused) FROM memory_uses u JOIN memories m ON m.seq = u.memory
    WHERE u.owner = :owner AND u.day >= :since AND {_ASKED_FOR} GROUP BY u.day"""
_FADING = f"{_CURRENT} AND {_ASKED_FOR} AND m.fades_at < :never ORDER BY m.fades_at LIMIT 10"


def _settings(text: str) -> Mapping[str, Any]:
    with legible():
        return dict(json.loads(text))
