"""Ids of responses, conversations and items as a native upstream knows them: their form, where a request's
body names them, and where an answer brings new ones.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.wire.body import Body, loads

LONGEST_DOCUMENT = 16 * 1024 * 1024  # bytes of an answer that is read for ids
LONGEST_EVENT = 1024 * 1024  # bytes of one event of a stream

# LiteLLM's ids are base64, with its padding. A dot at the end, a fragment or a NUL may be cut off by a server
# that is lenient, which then reads another id.
_PLAIN = re.compile(r"[A-Za-z0-9_-]+(?:[.:~+=-]+[A-Za-z0-9_-]+)*=*")
_LONGEST = 512
# Where a body holds what is no id of the upstream's, whatever its key is called.
_NOT_WALKED = frozenset(
    "metadata client_metadata parameters input_schema schema arguments headers variables filters".split()
)
_OTHER_IDS = frozenset("call_id file_id file_ids user_id session_id project_id".split())
_AN_ITEM = re.compile(r"(?:input|items)\[\d+\]")
# Events that hold items: some servers send only the last one.
_TELLING = re.compile(rb"response\.(?:output_item\.|completed|incomplete)")
_ID_WORD = re.compile(r"[\s\x00]*([A-Za-z]+_[A-Za-z0-9_-]+)")


def is_plain(id_: str) -> bool:
    """True for an id that every server reads alike."""
    return len(id_) <= _LONGEST and _PLAIN.fullmatch(id_) is not None


def spellings(id_: str) -> tuple[str, ...]:
    """Return the ids that some server could read where this one is written: all in lower case."""
    word = _ID_WORD.match(id_)
    return tuple(dict.fromkeys((id_.lower(), word[1].lower()) if word else (id_.lower(),)))


# ---------------------------------------------------------------- in requests
@dataclass(frozen=True, slots=True)
class Named:
    """An id in a body. `refers`: the upstream looks the object up by it; else it may be the client's own."""

    id: str
    param: str
    refers: bool


def named_in(body: Body) -> Iterator[Named]:
    """Yield every id of an object of the upstream's that a body names, at any depth.

    `previous_response_id` and `conversation` of the body itself are not among them: see Makers.require_all.
    """
    stack: list[tuple[Any, str]] = [
        (value, name) for name, value in body.items() if name not in ("previous_response_id", "conversation")
    ]
    while stack:
        value, path = stack.pop()
        if isinstance(value, dict):
            yield from _of_object(value, path)
            stack += [
                (inner, f"{path}.{name}")
                for name, inner in value.items()
                if isinstance(inner, dict | list) and name not in _NOT_WALKED
            ]
        elif isinstance(value, list) and path not in _NOT_WALKED:
            stack += [
                (inner, f"{path}[{index}]")
                for index, inner in enumerate(value)
                if isinstance(inner, dict | list)
            ]


def _of_object(value: Mapping[str, Any], path: str) -> Iterator[Named]:
    kind = value.get("type")
    refers = kind == "item_reference" or (
        kind is None and "role" not in value and _AN_ITEM.fullmatch(path) is not None
    )
    for name, inner in value.items():
        if not isinstance(inner, str) or not inner or name in _OTHER_IDS:
            if name == "id" and refers and not isinstance(inner, str):
                yield Named("", f"{path}.id", True)
            continue
        if name == "id":
            yield Named(inner, f"{path}.id", refers)
        elif name.endswith("_id") or name in ("container", "conversation"):
            yield Named(inner, f"{path}.{name}", False)


# ---------------------------------------------------------------- in answers
def made_in(value: Any, *, lists: bool = False) -> Iterator[str]:
    """Yield the ids of the output items of a response object, of an event, or (`lists`) of a list's items."""
    if not isinstance(value, dict):
        return
    response = value.get("response")
    holder = response if isinstance(response, dict) else value
    for name in ("output", "data") if lists else ("output",):
        items = holder.get(name)
        for item in items if isinstance(items, list) else ():
            yield from _id_of(item)
    yield from _id_of(value.get("item"))


def _id_of(item: Any) -> Iterator[str]:
    if isinstance(item, dict):
        for name in ("id", "container_id"):
            id_ = item.get(name)
            if isinstance(id_, str) and is_plain(id_):
                yield id_


class Reader:
    """Finds the ids of items in an answer as it passes: of a document at its end, of a stream in each event
    that adds or ends an item, and in the last. What is longer than a bound is passed over."""

    def __init__(self, *, lists: bool = False) -> None:
        self._lists = lists
        self._is_stream: bool | None = None
        self._held = bytearray()

    def feed(self, piece: bytes, *, last: bool) -> list[str]:
        """Return the ids that this piece completes."""
        if self._is_stream is None and (start := piece.lstrip()):
            self._is_stream = not start.startswith((b"{", b"["))
        self._held += piece
        if self._is_stream:
            return self._lines(last)
        if len(self._held) > LONGEST_DOCUMENT:
            self._held.clear()
            self._is_stream = True  # of which nothing more is an event
        if not last:
            return []
        document, self._held = bytes(self._held), bytearray()
        return list(made_in(_loaded(document), lists=self._lists))

    def _lines(self, last: bool) -> list[str]:
        whole, newline, rest = self._held.rpartition(b"\n")
        if last:
            whole, rest = self._held, bytearray()
        elif not newline:
            if len(self._held) > LONGEST_EVENT:
                self._held.clear()
            return []
        self._held = bytearray(rest)
        found: list[str] = []
        for line in bytes(whole).splitlines() if _TELLING.search(whole) else ():
            if line.startswith(b"data:") and _TELLING.search(line):
                found += made_in(_loaded(line[5:]))
        return found


def _loaded(document: bytes) -> Any:
    try:
        return loads(document) if document.strip() else None
    except (ValueError, RecursionError):
        return None
