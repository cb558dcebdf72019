"""Shapes of the memory API's answers, and the functions that make them from domain values."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from types import GenericAlias
from typing import Any, Literal, NotRequired

from starlette.responses import Response
from typing_extensions import TypedDict

from proxy.domain.changes import DayCounts, Event, EvolutionPolicy, Insights
from proxy.domain.core import Candidate, Entity, ForgetCounts, Memory, Receipt, Scope
from proxy.domain.documents import Document
from proxy.domain.ports import Clock, ProfileKind
from proxy.domain.session import JobInfo, SessionInfo
from proxy.recall.explain import LeftOut
from proxy.wire.body import dump

Shape = Any  # a TypedDict, made by `_shape`
Answer = dict[str, Any]


def _shape(name: str, object_: str, *parts: Any, **fields: Any) -> Shape:
    """Return a shape with `object` (none if it is ""), the fields of the parts, which may be shapes, and
    these fields."""
    make: Any = TypedDict
    own: dict[str, Any] = {"object": Literal[object_]} if object_ else {}
    merged = {**own}
    for part in (*parts, fields):
        merged |= getattr(part, "__annotations__", part)
    return make(name, merged | own)


def _of(source: type, names: str) -> dict[str, Any]:
    """Return fields that have the name and type of a domain class's."""
    return {name: source.__annotations__[name] for name in names.split()}


def _array(shape: Shape) -> Any:
    return GenericAlias(list, shape)


def _page(name: str, shape: Shape, **fields: Any) -> Shape:
    ends = {"first_id": str | None, "last_id": str | None}
    return _shape(name, "list", ends, fields, has_more=bool, data=_array(shape))


def _whole_list(name: str, shape: Shape, **fields: Any) -> Shape:
    return _shape(name, "list", fields, has_more=Literal[False], data=_array(shape))


_OWNER: dict[str, Any] = {"user_id": str, "project_id": str | None}

# ---------------------------------------------------------------- memories
EvidenceShape = _shape("EvidenceShape", "", session_id=str, exchange_id=str, span=str)
StoredMemory = _shape(
    "StoredMemory",
    "memory",
    _of(
        Memory,
        "id type content source created_at updated_at valid_from valid_to superseded_by expires_at archived"
        " importance weight confidence tags access_count last_accessed pinned uses archived_by sources",
    ),
    _OWNER,
    last_used_at=float | None,
    evidence=_array(EvidenceShape),
)
MemoryShape = _shape("MemoryShape", "memory", StoredMemory, core=bool, fades_at=float | None)
AddedMemory = _shape(
    "AddedMemory", "memory", MemoryShape, change=Literal["created", "superseded", "confirmed"]
)
MemoryPage = _page("MemoryPage", MemoryShape, total=int | None)
EventShape = _shape("EventShape", "memory.event", _of(Event, "at action by content"))
HistoryEvent = _shape("HistoryEvent", "memory.event", EventShape, became=NotRequired[str])
HistoryShape = _whole_list("HistoryShape", HistoryEvent)
ExportLine = _shape("ExportLine", "memory", StoredMemory, history=_array(EventShape))
LineRefused = _shape("LineRefused", "", line=int, message=str)
Imported = _shape(
    "Imported", "memory.import", imported=int, skipped=int, refused=int, errors=_array(LineRefused)
)

# ---------------------------------------------------------------- what is forgotten
Counts = _shape("Counts", "", {name: int for name in ForgetCounts.__annotations__ if name != "receipt"})
DELETED = {
    name: "deleted_count" if name == "memories" else f"deleted_{name}" for name in Counts.__annotations__
}
DeletedShape = _shape(
    "DeletedShape",
    "memory.deleted",
    dict.fromkeys(DELETED.values(), int),
    id=NotRequired[str],
    deleted=bool,
    dry_run=NotRequired[bool],
    receipt=str | None,
)
ReceiptShape = _shape(
    "ReceiptShape",
    "memory.receipt",
    _of(Receipt, "id type memory_id by"),
    _OWNER,
    created_at=float,
    counts=Counts,
)
ReceiptPage = _page("ReceiptPage", ReceiptShape)

