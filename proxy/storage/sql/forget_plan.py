"""Collect the rows that a forget erases: the memories and documents it covers, and everything else that
holds their text.

In doubt a row is erased. With an exchange, or an answer that was given with what is forgotten in view, these
are erased: the later answers of its session, which had it in their history (what the user said stays); the
stored responses of its session, which replay or repeat earlier ones; and what is linked to those."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.domain.core import ForgetCounts, MemoryFilter, with_children
from proxy.storage.sql import rows
from proxy.storage.sql.database import BEYOND_ALL, Connection, column, value
from proxy.storage.sql.derivation import derived_from
from proxy.storage.sql.mentions import Session, Verdicts, mentioning_exchanges

# ---------------------------------------------------------------- target
BOUNDED = {
    "memories": "memories", "exchanges": "exchanges", "held": "quarantine", "responses": "stored_responses",
    "conversations": "conversations", "items": "conversation_items", "documents": "documents",
}  # fmt: skip
UNBOUNDED = dict.fromkeys(BOUNDED, BEYOND_ALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetTarget:
    """Memories of one owner (a number of `scopes`), and what else holds their text. A field that is None
    narrows nothing."""

    owner: int
    project: str | None = None
    type: str | None = None
    text: str | None = None
    memory_id: str | None = None
    document_id: str | None = None  # no memory, but this document
    only: tuple[int, ...] | None = None  # of the memories, just these rows
    # The last row of each table that the forget covers: what is written after it began survives it.
    bounds: Mapping[str, int] = field(default_factory=lambda: UNBOUNDED)

    @classmethod
    def of(cls, owner: int, where: MemoryFilter, memory_id: str | None) -> "ForgetTarget":
        """Return what a forget of the filter means for one owner."""
        w = where
        return cls(owner=owner, project=w.project, type=w.type, text=w.text, memory_id=memory_id)

    @property
    def is_scope(self) -> bool:
        """True if it covers all that was said, too: a user's, or a project's."""
        return self.type is None and self.text is None and self.is_of_many

    @property
    def is_everything(self) -> bool:
        """True if nothing of the user is to be left."""
        return self.is_scope and self.project is None

    @property
    def is_of_many(self) -> bool:
        """True if it covers all memories of a kind, and not single things that are named."""
        return self.memory_id is None and self.document_id is None and self.only is None

    @property
    def types(self) -> frozenset[str] | None:
        """The named type with its subtypes, None for all."""
        return None if self.type is None else with_children((self.type,)) | {self.type}

    def parameters(self) -> dict[str, Any]:
        """Return what the constant SQL of this package refers to."""
        return {
            "owner": self.owner,
            "project": self.project,
            "types": None if self.types is None else rows.as_json(sorted(self.types)),
            "only": None if self.only is None else rows.as_json(self.only),
            "document_id": self.document_id,
            "id": None if self.memory_id is None else rows.storable(self.memory_id),
            **self.bounds,
        }


# ---------------------------------------------------------------- rows
Seqs = tuple[int, ...]

# What superseded a forgotten memory stays; what a forgotten memory superseded is erased with it.
MATCH = """
    m.seq <= :memories AND (:id IS NULL OR m.id = :id) AND (:project IS NULL OR m.project = :project)
    AND (:types IS NULL OR m.type IN (SELECT value FROM json_each(:types)))"""
_MEMORIES = f"""
    WITH RECURSIVE covered (seq, id, direct) AS (
        SELECT m.seq, m.id, 1 FROM memories m WHERE {{}} AND {MATCH}
        UNION
        SELECT older.seq, older.id, 0
        FROM covered JOIN memories older ON older.superseded_by = covered.id AND +older.owner = :owner
        WHERE older.seq <= :memories
    )
    SELECT seq, id, max(direct) FROM covered GROUP BY seq, id ORDER BY seq"""
# By which index: the plus keeps SQLite from walking through all that the user has.
_ALL = _MEMORIES.format("m.owner = :owner")
_NAMED = _MEMORIES.format("+m.owner = :owner AND m.id = :id")
_ONLY = _MEMORIES.format(f"+m.owner = :owner AND m.seq IN {rows.seqs_in(':only')}")
_CONTENTS = f"SELECT m.seq, m.content FROM memories m WHERE m.owner = :owner AND {MATCH}"
_IDS = "(SELECT value FROM json_each(:{}))"
_THESE = rows.seqs_in(":these")  # seqs of the memories
_SHOWN = f"""
    recalled <> '[]'
    AND EXISTS (SELECT 1 FROM json_each(recalled) shown WHERE shown.value IN {_IDS.format("ids")})"""
_ANSWERS = f"""
    SELECT x.seq, n.project, n.name FROM sessions n JOIN exchanges x ON x.session = n.id
    WHERE n.owner = :owner AND {_SHOWN}"""
# From where it was first stated, or shown: everything later had it in view.
_LATER = """
    SELECT x.seq FROM (
        SELECT e.session, min(e.seq) AS first FROM json_each(:seen) seen
        CROSS JOIN exchanges e ON e.seq = CAST(seen.value AS INTEGER) GROUP BY e.session) stated
    CROSS JOIN exchanges x ON x.session = stated.session AND x.seq >= stated.first WHERE x.seq <= :exchanges
