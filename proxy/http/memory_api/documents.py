"""Knowledge documents: posted under a name, listed, shown, deleted."""

from collections.abc import Sequence
from itertools import groupby
from typing import Literal, cast

from starlette.responses import Response

from proxy.domain.documents import INDEXING, Document, Passage, is_redacted, path_of
from proxy.domain.errors import Conflict, NotFound
from proxy.http.memory_api import present
from proxy.http.memory_api.answers import (
    DocumentPosted,
    DocumentShape,
    DocumentWhole,
    PassageShape,
    SectionShape,
)
from proxy.http.memory_api.bodies import DocumentBody, DocumentQuery, NoQuery, ScopePageQuery, UserQuery
from proxy.http.memory_api.wiring import Asked, Tools
from proxy.recall.documents import RankedPassage
from proxy.wire.extensions import MAX_ID_CHARS

_ATTEMPTS = 8  # to read a version that none takes the place of meanwhile
_STATUS = {"created": 201, "updated": 201, "unchanged": 200}


async def post(tools: Tools, asked: Asked[NoQuery, DocumentBody]) -> Response:
    """The document as it is kept now: 200 where it was kept already, 201 new or a new version, 202 where
    some of its passages are still to be embedded."""
    body, documents = asked.body, tools.documents
    scope = asked.scope(body.user_id, body.project_id)
    document, change = await documents.add(scope, body.name, body.content, body.format)
    passages = await documents.store.passages(document)
    marked = dict.fromkeys(path_of(p.headings) for p in passages if is_redacted(p))
    shown: DocumentPosted = {**_shown(document), "change": change, "redacted": list(marked)}
    waits = document.status == INDEXING
    return present.answer(shown, 202 if waits else _STATUS[change])


async def list_(tools: Tools, asked: Asked[ScopePageQuery, None]) -> Response:
    """One page, the last written first."""
    query = asked.query
    scope = asked.scope(query.user_id, query.project_id)
    found = await tools.documents.store.list(scope, limit=query.limit + 1, after=query.after)
    data = [_shown(one) for one in found[: query.limit]]
    return present.answer(present.page_of(data, has_more=len(found) > query.limit))


async def get(tools: Tools, asked: Asked[DocumentQuery, None]) -> Response:
    """One document with its outline, and if asked for its text as it is kept."""
    document, passages = await _whole(tools, asked)
    shown: DocumentWhole = {**_shown(document), "outline": _outline(passages)}  # type: ignore[typeddict-item]
    if asked.query.include == "content":
        shown["content"] = "".join(passage.tile for passage in passages)
    return present.answer(shown)


async def delete(tools: Tools, asked: Asked[UserQuery, None]) -> Response:
    """Erase a document, and the answers that were given with it in view."""
    document = await _found(tools, asked)
    gone = await tools.documents.store.delete(document, by=asked.caller.label, now=tools.clock())
    if not gone.documents:
        raise _absent(document.id)
    return present.answer(present.deleted(gone, memory_id=document.id))


def passage(one: RankedPassage) -> PassageShape:
    """Return a passage found: where it stands, so that it can be cited, and what it says."""
    hit = one.hit
    start, end = hit.passage.offsets
    return {
        "object": "memory.passage",
        "document_id": hit.document.id,
        "name": hit.document.name,
        "version": hit.document.version,
        "project_id": hit.document.scope.project,
        "headings": list(hit.passage.headings),
        "text": hit.passage.text,
        "start": start,
        "end": end,
        "score": round(one.score, 4),
    }


async def _whole(tools: Tools, asked: Asked[DocumentQuery, None]) -> tuple[Document, Sequence[Passage]]:
    """Return the document and its passages. Raises Conflict where one version follows the other."""
    for _ in range(_ATTEMPTS):
        document = await _found(tools, asked)
        if passages := await tools.documents.store.passages(document):
            return document, passages
    raise Conflict("the document keeps changing")


async def _found(tools: Tools, asked: Asked[DocumentQuery, None] | Asked[UserQuery, None]) -> Document:
    """Return the document that the path names, of any user of the tenant unless one is fixed or named."""
    document_id = asked.path["document_id"]
    user = asked.caller.narrow(asked.query.user_id)
    document = await tools.documents.store.find(asked.caller.tenant, user, document_id)
    if document is None or not asked.caller.sees(document.scope.project):
        raise _absent(document_id)
    return document


def _absent(document_id: str) -> NotFound:
    shown = document_id if len(document_id) <= MAX_ID_CHARS else document_id[:64] + "…"
    return NotFound(f"No document with id '{shown}'.", param="document_id", code="document_not_found")


def _shown(one: Document) -> DocumentShape:
    return {
        "id": one.id,
        "object": "memory.document",
        "name": one.name,
        "version": one.version,
        "status": cast(Literal["ready", "indexing"], one.status),
        "user_id": one.scope.user,
        "project_id": one.scope.project,
        "characters": one.characters,
        "sections": one.sections,
        "passages": one.passages,
        "created_at": int(one.created_at),
        "updated_at": int(one.updated_at),
    }


def _outline(passages: Sequence[Passage]) -> list[SectionShape]:
    """Return the sections in order: a section is what stands under one heading."""
    outline: list[SectionShape] = []
    for _, group in groupby(passages, key=lambda p: (p.section, p.headings)):
        of_section = list(group)
        outline.append(
            {
                "headings": list(of_section[0].headings),
                "start": of_section[0].offsets[0],
                "end": of_section[-1].offsets[1],
                "passages": len(of_section),
                "redacted": any(map(is_redacted, of_section)),
            }
        )
    return outline