# ---------------------------------------------------------------- documents
DocumentShape = _shape(
    "DocumentShape",
    "memory.document",
    _of(Document, "id name version characters sections passages"),
    _OWNER,
    status=Literal["ready", "indexing"],
    created_at=int,
    updated_at=int,
)
DocumentPage = _page("DocumentPage", DocumentShape)
DocumentPosted = _shape(
    "DocumentPosted",
    "memory.document",
    DocumentShape,
    change=Literal["created", "updated", "unchanged"],
    redacted=list[str],
)
SectionShape = _shape("SectionShape", "", headings=list[str], start=int, end=int, passages=int, redacted=bool)
DocumentWhole = _shape(
    "DocumentWhole", "memory.document", DocumentShape, outline=_array(SectionShape), content=NotRequired[str]
)
_PASSAGE: dict[str, Any] = {
    "document_id": str,
    "name": str,
    "version": int,
    "project_id": str | None,
    "headings": list[str],
    "text": str,
    "start": int,
    "end": int,
    "score": float,
}
PassageShape = _shape("PassageShape", "memory.passage", _PASSAGE)

# ---------------------------------------------------------------- what a chat is given
Match = _shape("Match", "memory.match", memory=MemoryShape, score=float, why=str)
Matches = _whole_list(
    "Matches", Match, would_inject=bool, reason=str | None, documents=NotRequired[_array(PassageShape)]
)
WeighedShape = _shape(
    "WeighedShape", "", memory=MemoryShape, score=float | None, why=str, shown=bool, left_out=LeftOut | None
)
WeighedPassage = _shape("WeighedPassage", "memory.passage", _PASSAGE, shown=bool)
Explanation = _shape(
    "Explanation",
    "memory.explanation",
    status=str,
    reason=str | None,
    level=str,
    query=str,
    block=str,
    tokens=int,
    memories=_array(WeighedShape),
    documents=_array(WeighedPassage),
)
ProfileEntry = _shape("ProfileEntry", "memory.of_profile", kind=ProfileKind, memory=MemoryShape)
Profile = _whole_list("Profile", ProfileEntry)

# ---------------------------------------------------------------- how memories change
EvolutionSettings = _shape(
    "EvolutionSettings",
    "",
    {name: kind for name, kind in EvolutionPolicy.__annotations__.items() if name != "calls_per_user_hour"},
)
SettingsShape = _shape(
    "SettingsShape", "memory.settings", user_id=str, own=dict[str, Any], settings=EvolutionSettings
)
StepShape = _shape(
    "StepShape",
    "",
    step=str,
    outcome=Literal["done", "failed"],
    counts=dict[str, int],
    ids=dict[str, list[str]],
    more=bool,
)
Evolved = _shape("Evolved", "memory.evolution", user_id=str, dry_run=bool, steps=_array(StepShape))
DayShape = _shape("DayShape", "", _of(DayCounts, "date added superseded archived used"))
InsightsShape = _shape(
    "InsightsShape",
    "memory.insights",
    _of(Insights, "active archived core pinned by_type used unused"),
    user_id=str,
    by_day=_array(DayShape),
    fading=_array(MemoryShape),
)
Undone = _shape("Undone", "memory.undo", id=str, restored=list[str])
ContradictionShape = _shape(
    "ContradictionShape",
    "memory.contradiction",
    id=str,
    older=MemoryShape,
    newer=MemoryShape,
    score=float,
    found_at=int,
)
ContradictionPage = _page("ContradictionPage", ContradictionShape)