"""
# Retention has removed the exchange, and with it all that came before.
_LATER_THAN_REMOVED = f"""
    SELECT x.seq, n.project, n.name FROM memories m CROSS JOIN evidence e ON e.memory = m.seq
    CROSS JOIN sessions n ON n.owner = :owner AND n.name = e.session_id AND n.project IS m.project
    CROSS JOIN exchanges x ON x.session = n.id
    WHERE m.seq IN {_THESE} AND x.seq <= :exchanges
    AND NOT EXISTS (SELECT 1 FROM exchanges source JOIN sessions o ON o.id = source.session
                    WHERE source.id = e.exchange_id AND o.owner = :owner)"""
_NAMED_SESSIONS = """
    (SELECT json_extract(value, '$[0]') AS project, json_extract(value, '$[1]') AS name
     FROM json_each(:sessions))"""
# A summary names one exchange of its session and repeats all of them, and a reflection may. :sessions: where
# it was said.
_SUMMARIES = f"""
    SELECT DISTINCT m.seq, m.id FROM memories m CROSS JOIN evidence e ON e.memory = m.seq
    JOIN {_NAMED_SESSIONS} n ON e.session_id = n.name AND m.project IS n.project
    WHERE m.owner = :owner AND m.source IN ('summary', 'reflection') AND m.seq <= :memories"""
_SOURCES = f"SELECT DISTINCT exchange_id FROM evidence WHERE memory IN {_THESE}"
_NAMES = f"SELECT id FROM exchanges WHERE seq IN {rows.seqs_in('?')}"
_STATED = f"""
    SELECT DISTINCT m.project, e.session_id FROM evidence e JOIN memories m ON m.seq = e.memory
    WHERE e.memory IN {_THESE}"""
# A general memory may have been stated in any project; once its exchange is deleted, nothing shows in which.
_STATED_SOMEWHERE = f"""
    WITH names (name) AS (
        SELECT DISTINCT e.session_id FROM evidence e JOIN memories m ON m.seq = e.memory
        WHERE e.memory IN {_THESE} AND m.project IS NULL AND NOT EXISTS (
            SELECT 1 FROM exchanges x JOIN sessions n ON n.id = x.session
            WHERE x.id = e.exchange_id AND n.owner = :owner))
    SELECT m.project, e.session_id FROM memories m CROSS JOIN evidence e ON e.memory = m.seq
    WHERE m.owner = :owner AND m.source = 'summary' AND e.session_id IN (SELECT name FROM names)
    UNION
    SELECT r.project, r.session FROM names JOIN stored_responses r
    ON r.owner = :owner AND r.session = names.name
    UNION
    SELECT i.project, i.session FROM names CROSS JOIN conversation_items i ON i.session = names.name
    JOIN conversations c ON c.seq = i.conversation AND c.owner = :owner"""
# By their ids, but only the owner's own: every client may claim to quote anything. CROSS JOIN: in this order.
_STATED_IN = """
    SELECT x.seq, n.project, n.name FROM json_each(:sources) source
    CROSS JOIN exchanges x ON x.id = source.value CROSS JOIN sessions n ON n.id = x.session
    WHERE n.owner = :owner"""
_QUOTES = f"""
    SELECT e.id FROM json_each(:sources) source
    CROSS JOIN evidence e ON e.exchange_id = source.value CROSS JOIN memories m ON m.seq = e.memory
    WHERE m.owner = :owner AND e.span <> '' AND e.memory NOT IN {_THESE}"""
_OURS = "n.owner = :owner AND (:project IS NULL OR n.project = :project)"
# What was not extracted yet may contain what is to be forgotten.
_UNREAD = f"""
    SELECT x.seq, n.project, n.name FROM sessions n JOIN exchanges x ON x.session = n.id
    WHERE {_OURS} AND x.extraction <> 'done' AND x.seq <= :exchanges"""
_SAID = f"""
    SELECT x.seq FROM sessions n JOIN exchanges x ON x.session = n.id WHERE {_OURS} AND x.seq <= :exchanges"""
_SESSIONS = f"""
    SELECT n.id FROM sessions n WHERE {_OURS}
    AND NOT EXISTS (SELECT 1 FROM exchanges x WHERE x.session = n.id AND x.seq > :exchanges)"""
_JOBS = f"SELECT j.id FROM jobs j JOIN sessions n ON n.id = j.session WHERE {_OURS}"
_HELD = """
    SELECT q.seq, q.content FROM quarantine q WHERE q.owner = :owner AND q.seq <= :held
    AND (:project IS NULL OR q.project = :project)
    AND (:types IS NULL OR q.type IN (SELECT value FROM json_each(:types)))"""
_HELD_OF = f"SELECT seq FROM quarantine WHERE owner = :owner AND exchange_id IN {_IDS.format('sources')}"
_RESPONSES = "SELECT seq FROM stored_responses WHERE owner = :owner AND seq <= :responses"
_SHOWN_RESPONSES = f"SELECT seq FROM stored_responses WHERE owner = :owner AND {_SHOWN}"
_DOCUMENTS = """
    SELECT d.seq FROM documents d WHERE d.owner = :owner AND d.seq <= :documents
    AND (:project IS NULL OR d.project = :project) AND (:document_id IS NULL OR d.id = :document_id)"""
_DOCUMENT_IDS = f"SELECT id FROM documents WHERE seq IN {rows.seqs_in(':of_documents')}"
_PASSAGES = f"SELECT seq FROM passages WHERE document IN {rows.seqs_in(':of_documents')}"
_CONVERSATIONS = "SELECT seq FROM conversations WHERE owner = :owner AND seq <= :conversations"
_ITEMS_OF_PROJECT = """
    SELECT i.seq FROM conversations c JOIN conversation_items i ON i.conversation = c.seq
    WHERE c.owner = :owner AND i.seq <= :items
    AND (:project IS NULL OR :project IN (c.project, i.project))"""
_EVERYTHING = {
    "responses": _RESPONSES, "items": _ITEMS_OF_PROJECT, "conversations": _CONVERSATIONS, "jobs": _JOBS,
    "exchanges": _SAID, "held": _HELD, "sessions": _SESSIONS, "documents": _DOCUMENTS,
    "memories": "SELECT seq FROM memories WHERE owner = :owner AND seq <= :memories",
}  # fmt: skip


# ---------------------------------------------------------------- responses that are linked
_OF_SESSIONS = f"""
    SELECT x.seq FROM {_NAMED_SESSIONS} n
    JOIN stored_responses x ON x.owner = :owner AND x.session = n.name WHERE x.project IS n.project"""
_ITEMS_OF_SESSIONS = f"""
    SELECT i.seq FROM {_NAMED_SESSIONS} n
    JOIN conversation_items i ON i.session = n.name AND i.project IS n.project
    JOIN conversations c ON c.seq = i.conversation AND c.owner = :owner"""
# Who continued a response was shown all of it.
_CONTINUED = f"""
    WITH RECURSIVE led (seq, owner, id) AS (
        SELECT r.seq, r.owner, r.id FROM stored_responses r WHERE r.seq IN {rows.seqs_in(":responses_led")}
        UNION
        SELECT later.seq, later.owner, later.id
        FROM led JOIN stored_responses later
        ON later.previous_id = led.id AND later.owner = led.owner
    )
    SELECT r.seq, r.project, r.session FROM led JOIN stored_responses r ON r.seq = led.seq"""
_OF_CONVERSATIONS = f"""
    SELECT r.seq, r.project, r.session FROM stored_responses r
    WHERE r.owner = :owner AND r.conversation_id IN (
        SELECT conversation_id FROM stored_responses WHERE seq IN {rows.seqs_in(":responses_led")}
        UNION
        SELECT c.id FROM conversation_items i JOIN conversations c ON c.seq = i.conversation
        WHERE i.seq IN {rows.seqs_in(":items_led")}
        UNION
        SELECT id FROM conversations WHERE seq IN {rows.seqs_in(":conversations_led")})"""
# A response with an input that names an item has a copy of it.
_REFERRING = f"""
    SELECT r.seq, r.project, r.session FROM stored_responses r
    WHERE r.owner = :owner AND r.recalled <> '[]' AND EXISTS (
        SELECT 1 FROM json_each(r.recalled) shown
        JOIN stored_responses led ON led.owner = r.owner AND led.id = shown.value
        WHERE led.seq IN {rows.seqs_in(":responses_led")})"""
_ITEMS = f"""
    SELECT i.seq, i.project, i.session FROM stored_responses r
    JOIN conversations c ON c.owner = r.owner AND c.id = r.conversation_id
    JOIN conversation_items i ON i.conversation = c.seq
    WHERE r.seq IN {rows.seqs_in(":responses_led")}
    UNION
    SELECT i.seq, i.project, i.session FROM (
        SELECT conversation, min(seq) AS first FROM conversation_items
        WHERE seq IN {rows.seqs_in(":items_led")} GROUP BY conversation) led
    JOIN conversation_items i ON i.conversation = led.conversation AND i.seq >= led.first
    WHERE i.seq <= :items"""
# Sessions that something led to out of another, whatever else leads to them. CROSS JOIN, plus: each by its
# name, and looked for among the numbers.
_CROSSED = f"""
    SELECT r.project, r.session FROM stored_responses r
    CROSS JOIN stored_responses led ON led.owner = r.owner AND led.id = r.previous_id
    WHERE r.seq IN {rows.seqs_in(":responses_led")} AND +led.seq IN {rows.seqs_in(":responses_led")}
    AND (led.session <> r.session OR led.project IS NOT r.project)
    UNION
    SELECT r.project, r.session FROM stored_responses r CROSS JOIN json_each(r.recalled) shown
    CROSS JOIN stored_responses led ON led.owner = r.owner AND led.id = shown.value
    WHERE r.seq IN {rows.seqs_in(":responses_led")} AND +led.seq IN {rows.seqs_in(":responses_led")}
    AND (led.session <> r.session OR led.project IS NOT r.project)
    UNION
    SELECT i.project, i.session FROM conversation_items i
    WHERE i.seq IN {rows.seqs_in(":items_all")} AND i.conversation IN (
        SELECT conversation FROM conversation_items
        WHERE seq IN {rows.seqs_in(":items_all")} AND session IS NOT NULL
        GROUP BY conversation HAVING count(DISTINCT json_array(project, session)) > 1)"""
_ANSWERS_REACHED = f"""
    SELECT x.seq FROM {_NAMED_SESSIONS} named
    CROSS JOIN sessions n ON n.owner = :owner AND n.name = named.name AND n.project IS named.project
    CROSS JOIN exchanges x ON x.session = n.id WHERE x.seq <= :exchanges"""


# ---------------------------------------------------------------- how they are erased
FORGET_ANSWERS = f"""
    UPDATE exchanges SET answer = '', recalled = CASE
        WHEN recalled = '[]' THEN '["{rows.FORGOTTEN}"]'
        WHEN EXISTS (SELECT 1 FROM json_each(recalled) shown WHERE shown.value = '{rows.FORGOTTEN}')
        THEN recalled
        ELSE substr(recalled, 1, length(recalled) - 1) || ', "{rows.FORGOTTEN}"]' END
    WHERE seq IN {rows.seqs_in(":seqs")}"""
# With those that continue one of them since it was found.
_ERASE_RESPONSES = f"""
    DELETE FROM stored_responses WHERE seq IN (
        WITH RECURSIVE erased (seq, owner, id) AS (
            SELECT seq, owner, id FROM stored_responses WHERE seq IN {rows.seqs_in(":seqs")}
            UNION
            SELECT later.seq, later.owner, later.id FROM erased JOIN stored_responses later
            ON later.previous_id = erased.id AND later.owner = erased.owner)
        SELECT seq FROM erased)
    RETURNING response IS NOT NULL"""
_LARGE = 1 / 25
_TOGETHER = 0.0


@dataclass(frozen=True, slots=True)
class Kind:
    """Rows of one kind: the statement that erases `:seqs`, the field of ForgetCounts that they count in, and
    what one of them takes of a portion (None: the usual)."""

    erase: str
    counted_as: str | None = None
    weight: float | None = None


def _deleted(
    table: str, counted_as: str | None = None, key: str = "seq", *, weight: float | None = None
) -> Kind:
    return Kind(f"DELETE FROM {table} WHERE {key} IN {rows.seqs_in(':seqs')}", counted_as, weight)


# In the order of erasure: what leads to others comes last, so that after a crash the rest is found again.
KINDS = {
    # Exchanges that lose their answer, or will not get it; the user's words stay.
    "answers": Kind(FORGET_ANSWERS),
    "linked_items": _deleted("conversation_items"),  # that responses, or other items, have led to
    # The same; those that were led to by most others first.
    "linked_responses": Kind(_ERASE_RESPONSES, "responses", _LARGE),
    "responses": Kind(_ERASE_RESPONSES, "responses", _LARGE),
    "items": _deleted("conversation_items"),
    "conversations": _deleted("conversations", "conversations"),
    # Evidence of memories that stay.
    "quotes": Kind(f"UPDATE evidence SET span = '' WHERE id IN {rows.seqs_in(':seqs')}"),
    "jobs": _deleted("jobs", "jobs", "id"),
    "held": _deleted("quarantine", "quarantined"),
    "exchanges": _deleted("exchanges", "exchanges"),
    # Memories made from those below; what else they superseded becomes current again, and inherits what
    # supersedes the last of them.
    "derived": _deleted("memories", "memories", weight=_TOGETHER),
    # Memories that the forget reaches only through what superseded them: the first of those shows the way.
    "older": _deleted("memories", "memories", weight=_TOGETHER),
    "memories": _deleted("memories", "memories"),
    "sessions": Kind(
        f"DELETE FROM sessions WHERE id IN {rows.seqs_in(':seqs')}"
        " AND NOT EXISTS (SELECT 1 FROM exchanges x WHERE x.session = sessions.id)",
        "sessions",
    ),
    "passages": _deleted("passages"),
    "documents": _deleted("documents", "documents"),
}


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """Numbers of rows by the names of KINDS."""

    rows: Mapping[str, Seqs]
    with_content: int = 0  # responses that still had content

    @property
    def counts(self) -> ForgetCounts:
        """What their removal will be counted as."""
        counted: dict[str, Any] = defaultdict(int)
        for name, seqs in self.tables():
            if counted_as := KINDS[name].counted_as:
                counted[counted_as] += len(seqs)
        return ForgetCounts(**counted | {"responses": self.with_content})

    def tables(self) -> Iterator[tuple[str, Seqs]]:
        for name in KINDS:
            if seqs := self.rows.get(name):
                yield name, seqs


def plan_forget(tx: Connection, target: ForgetTarget, verdicts: Verdicts | None = None) -> ForgetPlan:
    if target.is_everything:
        ours = target.parameters()
        found = {name: column(tx, query, ours) for name, query in _EVERYTHING.items()}
        found["passages"] = column(tx, _PASSAGES, {"of_documents": rows.as_json(found["documents"])})
        return ForgetPlan(found, _with_content(tx, found["responses"]))
    search = _Search(tx, target, verdicts or Verdicts())
    if target.document_id is not None:
        search.documents()
        return search.found()
    search.memories()
    if target.is_of_many:
        search.said()
    return search.found()


class _Search:
    """Follows what hangs together, from the memories to everything that may repeat them."""

    def __init__(self, tx: Connection, target: ForgetTarget, verdicts: Verdicts) -> None:
        self._tx, self._target, self._verdicts = tx, target, verdicts
        self._ours: dict[str, Any] = target.parameters() | {"these": "[]"}
        self._sources: set[str] = set()
        self._sessions: set[Session] = set()
        self._seqs: dict[str, set[int]] = {name: set() for name in KINDS}

    def memories(self) -> None:
        """Find the memories, the exchanges they came from, and the answers that may repeat them."""
        target, query = self._target, _ALL if self._target.memory_id is None else _NAMED
        if target.text is not None:
            self._ours["only"] = rows.as_json(self._holding(self._tx.execute(_CONTENTS, self._ours)))
        if target.only is not None or target.text is not None:
            query = _ONLY
        found = self._tx.execute(query, self._ours).fetchall()
        self._seqs["memories"] = {seq for seq, _, direct in found if direct}
        self._seqs["older"] = {seq for seq, _, direct in found if not direct}
        if not found:
            return
        self._ours["these"] = rows.as_json(seq for seq, _, _ in found)
        self._sources = set(column(self._tx, _SOURCES, self._ours))
        self._ours["sources"] = rows.as_json(self._sources)
        self._sessions.update(self._tx.execute(_STATED, self._ours))
        self._sessions.update(self._tx.execute(_STATED_SOMEWHERE, self._ours))
        self._add("exchanges", _STATED_IN)
        stated_in = set(self._sessions)
        self._add("answers", _LATER_THAN_REMOVED)
        ids = [id_ for _, id_, _ in found]
        self._ours["ids"] = rows.as_json(ids)
        self._add("answers", _ANSWERS)
        if target.memory_id is not None:  # what else mentions it
            self._ours["seen"] = rows.as_json(self._seqs["exchanges"] | self._seqs["answers"])
            for table, seq, session in mentioning_exchanges(self._tx, self._ours, self._verdicts):
                self._seqs[table].add(seq)
                self._sessions.add(session)
                if table == "exchanges":
                    stated_in.add(session)
        # The summaries of the sessions in which it was said may say it again.
        self._ours["sessions"] = rows.as_json(stated_in)
        summaries = self._tx.execute(_SUMMARIES, self._ours).fetchall()
        self._seqs["memories"].update({seq for seq, _ in summaries} - self._seqs["older"])
        self._ours["these"] = rows.as_json(sorted(self._seqs["memories"] | self._seqs["older"]))
        ids = [*dict.fromkeys((*ids, *(id_ for _, id_ in summaries)))]
        covered = self._seqs["memories"] | self._seqs["older"]
        derived = [one for one in derived_from(self._tx, target.owner, ids) if one[0] not in covered]
        self._seqs["derived"] = {seq for seq, _ in derived}
        self._ours["ids"] = rows.as_json((*ids, *(id_ for _, id_ in derived)))
        self._add("answers", _ANSWERS)
        self._add("responses", _SHOWN_RESPONSES)
        self._later("exchanges", "answers")

    def _later(self, *tables: str) -> None:
        """Find the answers that came, in the sessions of those found, with or after the first of them."""
        self._ours["seen"] = rows.as_json(set().union(*(self._seqs[name] for name in tables)))
        self._add("answers", _LATER)

    def _holding(self, found: Iterable[tuple[int, str]]) -> list[int]:
        """Return which of the rows (seq, content) hold the target's text; all of them if it has no text."""
        text = self._target.text
        return [seq for seq, _ in found] if text is None else rows.holding(text, found)

    def said(self) -> None:
        """Find what the forget of a scope or type takes in addition to memories."""
        self._add("jobs", _JOBS)
        self._seqs["held"].update(self._holding(self._tx.execute(_HELD, self._ours).fetchall()))
        if not self._target.is_scope:
            self._add("exchanges", _UNREAD)
            return
        self._add("exchanges", _SAID)
        self._add("sessions", _SESSIONS)
        self._add("responses", f"{_RESPONSES} AND project = :project")
        self._add("items", _ITEMS_OF_PROJECT)
        self._add("conversations", f"{_CONVERSATIONS} AND project = :project")
        self.documents()

    def documents(self) -> None:
        """Find the documents, and the answers that were given with one of them in view: who names no project
        is shown those of all."""
        self._add("documents", _DOCUMENTS)
        self._ours["of_documents"] = rows.as_json(self._seqs["documents"])
        self._add("passages", _PASSAGES)
        self._ours["ids"] = rows.as_json(column(self._tx, _DOCUMENT_IDS, self._ours))
        self._add("answers", _ANSWERS)
        self._add("responses", _SHOWN_RESPONSES)
        self._later("answers")

    def found(self) -> ForgetPlan:
        """Return all of it, with the responses of the sessions and those that continue them."""
        # For each erased exchange: memories that cite it lose the quote, candidates in quarantine are erased.
        erased = (rows.as_json(self._seqs["exchanges"]),)
        self._sources.update(column(self._tx, _NAMES, erased))
        self._ours["sources"] = rows.as_json(self._sources)
        self._add("quotes", _QUOTES)
        self._add("held", _HELD_OF)
        linked = self._linked()
        self._seqs["answers"] -= self._seqs["exchanges"]
        found = {name: tuple(sorted(seqs)) for name, seqs in self._seqs.items()} | linked
        responses = (*found["responses"], *found["linked_responses"])
        return ForgetPlan(found, _with_content(self._tx, responses))

    def _linked(self) -> dict[str, Seqs]:
        """Return the responses and items that lead from those found to others, and those of the sessions; add
        the answers of the sessions that were reached by them."""
        tx, ours, responses, items = self._tx, self._ours, self._seqs["responses"], self._seqs["items"]
        ours["sessions"] = rows.as_json(self._sessions)
        responses.update(column(tx, _OF_SESSIONS, ours))
        items.update(column(tx, _ITEMS_OF_SESSIONS, ours))
        ours["items_led"] = rows.as_json(items)
        ours["conversations_led"] = rows.as_json(self._seqs["conversations"])

        def led_to(*queries: str) -> dict[int, Session]:
            every = (row for query in queries for row in tx.execute(query, ours))
            return {seq: (project, session) for seq, project, session in every}

        linked: dict[int, Session] = {}  # responses, as they were led to
        while True:
            ours["responses_led"] = rows.as_json({*responses, *linked})
            more = led_to(_CONTINUED, _OF_CONVERSATIONS, _REFERRING)
            if not (new := more.keys() - responses - linked.keys()):
                break
            linked |= {seq: more[seq] for seq in sorted(new)}
        led = led_to(_ITEMS)
        ours["items_all"] = rows.as_json({*led, *items})
        reached = {*linked.values(), *led.values()} - self._sessions | set(tx.execute(_CROSSED, ours))
        ours["sessions"] = rows.as_json(sorted(reached, key=str))
        self._seqs["answers"].update(column(tx, _ANSWERS_REACHED, ours))
        # Those found last first: after a crash, what is left of them is found again.
        return {
            "linked_responses": tuple(reversed(linked)),
            "linked_items": tuple(sorted(led.keys() - items)),
        }

    def _add(self, table: str, query: str) -> None:
        """Add what the query finds; where it names sessions, remember them."""
        for seq, *session in self._tx.execute(query, self._ours):
            self._seqs[table].add(seq)
            if session:
                self._sessions.add((session[0], session[1]))


def _with_content(tx: Connection, responses: Seqs) -> int:
    these = f"stored_responses WHERE response IS NOT NULL AND seq IN {rows.seqs_in(':seqs')}"
    return int(value(tx, f"SELECT count(*) FROM {these}", {"seqs": rows.as_json(responses)}))
