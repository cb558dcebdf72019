"""A table of a user's rows, as a unit of work sees it: read as they are needed, changed in its own copy."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from proxy.storage.redis.connection import Argument, Command, Redis, pairs

AT_ONCE = 1000  # rows a command: Redis's scripts take no more than a few thousand arguments
_GONE = object()
_FOLLOW = """
local found, name = {}, ARGV[1]
for _ = 1, tonumber(ARGV[3]) do
    local row = redis.call('HGET', KEYS[1], name)
    if not row then break end
    found[#found + 1], found[#found + 2] = name, row
    name = cjson.decode(row)[ARGV[2]]
    if type(name) ~= 'string' then break end
end
return found
"""
Saved = tuple[dict[str, Any], bool, bool, set[str]]
"""What a table was: its rows, whether they are all, whether it was cleared, which rows are changed."""


class Table:
    """A hash of rows by name. What `get` returns is the unit's own copy: a changed row counts once it is
    `put`."""

    def __init__(self, redis: Redis, key: str, *, raw: bool) -> None:
        self._redis, self._key, self._raw = redis, key, raw
        self._rows: dict[str, Any] = {}
        self._whole = False  # all rows are in `_rows`
        self._cleared = False
        self._changed: set[str] = set()

    async def get(self, name: str) -> Any:
        """Return a row, None if there is none."""
        return (await self.many((name,))).get(name)

    async def many(self, names: Iterable[str]) -> dict[str, Any]:
        """Return those of the rows that there are, in the order of the names."""
        wanted = list(dict.fromkeys(names))
        missing = [] if self._whole else [name for name in wanted if name not in self._rows]
        for start in range(0, len(missing), AT_ONCE):
            portion = missing[start : start + AT_ONCE]
            values = await self._redis.call("HMGET", self._key, *portion)
            for name, value in zip(portion, values, strict=True):
                self._rows[name] = _GONE if value is None else self._decoded(value)
        found = {name: self._rows.get(name, _GONE) for name in wanted}
        return {name: row for name, row in found.items() if row is not _GONE}

    async def all(self) -> dict[str, Any]:
        """Return all rows, in no order."""
        if not self._whole:
            self._take_all(await self._redis.hash(self._key))
        return {name: row for name, row in self._rows.items() if row is not _GONE}

    async def follow(self, name: str, field: str, limit: int) -> dict[str, Any]:
        """Return the row and those that each leads to by the name in its field, nearest first, `limit` at
        most: all in one go, and without what this unit has written."""
        found = await self._redis.script(_FOLLOW, (self._key,), name, field, limit)
        return {each.decode(): self._decoded(row) for each, row in zip(found[::2], found[1::2], strict=True)}

    def put(self, name: str, row: Any) -> None:
        """Write a row."""
        self._rows[name] = row
        self._changed.add(name)

    def drop(self, name: str) -> None:
        """Delete a row, if there is one."""
        known = self._rows.get(name, _GONE if self._whole else None)
        if known is not _GONE:  # else there is none, or it is deleted already
            self.put(name, _GONE)

    def clear(self) -> None:
        """Delete all rows."""
        self._rows, self._changed = {}, set()
        self._whole = self._cleared = True

    def saved(self) -> Saved:
        """Return what `restore` needs. Rows count as values: a changed one has to be put as a new one."""
        return dict(self._rows), self._whole, self._cleared, set(self._changed)

    def restore(self, saved: Saved | None) -> None:
        """Take back what was written since; None: everything."""
        rows, self._whole, self._cleared, changed = saved or ({}, False, False, set())
        self._rows, self._changed = dict(rows), set(changed)

    def wanting(self, names: Iterable[str] | None) -> Command:
        """Return what asks for those of the rows (None: all) that were not read yet, () for none."""
        if self._whole:
            return ()
        if names is None:
            return ("HGETALL", self._key)
        missing = [name for name in dict.fromkeys(names) if name not in self._rows]
        return ("HMGET", self._key, *missing) if missing else ()

    def take(self, asked: Command, answer: Any) -> None:
        """Keep the answer to what `wanting` returned."""
        if asked[0] == "HGETALL":
            self._take_all(pairs(answer))
            return
        for name, value in zip(map(str, asked[2:]), answer, strict=True):
            self._rows[name] = _GONE if value is None else self._decoded(value)

    def _take_all(self, stored: Mapping[str, bytes]) -> None:
        for name in stored.keys() - self._rows.keys():
            self._rows[name] = self._decoded(stored[name])
        self._whole = True

    @property
    def is_changed(self) -> bool:
        return self._cleared or bool(self._changed)

    @property
    def is_gone(self) -> bool:
        """True if nothing was put into it since it was cleared."""
        return self._cleared and all(self._rows[name] is _GONE for name in self._changed)

    def commands(self) -> list[Command]:
        """Return what writes the changes down."""
        found: list[Command] = [("UNLINK", self._key)] if self._cleared else []
        gone = [name for name in self._changed if self._rows[name] is _GONE]
        kept = [name for name in self._changed if self._rows[name] is not _GONE]
        for start in range(0, len(gone), AT_ONCE):
            found.append(("HDEL", self._key, *gone[start : start + AT_ONCE]))
        for start in range(0, len(kept), AT_ONCE):
            command: list[Argument] = ["HSET", self._key]
            for name in kept[start : start + AT_ONCE]:
                command += [name, self._encoded(self._rows[name])]
            found.append(command)
        return found

    def _encoded(self, row: Any) -> bytes:
        return bytes(row) if self._raw else orjson.dumps(row)

    def _decoded(self, value: bytes) -> Any:
        return value if self._raw else orjson.loads(value)
