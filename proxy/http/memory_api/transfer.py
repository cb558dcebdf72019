"""Export and import of memories as NDJSON.

An export holds one page in memory, in chunks small enough to leave the event loop to other requests;
StreamingResponse waits for the client between two of them. An import reads lines as they come and stores them
in batches. A wrong line is counted and reported, and does not stop the rest. Lines that are there already are
skipped, so an import that broke off is resumed by sending the file again.
"""

import asyncio
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import orjson
from starlette.responses import Response, StreamingResponse

from proxy.domain.changes import Event
from proxy.domain.core import Evidence, Memory, MemoryFilter, Page, Scope, Stamp, own_id
from proxy.domain.errors import ClientError, Forbidden, InvalidRequest, NotFound, StoreUnavailable
from proxy.domain.ports import Clock, MemoryStore
from proxy.http.auth.identity import Caller
from proxy.http.memory_api import request_schemas as asked
from proxy.http.memory_api import response_schemas as shapes
from proxy.http.memory_api.app import ApiRequest, Operation, body_chunks, json_value, media_type, validated
from proxy.http.turns import Zones
from proxy.learn.edits import MemoryEditor
from proxy.text.dates import local_time

MEDIA_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/json")
MAX_LINE_BYTES = 1_000_000
EXPORT_PAGE = 500
# The newest of one memory are imported. Each costs up to half a millisecond of scans for secrets.
MAX_EVIDENCE, MAX_EVENTS, MAX_WORDINGS = 100, 1_000, 50
MAX_ERRORS = 20
BATCH = 50  # a transaction of some 10 ms: other writers wait for it
BATCH_BYTES = 4_000_000
_LINES_PER_SLICE = 50  # some 1 ms of the event loop
_AS_IT_IS = set(  # fields of a line that its memory takes unchanged
    "type content source valid_to expires_at archived importance weight confidence access_count last_accessed"
    " pinned uses archived_by".split()
)


@dataclass(frozen=True, slots=True)
class TransferEndpoints:
    memories: MemoryStore
    edits: MemoryEditor
    zones: Zones
    clock: Clock

    @Operation("GET", "/v1/memory/export", "exportMemories", {}, lines=shapes.ExportLine)
    async def export(self, request: ApiRequest[asked.ScopeQuery, None]) -> Response:
        """Stream a user's memories, oldest first; with the right admin those of the whole tenant."""
        where = MemoryFilter(
            tenant=request.caller.tenant,
            user=request.user_or_all(),
            project=request.caller.project_of(request.query.project_id),
            include_inactive=True,
            now=self.clock(),
        )
        first = await _page(self.memories, where, None)  # a failure here still has a status of its own
        disposition = 'attachment; filename="memories.ndjson"'
        headers = {"Content-Disposition": disposition, "Cache-Control": "no-store"}
        if request.http.method == "HEAD":
            return Response(headers=headers, media_type=MEDIA_TYPES[0])
        chunks = _exported(self.memories, where, first)
        return StreamingResponse(chunks, headers=headers, media_type=MEDIA_TYPES[0])

    @Operation("POST", "/v1/memory/import", "importMemories", shapes.Imported, takes_lines=asked.MemoryLine)
    async def import_(self, request: ApiRequest[asked.UserQuery, None]) -> Response:
        """Import an export; sending it twice imports nothing twice."""
        if media_type(request.http) not in MEDIA_TYPES:  # web pages cannot send any of them without asking
            raise InvalidRequest(f"Send NDJSON, with Content-Type: {MEDIA_TYPES[0]}.", param="content-type")
        maps, user = request.query.user_id is not None, request.user_or_all()
        running = _Import(self, request.caller, user, maps, self.clock())
        async for number, raw in lines_of(body_chunks(request.http)):
            await running.take(number, raw)
            if number % _LINES_PER_SLICE == 0:
                await asyncio.sleep(0)  # lines that are refused at once would block other requests
        await running.flush()
        running.errors.sort(key=lambda error: error["line"])
        return shapes.json_answer(shapes.filled(shapes.Imported, running))


