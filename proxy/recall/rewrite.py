"""Optional short model calls before a search: the question in full, an imagined answer (HyDE), a search plan.

Each is asked only if the operator named an endpoint for its role, for at most a share of the time that
memory has left. If the model is late, fails or answers nonsense, nothing changes. What it says is searched
with, and is neither stored nor shown. Answers are cached for ten minutes, rejected ones too, under a key
that covers the conversation and its owner.

A plan may widen a search, or narrow it to kinds of memory; it may cancel a search only where triage is not
sure, since a missed memory costs more than a search.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from string import Template
from typing import Any, Generic, TypeVar

from proxy.domain.core import KINDS, Message, Turn
from proxy.domain.errors import CompletionFailed
from proxy.domain.limits import CircuitBreaker, TTLCache
from proxy.domain.ports import Completer, CompletionRequest
from proxy.prompts import prompt
from proxy.recall.query import MAX_TERMS, Query, leans
from proxy.telemetry import log
from proxy.text.markup import without_thoughts
from proxy.text.terms import fold, terms

V = TypeVar("V")

TIME_SHARE = 0.6  # of the time that is left: the search needs the rest
ANSWER_TTL_S = 600.0
TRIP_AFTER = 3  # failures in a row
OPEN_S = 30.0  # until the model is asked again
_CACHED_ANSWERS = 512
_SHOWN_MESSAGES = 6  # of the conversation, the last
_SHOWN_CHARS = 500  # of each


@dataclass(frozen=True, slots=True)
class ModelTask:
    """What to ask a model for: its prompts, and the schema of the answer."""

    name: str
    system: str
    user: str
    schema: Mapping[str, Any]


class ShortCall(Generic[V]):
    """Asks the model of one role. `redact`: applied to what the endpoint is shown."""

    def __init__(
        self,
        completer: Completer,
        role: str,
        *,
        redact: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._completer, self._role, self._redact = completer, role, redact
        self._known = TTLCache[bytes, V | None](_CACHED_ANSWERS, ttl_s=ANSWER_TTL_S, clock=clock)
        self._breaker = CircuitBreaker(OPEN_S, trip_after=TRIP_AFTER, clock=clock)

    def shown(self, text: str) -> str:
        """Return the text as the endpoint may see it: its beginning and its end, redacted."""
        return self._redact(_ends_of(text))

    async def ask(
        self,
        turn: Turn,
        task: ModelTask,
        values: dict[str, str],
        *,
        left_s: float,
        read: Callable[[str], V | None],
    ) -> V | None:
        """Return what `read` makes of the model's answer to the task; None where it is no use, or late.

        `values`: for the task's input. `left_s`: the time that memory has left.
        """
        key = _cache_key(turn, task.name, values)
        if key in self._known:
            return self._known.get(key)
        if left_s <= 0 or self._breaker.is_open:
            return None
        request = CompletionRequest(
            role=self._role,
            system=prompt(task.system),
            user=Template(prompt(task.user)).substitute(values),
            model=turn.model,
            scope=turn.scope,
            session_id=turn.session_id,
            schema=task.schema,
        )
        try:
            async with asyncio.timeout(TIME_SHARE * left_s):
                answer = await self._completer.complete(request)
        except (TimeoutError, CompletionFailed) as error:
            self._failed(task, error)
            return None
        self._breaker.succeeded()
        found = read(answer)
        log.debug("memory.model_asked", task=task.name, usable=found is not None)
        self._known.put(key, found)
        return found

    def _failed(self, task: ModelTask, error: Exception) -> None:
        log.debug("memory.model_failed", task=task.name, error=type(error).__name__)
        if open_s := self._breaker.failed():
            log.warning("memory.model_rests", role=self._role, seconds=open_s)


def conversation(turn: Turn, history: Sequence[str]) -> list[Message]:
    """Return what was said before the turn's question: the request's messages, else the user's `history`."""
    talk = [m for m in turn.messages if m.role in ("user", "assistant") and m.words]
    while talk and talk[-1].role == "assistant":
        talk.pop()
    earlier = talk[:-1] or [Message("user", text) for text in history]
    return earlier[-_SHOWN_MESSAGES:]


