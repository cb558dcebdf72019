"""Shapes of the memory API's answers, and the functions that make them from domain values."""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from types import GenericAlias
from typing import Any, Literal, NotRequired, TypeVar, cast

import orjson
from starlette.responses import Response
from typing_extensions import TypedDict

from proxy.domain.changes import Event, EvolutionPolicy
from proxy.domain.core import (
    ForgetCounts,
    Memory,
    Scope,
    Source,
)
from proxy.domain.ports import Clock, ProfileKind
from proxy.domain.session import JobState
from proxy.recall.explain import LeftOut


class EvidenceShape(TypedDict):
    session_id: str
    exchange_id: str
    span: str


class StoredMemory(TypedDict):
    id: str
    object: Literal["memory"]
    type: str
    content: str
    user_id: str
    project_id: str | None
    source: Source
    created_at: float
    updated_at: float
    valid_from: float
    valid_to: float | None
    superseded_by: str | None
    expires_at: float | None
    archived: bool
    importance: float
    weight: float
    confidence: float
    tags: list[str]
    access_count: int
    last_accessed: float | None
    pinned: bool
    uses: int
    last_used_at: float | None
    archived_by: str | None
    sources: list[str]
    evidence: list[EvidenceShape]


class MemoryShape(StoredMemory):
    core: bool
    fades_at: float | None


class AddedMemory(MemoryShape):
    change: Literal["created", "superseded", "confirmed"]


class EventShape(TypedDict):
    object: Literal["memory.event"]
    at: float
    action: str
    by: str
    content: str


class HistoryEvent(EventShape):
    became: NotRequired[str]


class TimelineEvent(EventShape):
    id: str
    memory_id: str
    type: str
    project_id: str | None
    became: str | None


class EntityShape(TypedDict):
    id: str
    object: Literal["memory.entity"]
    kind: Literal["person", "place", "project", "thing", "name"]
    name: str
    aliases: list[str]
    memories: int
    linked: list[str]


class ExportLine(StoredMemory):
    history: list[EventShape]


class Match(TypedDict):
    object: Literal["memory.match"]
    memory: MemoryShape
    score: float
    why: str


class DocumentShape(TypedDict):
    id: str
    object: Literal["memory.document"]
    name: str
    version: int
    status: Literal["ready", "indexing"]
    user_id: str
    project_id: str | None
    characters: int
    sections: int
    passages: int
    created_at: int
    updated_at: int


class DocumentPosted(DocumentShape):
    change: Literal["created", "updated", "unchanged"]
    redacted: list[str]


class SectionShape(TypedDict):
    headings: list[str]
    start: int
    end: int
    passages: int
    redacted: bool


class DocumentWhole(DocumentShape):
    outline: list[SectionShape]
    content: NotRequired[str]


class PassageShape(TypedDict):
    object: Literal["memory.passage"]
    document_id: str
    name: str
    version: int
    project_id: str | None
    headings: list[str]
    text: str
    start: int
    end: int
    score: float


class HeldShape(TypedDict):
    object: Literal["memory.quarantined"]
    id: str
    content: str
    type: str
    user_id: str
    project_id: str | None
    reason: str
    source: Source
    confidence: float
    tags: list[str]
    created_at: float
    evidence: str


class SessionShape(TypedDict):
    object: Literal["memory.session"]
    id: str
    project_id: str | None
    last_at: float
    exchanges: int
    pending: int


class JobShape(TypedDict):
    object: Literal["memory.job"]
    id: str
    user_id: str
    project_id: str | None
    session_id: str
    state: JobState
    lane: int
    attempts: int
    exchanges: int
    created_at: float
    due_at: float
    reason: str


class Counts(TypedDict):
    memories: int
    exchanges: int
    sessions: int
    jobs: int
    responses: int
    quarantined: int
    documents: int
    conversations: int


class ReceiptShape(TypedDict):
    object: Literal["memory.receipt"]
    id: str
    created_at: float
    user_id: str
    project_id: str | None
    type: str | None
    memory_id: str | None
    by: str
    counts: Counts


class ListShape(TypedDict):
    object: Literal["list"]
    first_id: str | None
    last_id: str | None
    has_more: bool


class MemoryPage(ListShape):
    data: list[MemoryShape]
    total: int | None


class Matches(TypedDict):
    object: Literal["list"]
    data: list[Match]
    has_more: Literal[False]
    would_inject: bool
    reason: str | None
    documents: NotRequired[list[PassageShape]]


