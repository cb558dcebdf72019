"""Optional short model calls before a search: the question in full, an imagined answer (HyDE), a search plan.

Each is made only if the operator named an endpoint for its role, for at most a share of the time that memory
has left. If the model is late, fails or answers nonsense, nothing changes. What it says is searched with,
and is neither stored nor shown. Answers are cached for ten minutes, rejected ones too, under a key that
covers the conversation and its owner.

A plan may widen a search, or narrow it to some types; it may cancel a search only if triage is not sure,
since a missed memory costs more than a search.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from string import Template
from typing import Any, ClassVar, Generic, TypeVar

from proxy.domain.core import KINDS, Message, Turn
from proxy.domain.errors import CompletionFailed
from proxy.domain.limits import CircuitBreaker, TTLCache
from proxy.domain.ports import Completer, CompletionRequest
from proxy.prompts import prompt
from proxy.recall.triage import MAX_TERMS, SearchQuery, leans
from proxy.telemetry import log
from proxy.text.words import fold, terms
from proxy.wire.authorship import without_thoughts

V = TypeVar("V")

REWRITE_ROLE = "memory_rewrite"
PLAN_ROLE = "memory_plan"
TIME_SHARE = 0.6  # of the time that is left: the search needs the rest
ANSWER_TTL_S = 600.0
TRIP_AFTER = 3  # failures in a row
OPEN_S = 30.0  # until the model is asked again
MAX_ANSWER = 20_000  # characters that are read
MAX_QUESTION = 300
MAX_NOTE = 400
MAX_KEYWORDS = 8
MAX_WORD = 40
_CACHED_ANSWERS = 512
_SHOWN_MESSAGES = 6  # of the conversation, the last
_SHOWN_CHARS = 500  # of each
_SUPPORT = 0.5  # share of the question's content words that the conversation holds

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(r"(?<=[\w,]\s)[A-Z]\w[\w'’-]*")
_DECODER = json.JSONDecoder()
_OBJECTS = 50  # beginnings of one that are tried, from the last
_YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class ModelTask:
    """A task for a model: its name and version, and the properties of the answer, a JSON object."""

    name: str
    version: str
    properties: Mapping[str, Any]

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of the answer."""
        return {
            "type": "object",
            "properties": self.properties,
            "required": [*self.properties],
            "additionalProperties": False,
        }


_STRING = {"type": "string"}
_REWRITE = ModelTask("rewrite", "v1", {"question": _STRING})
_HYDE = ModelTask("hyde", "v1", {"note": _STRING})
_PLAN = ModelTask(
    "plan",
    "v2",
    {
        "search": {"type": "boolean"},
        "types": {"type": "array", "items": {"type": "string", "enum": sorted(KINDS)}},
        "keywords": {"type": "array", "items": _STRING},
        "hyde": _STRING,
    },
)


