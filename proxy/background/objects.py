"""The JSON objects in a model's answer, however it is wrapped: fences, thoughts, prose, slips."""

from collections.abc import Iterator
from typing import Any

from proxy.background.repair import THOUGHTS, openings, value_at

_MAX_READ = 100_000  # characters


def objects(answer: str) -> Iterator[dict[str, Any]]:
    """Yield the objects that can be read to their end, the outermost first."""
    text = THOUGHTS.sub(" ", answer[:_MAX_READ]).replace("\ufeff", "")
    for start in openings(text):
        readable, value = value_at(text, start)
        if readable and isinstance(value, dict):
            yield value
