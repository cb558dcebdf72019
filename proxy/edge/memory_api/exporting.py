"""Export: every memory as a line of JSON, page by page, as fast as the client reads.

Nothing is held but one page. A page that is cut into small chunks leaves the event loop to others, and
StreamingResponse waits for the client between two of them.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import orjson
from starlette.responses import Response, StreamingResponse

from proxy.domain import Memory, MemoryFilter, Page
from proxy.edge.memory_api import present
from proxy.edge.memory_api.bodies import ScopeQuery
from proxy.edge.memory_api.wiring import Asked, Tools
from proxy.errors import NotFound, StoreUnavailable
from proxy.ports import MemoryStore

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
    lines = [
        orjson.dumps(present.line(m, [present.event(e, whole=False) for e in events]))
        for m in memories
        if (events := histories[m.scope.user].get(m.id))
    ]
    return b"".join(line + b"\n" for line in lines)


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