# ---------------------------------------------------------------- export
async def _exported(store: MemoryStore, where: MemoryFilter, page: Page) -> AsyncIterator[bytes]:
    while True:
        for start in range(0, len(page.items), _LINES_PER_SLICE):
            some, histories = page.items[start : start + _LINES_PER_SLICE], dict[str, Sequence[Event]]()
            for user in {m.scope.user for m in some}:
                ids = [m.id for m in some if m.scope.user == user]
                histories |= await store.history(replace(where, user=user), ids)
            # A memory forgotten since has no history, and gets no line.
            lines = [_line(m, events) + b"\n" for m in some if (events := histories.get(m.id))]
            yield b"".join(lines)
        if not page.has_more:
            return
        page = await _page_after(store, where, page.items)


def _line(memory: Memory, events: Sequence[Event]) -> bytes:
    """Return the memory's line. If an import would refuse it as too long (it was confirmed thousands of
    times), the oldest confirmations are left out, and then the oldest evidence."""
    history = [shapes.filled(shapes.EventShape, event) for event in events]
    shown = {**shapes.exact_memory(memory), "evidence": list(memory.evidence), "history": history}
    line = orjson.dumps(shown)
    if (over := len(line) - MAX_LINE_BYTES) <= 0:
        return line
    confirmations = [event for event in history if event["action"] == "confirmed"]
    for items, oldest in ((history, confirmations), (shown["evidence"], memory.evidence)):
        dropped = set[int]()
        for item in oldest:
            if over <= 0:
                break
            over -= len(orjson.dumps(item)) + len(b",")
            dropped.add(id(item))
        items[:] = [item for item in items if id(item) not in dropped]
    return orjson.dumps(shown)


async def _page(store: MemoryStore, where: MemoryFilter, after: str | None) -> Page:
    return await store.list(where, limit=EXPORT_PAGE, after=after, oldest_first=True, total=False)


async def _page_after(store: MemoryStore, where: MemoryFilter, sent: Sequence[Memory]) -> Page:
    """Return the page after the last memory sent that was not forgotten since. If all were, raise
    StoreUnavailable: the answer is cut, so that it is not taken for complete."""
    for memory in reversed(sent):
        try:
            return await _page(store, where, memory.id)
        except NotFound:
            continue
    raise StoreUnavailable("the memories being exported were forgotten during the export")


# ---------------------------------------------------------------- import
async def lines_of(stream: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes | None]]:
    """Yield (number, line) for every line that is not blank; None for one that is too long.

    Never holds more than one line and one chunk. A byte order mark at the beginning is removed.
    """
    number, rest, too_long = 1, b"", False

    def whole(line: bytes) -> bytes:
        return line.removeprefix(BOM_UTF8) if number == 1 else line

    async for chunk in stream:
        *complete, tail = chunk.split(b"\n")
        for part in complete:
            line, rest = whole(rest + part), b""
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
    elif (rest := whole(rest)).strip():
        yield number, rest


