"""Read and write the JSON bodies of intercepted requests without losing what the client sent.

orjson is fast and strict. Upstreams written in Python take more: integers beyond 64 bits (which orjson
turns into floats without a word), NaN and infinities, and lone surrogates (clients that cut a text in
the middle of an emoji send them). Such bodies go through the standard library instead, both ways.
"""

import json
import math
import re
import sys
from typing import Any

import orjson

from proxy.errors import InvalidRequest

Body = dict[str, Any]

# The shortest integer that does not fit 64 bits (signed) has 19 digits. Mapping the digits to one byte
# and looking for a run of it reads 50 MB in 60 ms; a regular expression takes eight times as long.
_DIGITS = bytes(ord("0") if chr(byte).isdecimal() else ord(".") for byte in range(128)) + b"." * 128
_MOST_LEVELS = 1024  # that orjson reads
_LONG_NUMBER = b"0" * 19
# Many such runs stand inside strings, ids for example: a number has JSON's punctuation on both sides.
_BARE_NUMBER = re.compile(rb"[\[:,\s]-?[0-9]{19,}\s*[,\]}]")


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


def dump(body: Any) -> bytes:
    """Return the bytes of a body that `parse` gave, of an edited one, or of a part of one."""
    try:
        return orjson.dumps(body)
    except TypeError:  # what orjson cannot write: see above, and more than 254 levels
        pass
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _MOST_LEVELS)  # what could be read can be written
    try:
        return json.dumps(body, separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise _malformed("it is nested too deeply") from None
    finally:
        sys.setrecursionlimit(limit)


def loads(raw: bytes) -> Any:
    """Return any JSON value. Raises ValueError (JSONDecodeError, UnicodeDecodeError) or RecursionError."""
    if _LONG_NUMBER not in raw.translate(_DIGITS) or not _BARE_NUMBER.search(raw):
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass  # malformed, or only beyond orjson: the standard library tells which
    return json.loads(raw.decode("utf-8-sig"), parse_float=_float, parse_constant=NonFinite)


def _float(literal: str) -> float:
    number = float(literal)
    return number if math.isfinite(number) else NonFinite(number)


def _malformed(why: str) -> InvalidRequest:
    return InvalidRequest(f"The request body could not be read as JSON: {why}.", code="invalid_json")