# ---------------------------------------------------------------- sessions, quarantine, the rest
TimelineEvent = _shape(
    "TimelineEvent",
    "memory.event",
    EventShape,
    id=str,
    memory_id=str,
    type=str,
    project_id=str | None,
    became=str | None,
)
TimelinePage = _page("TimelinePage", TimelineEvent)
EntityShape = _shape(
    "EntityShape",
    "memory.entity",
    _of(Entity, "id name aliases memories linked"),
    kind=Literal["person", "place", "project", "thing", "name"],
)
EntityPage = _page("EntityPage", EntityShape)
MemoriesOfEntity = _page("MemoriesOfEntity", MemoryShape)
SessionShape = _shape(
    "SessionShape", "memory.session", _of(SessionInfo, "id last_at exchanges pending"), project_id=str | None
)
SessionPage = _page("SessionPage", SessionShape)
SessionEnded = _shape("SessionEnded", "memory.session", id=str, queued_exchanges=int)
JobShape = _shape(
    "JobShape",
    "memory.job",
    _of(JobInfo, "id session_id state lane attempts exchanges created_at due_at reason"),
    _OWNER,
)
JobPage = _page("JobPage", JobShape)
JobsRevived = _shape("JobsRevived", "memory.jobs", revived=int)
HeldShape = _shape(
    "HeldShape",
    "memory.quarantined",
    _of(Candidate, "content type source confidence tags evidence"),
    _OWNER,
    id=str,
    reason=str,
    created_at=float,
)
HeldPage = _page("HeldPage", HeldShape)
Discarded = _shape("Discarded", "memory.quarantined.deleted", id=str, deleted=Literal[True])
Identity = _shape(
    "Identity",
    "memory.identity",
    mode=Literal["open", "keys", "jwt", "header"],
    tenant=str,
    user_id=str | None,
    rights=list[str],
    needs_credential=bool,
    version=str,
)
ErrorBody = _shape(
    "ErrorBody", "", error=_shape("ErrorShape", "", message=str, type=str, param=str | None, code=str | None)
)


# ---------------------------------------------------------------- from domain values to answers
def filled(shape: Shape, source: object, **given: Any) -> Answer:
    """Return an answer of this shape: the fields in `given`, its `object`, and the attributes of `source`
    that have the names of the others."""
    fields = dict(shape.__annotations__)
    if "object" in fields:
        given["object"] = fields["object"].__args__[0]
    return {name: given[name] if name in given else getattr(source, name) for name in fields}


def owner_fields(scope: Scope) -> dict[str, str | None]:
    return {"user_id": scope.user, "project_id": scope.project}


def whole_seconds(source: object, *names: str) -> dict[str, int | None]:
    """Return the times of `source` in whole seconds."""
    times = ((name, getattr(source, name)) for name in names)
    return {name: None if at is None else int(at) for name, at in times}


def json_answer(value: object, status: int = 200) -> Response:
    return Response(dump(value), status, media_type="application/json")


def list_of(data: Sequence[Any], *, has_more: bool, **more: Any) -> Answer:
    """Return OpenAI's list object. `more` replaces and adds fields."""
    ids = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return {"object": "list", **ids, "has_more": has_more, "data": data, **more}


def whole_list(data: Sequence[Any], **more: Any) -> Response:
    return json_answer({"object": "list", "data": data, "has_more": False, **more})


def exact_memory(memory: Memory) -> Answer:
    """Return a memory as it is stored, with its exact times, by which memories are ordered."""
    return filled(StoredMemory, memory, last_used_at=memory.used_at, **owner_fields(memory.scope))


@dataclass(frozen=True, slots=True)
class MemoryShaper:
    """Makes memories into answers: with times in whole seconds, and importance as it has decayed until now,
    by the policy of each one's user."""

    policy_of: Callable[[Scope], Awaitable[EvolutionPolicy]]
    clock: Clock

    async def __call__(self, memory: Memory) -> Answer:
        return (await self.all([memory]))[0]

    async def all(self, memories: Iterable[Memory]) -> list[Answer]:
        shown, policies, now = list[Answer](), dict[tuple[str, str], EvolutionPolicy](), self.clock()
        times = ("created_at", "updated_at", "valid_from", "valid_to", "expires_at", "last_accessed")
        for memory in memories:
            user = (memory.scope.tenant, memory.scope.user)
            if user not in policies:
                policies[user] = await self.policy_of(Scope(*user))
            policy = policies[user]
            fades_at, used_at = policy.fades_at(memory), memory.used_at
            shown.append(
                {
                    **exact_memory(memory),
                    **whole_seconds(memory, *times),
                    "last_used_at": None if used_at is None else int(used_at),
                    "importance": round(policy.importance(memory, now), 4),
                    "core": policy.is_core(memory),
                    "fades_at": None if fades_at is None else int(fades_at),
                }
            )
        return shown


def deleted_answer(counts: ForgetCounts, *, id: str | None = None, dry_run: bool = False) -> Response:
    shown: Answer = {"object": "memory.deleted", "deleted": not dry_run}
    if id is not None:
        shown["id"] = id
    if dry_run:
        shown["dry_run"] = True
    shown |= {field: getattr(counts, name) for name, field in DELETED.items()}
    return json_answer({**shown, "receipt": counts.receipt})
