"""Assemble the tool calls of a chat stream: which fragment belongs to which call.

Fragments carry an index. Not all servers count: some give every call the index 0 and another id, some
leave the index out, some repeat the id and the name in each fragment, some make up a new id for each.
So a fragment begins a new call where its index is new, or where it brings another id and a name.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Call:
    """What is known of one call so far."""

    id: str | None = None
    name: str | None = None
    waiting: list[str] = field(default_factory=list)  # arguments that came before the name


@dataclass(slots=True)
class CallLog:
    """The calls of one answer."""

    _by_index: dict[int, Call] = field(default_factory=dict)
    _last: Call | None = None

    def take(self, fragments: Any) -> Iterator[tuple[Call, str]]:
        """Yield the call that each fragment belongs to, brought up to date, and its piece of arguments."""
        for fragment in fragments if isinstance(fragments, list) else ():
            if isinstance(fragment, dict):
                call = self._call(fragment)
                function = fragment.get("function")
                said: Mapping[str, Any] = function if isinstance(function, dict) else {}
                call.id = call.id or _text(fragment.get("id"))
                call.name = call.name or _text(said.get("name"))
                yield call, _arguments(said.get("arguments"))

    def _call(self, fragment: Mapping[str, Any]) -> Call:
        index = _index(fragment)
        known = self._last if index is None else self._by_index.get(index)
        if known is None or _begins_another(known, fragment):
            known = Call()
        if index is not None:
            self._by_index[index] = known
        self._last = known
        return known


def _begins_another(known: Call, fragment: Mapping[str, Any]) -> bool:
    function = fragment.get("function")
    named = isinstance(function, dict) and _text(function.get("name"))
    given = _text(fragment.get("id"))
    if _index(fragment) is None and named and not given:
        return known.name is not None
    return bool(named and given and known.id and given != known.id)


def _index(fragment: Mapping[str, Any]) -> int | None:
    index = fragment.get("index")
    return index if isinstance(index, int) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _arguments(value: Any) -> str:
    if isinstance(value, dict):  # some servers forget to encode them
        return json.dumps(value, ensure_ascii=False)
    return value if isinstance(value, str) else ""
