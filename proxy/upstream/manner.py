"""Request options for asking a model for JSON, and which of them are given up when it refuses them.

Servers differ: some hold a model to a JSON schema, some know `json_object` only, some neither; reasoning
models take `max_completion_tokens` in place of `max_tokens`, and no temperature.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from proxy.ports import CompletionRequest

LEARNT_FOR_S = 86_400.0  # servers are updated: what one refused is tried again after a day
MOST_LEARNT = 1_000  # models: some servers take any name, and clients choose it

_FORMAT_WORDS = (b"response_format", b"json_schema", b"json_object", b"schema", b"grammar")
_READ = 4_000  # bytes of a refusal


@dataclass(frozen=True, slots=True)
class Manner:
    """The options that a model gets."""

    format: Literal["json_schema", "json_object", ""] = "json_schema"
    limit: Literal["max_tokens", "max_completion_tokens", ""] = "max_tokens"
    temperature: bool = True


PLAIN = Manner("", "", False)


def options(
    manner: Manner, request: CompletionRequest, *, max_tokens: int | None, temperature: float | None
) -> dict[str, Any]:
    """Return the fields that the request's body gets."""
    found: dict[str, Any] = {}
    if manner.format == "json_schema" and request.schema is not None:
        schema = {"name": request.role, "schema": dict(request.schema), "strict": True}
        found["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif manner.format:
        found["response_format"] = {"type": "json_object"}
    if manner.limit and max_tokens is not None:
        found[manner.limit] = max_tokens
    if manner.temperature and temperature is not None:
        found["temperature"] = temperature
    return found


def easier(manner: Manner, refusal: bytes) -> Manner | None:
    """Return the manner without what the refusal names; where it names nothing of ours, with less, and at
    last without any option. None where there is nothing left to give up."""
    text = refusal[:_READ].lower()
    if manner.limit and (b"max_tokens" in text or b"max_completion_tokens" in text):
        return replace(manner, limit="max_completion_tokens" if manner.limit == "max_tokens" else "")
    if manner.temperature and b"temperature" in text:
        return replace(manner, temperature=False)
    if manner.format == "json_schema":
        return replace(manner, format="json_object")
    if manner.format and any(word in text for word in _FORMAT_WORDS):
        return replace(manner, format="")
    return PLAIN if manner != PLAIN else None


def unlimited(manner: Manner) -> Manner:
    """Return the manner without a limit: for a model whose thoughts use it up."""
    return replace(manner, limit="")


class Manners:
    """What was learnt of each of the last models, for a day."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._learnt: OrderedDict[tuple[str | None, str], tuple[Manner, float]] = OrderedDict()

    def of(self, endpoint: str | None, model: str) -> Manner:
        """Return how to ask the model first."""
        manner, until = self._learnt.get((endpoint, model), (Manner(), 0.0))
        return manner if self._clock() < until else Manner()

    def learn(self, endpoint: str | None, model: str, manner: Manner) -> None:
        """Remember what the model took, where it is not what it would be asked first."""
        if manner != self.of(endpoint, model):
            self._learnt[(endpoint, model)] = (manner, self._clock() + LEARNT_FOR_S)
            self._learnt.move_to_end((endpoint, model))
            if len(self._learnt) > MOST_LEARNT:
                self._learnt.popitem(last=False)
