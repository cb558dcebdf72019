"""Read and write the JSON bodies of intercepted requests without losing what the client sent.

orjson is fast and strict. Upstreams written in Python take more: integers beyond 64 bits (which orjson
silently turns into floats), NaN and infinities, and lone surrogates (clients that cut a text in
the middle of an emoji send them). Such bodies go through the standard library instead, both ways.

A parser holds the interpreter's lock until it is done: while a thread parses 50 MB, no other thread runs for
a fifth of a second. So a large body is scanned first, in portions. What no client sends (a million values,
10 MB of text) is refused before it is parsed, and images and files are taken out: they are decoded in
portions, and written back as the bytes that they came as.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

import orjson

from proxy.domain.errors import InvalidRequest

Body = dict[str, Any]

# The shortest integer that does not fit 64 bits (signed) has 19 digits. Mapping the digits to one byte
# and looking for a run of it reads 50 MB in 60 ms; a regular expression takes eight times as long.
_DIGITS = bytes(ord("0") if chr(byte).isdecimal() else ord(".") for byte in range(128)) + b"." * 128
_MAX_LEVELS = 1024  # that orjson reads
_LONG_NUMBER = b"0" * 19
# Many such runs are inside strings, ids for example: a number has JSON's punctuation on both sides.
_BARE_NUMBER = re.compile(rb"[\[:,\s]-?[0-9]{19,}\s*[,\]}]")

LARGE_BYTES = 128 * 1024  # of a body: some 2 ms to parse
_WINDOW = 256 * 1024  # bytes that are scanned at a time: some 2 ms
_LONG = 2 * _WINDOW  # characters of a text that is written in portions
_LARGE = 64 * 1024  # bytes of a string from which on it may be taken out
# What shows that a string is not text: its own beginning, or the field that it is in.
_DATA_FIELD = re.compile(rb'"(?:file_data|data|b64_json|image_url|url|encrypted_content|result)"\s*:\s*$')
_DATA_URL = b"data:"
# A place that parts neither a character nor an escape, the longest of which is a pair of surrogates.
_BETWEEN = re.compile(rb"(?<=[^\\]{12})[\x00-\x5b\x5d-\x7f\xc0-\xff]")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What one request may hold; 0: no limit."""

    messages: int = 2_048  # of `messages`, and items of `input`: OpenAI's limit
    values: int = 200_000  # JSON values of the whole body, names included
    text_bytes: int = 10_000_000  # all but images, audio and files; OpenAI's limit for one text


class RawString(str):
    """The text of an image, audio or file, with the JSON that it came as. `dump` writes that unread."""

    __slots__ = ("raw",)
    raw: bytes


class NonFinite(float):
    """NaN or an infinity. orjson writes such floats as null, but refuses a subclass: dump then knows."""


