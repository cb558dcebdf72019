"""Validate a Responses request: refuse what is malformed, and what a chat completion cannot express.

Every one of them names the field in `param`, as the real API does: `input[2].content[0].image_url`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.domain.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Shape:
    """A JSON type, in the words of an error message."""

    words: str
    accepts: Callable[[object], bool]


STRING = Shape("a string", lambda value: isinstance(value, str))
BOOLEAN = Shape("a boolean", lambda value: isinstance(value, bool))
INTEGER = Shape("an integer", lambda value: isinstance(value, int) and not isinstance(value, bool))
NUMBER = Shape("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool))
ARRAY = Shape("an array", lambda value: isinstance(value, list))
OBJECT = Shape("an object", lambda value: isinstance(value, dict))

_NAMES = (BOOLEAN, INTEGER, NUMBER, STRING, ARRAY, OBJECT)


def refused(param: str, why: str, code: str = "invalid_value") -> InvalidRequest:
    """Return the error that refuses the field."""
    return InvalidRequest(f"Invalid '{param}': {why}.", param=param, code=code)


def unsupported(param: str, what: str) -> InvalidRequest:
    """Return the error for what the real API takes and a chat completion cannot say."""
    why = f"{what} cannot be passed on: the upstream speaks only chat completions"
    return refused(param, why, "unsupported_value")


def missing(param: str) -> InvalidRequest:
    """Return the error for a required field that is not there."""
    return InvalidRequest(
        f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter"
    )


def wrong_type(param: str, expected: str, value: object) -> InvalidRequest:
    """Return the error for a value of another type than expected."""
    got = next((shape.words for shape in _NAMES if shape.accepts(value)), "null")
    return refused(param, f"expected {expected}, got {got}", "invalid_type")


def checked(value: Any, shape: Shape, param: str) -> Any:
    """Return the value if it has the shape; else raise InvalidRequest."""
    if not shape.accepts(value):
        raise wrong_type(param, shape.words, value)
    return value


def optional(holder: Mapping[str, Any], name: str, shape: Shape, *, within: str = "") -> Any:
    """Return the field of the holder, None where it is absent or null. `within` is the holder's path."""
    value = holder.get(name)
    return None if value is None else checked(value, shape, f"{within}.{name}" if within else name)


def required(holder: Mapping[str, Any], name: str, shape: Shape, *, within: str) -> Any:
    """Return the field of the holder; absent is refused."""
    if name not in holder:
        raise missing(f"{within}.{name}")
    return checked(holder[name], shape, f"{within}.{name}")


def shown(text: str) -> str:
    """Return as much of a client's text as may stand in an error message or a header: short, plain ASCII."""
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in text[:64])