class WeighedShape(TypedDict):
    memory: MemoryShape
    score: float | None
    why: str
    shown: bool
    left_out: LeftOut | None


class WeighedPassage(PassageShape):
    shown: bool


class Explanation(TypedDict):
    object: Literal["memory.explanation"]
    status: str
    reason: str | None
    level: str
    query: str
    block: str
    tokens: int
    memories: list[WeighedShape]
    documents: list[WeighedPassage]


class ProfileEntry(TypedDict):
    object: Literal["memory.of_profile"]
    kind: ProfileKind
    memory: MemoryShape


class Profile(TypedDict):
    object: Literal["list"]
    data: list[ProfileEntry]
    has_more: Literal[False]


class HistoryShape(TypedDict):
    object: Literal["list"]
    data: list[HistoryEvent]
    has_more: Literal[False]


class DeletedShape(TypedDict):
    id: NotRequired[str]
    object: Literal["memory.deleted"]
    deleted: bool
    dry_run: NotRequired[bool]
    deleted_count: int
    deleted_exchanges: int
    deleted_sessions: int
    deleted_jobs: int
    deleted_responses: int
    deleted_quarantined: int
    deleted_documents: int
    deleted_conversations: int
    receipt: str | None


class EvolutionSettings(TypedDict):
    enabled: bool
    use: bool
    decay: bool
    consolidate: bool
    reflect: bool
    contradictions: bool
    links: bool
    consolidate_from: int
    use_gain: float
    unused_loss: float
    archive_below: float
    core_above: float
    half_life_days: float
    half_life_days_by_type: dict[str, float]
    grace_days: float
    forget_below: float
    exempt_types: list[str]


class SettingsShape(TypedDict):
    object: Literal["memory.settings"]
    user_id: str
    own: dict[str, Any]
    settings: EvolutionSettings


class StepShape(TypedDict):
    step: str
    outcome: Literal["done", "failed"]
    counts: dict[str, int]
    ids: dict[str, list[str]]
    more: bool


class Evolved(TypedDict):
    object: Literal["memory.evolution"]
    user_id: str
    dry_run: bool
    steps: list[StepShape]


class DayShape(TypedDict):
    date: str
    added: int
    superseded: int
    archived: int
    used: int


class InsightsShape(TypedDict):
    object: Literal["memory.insights"]
    user_id: str
    active: int
    archived: int
    core: int
    pinned: int
    by_type: dict[str, int]
    used: int
    unused: int
    by_day: list[DayShape]
    fading: list[MemoryShape]


class SessionEnded(TypedDict):
    id: str
    object: Literal["memory.session"]
    queued_exchanges: int


class JobsRevived(TypedDict):
    object: Literal["memory.jobs"]
    revived: int


class Discarded(TypedDict):
    id: str
    object: Literal["memory.quarantined.deleted"]
    deleted: Literal[True]


class Undone(TypedDict):
    object: Literal["memory.undo"]
    id: str
    restored: list[str]


class ContradictionShape(TypedDict):
    object: Literal["memory.contradiction"]
    id: str
    older: MemoryShape
    newer: MemoryShape
    score: float
    found_at: int


class LineRefused(TypedDict):
    line: int
    message: str


class Imported(TypedDict):
    object: Literal["memory.import"]
    imported: int
    skipped: int
    refused: int
    errors: list[LineRefused]


class Identity(TypedDict):
    object: Literal["memory.identity"]
    mode: Literal["open", "keys", "jwt", "header"]
    tenant: str
    user_id: str | None
    rights: list[str]
    needs_credential: bool
    version: str


class ErrorShape(TypedDict):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(TypedDict):
    error: ErrorShape


def _page(name: str, shape: Any) -> Any:
    """Return the shape of a page of these."""
    make: Any = TypedDict
    return make(name, {**ListShape.__annotations__, "data": GenericAlias(list, shape)})


TimelinePage = _page("TimelinePage", TimelineEvent)
EntityPage = _page("EntityPage", EntityShape)
MemoriesOfEntity = _page("MemoriesOfEntity", MemoryShape)
SessionPage = _page("SessionPage", SessionShape)
JobPage = _page("JobPage", JobShape)
HeldPage = _page("HeldPage", HeldShape)
DocumentPage = _page("DocumentPage", DocumentShape)
ReceiptPage = _page("ReceiptPage", ReceiptShape)
ContradictionPage = _page("ContradictionPage", ContradictionShape)