def parse(raw: bytes) -> Body:
    """Return the JSON object in `raw`, every value as sent. Anything else raises InvalidRequest."""
    try:
        body = loads(raw)
    except UnicodeDecodeError as error:
        raise _malformed(f"it is not valid UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise _malformed(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _malformed("it is nested too deeply") from None
    except ValueError:  # int() refuses thousands of digits: it would take quadratic time
        raise _malformed("it holds a number of too many digits") from None
    if not isinstance(body, dict):
        raise InvalidRequest("The request body must be a JSON object.", code="invalid_json")
    return body


def parse_bounded(raw: bytes, bounds: BodyLimits, param: str) -> Body:
    """Return what `parse` does, of a body of any size; a small one needs no scan."""
    return parse(raw) if len(raw) < LARGE_BYTES else parse_large(raw, bounds, param)


def parse_large(raw: bytes, bounds: BodyLimits, param: str) -> Body:
    """Return what `parse` does, of a body of any size, without holding the interpreter's lock for more than
    some 40 ms. `param`: the field that holds the conversation. Raises InvalidRequest, also for too much."""
    strings: list[tuple[int, int]] = []
    found = 0
    for values, large in _scanned(raw):
        found += values
        if bounds.values and found > bounds.values:
            raise InvalidRequest(
                f"Invalid request: it holds more than {bounds.values} JSON values (limits.max_json_values).",
                param=param,
                code="array_above_max_length",
            )
        strings += large
    blobs = [(start, end) for start, end in strings if _is_data(raw, start, end)]
    text_bytes = len(raw) - sum(end - start for start, end in blobs)
    if bounds.text_bytes and text_bytes > bounds.text_bytes:
        raise InvalidRequest(
            f"Invalid '{param}': string too long. Expected at most {bounds.text_bytes} bytes of text in one"
            f" request, but got {text_bytes} instead (limits.max_text_mb).",
            param=param,
            code="string_above_max_length",
        )
    return _with_blobs(raw, blobs) if blobs else parse(raw)


def check_length(body: Body, bounds: BodyLimits, param: str) -> None:
    """Raise InvalidRequest for more messages or items than the bound."""
    entries = body.get(param)
    if bounds.messages and isinstance(entries, list) and len(entries) > bounds.messages:
        raise InvalidRequest(
            f"Invalid '{param}': array too long. Expected an array with maximum length {bounds.messages},"
            f" but got an array with length {len(entries)} instead.",
            param=param,
            code="array_above_max_length",
        )


# ---------------------------------------------------------------- large bodies
def _scanned(raw: bytes) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yield for each window how many values begin in it, and where the large strings are that end in it."""
    at, in_string, opened = 0, False, 0
    while at < len(raw):
        window = raw[at : at + _WINDOW]
        if (len(window) - len(window.rstrip(b"\\"))) % 2:  # its end parts an escape
            window = raw[at : at + _WINDOW + 1]
        end = at + len(window)
        if b"\\" in window:
            window = window.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        parts = window.split(b'"')
        large: list[tuple[int, int]] = []
        if len(parts) > 1:
            closed = at + len(parts[0])
            if in_string and closed - opened >= _LARGE:
                large.append((opened, closed))
            if max(map(len, parts)) >= _LARGE:
                large += _large_inside(parts, at, in_string)
        outside = b"".join(parts[in_string::2])
        if len(parts) % 2 == 0:
            in_string = not in_string
        if len(parts) > 1:
            opened = end - len(parts[-1])
        yield sum(outside.count(mark) for mark in (b",", b":", b"[", b"{")), large
        at = end


def _large_inside(parts: list[bytes], at: int, in_string: bool) -> Iterator[tuple[int, int]]:
    """Yield the large strings that begin and end in one window."""
    for number, part in enumerate(parts):
        is_string = (number % 2 == 1) != in_string
        if is_string and 0 < number < len(parts) - 1 and len(part) >= _LARGE:
            yield at, at + len(part)
        at += len(part) + 1


def _is_data(raw: bytes, start: int, end: int) -> bool:
    before = raw[max(0, start - 65) : start - 1]
    if raw[end + 1 : end + 33].lstrip()[:1] == b":":
        return False  # a name
    return raw.startswith(_DATA_URL, start) or _DATA_FIELD.search(before) is not None


def _with_blobs(raw: bytes, spans: list[tuple[int, int]]) -> Body:
    """Parse the body with a mark in the place of each string, and put the strings in."""
    mark, pieces, blobs, at = f"blob {token_hex(16)} ", list[bytes](), dict[str, RawString](), 0
    for number, (start, end) in enumerate(spans):
        name = f"{mark}{number}"
        pieces += (raw[at:start], name.encode())
        blobs[name] = _blob(raw[start:end])
        at = end
    body = parse(b"".join((*pieces, raw[at:])))
    _put_in(body, blobs)
    return body


def _blob(quoted: bytes) -> RawString:
    """Return the string, decoded in portions."""
    if b"\\" not in quoted and quoted.isascii():
        blob = RawString(quoted.decode("ascii"))
    else:
        portions, at = [], 0
        while at < len(quoted):
            place = _BETWEEN.search(quoted, at + 4 * _WINDOW, at + 4 * _WINDOW + _LARGE)
            end = place.start() if place else len(quoted)
            portions.append(_decoded(quoted[at:end]))
            at = end
        blob = RawString("".join(portions))
    blob.raw = b'"%b"' % quoted
    return blob


def _decoded(portion: bytes) -> str:
    try:
        text: str = loads(b'"%b"' % portion)
    except UnicodeDecodeError as error:
        raise _malformed(f"a string is not valid UTF-8 ({error.reason})") from None
    except ValueError:
        raise _malformed("a string is malformed") from None
    return text


def _put_in(value: Any, blobs: Mapping[str, RawString]) -> None:
    """Replace the marks in the value, at any depth."""
    todo = [value]
    while todo:
        holder = todo.pop()
        entries = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, entry in entries:
            if isinstance(entry, dict | list):
                todo.append(entry)
            elif isinstance(entry, str) and entry in blobs:
                holder[key] = blobs[entry]


# ---------------------------------------------------------------- writing
def _fragment(value: Any) -> Any:
    """Return the JSON of what orjson does not write itself."""
    if isinstance(value, RawString):
        return orjson.Fragment(value.raw)
    if isinstance(value, str):
        return str(value)
    raise TypeError


def dump(body: Any) -> bytes:
    """Return the bytes of a body that `parse` or `parse_large` gave, of an edited one, or of a part."""
    try:
        return orjson.dumps(body, _fragment, orjson.OPT_PASSTHROUGH_SUBCLASS)
    except TypeError:  # what orjson cannot write: see above, and more than 254 levels
        pass
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _MAX_LEVELS)  # what could be read can be written
    try:
        return json.dumps(body, separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise _malformed("it is nested too deeply") from None
    finally:
        sys.setrecursionlimit(limit)


def dump_large(value: Any) -> bytes:
    """Return what `dump` does, of a value with texts of any size: the interpreter's lock is held for one
    portion of a text at a time."""
    return dump(_portioned(value))


def _portioned(value: Any) -> Any:
    """Return the value with long texts as JSON already; itself if it holds none. What is large otherwise
    has very many entries: no call for each."""
    if type(value) is str:
        return _text_in_portions(value) if len(value) >= _LONG else value
    if type(value) is not dict and type(value) is not list:
        return value
    changed: dict[Any, Any] = {}
    for key, entry in value.items() if type(value) is dict else enumerate(value):
        kind = type(entry)
        if kind is dict or kind is list or (kind is str and len(entry) >= _LONG):
            portioned = _portioned(entry)
            if portioned is not entry:
                changed[key] = portioned
    if not changed:
        return value
    if type(value) is dict:
        return {**value, **changed}
    return [changed.get(place, entry) for place, entry in enumerate(value)]


def _text_in_portions(text: str) -> Any:
    try:
        portions = [orjson.dumps(text[at : at + _WINDOW])[1:-1] for at in range(0, len(text), _WINDOW)]
    except TypeError:  # half a pair of surrogates: `dump` writes that
        return text
    return orjson.Fragment(b'"%b"' % b"".join(portions))


def loads(raw: bytes) -> Any:
    """Return any JSON value. Raises ValueError (JSONDecodeError, UnicodeDecodeError) or RecursionError."""
    if _LONG_NUMBER not in raw.translate(_DIGITS) or not _BARE_NUMBER.search(raw):
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass  # malformed, or only beyond orjson: the standard library finds out which
    return json.loads(raw.decode("utf-8-sig"), parse_float=_float, parse_constant=NonFinite)


def _float(literal: str) -> float:
    number = float(literal)
    return number if math.isfinite(number) else NonFinite(number)


def _malformed(why: str) -> InvalidRequest:
    return InvalidRequest(f"The request body could not be read as JSON: {why}.", code="invalid_json")


# ---------------------------------------------------------------- values of unknown types
def dict_in(holder: Mapping[str, Any], name: str) -> Body:
    """Return the field if it is an object, else {}."""
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def dicts_in(value: Any) -> list[Body]:
    """Return the objects of an array, [] for anything else."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def text_in(holder: Mapping[str, Any], name: str) -> str:
    """Return the field if it is a string, else ""."""
    value = holder.get(name)
    return value if isinstance(value, str) else ""


# ---------------------------------------------------------------- refusals that name a field
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
    return refused(param, f"expected {expected}, got {type_name(value)}", "invalid_type")


def type_name(value: object) -> str:
    """Return the JSON type of a value, in the words of an error message."""
    return next((shape.words for shape in _NAMES if shape.accepts(value)), "null")


def checked(value: Any, shape: Shape, param: str) -> Any:
    """Return the value if it has the shape; else raise InvalidRequest."""
    if not shape.accepts(value):
        raise wrong_type(param, shape.words, value)
    return value


def optional(holder: Mapping[str, Any], name: str, shape: Shape, *, within: str = "") -> Any:
    """Return the field of the holder, None if it is absent or null. `within` is the holder's path."""
    value = holder.get(name)
    return None if value is None else checked(value, shape, f"{within}.{name}" if within else name)


def required(holder: Mapping[str, Any], name: str, shape: Shape, *, within: str) -> Any:
    """Return the field of the holder; absent is refused."""
    if name not in holder:
        raise missing(f"{within}.{name}")
    return checked(holder[name], shape, f"{within}.{name}")


def shown(text: str) -> str:
    """Return a client's text as error messages and headers may hold it: short, plain ASCII."""
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in text[:64])


