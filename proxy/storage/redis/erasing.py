"""Erase doomed rows, with their entries in the structures that all users share, or everything of a user at
once.
"""

from collections.abc import Collection

from proxy.storage.redis import chains, conversations, exchanges, library
from proxy.storage.redis.doomed import Doomed
from proxy.storage.redis.indexing import let_go_of_all
from proxy.storage.redis.layout import DocumentRow, StoredRow, storable
from proxy.storage.redis.queue import Queue
from proxy.storage.redis.rows import Rows
from proxy.storage.redis.unit import LASTING, Unit

_AT_ONCE = 1000  # members in one command
_SESSIONS_AT_ONCE = 200  # read in one round trip


async def erase(unit: Unit, doomed: Doomed) -> None:
    """Erase all of it. Sources go before the memories that came from them: what hangs on a source that is
    gone, goes with the memory."""
    await chains.drop(unit, doomed.responses)
    for conversation_id in doomed.conversations:
        conversations.drop(unit, conversation_id)
    for conversation_id, items in doomed.items.items():
        await conversations.drop_items(unit, conversation_id, items)
    for sid, seqs in doomed.answers.items():
        await exchanges.clear_answers(unit, sid, seqs)
    for held_id in doomed.held:
        unit.table("held").drop(held_id)
    jobs = await Queue.of(unit)
    jobs.drop(doomed.jobs)
    await jobs.settle()
    for sid, seqs in doomed.exchanges.items():
        if sid not in doomed.sessions:
            await exchanges.drop(unit, sid, seqs)
    sessions = list(doomed.sessions)
    for start in range(0, len(sessions), _SESSIONS_AT_ONCE):
        await exchanges.drop_sessions(unit, set(sessions[start : start + _SESSIONS_AT_ONCE]))
    for memory_id, row in doomed.quotes.items():
        unit.table("memories").put(memory_id, row)
    await library.drop(unit, doomed.documents)
    await _not_shown(unit, doomed.documents)
    await erase_memories(unit, doomed.memories)


async def erase_memories(unit: Unit, ids: Collection[str]) -> None:
    """Erase memories with all that is kept of them alone."""
    await Rows(unit).erase(ids)
    await _not_shown(unit, ids)


async def _not_shown(unit: Unit, ids: Collection[str]) -> None:
    """Erase which answers were given with these in view."""
    for names in _portions(list(ids)):
        tables = [unit.table(f"shown:{name}") for name in names]
        await unit.fetch(*((table, None) for table in tables))
        for table in tables:
            if await table.all():
                table.clear()


async def erase_all(unit: Unit, *, at: float) -> None:
    """Erase everything of the user but receipts, and orders: who is at one, finds nothing more. In this
    commit: for who has little."""
    memories: dict[str, dict[str, str]] = await unit.table("order").all()
    ids = [memory_id for of_span in memories.values() for memory_id in of_span.values()]
    stored: dict[str, StoredRow] = await unit.table("stored").all()
    documents: dict[str, DocumentRow] = await unit.table("documents").all()
    talks = await unit.table("conversations").all()
    await exchanges.unlist(unit)
    await unit.wipe(keep=LASTING)
    await unlist(unit, ids, stored)
    unlist_conversations(unit, talks)
    library.unlist(unit, documents)
    _has_nothing(unit, at)


def leave_all(unit: Unit, *, at: float) -> str:
    """Let the user have nothing but receipts and orders any more; return the home that is to be cleared of
    what there was."""
    left = unit.move_out()
    _has_nothing(unit, at)
    return left


def _has_nothing(unit: Unit, at: float) -> None:
    for name in ("memories", "content_bytes", "session", *unit.numbers("of:"), *unit.numbers("in:")):
        unit.set_number(name, 0)
    library.count_none(unit)
    let_go_of_all(unit, at=at)


async def unlist(unit: Unit, memories: Collection[str], responses: Collection[str]) -> None:
    """Take memories and responses from what all users share."""
    ids, ours = unit.redis.key(f"ids:{storable(unit.scope.tenant)}"), unit.uid.encode()
    for some in _portions(list(memories)):
        holders = await unit.redis.call("HMGET", ids, *some)
        held = [each for each, holder in zip(some, holders, strict=True) if holder == ours]
        if held:
            unit.share("HDEL", ids, *held)
        members = [f"{unit.uid} {each}" for each in some]
        times = await unit.redis.call("ZMSCORE", unit.redis.key("expiring"), *members)
        if expiring := [each for each, at in zip(members, times, strict=True) if at is not None]:
            unit.share("ZREM", unit.redis.key("expiring"), *expiring)
    for some in _portions(list(responses)):
        unit.share("ZREM", unit.redis.key("expiring-responses"), *(f"{unit.uid} {each}" for each in some))


def unlist_conversations(unit: Unit, ids: Collection[str]) -> None:
    """Take conversations from what all users share."""
    for some in _portions(list(ids)):
        unit.share("ZREM", unit.redis.key(conversations.USED), *(f"{unit.uid} {each}" for each in some))


def _portions(names: list[str]) -> list[list[str]]:
    return [names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE)]
