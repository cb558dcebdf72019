"""Rows of `exchanges` and of the sessions they are in: how one begins, ends, is taken back, or is erased.
Runs inside a unit of work."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from proxy.domain.core import DEFAULT_TIMEZONE, Begun, Exchange, NewExchange, NewJob, Outcome, Scope
from proxy.domain.lanes import ORDINARY
from proxy.domain.ports import Trigger
from proxy.storage.in_view import FORGOTTEN, is_not_to_be_read
from proxy.storage.redis import anchors, orders, rows, waiting
from proxy.storage.redis.layout import ExchangeRow, SessionRow, sid, storable
from proxy.storage.redis.queue import Queue
from proxy.storage.redis.repeats import name_of as name_of
from proxy.storage.redis.repeats import newest, repeated
from proxy.storage.redis.repeats import table as table
from proxy.storage.redis.unit import Unit

_UNLISTED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class OursBegun(Begun):
    """A Begun that leads to its user: there is no other way to them from an exchange's id."""

    scope: Scope


# ---------------------------------------------------------------- an exchange's life
async def begin(unit: Unit, new: NewExchange, instance: str) -> OursBegun:
    ours = sid(new.scope.project, new.session_id)
    await unit.fetch(
        (unit.table("sessions"), (ours,)), (unit.table(f"keys:{ours}"), (new.key,)),
        (unit.table("unread"), (ours,)), (unit.table("jobs"), None), (unit.table("user"), ("timezone",)),
    )  # fmt: skip
    jobs = await Queue.of(unit)
    known: SessionRow | None = await unit.table("sessions").get(ours)
    session = _used(unit, ours, known, new)
    key, row = await repeated(unit, ours, session, new)
    jobs.touch(ours)
    if row is None:
        row = await _written(unit, ours, session, new, key, instance)
    elif row["open"]:
        table(unit, ours).put(str(row["seq"]), {**row, "holders": row["holders"] + 1, "instance": instance})
        unit.share("HSET", unit.redis.key("open"), f"{unit.uid} {row['id']}", instance)
    if known is None:
        await _make_others_due(unit, jobs, ours, new.at)
    await jobs.settle()
    return OursBegun(row["id"], row["generation"], new.scope)


async def resume(
    unit: Unit, scope: Scope, name: str, key: str | None, response_id: str | None
) -> OursBegun | None:
    ours = sid(scope.project, name)
    session: SessionRow | None = await unit.table("sessions").get(ours)
    if session is None or not session["seqs"]:
        return None
    row: ExchangeRow | None = await table(unit, ours).get(str(session["seqs"][-1]))
    assert row is not None
    if key is not None and row["key"].partition(":")[0] != key:
        row = await newest(unit, ours, key)
    elif key is None and response_id is not None:
        row = await _answered_with(unit, ours, response_id)
    return OursBegun(row["id"], row["generation"], scope) if row is not None and not row["whole"] else None


async def _answered_with(unit: Unit, ours: str, response_id: str) -> ExchangeRow | None:
    """Return the session's exchange that the response is of."""
    made: str = await unit.table("made").get(storable(response_id)) or ""
    session, seq = await unit.table("where").get(made.partition(" ")[2]) or ("", 0)
    row: ExchangeRow | None = await table(unit, ours).get(str(seq)) if session == ours else None
    return row


async def _make_others_due(unit: Unit, jobs: Queue, ours: str, at: float) -> None:
    """Who opens a new conversation should be known in it."""
    others = (await unit.table("unread").all()).keys() - {ours}
    for found in (await jobs.waiting(others)).values() if others else ():
        await jobs.put(found.sid, NewJob(found.state.session_id, found.state.last_seq, ORDINARY), at=at)


async def complete(unit: Unit, begun: Begun, outcome: Outcome, trigger: Trigger) -> bool:
    where = await unit.table("where").get(begun.id)
    if where is None:
        return False
    ours, seq = where
    await unit.fetch(
        (table(unit, ours), (str(seq),)), (unit.table("sessions"), (ours,)),
        (unit.table("unread"), (ours,)), (unit.table("jobs"), None),
        *((unit.table(name), map(storable, outcome.recalled)) for name in ("memories", "documents")),
    )  # fmt: skip
    row: ExchangeRow = await table(unit, ours).get(str(seq))
    if row["generation"] != begun.generation:
        return False
    jobs = await Queue.of(unit)
    jobs.wake()  # the request that was answered brought a credential, maybe a better one
    if outcome.response_id is not None:
        unit.table("made").put(storable(outcome.response_id), f"{ours} {begun.id}")
    if row["open"] or (outcome.whole and not row["whole"] and await _is_untouched(unit, ours, seq)):
        await _answered(unit, jobs, ours, row, outcome)
        for found in (await jobs.waiting((ours,))).values():
            await jobs.offer(found, trigger, row["at"])
    elif not outcome.whole and not {*map(storable, outcome.recalled)} <= {*row["recalled"]}:
        # A step that comes late tells what else was in view.
        stands = Outcome(row["answer"], row["whole"], recalled=outcome.recalled)
        await _answered(unit, jobs, ours, row, stands)
    await jobs.settle()
    return True


