"""The JSON objects in a model's answer, however it is wrapped: fences, thoughts, prose, slips."""

from collections.abc import Iterator
from typing import Any

from proxy.background.repair import _THOUGHTS, _openings, _value_at

_MAX_READ = 100_000  # characters


def objects(answer: str) -> Iterator[dict[str, Any]]:
    """Yield the objects that can be read to their end, the outermost first."""
    text = _THOUGHTS.sub(" ", answer[:_MAX_READ]).replace("\ufeff", "")
    for start in _openings(text):
        readable, value = _value_at(text, start)
        if readable and isinstance(value, dict):
            yield value
