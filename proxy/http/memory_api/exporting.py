"""Export: every memory as a line of JSON, page by page, as fast as the client reads.

Nothing is held but one page. A page that is cut into small chunks leaves the event loop to others, and
StreamingResponse waits for the client between two of them.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import orjson
from starlette.responses import Response, StreamingResponse

from proxy.domain.core import Event, Memory, MemoryFilter, Page
from proxy.domain.errors import NotFound, StoreUnavailable
from proxy.domain.ports import MemoryStore
from proxy.http.memory_api import importing, present
from proxy.http.memory_api.bodies import ScopeQuery
from proxy.http.memory_api.wiring import Asked, Tools

PAGE = 500
_LINES_A_CHUNK = 50  # some 1 ms of the event loop
MEDIA_TYPE = "application/x-ndjson"


async def export(tools: Tools, asked: Asked[ScopeQuery, None]) -> Response:
    """Stream the memories of a user, or of the whole tenant (right admin), each user's oldest first."""
    query = asked.query
    where = MemoryFilter(
        tenant=asked.caller.tenant,
        user=asked.user_or_all(query.user_id),
        project=asked.caller.project_of(query.project_id),
        include_inactive=True,
        now=tools.clock(),
    )
    first = await _page(tools.memories, where, None)  # what fails here still has a status of its own
    headers = {"Content-Disposition": 'attachment; filename="memories.ndjson"', "Cache-Control": "no-store"}
    if asked.request.method == "HEAD":
        return Response(headers=headers, media_type=MEDIA_TYPE)
    return StreamingResponse(_lines(tools.memories, where, first), headers=headers, media_type=MEDIA_TYPE)


async def _lines(store: MemoryStore, where: MemoryFilter, page: Page) -> AsyncIterator[bytes]:
    while True:
        for start in range(0, len(page.items), _LINES_A_CHUNK):
            yield await _chunk(store, where, page.items[start : start + _LINES_A_CHUNK])
        if not page.has_more:
            return
        page = await _following(store, where, page.items)


async def _chunk(store: MemoryStore, where: MemoryFilter, memories: Sequence[Memory]) -> bytes:
    """Return some lines, each with its memory's history; what was forgotten since has none, and no line."""
    histories = {
        user: await store.history(replace(where, user=user), [m.id for m in memories if m.scope.user == user])
        for user in {m.scope.user for m in memories}
    }
    lines = [_line(m, events) for m in memories if (events := histories[m.scope.user].get(m.id))]
    return b"".join(line + b"\n" for line in lines)


def _line(memory: Memory, events: Sequence[Event]) -> bytes:
    """Return the memory's line. One that an import would refuse, since what it tells was said thousands of
    times, is told without the first of these times: their events, and then what was said there."""
    shown = present.line(memory, [present.event(e, whole=False) for e in events])
    line = orjson.dumps(shown)
    over = len(line) - importing.MAX_LINE_BYTES
    if over > 0:
        repeated = [event for event in shown["history"] if event["action"] == "confirmed"]
        gone, over = _first(repeated, over)
        shown["history"] = [event for event in shown["history"] if id(event) not in gone]
        gone, over = _first(shown["evidence"], over)
        shown["evidence"] = [one for one in shown["evidence"] if id(one) not in gone]
        line = orjson.dumps(shown)
    return line


def _first(items: Sequence[object], over: int) -> tuple[set[int], int]:
    """Return which of the items, the first before the others, are so many bytes, and what is over still."""
    gone = set[int]()
    for item in items:
        if over <= 0:
            break
        over -= len(orjson.dumps(item)) + len(b",")
        gone.add(id(item))
    return gone, over


async def _page(store: MemoryStore, where: MemoryFilter, after: str | None) -> Page:
    return await store.list(where, limit=PAGE, after=after, oldest_first=True, total=False)


async def _following(store: MemoryStore, where: MemoryFilter, sent: Sequence[Memory]) -> Page:
    """Return the page after the memories sent; after the last of them that has not been forgotten since.

    Where all are gone, raises StoreUnavailable: the answer is cut, so that nobody takes it for whole.
    """
    for memory in reversed(sent):
        try:
            return await _page(store, where, memory.id)
        except NotFound:
            continue
    raise StoreUnavailable("what was being exported was forgotten meanwhile")