async def is_left(unit: Unit, exchange: str, generation: int, recalled: Sequence[str]) -> bool:
    """True if no forget has taken the exchange, or anything that its answer was given with in view."""
    ours, seq = await unit.table("where").get(exchange) or ("", 0)
    row: ExchangeRow | None = await table(unit, ours).get(str(seq))
    if row is None or row["generation"] != generation or FORGOTTEN in row["recalled"]:
        return False
    shown = {*map(storable, recalled)}
    found = {**await unit.table("memories").many(shown), **await unit.table("documents").many(shown)}
    return len(found) == len(shown)


async def _is_untouched(unit: Unit, ours: str, seq: int) -> bool:
    """True unless a job has read it: an answer that broke off gives way to a whole one."""
    entries = await waiting.unread(unit, ours)
    return any(entry["seq"] == seq and entry["job"] is None and not entry["dead"] for entry in entries)


async def _answered(unit: Unit, jobs: Queue, ours: str, row: ExchangeRow, outcome: Outcome) -> None:
    new = [storable(id_) for id_ in outcome.recalled]
    shown = list(dict.fromkeys((*row["recalled"], *new)))
    recalled = {**await unit.table("memories").many(shown), **await unit.table("documents").many(shown)}
    # An answer given with something in view that was forgotten meanwhile may repeat it; so may its beginning.
    answer = storable(outcome.answer)
    if len(recalled) < len(shown):
        answer, shown = "", list(dict.fromkeys((*shown, FORGOTTEN)))
    changed: ExchangeRow = {
        **row, "open": False, "answer": answer, "whole": outcome.whole, "recalled": shown,
    }  # fmt: skip
    if row["answer"] and answer != row["answer"]:
        anchors.answer_gone(unit, ours)
    _not_shown(unit, ours, row)
    if is_not_to_be_read(shown):
        await silence(unit, ours, row["seq"])
    for id_ in recalled:
        unit.table(f"shown:{id_}").put(f"{ours} {row['seq']}", 1)
    await rows.touch(unit, list(dict.fromkeys(new)), row["at"])
    if row["open"]:
        await _closed(unit, jobs, ours, changed, summarise=True, at_work=outcome.calls)
        return
    table(unit, ours).put(str(row["seq"]), changed)
    if outcome.whole:
        await waiting.ended(unit, ours, row["seq"])
        jobs.touch(ours)


async def close(unit: Unit, jobs: Queue, ours: str, row: ExchangeRow) -> None:
    """Complete, as broken off, an exchange whose process died."""
    await _closed(unit, jobs, ours, {**row, "open": False, "whole": False}, summarise=False)


async def abort(unit: Unit, begun: Begun) -> None:
    """Remove the exchange once no request holds it, and the session if nothing else is in it."""
    where = await unit.table("where").get(begun.id)
    if where is None:
        return
    ours, seq = where
    row: ExchangeRow = await table(unit, ours).get(str(seq))
    if row["generation"] != begun.generation or not row["open"]:
        return
    if row["holders"] > 1:
        table(unit, ours).put(str(seq), {**row, "holders": row["holders"] - 1})
        return
    await drop(unit, ours, (seq,))
    session: SessionRow = await unit.table("sessions").get(ours)
    made: dict[str, str] = await unit.table("made").all()
    if not session["seqs"] and not any(made_in(each) == ours for each in made.values()):
        await drop_session(unit, ours)


# ---------------------------------------------------------------- reading
async def last(unit: Unit, scope: Scope, name: str, limit: int) -> list[Exchange]:
    """Return the session's last answered exchanges, oldest first."""
    ours = sid(scope.project, name)
    session: SessionRow | None = await unit.table("sessions").get(ours)
    if session is None:
        return []
    answered = [seq for seq in session["seqs"] if seq not in session["open"]]
    return await read(unit, scope, name, ours, answered[-limit:] if limit > 0 else [])


async def read(
    unit: Unit, scope: Scope, name: str, ours: str, seqs: Sequence[int], *, aloud: bool = True
) -> list[Exchange]:
    """Return exchanges of one session, in this order. While something is being forgotten, an answer that was
    given with memories in view may repeat it. Not `aloud`: without the answers that no memory is to be made
    of (see in_view)."""
    found: dict[str, ExchangeRow] = await table(unit, ours).many(map(str, seqs))
    hides = orders.are_standing(unit)
    session: SessionRow | None = None if aloud else await unit.table("sessions").get(ours)
    silent = session.get("silent") if session else None
    return [
        Exchange(
            seq=row["seq"], id=row["id"], scope=scope, session_id=name, model=row["model"], said=row["said"],
            answer="" if (hides and row["recalled"]) or _is_silent(row, aloud, silent) else row["answer"],
            at=row["at"], whole=row["whole"], timezone=row.get("timezone", DEFAULT_TIMEZONE),
            dated=row.get("dated"),
        )
        for row in found.values()
    ]  # fmt: skip


