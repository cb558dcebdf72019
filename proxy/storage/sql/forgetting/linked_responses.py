"""Find the stored responses and conversation items that are erased by a forget: those of the sessions in
which the memory was told or shown, and whatever was given with those in view.

"In view" means: responses that continue one that is erased or hold an item of it; everything of a
conversation that one belongs to; and what came to a conversation after an item that is erased, whichever
session a client has named there. In the sessions that are reached in this way, all answers are erased, also
where the memory was told or shown only later.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from proxy.storage.sql import rows
from proxy.storage.sql.connection import Connection

Session = tuple[str | None, str]
"""Project and name: a session may still have responses when retention has removed its row."""

_NAMED = """
    (SELECT json_extract(value, '$[0]') AS project, json_extract(value, '$[1]') AS name
     FROM json_each(:sessions))
"""
_OF_SESSIONS = f"""
    SELECT x.seq FROM {_NAMED} n
    JOIN stored_responses x ON x.owner = :owner AND x.session = n.name WHERE x.project IS n.project
"""
_ITEMS_OF_SESSIONS = f"""
    SELECT i.seq FROM {_NAMED} n
    JOIN conversation_items i ON i.session = n.name AND i.project IS n.project
    JOIN conversations c ON c.seq = i.conversation AND c.owner = :owner
"""
_THESE = "(SELECT CAST(value AS INTEGER) FROM json_each(:{}))"
# Who continued a response was shown all of it.
_LATER = f"""
    WITH RECURSIVE doomed (seq, owner, id) AS (
        SELECT r.seq, r.owner, r.id FROM stored_responses r WHERE r.seq IN {_THESE.format("responses_led")}
        UNION
        SELECT later.seq, later.owner, later.id
        FROM doomed JOIN stored_responses later
        ON later.previous_id = doomed.id AND later.owner = doomed.owner
    )
    SELECT r.seq, r.project, r.session FROM doomed JOIN stored_responses r ON r.seq = doomed.seq
"""
_OF_CONVERSATIONS = f"""
    SELECT r.seq, r.project, r.session FROM stored_responses r
    WHERE r.owner = :owner AND r.conversation_id IN (
        SELECT conversation_id FROM stored_responses WHERE seq IN {_THESE.format("responses_led")}
        UNION
        SELECT c.id FROM conversation_items i JOIN conversations c ON c.seq = i.conversation
        WHERE i.seq IN {_THESE.format("items_led")}
        UNION
        SELECT id FROM conversations WHERE seq IN {_THESE.format("conversations_led")})
"""
# Whose input named an item of one has a copy of it.
_REFERRING = f"""
    SELECT r.seq, r.project, r.session FROM stored_responses r
    WHERE r.owner = :owner AND r.recalled <> '[]' AND EXISTS (
        SELECT 1 FROM json_each(r.recalled) shown
        JOIN stored_responses led ON led.owner = r.owner AND led.id = shown.value
        WHERE led.seq IN {_THESE.format("responses_led")})
"""
_ITEMS = f"""
    SELECT i.seq, i.project, i.session FROM stored_responses r
    JOIN conversations c ON c.owner = r.owner AND c.id = r.conversation_id
    JOIN conversation_items i ON i.conversation = c.seq
    WHERE r.seq IN {_THESE.format("responses_led")}
    UNION
    SELECT i.seq, i.project, i.session FROM (
        SELECT conversation, min(seq) AS first FROM conversation_items
        WHERE seq IN {_THESE.format("items_led")} GROUP BY conversation) led
    JOIN conversation_items i ON i.conversation = led.conversation AND i.seq >= led.first
    WHERE i.seq <= :items
"""
# Sessions that something led to out of another, whatever else leads to them. CROSS JOIN, plus: each by its
# name, and looked for among the numbers.
_CROSSED = f"""
    SELECT r.project, r.session FROM stored_responses r
    CROSS JOIN stored_responses led ON led.owner = r.owner AND led.id = r.previous_id
    WHERE r.seq IN {_THESE.format("responses_led")} AND +led.seq IN {_THESE.format("responses_led")}
    AND (led.session <> r.session OR led.project IS NOT r.project)
    UNION
    SELECT r.project, r.session FROM stored_responses r CROSS JOIN json_each(r.recalled) shown
    CROSS JOIN stored_responses led ON led.owner = r.owner AND led.id = shown.value
    WHERE r.seq IN {_THESE.format("responses_led")} AND +led.seq IN {_THESE.format("responses_led")}
    AND (led.session <> r.session OR led.project IS NOT r.project)
    UNION
    SELECT i.project, i.session FROM conversation_items i
    WHERE i.seq IN {_THESE.format("items_all")} AND i.conversation IN (
        SELECT conversation FROM conversation_items
        WHERE seq IN {_THESE.format("items_all")} AND session IS NOT NULL
        GROUP BY conversation HAVING count(DISTINCT json_array(project, session)) > 1)
"""
_ANSWERS = f"""
    SELECT x.seq FROM {_NAMED} named
    CROSS JOIN sessions n ON n.owner = :owner AND n.name = named.name AND n.project IS named.project
    CROSS JOIN exchanges x ON x.session = n.id WHERE x.seq <= :exchanges
"""


class Kept:
    """What was found so far. `sessions`: where it was told or shown."""

    def __init__(self, tx: Connection, ours: dict[str, Any], sessions: Collection[Session]) -> None:
        self._tx, self._ours, self._sessions = tx, ours, sessions
        self._linked: dict[int, Session] = {}  # responses, as they were led to
        self._items: set[int] = set()
        self._said_in: set[Session] = set()  # the items of the conversations that something goes of
        self._crossed: set[Session] = set()

    def follow(self, responses: set[int], items: set[int], conversations: set[int]) -> None:
        """Add to the responses and items those of the sessions; find what they and the conversations lead
        to."""
        self._ours["sessions"] = rows.as_json(self._sessions)
        responses.update(seq for (seq,) in self._tx.execute(_OF_SESSIONS, self._ours))
        items.update(seq for (seq,) in self._tx.execute(_ITEMS_OF_SESSIONS, self._ours))
        self._ours |= {"items_led": rows.as_json(items), "conversations_led": rows.as_json(conversations)}
        while True:
            self._ours["responses_led"] = rows.as_json({*responses, *self._linked})
            more = dict(row for query in (_LATER, _OF_CONVERSATIONS, _REFERRING) for row in self._rows(query))
            if not (new := more.keys() - responses - self._linked.keys()):
                break
            self._linked |= {seq: more[seq] for seq in sorted(new)}
        found = dict(self._rows(_ITEMS))
        self._items, self._said_in = found.keys() - items, {*found.values()}
        self._ours["items_all"] = rows.as_json({*found, *items})
        self._crossed = {(project, session) for project, session in self._tx.execute(_CROSSED, self._ours)}

    @property
    def linked_responses(self) -> tuple[int, ...]:
        """Those found last first: after a crash, what is left of them is found again."""
        return tuple(reversed(self._linked))

    @property
    def linked_items(self) -> tuple[int, ...]:
        return tuple(sorted(self._items))

    def answers(self) -> Iterable[int]:
        """Return the exchanges of the sessions that were reached by what leads from one to another."""
        reached = {*self._linked.values(), *self._said_in} - {*self._sessions} | self._crossed
        self._ours["sessions"] = rows.as_json(sorted(reached, key=str))
        return [seq for (seq,) in self._tx.execute(_ANSWERS, self._ours)]

    def _rows(self, query: str) -> Iterator[tuple[int, Session]]:
        for seq, project, session in self._tx.execute(query, self._ours):
            yield seq, (project, session)
