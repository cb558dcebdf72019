"""A short model call while a request waits: if it is late, fails or answers nonsense, nothing changes.

Only an endpoint that the operator named for the role is called, and never for longer than a share of the
time that memory has left. The caller checks the answer, which is then cached for ten minutes, rejected ones
too: a client that repeats a request, and a regenerated answer, cost no call. The cache's key covers the
conversation and its owner: what was forgotten finds nothing.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from string import Template
from typing import Any, Generic, TypeVar

from proxy.domain.core import Message, Turn
from proxy.domain.errors import CompletionFailed
from proxy.domain.limits import CircuitBreaker, TTLCache
from proxy.domain.ports import Completer, CompletionRequest
from proxy.prompts import prompt
from proxy.telemetry import log

V = TypeVar("V")

SHARE = 0.6  # of the time that is left: the search needs the rest
LASTS_S = 600.0
TRIP_AFTER = 3  # failures in a row
OPEN_S = 30.0  # until the model is asked again
_SIZE = 512
_SHOWN_MESSAGES = 6  # of the conversation, the last
_SHOWN_CHARS = 500  # of each


@dataclass(frozen=True, slots=True)
class Task:
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
        self._known = TTLCache[bytes, V | None](_SIZE, ttl_s=LASTS_S, clock=clock)
        self._breaker = CircuitBreaker(OPEN_S, trip_after=TRIP_AFTER, clock=clock)

    def shown(self, text: str) -> str:
        """Return the text as the endpoint may see it: its beginning and its end, redacted."""
        return self._redact(_clipped(text))

    async def ask(
        self,
        turn: Turn,
        task: Task,
        values: dict[str, str],
        *,
        left_s: float,
        read: Callable[[str], V | None],
    ) -> V | None:
        """Return what `read` makes of the model's answer to the task; None where it is no use, or late.

        `values`: for the task's input. `left_s`: the time that memory has left.
        """
        key = _digest(turn, task.name, values)
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
            async with asyncio.timeout(SHARE * left_s):
                answer = await self._completer.complete(request)
        except (TimeoutError, CompletionFailed) as error:
            self._failed(task, error)
            return None
        self._breaker.succeeded()
        found = read(answer)
        log.debug("memory.model_asked", task=task.name, usable=found is not None)
        self._known.put(key, found)
        return found

    def _failed(self, task: Task, error: Exception) -> None:
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


def _clipped(text: str) -> str:
    """Return the beginning and the end of a long text, cut between words: half a key is no shape of a key."""
    if len(text) <= _SHOWN_CHARS:
        return text
    head, tail = text[: _SHOWN_CHARS // 2], text[-_SHOWN_CHARS // 2 :]
    return f"{head.rpartition(' ')[0] or head} … {tail.partition(' ')[2] or tail}"


def _digest(turn: Turn, task: str, values: Mapping[str, str]) -> bytes:
    whole = (turn.scope.tenant, turn.scope.user, turn.scope.project, task, *sorted(values.items()))
    return blake2b(repr(whole).encode("utf-8", "replace"), digest_size=16).digest()