# ---------------------------------------------------------------- half characters
def clean(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced.

    JSON may spell an emoji as two escapes, cut between two stream events; half of one cannot be stored.
    """
    if text.isascii() or (first := _first_half(text)) is None:
        return text
    end = len(text) - (_first_half(text[::-1]) or 0)
    return text[:first] + _pairs_joined(text[first:end]) + text[end:]


def _first_half(text: str) -> int | None:
    try:
        text.encode()
    except UnicodeEncodeError as e:
        return e.start
    return None


def _pairs_joined(text: str) -> str:
    """Do what a codec with `replace` does, which takes half a second for a million of them."""
    import numpy as np  # 20 MB that a command which reads no body does not need

    units = np.array([text], f"<U{len(text)}").view("<u4")
    halves = np.flatnonzero(units & 0xFFFFF800 == 0xD800)
    values = units[halves]
    is_pair = (values[:-1] < 0xDC00) & (values[1:] >= 0xDC00) & (np.diff(halves) == 1)
    units[halves] = 0xFFFD
    firsts = np.flatnonzero(is_pair)
    units[halves[firsts]] = 0x10000 + ((values[firsts] & 0x3FF) << 10) + (values[firsts + 1] & 0x3FF)
    joined = np.delete(units, halves[firsts + 1]) if len(firsts) else units
    return joined.tobytes().decode("utf-32-le")
