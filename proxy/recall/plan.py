"""An optional search plan by a model: whether to search at all, for which kinds of memory, with which words.

Asked only if the operator named a model for the role memory_plan, and only about what triage would search. A
plan may widen a search, or narrow it to kinds of memory; it may call a search off only where triage is not
sure, since a missed memory costs more than a search. What it says is neither stored nor shown.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from proxy.domain.core import KINDS, Turn
from proxy.domain.ports import Completer
from proxy.recall.query import MAX_TERMS, Query
from proxy.recall.short_call import ShortCall, Task, conversation
from proxy.recall.wording import MAX_ANSWER, sound_note
from proxy.text.markup import without_thoughts
from proxy.text.terms import terms

ROLE = "memory_plan"
MAX_KEYWORDS = 8
MAX_WORD = 40  # characters

_DECODER = json.JSONDecoder()
_OBJECTS = 50  # beginnings of one that are tried, from the last
_YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_STRINGS = {"type": "array", "items": {"type": "string"}}
_TASK = Task(
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
class Plan:
    """How to search. The default changes nothing."""

    search: bool = True
    types: tuple[str, ...] = ()  # (): all
    keywords: tuple[str, ...] = ()
    imagined: str = ""  # an answer as the model made it up


NO_PLAN = Plan()


class Planner:
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
        self._model: ShortCall[Plan] = ShortCall(completer, ROLE, redact=redact, clock=clock)

    async def plan(self, turn: Turn, history: Sequence[str], *, spent_s: float) -> Plan:
        """Return the model's plan, NO_PLAN where it gives none in time.

        `history`: the user's earlier messages. `spent_s`: how much of the deadline is gone.
        """
        said = conversation(turn, history)
        shown = "\n".join(f"{m.role}: {self._model.shown(m.words)}" for m in said)
        values = {"conversation": shown, "question": self._model.shown(turn.query)}
        left_s = self._deadline_s - max(0.0, spent_s)
        return await self._model.ask(turn, _TASK, values, left_s=left_s, read=read_plan) or NO_PLAN


def planned(query: Query, plan: Plan) -> Query:
    """Return the query with what the plan adds. The query's own imagined answer goes first."""
    held = set(query.terms)
    found = dict.fromkeys(t for word in plan.keywords for t in terms(word) if t not in held)
    return replace(
        query,
        extra=tuple(found)[: MAX_TERMS - len(query.terms)],
        imagined=query.imagined or plan.imagined,
    )


def narrowed(asked: tuple[str, ...] | None, plan: Plan) -> tuple[str, ...] | None:
    """Return the kinds to search: the plan's, as far as the request allows them; else the request's."""
    if asked is None:
        return plan.types or None
    allowed = tuple(t for t in plan.types if t in asked or KINDS[t].parent in asked)
    return allowed or asked


def read_plan(answer: str) -> Plan | None:
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


def _plan(values: dict[str, Any]) -> Plan | None:
    wanted = values.get("search")
    search = wanted if isinstance(wanted, bool) else _YES_NO.get(str(wanted).strip().lower())
    if search is None:
        return None  # an object of some other kind: facts, an error
    return Plan(
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
