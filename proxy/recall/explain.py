"""Search and explanations for the memory API: what the read path would show for a message, and why.

An explanation is the read path itself: `select` does the work, and this module compares what its stages
returned. External models are not called, and nothing is stored or erased.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from proxy.domain.core import (
    DEFAULT_TIMEZONE,
    Memory,
    MemoryOptions,
    Message,
    Prepared,
    Ranked,
    Reason,
    Scope,
    Turn,
)
from proxy.recall.documents import RankedPassage
from proxy.recall.prepare import Recalled, RecallTools, Selection, select, untimed
from proxy.recall.search import (
    ProfileMemories,
    SearchRequest,
    SearchResult,
    is_doubted,
    ranked,
    without_repeats,
)
from proxy.recall.triage import query_of

LeftOut = Literal[
    "not_searched",  # the message needs no memory; the reason of the whole says why
    "below_threshold",  # not near enough
    "unanswered",  # read together with the message, and found not to help
    "repeated",  # a better memory says the same
    "doubted",  # an uncertain preference
    "over_limit",  # beyond the number of memories that a request gets
    "already_visible",  # the conversation shows it
    "forgotten",  # the message asks to forget it
    "over_budget",  # no room left in the block
]


@dataclass(frozen=True, slots=True)
class Weighed:
    """A memory that the read path considered. `score`: None if it was not searched for; then `why` is
    "profile" (it applies to every conversation) or "past" (it held at the time that the message asks about).
    `left_out`: why it is not in the block; None: it is."""

    memory: Memory
    score: float | None
    why: str
    left_out: LeftOut | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a turn would be given, and what was considered: first what is shown, in the block's order, then
    what was left out, best first. `query`: what was read of the message. `passages`: with whether each one's
    document is in the block."""

    prepared: Prepared
    query: str = ""
    weighed: Sequence[Weighed] = ()
    passages: Sequence[tuple[RankedPassage, bool]] = ()


async def explain(turn: Turn, tools: RecallTools) -> Explanation:
    """Return what the turn would be given, and why. Raises StoreUnavailable."""
    local = _local(tools)
    selection = await select(turn, local)
    prepared, recalled, shown = selection.prepared(), selection.recalled, selection.block.memory_ids
    weighed = list(_weighed(selection))
    if recalled.found is None and turn.query.strip():
        known = {one.memory.id for one in weighed}
        asked = turn.options
        near = await search(
            turn.scope, turn.query, local, types=asked.types, limit=asked.limit, threshold=asked.threshold
        )
        weighed += [
            Weighed(one.memory, one.score, one.why, "not_searched")
            for one in near
            if one.memory.id not in known
        ]
    place = {id_: at for at, id_ in enumerate(shown)}
    weighed.sort(key=lambda one: (place.get(one.memory.id, len(place)), -(one.score or 0.0)))
    passages = [(one, one.hit.document.id in place) for one in recalled.passages]
    return Explanation(prepared, recalled.query, weighed, passages)


def _weighed(selection: Selection) -> Iterator[Weighed]:
    recalled = selection.recalled
    found = recalled.found or SearchResult(())
    known = {one.memory.id for one in found.ranked}
    for one in found.ranked:
        yield Weighed(one.memory, one.score, one.why, _unshown(one.memory, selection))
    unasked = [(one, "past") for one in recalled.past] + [(one, "profile") for one in recalled.offered]
    for memory, why in unasked:
        if memory.id not in known:
            known.add(memory.id)
            yield Weighed(memory, None, why, _unshown(memory, selection))
    for one in found.helping:
        if one.memory.id not in known:
            known.add(one.memory.id)
            reason: LeftOut = "doubted" if is_doubted(one.memory) else "over_limit"
            yield Weighed(one.memory, one.score, one.why, reason)
    for candidate in found.candidates:
        if candidate.hit.memory.id not in known:
            one = ranked(candidate, found.helps.get(candidate.hit.memory.id))
            reason = "unanswered" if one.memory.id in found.helps else "below_threshold"
            if len(without_repeats([*found.helping, one])) == len(found.helping):
                reason = "repeated"
            yield Weighed(one.memory, one.score, one.why, reason)


def _unshown(memory: Memory, selection: Selection) -> LeftOut | None:
    """Return why a memory that was chosen is not in the block."""
    recalled: Recalled = selection.recalled
    if memory.id in selection.block.memory_ids:
        return None
    if memory.id in (selection.to_forget or ()):
        return "forgotten"
    left = {one.memory.id for one in recalled.ranked} | {
        one.id for one in (*recalled.profile, *recalled.past)
    }
    return "over_budget" if memory.id in left else "already_visible"


async def profile(scope: Scope, tools: RecallTools) -> ProfileMemories:
    """Return what applies to every conversation, each memory with its kind. Raises StoreUnavailable."""
    options = MemoryOptions(read=True, write=False, types=None, limit=1, threshold=None)
    return await tools.searcher.profile(scope, await tools.searcher.snapshot(scope), options)


# ---------------------------------------------------------------- search
async def search(
    scope: Scope,
    text: str,
    tools: RecallTools,
    *,
    types: tuple[str, ...] | None = None,
    limit: int,
    threshold: float | None = None,
) -> Sequence[Ranked]:
    """Return what is near to the text, in the order of the read path, without triage, relevance and budget.
    `unshown` says whether a conversation would be shown any.

    Raises StoreUnavailable.
    """
    query = query_of(text)
    encoded = await tools.searcher.encode(query, await tools.searcher.read(query.text))
    wanted = SearchRequest(scope, types, limit, threshold, began=tools.clock(), least_help=0.0)
    return (await tools.searcher.find(encoded, wanted)).ranked


async def unshown(
    scope: Scope,
    text: str,
    tools: RecallTools,
    *,
    types: tuple[str, ...] | None = None,
    limit: int,
    threshold: float | None = None,
    timezone: str = DEFAULT_TIMEZONE,
) -> Reason | None:
    """Return why a conversation that begins with the text would be shown no memory for it, None if it would
    be. External models are not called, and the budget is not checked.

    Raises StoreUnavailable.
    """
    turn = Turn(
        request_id="",
        scope=scope,
        session_id="",
        model="",
        messages=(Message("user", text),),
        options=MemoryOptions(read=True, write=False, types=types, limit=limit, threshold=threshold),
        at=tools.clock(),
        timezone=timezone,
    )
    recalled = (await select(turn, _local(tools))).recalled
    if recalled.error is not None:
        raise recalled.error
    return None if recalled.ranked else recalled.reason


def _local(tools: RecallTools) -> RecallTools:
    """Return the tools without models that run elsewhere, and without timing: no request is served."""
    return replace(tools, rewriter=None, planner=None, stage=untimed)