def _is_silent(row: ExchangeRow, aloud: bool, silent: int | None) -> bool:
    follows = silent is not None and row["seq"] >= silent
    return not aloud and (follows or is_not_to_be_read(row["recalled"]))


async def silence(unit: Unit, ours: str, seq: int) -> None:
    """Let no memory be made of the session's answers from the exchange on."""
    session: SessionRow = await unit.table("sessions").get(ours)
    if session.get("silent", seq + 1) > seq:
        silenced: SessionRow = {**session, "silent": seq}
        unit.table("sessions").put(ours, silenced)


# ---------------------------------------------------------------- erasing
async def drop(unit: Unit, ours: str, seqs: Collection[int], *, old: bool = False) -> None:
    """Erase exchanges of a session, with everything that leads to them. `old`: retention removes them, which
    is no forget: what was made of them for their session stays."""
    gone = set(seqs)
    session: SessionRow = await unit.table("sessions").get(ours)
    found: dict[str, ExchangeRow] = await table(unit, ours).many(map(str, gone))
    for row in found.values():
        table(unit, ours).drop(str(row["seq"]))
        unit.table(f"keys:{ours}").drop(row["key"])
        _unlinked(unit, ours, row)
        if not old:
            await anchors.exchange_gone(unit, ours, row)
    await waiting.gone(unit, ours, gone)
    left: SessionRow = {
        **session, "seqs": [seq for seq in session["seqs"] if seq not in gone],
        "open": [seq for seq in session["open"] if seq not in gone],
    }  # fmt: skip
    unit.table("sessions").put(ours, left)
    jobs = await Queue.of(unit)
    jobs.touch(ours)
    await jobs.settle()


async def clear_answers(unit: Unit, ours: str, seqs: Collection[int]) -> None:
    """Erase what was answered, or is about to be; what was said stays."""
    found: dict[str, ExchangeRow] = await table(unit, ours).many(map(str, seqs))
    for row in found.values():
        if row["answer"]:
            anchors.answer_gone(unit, ours)
        if row["answer"] or FORGOTTEN not in row["recalled"]:
            recalled = list(dict.fromkeys((*row["recalled"], FORGOTTEN)))
            table(unit, ours).put(str(row["seq"]), {**row, "answer": "", "recalled": recalled})
    if found:
        await silence(unit, ours, min(map(int, found)))


async def drop_session(unit: Unit, ours: str) -> None:
    """Erase a session with its exchanges, its jobs, and all that leads to them."""
    await drop_sessions(unit, (ours,))


async def drop_sessions(unit: Unit, sids: Collection[str]) -> None:
    """Erase sessions, each with all of it."""
    jobs = await Queue.of(unit)
    await unit.fetch(
        (unit.table("made"), None), (unit.table("dead"), None),
        *((unit.table(f"{name}:{ours}"), None) for ours in sids for name in ("exchanges", "anchors")),
    )  # fmt: skip
    for ours in sids:
        found: dict[str, ExchangeRow] = await table(unit, ours).all()
        for row in found.values():
            _unlinked(unit, ours, row)
        await anchors.session_gone(unit, ours)
        for name in ("exchanges", "keys"):
            unit.table(f"{name}:{ours}").clear()
        unit.table("unread").drop(ours)
        unit.table("sessions").drop(ours)
        unit.share("ZREM", unit.redis.key("oldest"), f"{unit.uid} {ours}")
        await jobs.drop_of(ours)
    for response_id, made in (await unit.table("made").all()).items():
        if made_in(made) in sids:
            unit.table("made").drop(response_id)
    await jobs.settle()


async def unlist(unit: Unit) -> None:
    """Take all of the user's sessions, jobs and open exchanges from what all users share: the user's tables
    are about to be wiped."""
    sessions: dict[str, SessionRow] = await unit.table("sessions").all()
    open_: list[str] = []
    for ours, session in sessions.items():
        found: dict[str, ExchangeRow] = await table(unit, ours).many(map(str, session["open"]))
        open_ += [row["id"] for row in found.values()]
    jobs = await Queue.of(unit)
    jobs.drop([*await unit.table("jobs").all(), *await unit.table("dead").all()])
    await jobs.settle()
    unlist_sessions(unit, list(sessions), open_)  # last: without its job, a session waits for another


