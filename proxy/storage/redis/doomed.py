"""Collect what a forget erases: the memories and documents it covers, and everything else that holds their
text.

Whatever is not known to be free of that text is erased too. An exchange that is erased, or whose answer was
given with what is forgotten in view, takes with it: the later answers of its session, which were given with
it in their history (what the user said stays); the stored responses of its session, since later ones replay
or repeat earlier ones; the responses that continue those, or belong to their conversations, whose items go
as well; and the answers of every session that is reached in this way.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field

from proxy.domain.core import Forgotten
from proxy.storage.redis import exchanges
from proxy.storage.redis.besides import told_besides
from proxy.storage.redis.layout import (
    ConversationRow,
    DocumentRow,
    EvidenceRow,
    ExchangeRow,
    HeldRow,
    ItemRow,
    JobRow,
    MemoryRow,
    SessionRow,
    StoredRow,
    UnreadRow,
    summaries_key,
    summary_key,
)
from proxy.storage.redis.layout import sid as sid_of
from proxy.storage.redis.target import Target
from proxy.storage.redis.unit import Unit
from proxy.storage.told import Verdicts

_AT_ONCE = 1000  # tables in one round trip
_CONVERSATIONS_AT_ONCE = 50  # their items may be large
Session = tuple[str | None, str]
"""Project and name: a session may still have responses when retention has removed its row."""


@dataclass(slots=True)
class Doomed:
    """Names of rows, by what they are."""

    memories: dict[str, MemoryRow] = field(default_factory=dict)
    exchanges: dict[str, set[int]] = field(default_factory=dict)  # seqs by sid
    answers: dict[str, set[int]] = field(default_factory=dict)  # exchanges that only lose their answers
    quotes: dict[str, MemoryRow] = field(default_factory=dict)  # memories that stay, as they are without them
    sessions: dict[str, SessionRow] = field(default_factory=dict)
    jobs: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    responses: dict[str, StoredRow] = field(default_factory=dict)
    conversations: set[str] = field(default_factory=set)
    items: dict[str, set[str]] = field(default_factory=dict)  # ids by conversation
    documents: dict[str, DocumentRow] = field(default_factory=dict)

    @property
    def counts(self) -> Forgotten:
        """What their removal is counted as."""
        return Forgotten(
            memories=len(self.memories),
            exchanges=sum(map(len, self.exchanges.values())),
            sessions=len(self.sessions),
            jobs=len(self.jobs),
            responses=sum(not row["deleted"] for row in self.responses.values()),
            quarantined=len(self.held),
            documents=len(self.documents),
            conversations=len(self.conversations),
        )


async def find(unit: Unit, target: Target, verdicts: Verdicts | None = None) -> Doomed:
    """Return what a forget of the target takes."""
    search = _Search(unit, target, verdicts or Verdicts())
    if target.document_id is not None:
        await search.documents()
        return await search.found()
    await search.memories()
    if target.is_of_many:
        await search.said()
    return await search.found()


async def find_said(unit: Unit, target: Target) -> Doomed:
    """Return what a forget of a scope or type takes without its memories and what hangs on them."""
    search = _Search(unit, target, Verdicts())
    await search.said()
    return await search.found()


async def count_all(unit: Unit) -> Forgotten:
    """Return what forgetting all of the user takes."""
    sessions, stored, conversations = (unit.table(name) for name in ("sessions", "stored", "conversations"))
    tables = [sessions, stored, conversations, unit.table("jobs"), unit.table("dead"), unit.table("held")]
    await unit.fetch(*((table, None) for table in tables))
    jobs = len(await unit.table("jobs").all()) + len(await unit.table("dead").all())
    said: dict[str, SessionRow] = await sessions.all()
    kept: dict[str, StoredRow] = await stored.all()
    return Forgotten(
        memories=unit.number("memories"),
        exchanges=sum(len(row["seqs"]) for row in said.values()),
        sessions=len(said),
        jobs=jobs,
        responses=sum(not row["deleted"] for row in kept.values()),
        quarantined=len(await unit.table("held").all()),
        documents=unit.number("documents"),
        conversations=len(await conversations.all()),
    )


async def with_older(unit: Unit, ids: Iterable[str]) -> list[str]:
    """Return the memories with those that they superseded, directly or through others: once each."""
    found = dict.fromkeys(ids)
    front = list(found)
    while front:
        older: dict[str, list[str]] = await unit.table("successions").many(front)
        front = [each for ids in older.values() for each in ids if each not in found]
        found.update(dict.fromkeys(front))
    return list(found)


async def all_memories(unit: Unit) -> dict[str, MemoryRow]:
    """Return every memory of the user: some at a time, since Redis serves nobody else meanwhile."""
    places: dict[str, dict[str, str]] = await unit.table("order").all()
    rows: dict[str, MemoryRow] = await unit.table("memories").many(
        memory_id for of_span in places.values() for memory_id in of_span.values()
    )
    return rows


class _Search:
    """Follows what hangs together, from the memories to everything that may repeat them."""

    def __init__(self, unit: Unit, target: Target, verdicts: Verdicts) -> None:
        self._unit, self._target, self._verdicts = unit, target, verdicts
        self._sources: set[str] = set()  # ids of exchanges that must be quoted no more
        self._said_in: set[Session] = set()
        self._said_somewhere: set[str] = set()  # names of sessions in projects that nothing tells
        self._linked: set[Session] = set()  # what goes of these was led to by what goes of others
        self._crossed: set[Session] = set()  # the same of those in which it was told or shown, too
        self._doomed = Doomed()

    async def memories(self) -> None:
        """Find the memories, the exchanges they came from, and the answers that may repeat them."""
        unit, rows = self._unit, self._unit.table("memories")
        target, named = self._target, self._target.named
        among: dict[str, MemoryRow] = await (all_memories(unit) if named is None else rows.many(named))
        covered = [id_ for id_, row in among.items() if target.covers(row) and target.reaches(row)]
        found: dict[str, MemoryRow] = await rows.many(await with_older(unit, covered))
        self._doomed.memories = {id_: row for id_, row in found.items() if target.reaches(row)}
        for row in self._doomed.memories.values():
            for evidence in row["evidence"]:
                self._sources.add(evidence["exchange_id"])
                self._said_in.add((row["project"], evidence["session_id"]))
        told: dict[str, tuple[str, int]] = await unit.table("where").many(self._sources)
        for sid, seq in told.values():
            self._doomed.exchanges.setdefault(sid, set()).add(seq)
        # A general memory may have been told in any project, and nothing says in which where that is gone.
        for row in self._doomed.memories.values():
            if row["project"] is None:
                gone = (e["session_id"] for e in row["evidence"] if e["exchange_id"] not in told)
                self._said_somewhere.update(gone)
        # Retention has removed the exchange, and with it all that came before.
        removed = {
            sid_of(row["project"], evidence["session_id"])
            for row in self._doomed.memories.values()
            for evidence in row["evidence"]
            if evidence["exchange_id"] not in told
        }
        await self._shown(self._doomed.memories)
        if target.memory_id is not None:
            await self._told_besides(removed)
        facts = {*self._doomed.memories}
        await self._summaries()
        await self._shown(self._doomed.memories.keys() - facts)
        await self._later(self._doomed.exchanges, removed)

    async def _told_besides(self, removed: Iterable[str]) -> None:
        """Find what else tells it: the user's words, or else the answer."""
        doomed = self._doomed
        seen = {*doomed.exchanges, *doomed.answers, *removed}
        memories = doomed.memories.values()
        async for sid, seq, in_words in told_besides(self._unit, memories, seen, self._verdicts):
            (doomed.exchanges if in_words else doomed.answers).setdefault(sid, set()).add(seq)

    async def documents(self) -> None:
        """Find the documents, and the answers that were given with one of them in view."""
        table, named = self._unit.table("documents"), self._target.document_id
        found: dict[str, DocumentRow] = await (table.all() if named is None else table.many((named,)))
        about = {id_: row for id_, row in found.items() if self._target.is_about(row["project"])}
        self._doomed.documents = about
        await self._shown(about)
        await self._later()

    async def said(self) -> None:
        """Find what the forget of a scope or type takes beside memories."""
        unit, target, doomed = self._unit, self._target, self._doomed
        tables = [unit.table(name) for name in ("sessions", "unread", "jobs", "dead", "held")]
        await unit.fetch(*((table, None) for table in tables))
        sessions: dict[str, SessionRow] = await unit.table("sessions").all()
        ours = {sid: row for sid, row in sessions.items() if target.is_about(row["project"])}
        jobs: dict[str, JobRow] = {**await unit.table("jobs").all(), **await unit.table("dead").all()}
        doomed.jobs = {id_ for id_, row in jobs.items() if row["sid"] in ours}
        held: dict[str, HeldRow] = await unit.table("held").all()
        doomed.held = {id_ for id_, row in held.items() if target.covers(row)}
        if target.is_scope:
            doomed.sessions = ours
            doomed.exchanges |= {sid: set(row["seqs"]) for sid, row in ours.items()}
            await self._kept_of_project()
            await self.documents()
            return
        # Nobody knows whether what was not read yet holds what is to be forgotten.
        unread: dict[str, list[UnreadRow]] = await unit.table("unread").many(ours)
        for sid, row in ours.items():
            seqs = {*row["open"], *(entry["seq"] for entry in unread.get(sid, ()))}
            if seqs:
                doomed.exchanges.setdefault(sid, set()).update(seqs)

    async def found(self) -> Doomed:
        """Return all of it, with the responses of the sessions and those that continue them."""
        doomed = self._doomed
        await self._name_sessions()
        await self._quotes()
        await self._responses()
        await self._items()
        await self._answers_linked()
        for sid, seqs in doomed.exchanges.items():
            doomed.answers[sid] = doomed.answers.get(sid, set()) - seqs
        return doomed

    # ------------------------------------------------------------ what was said
    async def _summaries(self) -> None:
        """Find the summaries of the sessions in which it was said: each may repeat all of its session."""
        unit, doomed = self._unit, self._doomed
        sessions: dict[str, SessionRow] = await unit.table("sessions").many(doomed.exchanges)
        told_in = {(row["project"], row["name"]) for row in sessions.values()} | self._said_in
        keys = {summary_key(project, name) for project, name in told_in}
        keys |= set(map(summaries_key, self._said_somewhere))
        cited: dict[str, list[str]] = await unit.table("cited").many(keys)
        ids = {id_ for by in cited.values() for id_ in by} - doomed.memories.keys()
        found: dict[str, MemoryRow] = await unit.table("memories").many(ids)
        doomed.memories |= found

    async def _shown(self, what: Iterable[str]) -> None:
        """Find the answers that were given with one of these in view."""
        ids = list(what)
        for start in range(0, len(ids), _AT_ONCE):
            tables = [self._unit.table(f"shown:{id_}") for id_ in ids[start : start + _AT_ONCE]]
            await self._unit.fetch(*((table, None) for table in tables))
            for table in tables:
                for place in await table.all():
                    sid, _, seq = place.partition(" ")
                    self._doomed.answers.setdefault(sid, set()).add(int(seq))

    async def _later(self, told: Mapping[str, set[int]] | None = None, removed: Iterable[str] = ()) -> None:
        """Find the answers that came, in the sessions of those found or told, with or after the first; of
        sessions where that was removed, all."""
        answers = self._doomed.answers
        first = dict.fromkeys(removed, 0)
        for sid, seqs in (*answers.items(), *(told or {}).items()):
            for seq in seqs:
                first[sid] = min(first.get(sid, seq), seq)
        sessions: dict[str, SessionRow] = await self._unit.table("sessions").many(first)
        for sid, row in sessions.items():
            answers.setdefault(sid, set()).update(seq for seq in row["seqs"] if seq >= first[sid])

    async def _name_sessions(self) -> None:
        """Find out in which sessions it was said, and what the exchanges are called that go."""
        unit, doomed = self._unit, self._doomed
        sids = doomed.exchanges.keys() | doomed.answers.keys()
        sessions: dict[str, SessionRow] = await unit.table("sessions").many(sids)
        self._said_in.update((row["project"], row["name"]) for row in sessions.values())
        for sid, seqs in doomed.exchanges.items():
            rows: dict[str, ExchangeRow] = await exchanges.table(unit, sid).many(map(str, seqs))
            self._sources.update(row["id"] for row in rows.values())

    async def _quotes(self) -> None:
        """Whoever quotes an exchange that goes: memories stay without the quote, what is held goes."""
        if not self._sources:
            return
        unit, doomed = self._unit, self._doomed
        cited: dict[str, list[str]] = await unit.table("cited").many(self._sources)
        ids = {id_ for by in cited.values() for id_ in by} - doomed.memories.keys()
        quoting: dict[str, MemoryRow] = await unit.table("memories").many(ids)
        for id_, row in quoting.items():
            if any(map(self._is_quote, row["evidence"])):
                evidence: list[EvidenceRow] = [
                    {**e, "span": ""} if self._is_quote(e) else e for e in row["evidence"]
                ]
                doomed.quotes[id_] = {**row, "evidence": evidence}
        held: dict[str, HeldRow] = await unit.table("held").all()
        doomed.held |= {id_ for id_, row in held.items() if row["exchange_id"] in self._sources}

    def _is_quote(self, evidence: EvidenceRow) -> bool:
        return evidence["span"] != "" and evidence["exchange_id"] in self._sources

    # ------------------------------------------------------------ what is kept
    async def _kept_of_project(self) -> None:
        """Find the responses, conversations and items of the project."""
        unit, project, doomed = self._unit, self._target.project, self._doomed
        stored: dict[str, StoredRow] = await unit.table("stored").all()
        doomed.responses |= {id_: row for id_, row in stored.items() if row["project"] == project}
        conversations: dict[str, ConversationRow] = await unit.table("conversations").all()
        doomed.conversations = {id_ for id_, row in conversations.items() if row["project"] == project}

    async def _responses(self) -> None:
        unit, doomed = self._unit, self._doomed
        stored: dict[str, StoredRow] = await unit.table("stored").all()
        shown = doomed.memories.keys() | doomed.documents.keys()
        direct = {
            id_
            for id_, row in stored.items()
            if id_ in doomed.responses
            or self._was_said(row["project"], row["session"])
            or not shown.isdisjoint(row["recalled"])
        }
        conversations = await self._items_said()
        found = dict.fromkeys(direct)
        front, is_first = list(direct), True
        while front or is_first:  # who continued a response was shown all of it, and of its conversation
            later: dict[str, list[str]] = await unit.table("next").many(front)
            following = {each for ids in later.values() for each in ids}
            conversations |= {stored[id_]["conversation_id"] for id_ in front} - {None}
            led = {*front}
            front = [
                id_
                for id_, row in stored.items()
                if id_ not in found
                and (
                    id_ in following
                    or row["conversation_id"] in conversations
                    or not led.isdisjoint(
                        row["recalled"]
                    )  # whose input named an item of one has a copy of it
                )
            ]
            found.update(dict.fromkeys(front))
            is_first = False
        doomed.responses = {id_: stored[id_] for id_ in found}
        self._linked |= {_place(stored[id_]) for id_ in found.keys() - direct}
        for row in doomed.responses.values():
            led_by = (doomed.responses.get(id_ or "") for id_ in (row["previous_id"], *row["recalled"]))
            if any(other is not None and _place(other) != _place(row) for other in led_by):
                self._crossed.add(_place(row))

    async def _items_said(self) -> set[str | None]:
        """Find the items that were said in the sessions, or in the project, and what came after them; return
        their conversations."""
        doomed = self._doomed
        conversations: dict[str, ConversationRow] = await self._unit.table("conversations").all()
        if self._said_in or self._said_somewhere or self._target.is_scope:
            async for id_, items in self._items_of(conversations):
                order = conversations[id_]["items"]
                said = [each for each in order if each in items and self._is_doomed(items[each])]
                if said:
                    doomed.items[id_] = {*order[order.index(said[0]) :]}
        return {*doomed.items, *doomed.conversations}

    async def _items(self) -> None:
        """Find all of the conversations that responses belong to, and where their items were said."""
        doomed = self._doomed
        conversations: dict[str, ConversationRow] = await self._unit.table("conversations").all()
        emptied = {row["conversation_id"] for row in doomed.responses.values()} | doomed.conversations
        doomed.items |= {id_: set(row["items"]) for id_, row in conversations.items() if id_ in emptied}
        async for id_, items in self._items_of(doomed.items):
            gone = [items[each] for each in items.keys() & doomed.items[id_]]
            places = {(row["project"], name) for row in gone if (name := row["session"]) is not None}
            self._linked |= places
            if len(places) > 1:
                self._crossed |= places
        for id_ in doomed.conversations:
            doomed.items.pop(id_, None)

    async def _items_of(self, conversations: Iterable[str]) -> AsyncIterator[tuple[str, dict[str, ItemRow]]]:
        names = list(conversations)
        for start in range(0, len(names), _CONVERSATIONS_AT_ONCE):
            some = names[start : start + _CONVERSATIONS_AT_ONCE]
            tables = {id_: self._unit.table(f"items:{id_}") for id_ in some}
            await self._unit.fetch(*((table, None) for table in tables.values()))
            for id_, table in tables.items():
                yield id_, await table.all()

    async def _answers_linked(self) -> None:
        """Find the answers of the sessions that were reached by what leads from one to another."""
        reached = {sid_of(*place) for place in self._linked - self._said_in | self._crossed}
        sessions: dict[str, SessionRow] = await self._unit.table("sessions").many(reached)
        for sid, row in sessions.items():
            self._doomed.answers.setdefault(sid, set()).update(row["seqs"])

    def _is_doomed(self, item: ItemRow) -> bool:
        if self._target.is_scope and item["project"] == self._target.project:
            return True
        return item["session"] is not None and self._was_said(item["project"], item["session"])

    def _was_said(self, project: str | None, session: str) -> bool:
        return (project, session) in self._said_in or session in self._said_somewhere


def _place(row: StoredRow) -> Session:
    return row["project"], row["session"]
