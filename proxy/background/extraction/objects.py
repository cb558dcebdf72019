"""Find and read the JSON objects in a model's answer, however it is wrapped: code fences, thoughts, prose,
syntax slips.
"""

from collections.abc import Iterator
from typing import Any

from proxy.background.extraction.scan import values_in
from proxy.thoughts import without_thoughts

_MAX_READ = 100_000  # characters


def objects(answer: str) -> Iterator[dict[str, Any]]:
    """Yield the objects that can be read to their end, the outermost first."""
    for value in values_in(without_thoughts(answer[:_MAX_READ]), nested=True):
        if isinstance(value, dict):
            yield value
