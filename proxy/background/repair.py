"""Read the extraction model's answer, however it is wrapped; refuse what would be guesswork.

Models answer with fences, <think> blocks, prose around the JSON, one object instead of a list, other
key names, trailing commas, single quotes, or an answer cut off in the middle. Whole elements are kept;
an element that is not whole is not completed. What cannot be read raises Unreadable.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from proxy.domain import KINDS, Candidate

MAX_FACTS = 10
TAGS = frozenset(
    "identity family people pets health food work project tools travel home money dates education leisure"
    " style rules plans events".split()
)
_CONTENT_KEYS = ("content", "fact", "memory", "text", "statement", "value")
_TYPE_KEYS = ("type", "category", "memory_type", "kind")
_CONFIDENCE_KEYS = ("confidence", "score", "certainty", "probability")
_LIST_KEYS = ("facts", "memories", "memory", "results", "items", "data", "extracted_facts")
_THOUGHTS = re.compile(r"<(think|thinking|reasoning|thought)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_TRAILING_COMMA = re.compile(r",(?=\s*[\]}])")
_NONE = frozenset(("", "null", "none", "n/a", "-", "false"))
_WORDS = {"high": 0.9, "medium": 0.6, "low": 0.3, "stated": 0.95, "certain": 1.0, "hedged": 0.5}
_MAX_ANSWER = 100_000


class Unreadable(Exception):
    """The answer holds no facts that could be read. Its message holds no content."""


def read_facts(answer: str) -> list[Candidate]:
    """Return the facts of the answer in order, at most ten; of unknown type or empty ones dropped.

    An empty list is a valid answer ("nothing to remember"). Raises Unreadable.
    """
    text = _THOUGHTS.sub(" ", answer[:_MAX_ANSWER]).replace("\ufeff", "")
    elements = _elements(text)
    facts = [c for e in elements if (c := _candidate(e)) is not None]
    if elements and not facts and not any(_names_a_type(e) for e in elements):
        raise Unreadable("no element has a type and a content")
    return facts[:MAX_FACTS]


def _elements(text: str) -> list[Mapping[str, Any]]:
    """Return the objects that look like facts: those of the first JSON value that holds any."""
    readable = False
    for start in _openings(text):
        found, value = _value_at(text, start)
        if not found:
            if text[start] == "[" or '"facts"' in text[start : start + 20]:
                whole = _whole_elements(text, start)
                if whole:
                    return whole
            continue
        elements = _facts_in(value)
        if elements:
            return elements
        readable = readable or _is_empty_answer(value)
    if not readable:
        raise Unreadable("no JSON with facts")
    return []


def _openings(text: str) -> Iterator[int]:
    """Yield where a JSON value may start, outermost first; bounded, since each is tried."""
    for count, match in enumerate(re.finditer(r"[\[{]", text)):
        if count >= 200:
            return
        yield match.start()


def _value_at(text: str, start: int) -> tuple[bool, Any]:
    """Return whether a value can be read at `start`, strictly or with the usual slips, and the value."""
    try:
        return True, json.JSONDecoder(strict=False).raw_decode(text, start)[0]
    except (ValueError, RecursionError):
        pass
    end = _closing(text, start)
    if end is None:
        return False, None
    part = text[start : end + 1]
    try:
        return True, json.loads(_TRAILING_COMMA.sub("", part), strict=False)
    except (ValueError, RecursionError):
        pass
    try:  # Python's notation: single quotes, None, True
        return True, ast.literal_eval(re.sub(r"\bnull\b", "None", part))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False, None


def _closing(text: str, start: int) -> int | None:
    """Return where the bracket opened at `start` closes, strings skipped; None if it never does."""
    depth, quoted, at = 0, False, start
    while at < len(text):
        char = text[at]
        if quoted:
            if char == "\\":
                at += 1
            elif char == '"':
                quoted = False
        elif char == '"':
            quoted = True
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return None


def _whole_elements(text: str, start: int) -> list[Mapping[str, Any]]:
    """Return the whole objects of a list that was cut off."""
    found: list[Mapping[str, Any]] = []
    at = text.find("{", text.find("[", start))
    while at != -1:
        end = _closing(text, at)
        if end is None:
            break
        readable, value = _value_at(text, at)
        if readable and isinstance(value, dict) and _content(value):
            found.append(value)
        at = text.find("{", end)
    return found


def _facts_in(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, list):
        return [e for e in value if isinstance(e, dict) and _content(e)]
    if not isinstance(value, dict):
        return []
    for key in _LIST_KEYS:
        inner = value.get(key)
        if isinstance(inner, list | dict):
            return _facts_in(inner)
    return [value] if _content(value) else []


def _is_empty_answer(value: Any) -> bool:
    """True for [], {}, {"facts": []}, {"facts": null}: the model found nothing."""
    if isinstance(value, dict):
        return not value or any(key in value and not value[key] for key in _LIST_KEYS)
    return isinstance(value, list) and not value


def _candidate(element: Mapping[str, Any]) -> Candidate | None:
    content, type_ = _content(element), _first_text(element, _TYPE_KEYS).lower()
    if not content or type_ not in KINDS:
        return None
    return Candidate(
        type=type_,
        content=content,
        confidence=_confidence(element),
        tags=_tags(element.get("tags")),
        evidence=_first_text(element, ("evidence", "quote", "span", "source")),
        replaces=_reference(element.get("replaces")),
    )


def _content(element: Mapping[str, Any]) -> str:
    return " ".join(_first_text(element, _CONTENT_KEYS).split())


def _names_a_type(element: Mapping[str, Any]) -> bool:
    return bool(_first_text(element, _TYPE_KEYS))


def _first_text(element: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((v.strip() for k in keys if isinstance(v := element.get(k), str) and v.strip()), "")


def _tags(given: Any) -> tuple[str, ...]:
    """Return at most three tags of the closed list; others are dropped."""
    return tuple(t for t in given if isinstance(t, str) and t in TAGS)[:3] if isinstance(given, list) else ()


def _confidence(element: Mapping[str, Any]) -> float:
    """Return the confidence in [0, 1]: number, "0.9", "90%", 90 or a word; .8 where none is given."""
    given = next((element[k] for k in _CONFIDENCE_KEYS if element.get(k) is not None), 0.8)
    if isinstance(given, str):
        word = given.strip().lower()
        match = re.match(r"(\d+(?:[.,]\d+)?)\s*(%?)", word)
        if match is None:
            return _WORDS.get(word, 0.8)
        given = float(match[1].replace(",", ".")) / (100 if match[2] else 1)
    if isinstance(given, bool) or not isinstance(given, int | float) or given != given:
        return 0.8
    return min(1.0, max(0.0, given / 100 if given > 1.5 else float(given)))


def _reference(value: Any) -> str | None:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str) or value.strip().lower() in _NONE:
        return None
    return value.strip().strip("#[]<>\"'")
