"""The JSON objects in a model's answer, however it is wrapped: fences, thoughts, prose, slips."""

from collections.abc import Iterator
from typing import Any

from proxy.background import lenient
from proxy.background.repair import MAX_SCANNED, THOUGHTS, openings

_MAX_READ = 100_000  # characters


def objects(answer: str) -> Iterator[dict[str, Any]]:
    """Yield the objects that can be read to their end, the outermost first."""
    text = THOUGHTS.sub(" ", answer[:_MAX_READ]).replace("\ufeff", "")
    read = 0
    for start in openings(text):
        if read > MAX_SCANNED:
            return
        try:
            value, end = lenient.read(text, start)
        except lenient.Unclear as e:
            read += e.at - start
            continue
        read += end - start
        if isinstance(value, dict):
            yield value