# ---------------------------------------------------------------- from domain values to answers
Shape = TypeVar("Shape")
Item = TypeVar("Item")


def filled(shape: type[Shape], source: object, **given: Any) -> Shape:
    """Return an answer of this shape: the fields in `given`, and the attributes of `source` named like the
    others."""
    names = cast(Any, shape).__annotations__
    return cast(Shape, {name: given[name] if name in given else getattr(source, name) for name in names})


def owner_fields(scope: Scope) -> dict[str, str | None]:
    """Return the fields that name a user and a project."""
    return {"user_id": scope.user, "project_id": scope.project}


def whole_seconds(source: object, *names: str) -> dict[str, int | None]:
    """Return the times of `source` in whole seconds."""
    times = ((name, getattr(source, name)) for name in names)
    return {name: None if at is None else int(at) for name, at in times}


def json_answer(value: object, status: int = 200) -> Response:
    """Return a JSON answer."""
    return Response(orjson.dumps(value), status, media_type="application/json")


def page_answer(found: Sequence[Item], limit: int, shown: Callable[[Item], Any]) -> Response:
    """Answer with one page of a list. `found`: one item more than `limit` if there are more."""
    data = [shown(one) for one in found[:limit]]
    return json_answer(list_of(data, has_more=len(found) > limit))


def list_of(data: list[Any], *, has_more: bool, **more: Any) -> dict[str, Any]:
    """Return OpenAI's list object. `more` replaces and adds fields."""
    ids = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return {"object": "list", **ids, "has_more": has_more, "data": data, **more}


PolicyOf = Callable[[Scope], Awaitable[EvolutionPolicy]]
_DEFAULT_POLICY = EvolutionPolicy()


async def _default_policy(scope: Scope) -> EvolutionPolicy:
    return _DEFAULT_POLICY


@dataclass(frozen=True, slots=True)
class MemoryShaper:
    """Makes memories into answers: with times in whole seconds, and importance as it has decayed until now,
    by the policy of each one's user."""

    policy_of: PolicyOf = _default_policy
    clock: Clock = time.time

    async def __call__(self, memory: Memory) -> MemoryShape:
        """Return one memory."""
        return (await self.all([memory]))[0]

    async def all(self, memories: Iterable[Memory]) -> list[MemoryShape]:
        """Return all of them, in order."""
        shown, policies = list(memories), dict[tuple[str, str], EvolutionPolicy]()
        for memory in shown:
            user = (memory.scope.tenant, memory.scope.user)
            if user not in policies:
                policies[user] = await self.policy_of(Scope(*user))
        now = self.clock()
        return [_shape(m, policies[m.scope.tenant, m.scope.user], now) for m in shown]


BY_DEFAULT = MemoryShaper()


def _shape(memory: Memory, policy: EvolutionPolicy, now: float) -> MemoryShape:
    times = ("created_at", "updated_at", "valid_from", "valid_to", "expires_at", "last_accessed")
    fades_at, used_at = policy.fades_at(memory), memory.used_at
    shown = {
        **exact_memory(memory),
        **whole_seconds(memory, *times),
        "last_used_at": None if used_at is None else int(used_at),
        "importance": round(policy.importance(memory, now), 4),
        "core": policy.is_core(memory),
        "fades_at": None if fades_at is None else int(fades_at),
    }
    return cast(MemoryShape, shown)


def exact_memory(memory: Memory) -> StoredMemory:
    """Return a memory as it is stored, with its exact times, by which memories are ordered."""
    owner = owner_fields(memory.scope)
    return filled(StoredMemory, memory, object="memory", last_used_at=memory.used_at, **owner)


def event_shape(event: Event) -> EventShape:
    """Return one line of a memory's history, with its exact time."""
    return filled(EventShape, event, object="memory.event")


def deleted_answer(counts: ForgetCounts, *, id: str | None = None, dry_run: bool = False) -> Response:
    """Answer with what was deleted, or would be."""
    shown: dict[str, Any] = {"object": "memory.deleted", "deleted": not dry_run}
    if id is not None:
        shown["id"] = id
    if dry_run:
        shown["dry_run"] = True
    for name in Counts.__annotations__:
        shown["deleted_count" if name == "memories" else f"deleted_{name}"] = getattr(counts, name)
    return json_answer({**shown, "receipt": counts.receipt})