class ShortCall(Generic[V]):
    """Calls the model of one role. `deadline_s`: for all memory work of a request. `redact` is applied to
    what the endpoint is shown."""

    role: ClassVar[str]

    def __init__(
        self,
        completer: Completer,
        *,
        deadline_s: float,
        redact: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._completer, self._deadline_s, self._redact = completer, deadline_s, redact
        self._known = TTLCache[bytes, V | None](_CACHED_ANSWERS, ttl_s=ANSWER_TTL_S, clock=clock)
        self._breaker = CircuitBreaker(OPEN_S, trip_after=TRIP_AFTER, clock=clock)

    def shown(self, text: str) -> str:
        """Return the text as the endpoint may see it: its beginning and its end, redacted. A long one is cut
        between words: half a key has not the shape of one."""
        if len(text) > _SHOWN_CHARS:
            head, tail = text[: _SHOWN_CHARS // 2], text[-_SHOWN_CHARS // 2 :]
            text = f"{head.rpartition(' ')[0] or head} … {tail.partition(' ')[2] or tail}"
        return self._redact(text)

    async def ask(
        self,
        turn: Turn,
        task: ModelTask,
        values: dict[str, str],
        read: Callable[[str], V | None],
        spent_s: float,
    ) -> V | None:
        """Return what `read` makes of the model's answer to the task; None if it is unusable or late.

        `values`: for the task's input. `spent_s`: how much of the deadline has passed.
        """
        owner = (turn.scope.tenant, turn.scope.user, turn.scope.project)
        whole = repr((*owner, task.name, *sorted(values.items())))
        key = blake2b(whole.encode("utf-8", "replace"), digest_size=16).digest()
        if key in self._known:
            return self._known.get(key)
        left_s = self._deadline_s - max(0.0, spent_s)
        if left_s <= 0 or self._breaker.is_open:
            return None
        request = CompletionRequest(
            role=self.role,
            system=prompt(f"{task.name}.{task.version}"),
            user=Template(prompt(f"{task.name}_input.{task.version}")).substitute(values),
            model=turn.model,
            scope=turn.scope,
            session_id=turn.session_id,
            schema=task.schema,
        )
        try:
            async with asyncio.timeout(TIME_SHARE * left_s):
                answer = await self._completer.complete(request)
        except (TimeoutError, CompletionFailed) as error:
            log.debug("memory.model_failed", task=task.name, error=type(error).__name__)
            if open_s := self._breaker.failed():
                log.warning("memory.model_rests", role=self.role, seconds=open_s)
            return None
        self._breaker.succeeded()
        found = read(answer)
        log.debug("memory.model_asked", task=task.name, usable=found is not None)
        self._known.put(key, found)
        return found

    def conversation(self, turn: Turn, history: Sequence[str]) -> dict[str, str]:
        """Return the question, and what was said before it: in the request, else the user's `history`."""
        talk = [m for m in turn.messages if m.role in ("user", "assistant") and m.words]
        while talk and talk[-1].role == "assistant":
            talk.pop()
        earlier = (talk[:-1] or [Message("user", text) for text in history])[-_SHOWN_MESSAGES:]
        shown = "\n".join(f"{m.role}: {self.shown(m.words)}" for m in earlier)
        return {"conversation": shown, "question": self.shown(turn.query)}


def _objects(answer: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a model's answer, the last first."""
    at = len(answer)
    for _ in range(_OBJECTS):
        at = answer.rfind("{", 0, at)
        if at < 0:
            return
        with suppress(ValueError, RecursionError):
            yield _DECODER.raw_decode(answer, at)[0]


# ---------------------------------------------------------------- the question in full
class QueryRewriter(ShortCall[str]):
    """Improves queries with a model. `hyde`: imagine an answer to a question that makes sense alone."""

    role = REWRITE_ROLE

    def __init__(
        self,
        completer: Completer,
        *,
        deadline_s: float,
        hyde: bool = False,
        redact: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(completer, deadline_s=deadline_s, redact=redact, clock=clock)
        self._hyde = hyde

    async def improve(
        self, turn: Turn, query: SearchQuery, history: Sequence[str], *, spent_s: float
    ) -> SearchQuery:
        """Return a better query if a model gives one in time, else `query`.

        `history`: the user's earlier messages. `spent_s`: how much of the deadline has passed.
        """
        if history and leans(turn.query):
            values = self.conversation(turn, history)

            def read(answer: str) -> str | None:
                return sound_question(value_of(answer, "question"), **values)

            question = await self.ask(turn, _REWRITE, values, read, spent_s)
            if question is None:
                return query
            # The user's own words are looked up, too.
            found = dict.fromkeys((*terms(question), *query.terms))
            return replace(query, text=question, terms=tuple(found)[:MAX_TERMS])
        if self._hyde and not leans(turn.query):
            values = {"question": self.shown(query.text)}
            note = await self.ask(turn, _HYDE, values, lambda a: sound_note(value_of(a, "note")), spent_s)
            return replace(query, imagined=note or "")
        return query


def value_of(answer: str, key: str) -> str | None:
    """Return the string under the key of the answer's last object that has one; of an answer without any
    object its only line."""
    text = without_thoughts(answer[:MAX_ANSWER])
    for values in _objects(text):
        if isinstance(value := values.get(key), str):
            return value.strip()
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[0].strip(" \"'`") if len(lines) == 1 and not set(text) & set("{}<>") else None


def sound_question(rewritten: str | None, *, conversation: str, question: str) -> str | None:
    """Return the question if it is one, says more than the user's, and nothing but what was said.

    An answer instead of a question contains a new number or name, or has no question mark.
    """
    if not rewritten or len(rewritten) > MAX_QUESTION or not rewritten.isprintable():
        return None
    if not rewritten.endswith(("?", "？")):
        return None
    said = f"{conversation}\n{question}"
    known, words = frozenset(terms(said)), list(dict.fromkeys(terms(rewritten)))
    added = [t for t in words if t in known and t not in terms(question)]
    if not added or sum(t in known for t in words) < _SUPPORT * len(words):
        return None
    plain = fold(said).replace(",", "")
    given = (*_NUMBER.findall(rewritten), *_NAME.findall(rewritten))
    return rewritten if all(fold(one).replace(",", "") in plain for one in given) else None


def sound_note(imagined: str | None) -> str | None:
    """Return the imagined answer if it is a statement. `search.pooled` checks whether it fits the
    question."""
    note = " ".join((imagined or "").split())
    if not note or len(note) > MAX_NOTE or not note.isprintable() or note.endswith(("?", "？")):
        return None
    return note


# ---------------------------------------------------------------- search plans
@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How to search. The default changes nothing."""

    search: bool = True
    types: tuple[str, ...] = ()  # (): all
    keywords: tuple[str, ...] = ()
    imagined: str = ""  # an imagined answer


NO_PLAN = SearchPlan()


class SearchPlanner(ShortCall[SearchPlan]):
    """Plans searches with a model."""

    role = PLAN_ROLE

    async def plan(self, turn: Turn, history: Sequence[str], *, spent_s: float) -> SearchPlan:
        """Return the model's plan, NO_PLAN if it gives none in time.

        `history`: the user's earlier messages. `spent_s`: how much of the deadline has passed.
        """
        values = self.conversation(turn, history)
        return await self.ask(turn, _PLAN, values, read_plan, spent_s) or NO_PLAN


def planned(query: SearchQuery, plan: SearchPlan) -> SearchQuery:
    """Return the query with what the plan adds. The query's own imagined answer takes precedence."""
    known = set(query.terms)
    found = dict.fromkeys(t for word in plan.keywords for t in terms(word) if t not in known)
    return replace(
        query,
        extra=tuple(found)[: MAX_TERMS - len(query.terms)],
        imagined=query.imagined or plan.imagined,
    )


def narrowed(asked: tuple[str, ...] | None, plan: SearchPlan) -> tuple[str, ...] | None:
    """Return the types to search: the plan's that the request allows, or the request's if it allows none."""
    if asked is None:
        return plan.types or None
    allowed = tuple(t for t in plan.types if t in asked or KINDS[t].parent in asked)
    return allowed or asked


def read_plan(answer: str) -> SearchPlan | None:
    """Return the plan in the answer's last object that is one, None without any; unusable parts are left
    out."""
    for values in _objects(without_thoughts(answer[:MAX_ANSWER])):
        wanted, imagined = values.get("search"), values.get("hyde")
        search = wanted if isinstance(wanted, bool) else _YES_NO.get(str(wanted).strip().lower())
        if search is None:
            continue  # another object: facts, an error
        types = dict.fromkeys(word.lower() for word in _words(values.get("types")))
        return SearchPlan(
            search=search,
            types=tuple(type_ for type_ in types if type_ in KINDS),
            keywords=_words(values.get("keywords"))[:MAX_KEYWORDS],
            imagined=sound_note(imagined if isinstance(imagined, str) else None) or "",
        )
    return None


def _words(value: Any) -> tuple[str, ...]:
    """Return the short strings of a list, or of a string with commas."""
    found = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    words = (w.strip() for w in found if isinstance(w, str))
    return tuple(dict.fromkeys(w for w in words if 0 < len(w) <= MAX_WORD and w.isprintable()))