@dataclass(slots=True)
class _Import:
    """One running import: counts, and the batch that is not stored yet."""

    api: TransferEndpoints
    caller: Caller
    owner: str | None  # fixed by the credential or named by the request
    maps: bool  # the request gives all lines to that user
    now: float
    imported: int = 0
    skipped: int = 0
    refused: int = 0
    errors: list[shapes.Answer] = field(default_factory=list)
    batch: list[tuple[int, Memory, tuple[Event, ...]]] = field(default_factory=list)
    batch_bytes: int = 0
    said: dict[str, datetime] = field(default_factory=dict)  # by id, the local time that dates refer to
    began: dict[str, Stamp] = field(default_factory=dict)  # by user, when their first line came

    async def take(self, number: int, raw: bytes | None) -> None:
        if raw is None:
            self._refuse(number, f"it is longer than {MAX_LINE_BYTES} bytes")
            return
        try:
            line = validated(json_value(raw), asked.MemoryLine)
            memory = self._memory(line)
        except ClientError as e:
            self._refuse(number, e.message)
            return
        if self.batch and self.batch[0][1].scope.user != memory.scope.user:
            await self.flush()  # a batch is one user's
        if memory.scope.user not in self.began:
            # Not when the batch is stored: a forget in between is newer than the lines.
            self.began[memory.scope.user] = await self.api.memories.stamp(memory.scope)
        if line.id is None and (line.created_at is not None or line.valid_from is not None):
            # Not an export's line: those are stored as they are.
            zone = await self.api.zones.of(memory.scope, self.caller.timezone)
            self.said[memory.id] = local_time(memory.valid_from, zone)
        self.batch.append((number, memory, self._history(line, memory.scope)))
        self.batch_bytes += len(raw)
        if len(self.batch) >= BATCH or self.batch_bytes >= BATCH_BYTES:
            await self.flush()

    async def flush(self) -> None:
        if not self.batch:
            return
        batch, self.batch, self.batch_bytes = self.batch, [], 0
        scope = batch[0][1].scope
        outcomes = await self.api.edits.import_memories(
            scope,
            [memory for _, memory, _ in batch],
            began=self.began[scope.user],
            histories={memory.id: history for _, memory, history in reversed(batch)},
            said={memory.id: at for _, memory, _ in batch if (at := self.said.pop(memory.id, None))},
        )
        for (number, _, _), outcome in zip(batch, outcomes, strict=True):
            if outcome.refusal:
                self._refuse(number, outcome.refusal)
            elif outcome.imported:
                self.imported += 1
            else:
                self.skipped += 1

    def _refuse(self, number: int, message: str) -> None:
        self.refused += 1
        if len(self.errors) < MAX_ERRORS:
            self.errors.append({"line": number, "message": message})

    def _memory(self, line: asked.MemoryLine) -> Memory:
        """Return the line as a memory; times that it leaves out are `now`."""
        scope = self._scope_of(line)
        created = self.now if line.created_at is None else line.created_at
        return Memory(
            id=self._id_of(line, scope, line.id) or own_id(scope, line.model_dump_json()),
            scope=scope,
            created_at=created,
            updated_at=created if line.updated_at is None else line.updated_at,
            valid_from=created if line.valid_from is None else line.valid_from,
            superseded_by=self._id_of(line, scope, line.superseded_by),
            tags=tuple(line.tags),
            evidence=tuple(Evidence(**one.model_dump()) for one in line.evidence[-MAX_EVIDENCE:]),
            used_at=line.last_used_at,
            sources=tuple(self._id_of(line, scope, each) or "" for each in line.sources),
            **line.model_dump(include=_AS_IT_IS),
        )

    def _scope_of(self, line: asked.MemoryLine) -> Scope:
        """Return the line's scope. Raises Forbidden for another user's line, InvalidRequest for one without
        a user, and for another project than the request's header names. A line without `project_id` belongs
        to the header's project; `null`, as an export writes it, means no project."""
        if self.owner is not None and not self.maps and line.user_id not in (None, self.owner):
            raise Forbidden("this line is another user's; add `user_id` to the query to import it as yours")
        user = self.owner or line.user_id
        if user is None:
            raise InvalidRequest("it names no `user_id`, and neither does the query")
        project = line.project_id
        if project is not None or "project_id" not in line.model_fields_set:
            project = self.caller.project_of(project)
        return Scope(self.caller.tenant, user, project)

    def _id_of(self, line: asked.MemoryLine, scope: Scope, id_: str | None) -> str | None:
        """Return an id as the user may have it. One that came from another user is replaced by an id derived
        from it, so that links between lines hold and one id never names two users' memories."""
        if id_ is None or line.user_id in (None, scope.user):
            return id_
        return own_id(scope, id_)

    def _history(self, line: asked.MemoryLine, scope: Scope) -> tuple[Event, ...]:
        """Return the line's history. A superseding memory is named by the id that its own line gets."""
        events = list(line.history)
        if len(events) > MAX_EVENTS:  # how it began, and what came last
            events = [*events[:2], *events[2 - MAX_EVENTS :]]
        newest_first = dict.fromkeys(e.content for e in reversed(events))
        wordings = set(list(newest_first)[:MAX_WORDINGS])
        known = [e for e in events if e.content in wordings]
        by = [self._id_of(line, scope, e.by) or "" if e.action == "superseded" else e.by for e in known]
        return tuple(Event(e.at, e.action, who, e.content) for e, who in zip(known, by, strict=True))