def _ends_of(text: str) -> str:
    """Return the beginning and the end of a long text, cut between words: half a key is no shape of a key."""
    if len(text) <= _SHOWN_CHARS:
        return text
    head, tail = text[: _SHOWN_CHARS // 2], text[-_SHOWN_CHARS // 2 :]
    return f"{head.rpartition(' ')[0] or head} … {tail.partition(' ')[2] or tail}"


def _cache_key(turn: Turn, task: str, values: Mapping[str, str]) -> bytes:
    whole = (turn.scope.tenant, turn.scope.user, turn.scope.project, task, *sorted(values.items()))
    return blake2b(repr(whole).encode("utf-8", "replace"), digest_size=16).digest()


# ---------------------------------------------------------------- the question in full
REWRITE_ROLE = "memory_rewrite"
MAX_QUESTION = 300  # characters
MAX_NOTE = 400
MAX_ANSWER = 20_000
_SUPPORT = 0.5  # share of the question's content words that the conversation holds

_OBJECT = re.compile(r"\{[^{}]*\}")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(r"(?<=[\w,]\s)[A-Z]\w[\w'’-]*")


def _task(name: str, key: str) -> ModelTask:
    """Return the task whose answer is an object with this one key."""
    schema = {
        "type": "object",
        "properties": {key: {"type": "string"}},
        "required": [key],
        "additionalProperties": False,
    }
    return ModelTask(name, f"{name}.v1", f"{name}_input.v1", schema)


_REWRITE, _HYDE = _task("rewrite", "question"), _task("hyde", "note")


class QueryRewriter:
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
        self._model: ShortCall[str] = ShortCall(completer, REWRITE_ROLE, redact=redact, clock=clock)

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


# ---------------------------------------------------------------- search plans
PLAN_ROLE = "memory_plan"
MAX_KEYWORDS = 8
MAX_WORD = 40  # characters

_DECODER = json.JSONDecoder()
_OBJECTS = 50  # beginnings of one that are tried, from the last
_YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_STRINGS = {"type": "array", "items": {"type": "string"}}
_PLAN_TASK = ModelTask(
    "plan",
    "plan.v2",
    "plan_input.v2",
    {
        "type": "object",
        "properties": {
            "search": {"type": "boolean"},
            "types": {"type": "array", "items": {"type": "string", "enum": sorted(KINDS)}},
            "keywords": _STRINGS,
            "hyde": {"type": "string"},
        },
        "required": ["search", "types", "keywords", "hyde"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How to search. The default changes nothing."""

    search: bool = True
    types: tuple[str, ...] = ()  # (): all
    keywords: tuple[str, ...] = ()
    imagined: str = ""  # an answer as the model made it up


NO_PLAN = SearchPlan()


class SearchPlanner:
    """Plans made by a model. `deadline_s`: for all memory work of a request."""

    def __init__(
        self,
        completer: Completer,
        *,
        deadline_s: float,
        redact: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deadline_s = deadline_s
        self._model: ShortCall[SearchPlan] = ShortCall(completer, PLAN_ROLE, redact=redact, clock=clock)

    async def plan(self, turn: Turn, history: Sequence[str], *, spent_s: float) -> SearchPlan:
        """Return the model's plan, NO_PLAN where it gives none in time.

        `history`: the user's earlier messages. `spent_s`: how much of the deadline is gone.
        """
        said = conversation(turn, history)
        shown = "\n".join(f"{m.role}: {self._model.shown(m.words)}" for m in said)
        values = {"conversation": shown, "question": self._model.shown(turn.query)}
        left_s = self._deadline_s - max(0.0, spent_s)
        return await self._model.ask(turn, _PLAN_TASK, values, left_s=left_s, read=read_plan) or NO_PLAN


def planned(query: Query, plan: SearchPlan) -> Query:
    """Return the query with what the plan adds. The query's own imagined answer goes first."""
    held = set(query.terms)
    found = dict.fromkeys(t for word in plan.keywords for t in terms(word) if t not in held)
    return replace(
        query,
        extra=tuple(found)[: MAX_TERMS - len(query.terms)],
        imagined=query.imagined or plan.imagined,
    )


def narrowed(asked: tuple[str, ...] | None, plan: SearchPlan) -> tuple[str, ...] | None:
    """Return the kinds to search: the plan's, as far as the request allows them; else the request's."""
    if asked is None:
        return plan.types or None
    allowed = tuple(t for t in plan.types if t in asked or KINDS[t].parent in asked)
    return allowed or asked


def read_plan(answer: str) -> SearchPlan | None:
    """Return the plan in the answer's last object that is one, None without any; whatever in it is no use is
    left out."""
    text = without_thoughts(answer[:MAX_ANSWER])
    at = len(text)
    for _ in range(_OBJECTS):
        at = text.rfind("{", 0, at)
        if at < 0:
            break
        with suppress(ValueError, RecursionError):
            values, _ = _DECODER.raw_decode(text, at)
            if (plan := _plan(values)) is not None:
                return plan
    return None


def _plan(values: dict[str, Any]) -> SearchPlan | None:
    wanted = values.get("search")
    search = wanted if isinstance(wanted, bool) else _YES_NO.get(str(wanted).strip().lower())
    if search is None:
        return None  # an object of some other kind: facts, an error
    return SearchPlan(
        search=search,
        types=tuple(t for t in dict.fromkeys(w.lower() for w in _words(values.get("types"))) if t in KINDS),
        keywords=_words(values.get("keywords"))[:MAX_KEYWORDS],
        imagined=sound_note(_text(values.get("hyde"))) or "",
    )


def _words(value: Any) -> tuple[str, ...]:
    """Return the short strings of a list, or of a string with commas."""
    found = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    words = (w.strip() for w in found if isinstance(w, str))
    return tuple(dict.fromkeys(w for w in words if 0 < len(w) <= MAX_WORD and w.isprintable()))


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
