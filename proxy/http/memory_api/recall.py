"""Endpoints for knowledge documents, and for what a chat would be given: a search with scores, and why."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from starlette.responses import Response

from proxy.domain.core import MemoryOptions, Prepared, Reason, Scope, Status, Turn
from proxy.domain.documents import INDEXING, Document, is_redacted, path_of
from proxy.domain.errors import Conflict, NotFound
from proxy.domain.ports import Clock
from proxy.http.memory_api import request_schemas as asked
from proxy.http.memory_api import response_schemas as shapes
from proxy.http.memory_api.app import ApiRequest, Operation, absent, page_of
from proxy.http.turns import Zones, bounded, fingerprint
from proxy.learn.documents import DocumentIngester
from proxy.recall import documents as document_search
from proxy.recall.documents import RankedPassage
from proxy.recall.explain import Explanation, explain, profile, search, unshown
from proxy.recall.prepare import RecallTools
from proxy.recall.triage import is_housekeeping
from proxy.wire.dialect import CHAT

_DOCUMENTS, _DOCUMENT = "/v1/memory/documents", "/v1/memory/documents/{document_id}"
_READ_ATTEMPTS = 8  # a new version may replace the one being read


@dataclass(frozen=True, slots=True)
class DocumentEndpoints:
    library: DocumentIngester
    clock: Clock

    @Operation(
        "POST",
        _DOCUMENTS,
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

    @Operation("GET", _DOCUMENTS, "listDocuments", shapes.DocumentPage)
    async def list(self, request: ApiRequest[asked.ScopePageQuery, None]) -> Response:
        """List documents, the last written first."""
        return await page_of(request, partial(self.library.store.list, request.scope()), _shown)

    @Operation("GET", _DOCUMENT, "getDocument", shapes.DocumentWhole)
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

    @Operation("DELETE", _DOCUMENT, "deleteDocument", shapes.DeletedShape)
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


# ---------------------------------------------------------------- what a chat would be given
@dataclass(frozen=True, slots=True)
class RecallEndpoints:
    """The read path, without a model."""

    recall: RecallTools
    zones: Zones
    clock: Clock
    shape: shapes.MemoryShaper
    retrieval_limit: int = 10  # of a request that names none
    is_on: bool = True  # memory, for requests that say nothing
    session_key: Callable[[str], str] = str  # the id under which the recorder stores a session

    @Operation("POST", "/v1/memory/search", "searchMemories", shapes.Matches)
    async def search(self, request: ApiRequest[asked.NoQuery, asked.SearchBody]) -> Response:
        """Search, with scores and reasons; and whether a chat that began so would be shown any of it."""
        body, scope = request.body, request.scope()
        timezone = await self.zones.of(scope, body.timezone or request.caller.timezone)
        bounds: Any = {
            "limit": body.limit or self.retrieval_limit,
            "threshold": body.similarity_threshold,
        }
        wanted = bounds | {"types": tuple(body.memory_types) if body.memory_types else None}
        # One after the other: the second uses the vector that was computed for the first.
        ranked = await search(scope, body.query, self.recall, **wanted)
        reason = await unshown(scope, body.query, self.recall, **wanted, timezone=timezone)
        shown = await self.shape.all(one.memory for one in ranked)
        matches = [
            {"object": "memory.match", "memory": memory, "score": round(one.score, 4), "why": one.why}
            for memory, one in zip(shown, ranked, strict=True)
        ]
        more: shapes.Answer = {"would_inject": reason is None, "reason": reason and reason.value}
        if "documents" in body.include:
            passages = await document_search.search(scope, body.query, self.recall.shelf, **bounds)
            more["documents"] = [passage_shape(one) for one in passages]
        return shapes.whole_list(matches, **more)

    @Operation("POST", "/v1/memory/explain", "explainRecall", shapes.Explanation)
    async def explain(self, request: ApiRequest[asked.NoQuery, asked.ExplainBody]) -> Response:
        """What a chat with these messages would be given: the block, the memories weighed, and why.

        Nothing is stored or forgotten, and no external model is called.
        """
        body, scope = request.body, request.scope()
        turn = self._turn(scope, body, await self.zones.of(scope, body.timezone or request.caller.timezone))
        if not self.is_on:
            explanation = Explanation(Prepared(status=Status.OFF, reason=Reason.DISABLED))
        elif is_housekeeping(turn.messages):
            explanation = Explanation(Prepared(status=Status.OFF, reason=Reason.HOUSEKEEPING))
        else:
            explanation = await explain(turn, self.recall)
        prepared, weighed = explanation.prepared, explanation.weighed
        memories = [
            {
                "memory": memory,
                "score": None if one.score is None else round(one.score, 4),
                "why": one.why,
                "shown": one.left_out is None,
                "left_out": one.left_out,
            }
            for one, memory in zip(weighed, await self.shape.all(w.memory for w in weighed), strict=True)
        ]
        return shapes.json_answer(
            {
                "object": "memory.explanation",
                "status": prepared.status.value,
                "reason": prepared.reason and prepared.reason.value,
                "level": prepared.level.value,
                "query": explanation.query,
                "block": prepared.block,
                "tokens": prepared.tokens,
                "memories": memories,
                "documents": [{**passage_shape(one), "shown": shown} for one, shown in explanation.passages],
            }
        )

    @Operation("GET", "/v1/memory/profile", "getProfile", shapes.Profile)
    async def profile(self, request: ApiRequest[asked.ScopeQuery, None]) -> Response:
        """What every conversation is given: standing rules, traits of the user, core memories."""
        held = await profile(request.scope(), self.recall)
        shown = await self.shape.all(memory for memory, _ in held)
        return shapes.whole_list(
            [
                {"object": "memory.of_profile", "kind": kind, "memory": memory}
                for memory, (_, kind) in zip(shown, held, strict=True)
            ]
        )

    def _turn(self, scope: Scope, body: asked.ExplainBody, timezone: str) -> Turn:
        chat = {"messages": [message.model_dump() for message in body.messages]}
        messages, named = bounded(CHAT.messages(chat)), body.session_id
        return Turn(
            request_id="",
            scope=scope,
            session_id=self.session_key(named) if named else fingerprint(scope, CHAT.conversation_key(chat)),
            model=body.model,
            messages=messages,
            # `write`, so that what the message asks to forget is left out; who erases it is the chat route.
            options=MemoryOptions(
                read=True, write=True, types=None, limit=self.retrieval_limit, threshold=None
            ),
            at=self.clock(),
            timezone=timezone,
            named=named is not None,
            standalone=named is not None and sum(m.role in ("user", "assistant") for m in messages) == 1,
        )
