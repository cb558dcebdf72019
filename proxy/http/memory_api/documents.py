"""Endpoints for knowledge documents."""

from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from starlette.responses import Response

from proxy.domain.documents import INDEXING, Document, is_redacted, path_of
from proxy.domain.errors import Conflict, NotFound
from proxy.domain.ports import Clock
from proxy.http.memory_api import request_schemas as asked
from proxy.http.memory_api import response_schemas as shapes
from proxy.http.memory_api.app import ApiRequest, Operation, absent, page_of
from proxy.learn.documents import DocumentIngester
from proxy.recall.documents import RankedPassage

_ALL, _ONE = "/v1/memory/documents", "/v1/memory/documents/{document_id}"
_READ_ATTEMPTS = 8  # a new version may replace the one being read


@dataclass(frozen=True, slots=True)
class DocumentEndpoints:
    library: DocumentIngester
    clock: Clock

    @Operation(
        "POST",
        _ALL,
        "postDocument",
        {200: shapes.DocumentPosted, 201: shapes.DocumentPosted, 202: shapes.DocumentPosted},
    )
    async def post(self, request: ApiRequest[asked.NoQuery, asked.DocumentBody]) -> Response:
        """Keep a text under a name; the same again changes nothing, another text is its next version.

        202 if some of its passages are still to be embedded.
        """
        body, add = request.body, self.library.add
        document, change = await add(request.scope(), body.name, body.content, body.format)
        passages = await self.library.store.passages(document)
        redacted = dict.fromkeys(path_of(p.headings) for p in passages if is_redacted(p))
        status = 202 if document.status == INDEXING else 200 if change == "unchanged" else 201
        return shapes.json_answer({**_shown(document), "change": change, "redacted": [*redacted]}, status)

    @Operation("GET", _ALL, "listDocuments", shapes.DocumentPage)
    async def list(self, request: ApiRequest[asked.ScopePageQuery, None]) -> Response:
        """List documents, the last written first."""
        return await page_of(request, partial(self.library.store.list, request.scope()), _shown)

    @Operation("GET", _ONE, "getDocument", shapes.DocumentWhole)
    async def get(self, request: ApiRequest[asked.DocumentQuery, None]) -> Response:
        """One document with its outline, and with its text where that is asked for."""
        for _ in range(_READ_ATTEMPTS):
            document = await self._find(request)
            if passages := await self.library.store.passages(document):
                break
        else:
            raise Conflict("the document keeps changing")
        sections = [list(group) for _, group in groupby(passages, key=lambda p: (p.section, p.headings))]
        outline = [
            {
                "headings": list(section[0].headings),
                "start": section[0].offsets[0],
                "end": section[-1].offsets[1],
                "passages": len(section),
                "redacted": any(map(is_redacted, section)),
            }
            for section in sections
        ]
        shown = {**_shown(document), "outline": outline}
        if request.query.include == "content":
            shown["content"] = "".join(passage.tile for passage in passages)
        return shapes.json_answer(shown)

    @Operation("DELETE", _ONE, "deleteDocument", shapes.DeletedShape)
    async def delete(self, request: ApiRequest[asked.UserQuery, None]) -> Response:
        """Erase a document, and the answers that may repeat it."""
        document = await self._find(request)
        counts = await self.library.store.delete(document, by=request.caller.label, now=self.clock())
        if not counts.documents:
            raise _no_document(document.id)
        return shapes.deleted_answer(counts, id=document.id)

    async def _find(self, request: ApiRequest[Any, None]) -> Document:
        """Return the path's document, of any user of the tenant unless one is fixed or named."""
        caller, id_ = request.caller, request.path["document_id"]
        user = caller.narrow(request.query.user_id)
        document = await self.library.store.find(caller.tenant, user, id_)
        if document is None or not caller.sees(document.scope.project):
            raise _no_document(id_)
        return document


def passage_shape(found: RankedPassage) -> shapes.Answer:
    """Return a passage that a search found, with its place in the document, so that it can be cited."""
    document, passage = found.hit.document, found.hit.passage
    start, end = passage.offsets
    return {
        "object": "memory.passage",
        "document_id": document.id,
        "name": document.name,
        "version": document.version,
        "project_id": document.scope.project,
        "headings": list(passage.headings),
        "text": passage.text,
        "start": start,
        "end": end,
        "score": round(found.score, 4),
    }


def _shown(document: Document) -> shapes.Answer:
    times = shapes.whole_seconds(document, "created_at", "updated_at")
    return shapes.filled(shapes.DocumentShape, document, **shapes.owner_fields(document.scope), **times)


def _no_document(document_id: str) -> NotFound:
    return absent("No document", document_id, param="document_id", code="document_not_found")
