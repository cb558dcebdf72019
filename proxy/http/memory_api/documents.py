"""Endpoints for knowledge documents."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from starlette.responses import Response

from proxy.domain.documents import INDEXING, Document, Passage, is_redacted, path_of
from proxy.domain.errors import Conflict, NotFound
from proxy.domain.ports import Clock
from proxy.http.memory_api import response_schemas as shapes
from proxy.http.memory_api.app import ApiRequest, Operation, absent
from proxy.http.memory_api.request_schemas import (
    DocumentBody,
    DocumentQuery,
    NoQuery,
    ScopePageQuery,
    UserQuery,
)
from proxy.http.memory_api.response_schemas import (
    deleted_answer,
    filled,
    json_answer,
    owner_fields,
    page_answer,
    whole_seconds,
)
from proxy.learn.documents import DocumentIngester
from proxy.recall.documents import RankedPassage

_ALL, _ONE = "/v1/memory/documents", "/v1/memory/documents/{document_id}"
_READ_ATTEMPTS = 8  # a new version may replace the one being read


@dataclass(frozen=True, slots=True)
class DocumentEndpoints:
    """Documents are posted under a name, listed, shown, deleted."""

    library: DocumentIngester
    clock: Clock

    @Operation(
        "POST",
        _ALL,
        "postDocument",
        {200: shapes.DocumentPosted, 201: shapes.DocumentPosted, 202: shapes.DocumentPosted},
        refusals=(413,),
    )
    async def post(self, request: ApiRequest[NoQuery, DocumentBody]) -> Response:
        """Keep a text under a name; the same again changes nothing, another text is its next version.

        202 if some of its passages are still to be embedded.
        """
        body = request.body
        scope = request.scope(body.user_id, body.project_id)
        document, change = await self.library.add(scope, body.name, body.content, body.format)
        passages = await self.library.store.passages(document)
        redacted = dict.fromkeys(path_of(p.headings) for p in passages if is_redacted(p))
        status = 200 if change == "unchanged" else 201
        return json_answer(
            {**_document_shape(document), "change": change, "redacted": [*redacted]},
            202 if document.status == INDEXING else status,
        )

    @Operation("GET", _ALL, "listDocuments", {200: shapes.DocumentPage}, refusals=(404,))
    async def list(self, request: ApiRequest[ScopePageQuery, None]) -> Response:
        """List documents, the last written first."""
        query = request.query
        scope = request.scope(query.user_id, query.project_id)
        found = await self.library.store.list(scope, limit=query.limit + 1, after=query.after)
        return page_answer(found, query.limit, _document_shape)

    @Operation("GET", _ONE, "getDocument", {200: shapes.DocumentWhole}, refusals=(404,))
    async def get(self, request: ApiRequest[DocumentQuery, None]) -> Response:
        """One document with its outline, and with its text where that is asked for."""
        for _ in range(_READ_ATTEMPTS):
            document = await self._find(request, request.query.user_id)
            if passages := await self.library.store.passages(document):
                break
        else:
            raise Conflict("the document keeps changing")
        shown: Any = {**_document_shape(document), "outline": _outline(passages)}
        if request.query.include == "content":
            shown["content"] = "".join(passage.tile for passage in passages)
        return json_answer(shown)

    @Operation("DELETE", _ONE, "deleteDocument", {200: shapes.DeletedShape}, refusals=(404,))
    async def delete(self, request: ApiRequest[UserQuery, None]) -> Response:
        """Erase a document, and the answers that may repeat it."""
        document = await self._find(request, request.query.user_id)
        counts = await self.library.store.delete(document, by=request.caller.label, now=self.clock())
        if not counts.documents:
            raise _no_document(document.id)
        return deleted_answer(counts, id=document.id)

    async def _find(self, request: ApiRequest[Any, None], user_id: str | None) -> Document:
        """Return the path's document, of any user of the tenant unless one is fixed or named."""
        caller, id_ = request.caller, request.path["document_id"]
        document = await self.library.store.find(caller.tenant, caller.narrow(user_id), id_)
        if document is None or not caller.sees(document.scope.project):
            raise _no_document(id_)
        return document


def passage_shape(found: RankedPassage) -> shapes.PassageShape:
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


def _document_shape(document: Document) -> shapes.DocumentShape:
    times = whole_seconds(document, "created_at", "updated_at")
    return filled(
        shapes.DocumentShape, document, object="memory.document", **owner_fields(document.scope), **times
    )


def _outline(passages: Sequence[Passage]) -> list[shapes.SectionShape]:
    """Return the sections in order; a section is the text under one heading."""
    sections = [list(group) for _, group in groupby(passages, key=lambda p: (p.section, p.headings))]
    return [
        {
            "headings": list(section[0].headings),
            "start": section[0].offsets[0],
            "end": section[-1].offsets[1],
            "passages": len(section),
            "redacted": any(map(is_redacted, section)),
        }
        for section in sections
    ]


def _no_document(document_id: str) -> NotFound:
    return absent("No document", document_id, param="document_id", code="document_not_found")
