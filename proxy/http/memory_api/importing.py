"""Import: the lines of an export, read as they come, stored in batches.

A wrong line is counted and named, and does not stop the rest. Lines that are there already are skipped, so
an import that broke off is resumed by sending the file again.
"""

import asyncio
from codecs import BOM_UTF8
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from starlette.responses import Response

from proxy.domain.core import Event, Evidence, Memory, Scope, Stamp, own_id
from proxy.domain.errors import ClientError, Forbidden, InvalidRequest
from proxy.domain.timezones import local
from proxy.http.auth.identity import Caller
from proxy.http.memory_api import present
from proxy.http.memory_api.answers import Imported, LineRefused
from proxy.http.memory_api.bodies import EventLine, MemoryLine, UserQuery
from proxy.http.memory_api.reading import checked, media_type, parsed, stream_of
from proxy.http.memory_api.wiring import Asked, Tools

MAX_LINE_BYTES = 1_000_000
# Of one memory the newest are imported. Each costs up to half a millisecond of scans for secrets.
MOST_EVIDENCE, MOST_EVENTS, MOST_WORDINGS = 100, 1_000, 50
MAX_ERRORS = 20
BATCH = 50  # a transaction of some 10 ms: other writers wait for it
BATCH_BYTES = 4_000_000
_LINES_A_SLICE = 50  # some 1 ms of the event loop
MEDIA_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/json")


async def import_(tools: Tools, asked: Asked[UserQuery, None]) -> Response:
    """Store the lines of the body; `user_id` makes all of them that user's. No user: right admin."""
    if media_type(asked.request) not in MEDIA_TYPES:  # none of which a web page may send without asking
        raise InvalidRequest(f"Send NDJSON, with Content-Type: {MEDIA_TYPES[0]}.", param="content-type")
    users = _Users(asked.caller, asked.user_or_all(asked.query.user_id), asked.query.user_id is not None)
    importing = _Importing(tools, users, tools.clock())
    async for number, raw in lines_of(stream_of(asked.request)):
        await importing.take(number, raw)
        if number % _LINES_A_SLICE == 0:
            await asyncio.sleep(0)  # lines that are refused at once would let nobody else in
    await importing.flush()
    return present.answer(importing.answer())


async def lines_of(stream: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes | None]]:
    """Yield (number, line) for every line that is not blank; None stands for one that is too long.

    Never holds more than one line and one chunk. A byte order mark is no part of the first.
    """
    number, rest, too_long = 1, b"", False
    async for chunk in stream:
        *complete, tail = chunk.split(b"\n")
        for part in complete:
            line, rest = _unmarked(number, rest + part), b""
            if too_long or len(line) > MAX_LINE_BYTES:
                yield number, None
            elif line.strip():
                yield number, line
            number, too_long = number + 1, False
        rest += tail
        if len(rest) > MAX_LINE_BYTES:
            rest, too_long = b"", True
    if too_long:
        yield number, None
    elif (rest := _unmarked(number, rest)).strip():
        yield number, rest


def _unmarked(number: int, line: bytes) -> bytes:
    return line.removeprefix(BOM_UTF8) if number == 1 else line


@dataclass(frozen=True, slots=True)
class _Users:
    """Whose memories the lines become."""

    caller: Caller
    user: str | None  # fixed by the credential or named by the request
    maps: bool  # the request says that all lines are that user's

    def scope_of(self, line: MemoryLine) -> Scope:
        """Return the line's scope. Raises Forbidden for another user's, InvalidRequest for nobody's, and for
        another project's than the request's header names. A line that says nothing of a project is of that
        one; `null`, as an export writes it, says of none."""
        if self.user is not None and not self.maps and line.user_id not in (None, self.user):
            raise Forbidden("this line is another user's; add `user_id` to the query to import it as yours")
        user = self.user or line.user_id
        if user is None:
            raise InvalidRequest("it names no `user_id`, and neither does the query")
        project = line.project_id
        if project is not None or "project_id" not in line.model_fields_set:
            project = self.caller.project_of(project)
        return Scope(self.caller.tenant, user, project)

    def id_of(self, line: MemoryLine, scope: Scope, id_: str | None) -> str | None:
        """Return an id as the user may have it: one that came from another user is derived anew, the same
        each time, so that links between lines hold and one id never names two users' memories."""
        if id_ is None or line.user_id in (None, scope.user):
            return id_
        return own_id(scope, id_)