# ---------------------------------------------------------------- rows
def unlist_sessions(unit: Unit, sids: Sequence[str], open_: Sequence[str]) -> None:
    """Take sessions, and the exchanges that are being answered in them, from what all users share. Some at a
    time: Redis's scripts take no more than a few thousand arguments."""
    uid = unit.uid
    for start in range(0, len(open_), _UNLISTED_AT_ONCE):
        ids = open_[start : start + _UNLISTED_AT_ONCE]
        unit.share("HDEL", unit.redis.key("open"), *(f"{uid} {id_}" for id_ in ids))
    for start in range(0, len(sids), _UNLISTED_AT_ONCE):
        members = [f"{uid} {ours}" for ours in sids[start : start + _UNLISTED_AT_ONCE]]
        unit.share("ZREM", unit.redis.key("oldest"), *members)
        unit.share("ZREM", unit.redis.key("unsummarised"), *members)
        unit.share("HDEL", unit.redis.key(waiting.HASH), *members)


def made_in(made: str) -> str:
    """Return the session of a response, whatever else is known of it."""
    return made.partition(" ")[0]


def _used(unit: Unit, ours: str, known: SessionRow | None, new: NewExchange) -> SessionRow:
    """Return the session's row, made if need be, after a request of it."""
    if known is not None:
        session: SessionRow = {
            **known, "last_at": max(known["last_at"], new.at), "ended": False,
            "stateful": known["stateful"] or new.stateful, "retold": known["retold"] or not new.standalone,
        }  # fmt: skip
    else:
        session = {
            "seq": unit.next(), "project": new.scope.project, "name": storable(new.session_id),
            "last_at": new.at, "seqs": [], "open": [], "ended": False, "stateful": new.stateful,
            "retold": not new.standalone, "unsummarised": 0,
        }  # fmt: skip
        unit.set_number("session", session["seq"])
        unit.share("ZADD", unit.redis.key("oldest"), "NX", new.at, f"{unit.uid} {ours}")
    unit.table("sessions").put(ours, session)
    return session


async def timezone(unit: Unit) -> str | None:
    """Return the user's last known time zone."""
    known: str | None = await unit.table("user").get("timezone")
    return known


async def _timezone(unit: Unit, new: NewExchange) -> str:
    """Return the exchange's zone; one that the request names becomes the user's last known."""
    known = await timezone(unit)
    if new.timezone is not None and new.timezone != known:
        unit.table("user").put("timezone", new.timezone)
    return new.timezone or known or new.default_timezone


async def _written(
    unit: Unit, ours: str, session: SessionRow, new: NewExchange, key: str, instance: str
) -> ExchangeRow:
    seq = unit.next()
    row: ExchangeRow = {
        "seq": seq, "id": new.id, "key": key, "generation": unit.stamp.generation, "model": new.model,
        "said": storable(new.said), "answer": "", "recalled": [], "at": new.at, "open": True, "whole": False,
        "explicit": new.explicit, "personal": new.personal, "instance": instance, "holders": 1,
        "timezone": await _timezone(unit, new), "dated": new.said_at,
    }  # fmt: skip
    table(unit, ours).put(str(seq), row)
    unit.table(f"keys:{ours}").put(key, seq)
    unit.table("where").put(new.id, [ours, seq])
    unit.share("HSET", unit.redis.key("open"), f"{unit.uid} {new.id}", instance)
    await anchors.anchor(unit, ours, row, new)
    more: SessionRow = {**session, "seqs": [*session["seqs"], seq], "open": [*session["open"], seq]}
    unit.table("sessions").put(ours, more)
    return row


async def _closed(
    unit: Unit, jobs: Queue, ours: str, row: ExchangeRow, *, summarise: bool, at_work: bool = False
) -> None:
    """Write down an exchange that nobody answers any more, or (`at_work`) only once tools have been used."""
    table(unit, ours).put(str(row["seq"]), row)
    session: SessionRow = await unit.table("sessions").get(ours)
    unit.table("sessions").put(ours, {
        **session, "open": [seq for seq in session["open"] if seq != row["seq"]],
        "unsummarised": session["unsummarised"] + summarise,
    })  # fmt: skip
    unit.share("HDEL", unit.redis.key("open"), f"{unit.uid} {row['id']}")
    await waiting.answered(unit, ours, row, at_work=at_work)
    jobs.touch(ours)


def _unlinked(unit: Unit, ours: str, row: ExchangeRow) -> None:
    """Erase what leads to an exchange from outside its session."""
    unit.table("where").drop(row["id"])
    _not_shown(unit, ours, row)
    if row["open"]:
        unit.share("HDEL", unit.redis.key("open"), f"{unit.uid} {row['id']}")


def _not_shown(unit: Unit, ours: str, row: ExchangeRow) -> None:
    for id_ in row["recalled"]:
        unit.table(f"shown:{id_}").drop(f"{ours} {row['seq']}")
