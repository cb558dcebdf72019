"""Optional query rewriting by a model: the question said in full, or a hypothetical answer to it (HyDE).

At most one short call for a turn (see `short_call`), to the endpoint that the operator named for the role
memory_rewrite. Whatever goes wrong, the query stays as it was. What a model says is searched with
and nothing else: it is neither stored nor shown.
"""

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from proxy.domain.core import Turn
from proxy.domain.ports import Completer
from proxy.recall.query import MAX_TERMS, Query, leans
from proxy.recall.short_call import ShortCall, Task, conversation
from proxy.text.markup import without_thoughts
from proxy.text.terms import fold, terms

ROLE = "memory_rewrite"
MAX_QUESTION = 300  # characters
MAX_NOTE = 400
MAX_ANSWER = 20_000
_SUPPORT = 0.5  # share of the question's content words that the conversation holds

_OBJECT = re.compile(r"\{[^{}]*\}")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(r"(?<=[\w,]\s)[A-Z]\w[\w'’-]*")


def _task(name: str, key: str) -> Task:
    """Return the task whose answer is an object with this one key."""
    schema = {
        "type": "object",
        "properties": {key: {"type": "string"}},
        "required": [key],
        "additionalProperties": False,
    }
    return Task(name, f"{name}.v1", f"{name}_input.v1", schema)


_REWRITE, _HYDE = _task("rewrite", "question"), _task("hyde", "note")


class Wording:
    """Queries improved by a model.

    `deadline_s`: for all memory work of a request. `hyde`: imagine an answer to what makes sense alone.
    `redact`: applied to what the endpoint is shown.
    """

    def __init__(
        self,
        completer: Completer,
        *,
        deadline_s: float,
        hyde: bool = False,
        redact: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deadline_s, self._hyde = deadline_s, hyde
        self._model: ShortCall[str] = ShortCall(completer, ROLE, redact=redact, clock=clock)

    async def improve(self, turn: Turn, query: Query, history: Sequence[str], *, spent_s: float) -> Query:
        """Return a better query where a model gives one in time, else `query`.

        `history`: the user's earlier messages. `spent_s`: how much of the deadline is gone.
        """
        left_s = self._deadline_s - max(0.0, spent_s)
        if history and leans(turn.query):
            question = await self._in_full(turn, history, left_s)
            return _asking(question, query) if question else query
        if self._hyde and not leans(turn.query):
            values = {"question": self._model.shown(query.text)}
            note = await self._model.ask(
                turn, _HYDE, values, left_s=left_s, read=lambda answer: sound_note(value_of(answer, "note"))
            )
            return replace(query, imagined=note or "")
        return query

    async def _in_full(self, turn: Turn, history: Sequence[str], left_s: float) -> str | None:
        said = conversation(turn, history)
        shown = "\n".join(f"{m.role}: {self._model.shown(m.words)}" for m in said)
        values = {"conversation": shown, "question": self._model.shown(turn.query)}
        return await self._model.ask(
            turn,
            _REWRITE,
            values,
            left_s=left_s,
            read=lambda answer: sound_question(value_of(answer, "question"), **values),
        )


def value_of(answer: str, key: str) -> str | None:
    """Return the string under the key of the answer's last object that has one; of an answer without any
    object its only line."""
    text = without_thoughts(answer[:MAX_ANSWER])
    for found in reversed(_OBJECT.findall(text)):
        try:
            value = json.loads(found).get(key)
        except ValueError:
            continue
        if isinstance(value, str):
            return value.strip()
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[0].strip(" \"'`") if len(lines) == 1 and not set(text) & set("{}<>") else None


def sound_question(told: str | None, *, conversation: str, question: str) -> str | None:
    """Return the question if it is one, says more than the user's, and nothing but what was said.

    An answer in place of a question brings a number or a name that nobody mentioned, or no question mark.
    """
    if not told or len(told) > MAX_QUESTION or not told.isprintable() or not told.endswith(("?", "？")):
        return None
    said = f"{conversation}\n{question}"
    known, words = frozenset(terms(said)), list(dict.fromkeys(terms(told)))
    added = [t for t in words if t in known and t not in terms(question)]
    if not added or sum(t in known for t in words) < _SUPPORT * len(words):
        return None
    plain = fold(said).replace(",", "")
    given = (*_NUMBER.findall(told), *_NAME.findall(told))
    return told if all(fold(one).replace(",", "") in plain for one in given) else None


def sound_note(told: str | None) -> str | None:
    """Return the imagined note if it is a statement. Whether it has to do with the question, its vector says
    (see `retrieve`)."""
    note = " ".join((told or "").split())
    if not note or len(note) > MAX_NOTE or not note.isprintable() or note.endswith(("?", "？")):
        return None
    return note


def _asking(question: str, query: Query) -> Query:
    """Return the query for a question said in full. The user's own words are looked up too."""
    found = dict.fromkeys((*terms(question), *query.terms))
    return replace(query, text=question, terms=tuple(found)[:MAX_TERMS])