@dataclass(slots=True)
class _Importing:
    """One import under way: counts, and the batch that is not stored yet."""

    tools: Tools
    users: _Users
    now: float
    imported: int = 0
    skipped: int = 0
    refused: int = 0
    errors: list[LineRefused] = field(default_factory=list)
    batch: list[tuple[int, Memory, tuple[Event, ...]]] = field(default_factory=list)
    batch_bytes: int = 0
    said: dict[str, datetime] = field(default_factory=dict)  # by id, the local times of lines to be resolved
    began: dict[str, Stamp] = field(default_factory=dict)  # by user, when their first line came

    async def take(self, number: int, raw: bytes | None) -> None:
        """Read one line into the batch."""
        if raw is None:
            self._refuse(number, f"it is longer than {MAX_LINE_BYTES} bytes")
            return
        try:
            line = checked(parsed(raw), MemoryLine)
            memory = _memory(line, self.users, self.now)
        except ClientError as e:
            self._refuse(number, e.message)
            return
        if self.batch and self.batch[0][1].scope.user != memory.scope.user:
            await self.flush()  # a batch is one user's
        if memory.scope.user not in self.began:
            # Not only when the batch is stored: a forget that comes between is newer than the lines.
            self.began[memory.scope.user] = await self.tools.memories.stamp(memory.scope)
        if line.id is None and (line.created_at is not None or line.valid_from is not None):
            # An export's lines stay as they are.
            zone = await self.tools.zones.of(memory.scope, self.users.caller.timezone)
            self.said[memory.id] = local(memory.valid_from, zone)
        self.batch.append((number, memory, _history(line, self.users, memory.scope)))
        self.batch_bytes += len(raw)
        if len(self.batch) >= BATCH or self.batch_bytes >= BATCH_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Store the batch."""
        if not self.batch:
            return
        batch, self.batch, self.batch_bytes = self.batch, [], 0
        scope = batch[0][1].scope
        taken = await self.tools.by_hand.bring_in(
            scope,
            [memory for _, memory, _ in batch],
            began=self.began[scope.user],
            histories={memory.id: history for _, memory, history in reversed(batch)},
            said={memory.id: at for _, memory, _ in batch if (at := self.said.pop(memory.id, None))},
        )
        for (number, _, _), one in zip(batch, taken, strict=True):
            if one.refusal:
                self._refuse(number, one.refusal)
            elif one.imported:
                self.imported += 1
            else:
                self.skipped += 1

    def answer(self) -> Imported:
        return {
            "object": "memory.import",
            "imported": self.imported,
            "skipped": self.skipped,
            "refused": self.refused,
            "errors": sorted(self.errors, key=lambda e: e["line"]),
        }

    def _refuse(self, number: int, message: str) -> None:
        self.refused += 1
        if len(self.errors) < MAX_ERRORS:
            self.errors.append({"line": number, "message": message})


def _memory(line: MemoryLine, users: _Users, now: float) -> Memory:
    """Return the line as a memory; what it leaves out is as of now."""
    scope = users.scope_of(line)
    created = _or(line.created_at, now)
    return Memory(
        id=users.id_of(line, scope, line.id) or own_id(scope, line.model_dump_json()),
        scope=scope,
        type=line.type,
        content=line.content,
        source=line.source,
        created_at=created,
        updated_at=_or(line.updated_at, created),
        valid_from=_or(line.valid_from, created),
        valid_to=line.valid_to,
        superseded_by=users.id_of(line, scope, line.superseded_by),
        expires_at=line.expires_at,
        archived=line.archived,
        importance=line.importance,
        weight=line.weight,
        confidence=line.confidence,
        tags=tuple(line.tags),
        evidence=tuple(Evidence(e.session_id, e.exchange_id, e.span) for e in line.evidence[-MOST_EVIDENCE:]),
        access_count=line.access_count,
        last_accessed=line.last_accessed,
    )


def _history(line: MemoryLine, users: _Users, scope: Scope) -> tuple[Event, ...]:
    """Return what the line tells of the memory's past; what superseded it is named as the line of that is."""

    def by(event: EventLine) -> str:
        return users.id_of(line, scope, event.by) or "" if event.action == "superseded" else event.by

    events = list(line.history)
    if len(events) > MOST_EVENTS:  # how it began, and what came last
        events = [*events[:2], *events[2 - MOST_EVENTS :]]
    newest_first = dict.fromkeys(e.content for e in reversed(events))
    wordings = set(list(newest_first)[:MOST_WORDINGS])
    return tuple(Event(e.at, e.action, by(e), e.content) for e in events if e.content in wordings)


def _or(given: float | None, otherwise: float) -> float:
    return otherwise if given is None else given
