"""What a model makes of a question before it is searched: said in full (C3), or answered by guesswork (C4).

At most one short call for a turn, to the endpoint that the operator configured for the role memory_rewrite,
and never longer than a share of the time that memory has left. Whatever goes wrong, the query stays as the
rules made it. What a model says is searched with and nothing else: it is neither stored nor shown.
"""

import asyncio
import json
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from string import Template
from typing import Any

from proxy.domain import Message, Turn
from proxy.errors import CompletionFailed
from proxy.observe import log
from proxy.pipeline.overlap import is_content
from proxy.pipeline.rewrite import MAX_TERMS, Query, is_vague
from proxy.ports import Completer, CompletionRequest
from proxy.terms import fold, terms

ROLE = "memory_rewrite"
SHARE = 0.6  # of the time that is left: the search needs the rest
MAX_QUESTION = 300  # characters
MAX_NOTE = 400
_SHOWN_MESSAGES = 6  # of the conversation, the last
_SHOWN_CHARS = 500  # of each
_MAX_ANSWER = 20_000
_SUPPORT = 0.5  # share of the question's content words that the conversation holds

TRIP_AFTER = 3  # failures in a row
REST_S = 30.0  # a model that is too slow is not waited for again and again

_THOUGHTS = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_OBJECT = re.compile(r"\{[^{}]*\}")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(r"(?<=[\w,]\s)[A-Z][\w'’-]+")
_FIRST_PERSON = frozenset(("I", "I'm", "I've", "I'll", "I'd"))


@dataclass(frozen=True, slots=True)
class _Task:
    """One thing to ask a model for: its prompts, and the key of the answer's only value."""

    system: str
    user: str
    key: str

    @property
    def schema(self) -> Mapping[str, Any]:
        return {
            "type": "object",
            "properties": {self.key: {"type": "string"}},
            "required": [self.key],
            "additionalProperties": False,
        }


_REWRITE = _Task("rewrite.v1.txt", "rewrite_input.v1.txt", "question")
_HYDE = _Task("hyde.v1.txt", "hyde_input.v1.txt", "note")


class Wording:
    """Queries improved by a model.

    `deadline_s`: for all memory work of a request. `hyde`: imagine an answer to what is not vague.
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
        self._completer, self._deadline_s, self._hyde = completer, deadline_s, hyde
        self._redact, self._clock = redact, clock
        self._known = Recent(clock)
        self._failures = 0
        self._rests_until = float("-inf")

    async def improve(self, turn: Turn, query: Query, history: Sequence[str], *, spent_s: float) -> Query:
        """Return a better query where a model gives one in time, else `query`.

        `history`: the user's earlier messages, where the question is vague and there are any. `spent_s`:
        how much of the deadline is gone.
        """
        left_s = self._deadline_s - max(0.0, spent_s)
        if history:
            question = await self._in_full(turn, history, left_s)
            return _asking(question, query) if question else query
        if self._hyde and not is_vague(turn.query):
            shown = self._shown(query.text)
            return replace(query, imagined=await self._ask(turn, _HYDE, {"question": shown}, left_s) or "")
        return query

    async def _in_full(self, turn: Turn, history: Sequence[str], left_s: float) -> str | None:
        said = conversation(turn, history)
        shown = "\n".join(f"{m.role}: {self._shown(m.text)}" for m in said)
        values = {"conversation": shown, "question": self._shown(turn.query)}
        return await self._ask(turn, _REWRITE, values, left_s)

    async def _ask(self, turn: Turn, task: _Task, values: dict[str, str], left_s: float) -> str | None:
        """Return what the model makes of the values, checked; None where it is no use, or late."""
        key = _digest(turn, task.key, values)
        if key in self._known:
            return self._known.get(key)
        if left_s <= 0 or self._clock() < self._rests_until:
            return None
        request = CompletionRequest(
            role=ROLE,
            system=_prompt(task.system),
            user=Template(_prompt(task.user)).substitute(values),
            model=turn.model,
            scope=turn.scope,
            session_id=turn.session_id,
            schema=task.schema,
        )
        try:
            async with asyncio.timeout(SHARE * left_s):
                answer = await self._completer.complete(request)
        except (TimeoutError, CompletionFailed) as error:
            self._failed(task, error)
            return None
        self._failures = 0
        told = value_of(answer, task.key)
        found = sound_question(told, **values) if task is _REWRITE else sound_note(told)
        log.debug("memory.reworded", task=task.key, usable=found is not None)
        self._known.put(key, found)
        return found

    def _shown(self, text: str) -> str:
        return self._redact(_clipped(text))

    def _failed(self, task: _Task, error: Exception) -> None:
        log.debug("memory.rewording_failed", task=task.key, error=type(error).__name__)
        self._failures += 1
        if self._failures >= TRIP_AFTER:
            self._failures, self._rests_until = 0, self._clock() + REST_S
            log.warning("memory.rewording_rests", seconds=REST_S)


class Recent:
    """What was made of the last few hundred questions, for ten minutes: a client that asks again, and a
    regenerated answer, cost no call. A key holds the conversation: what was forgotten finds nothing."""

    LASTS_S = 600.0
    SIZE = 512

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[str | None, float]] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return key in self._kept and self._kept[key][1] > self._clock()

    def get(self, key: bytes) -> str | None:
        """Return what was put under a key that is contained."""
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: bytes, value: str | None) -> None:
        """Keep the value, in place of the one used longest ago."""
        self._kept[key] = (value, self._clock() + self.LASTS_S)
        self._kept.move_to_end(key)
        while len(self._kept) > self.SIZE:
            self._kept.popitem(last=False)


def conversation(turn: Turn, history: Sequence[str]) -> list[Message]:
    """Return what was said before the turn's question: the request's messages, else the user's `history`."""
    talk = [m for m in turn.messages if m.role in ("user", "assistant") and m.text]
    while talk and talk[-1].role == "assistant":
        talk.pop()
    earlier = talk[:-1] or [Message("user", text) for text in history]
    return earlier[-_SHOWN_MESSAGES:]


def value_of(answer: str, key: str) -> str | None:
    """Return the string under the key of the answer's last object that has one; of an answer without any
    object its only line."""
    text = _THOUGHTS.sub(" ", answer[:_MAX_ANSWER])
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
    known, words = frozenset(terms(said)), [t for t in dict.fromkeys(terms(told)) if is_content(t)]
    added = [t for t in words if t in known and t not in terms(question)]
    if not added or sum(t in known for t in words) < _SUPPORT * len(words):
        return None
    plain = fold(said).replace(",", "")
    given = (*_NUMBER.findall(told), *(n for n in _NAME.findall(told) if n not in _FIRST_PERSON))
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


def _clipped(text: str) -> str:
    """Return the beginning and the end of a long text, cut between words: half a key is no shape of a key."""
    if len(text) <= _SHOWN_CHARS:
        return text
    head, tail = text[: _SHOWN_CHARS // 2], text[-_SHOWN_CHARS // 2 :]
    return f"{head.rpartition(' ')[0] or head} … {tail.partition(' ')[2] or tail}"


def _digest(turn: Turn, task: str, values: Mapping[str, str]) -> bytes:
    whole = (turn.scope.tenant, turn.scope.user, turn.scope.project, task, *sorted(values.items()))
    return blake2b(repr(whole).encode("utf-8", "replace"), digest_size=16).digest()


@cache
def _prompt(name: str) -> str:
    return files("proxy").joinpath("prompts", name).read_text("utf-8").strip()
