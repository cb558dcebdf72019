"""From ranked memories to the block of text (requirements E1, E3).

A short budget is shared: one half goes to the best matches, since they are what was asked for, the other by
priority of kind, preferences first, since they shape every answer. (All by priority left the best match out
where it was a long procedure.) In the block the best match stands first, so that a reader, and a log, sees
at the top what the search thought of most. What the session's notes say comes before all memories.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from proxy.block import NOTICE, fence, neutralise
from proxy.domain import KINDS, Memory, Message, Ranked
from proxy.notes import NOTHING, SessionNotes
from proxy.pipeline import reminders
from proxy.ports import TokenCounter

SHORT_ID = 8


@dataclass(frozen=True, slots=True)
class Block:
    """The text to insert ("" for nothing), whose memories stand in it, its length in tokens (to a few)."""

    text: str
    memory_ids: tuple[str, ...]
    tokens: int


def inject(
    ranked: Sequence[Ranked],
    *,
    budget_tokens: int,
    tokens: TokenCounter,
    model: str,
    notes: SessionNotes = NOTHING,
    messages: Sequence[Message] = (),
) -> Block:
    """Return the block with as many whole memories as the budget holds, fence included, after what the
    session's `notes` say that the `messages` do not show.

    A memory that does not fit is left out and the next is tried.
    """

    def cost(line: str) -> int:
        return tokens.count(line + "\n", model)

    frame, notice = tokens.count(fence(["-"]), model), NOTICE
    first: list[str] = []
    if notes != NOTHING:
        of_session = cost(reminders.NOTICE)
        left = budget_tokens - frame - of_session
        if first := reminders.reminders(notes, messages, budget_tokens=left, tokens=cost):
            frame, notice = frame + of_session + sum(map(cost, first)), NOTICE + reminders.NOTICE
    lines = [render(r.memory) for r in ranked]
    costs = [cost(line) for line in lines]
    chosen = _choose(costs, [_priority(r.memory) for r in ranked], budget_tokens - frame)
    if not (first or chosen):
        return Block("", (), 0)
    # The sum, not a count of the whole: a line is counted once for all requests, a block for each.
    spent = frame + sum(costs[i] for i in chosen)
    text = fence([*first, *(lines[i] for i in chosen)], notice=notice)
    return Block(text, tuple(ranked[i].memory.id for i in chosen), spent)


def _choose(costs: Sequence[int], priorities: Sequence[int], budget: int) -> list[int]:
    """Return the places that fit, in order: by rank into the first half, then by priority, then rank."""
    chosen: set[int] = set()
    left, reserve = budget, budget - budget // 2
    by_rank = range(len(costs))
    for place in by_rank:
        # The best match goes in whatever it costs, as long as the block can hold it.
        if costs[place] <= (left if not chosen else left - reserve):
            chosen.add(place)
            left -= costs[place]
    for place in sorted(by_rank, key=lambda i: (priorities[i], i)):
        if place not in chosen and costs[place] <= left:
            chosen.add(place)
            left -= costs[place]
    return sorted(chosen)


def render(memory: Memory) -> str:
    """Return a memory's line: its type, the day from which it holds, a short id, its content."""
    day = datetime.fromtimestamp(memory.valid_from, UTC).date().isoformat()
    # The end of the id: ids that sort by time all begin alike.
    return f"- [{memory.type} {day} #{memory.id[-SHORT_ID:]}] {neutralise(memory.content)}"


def _priority(memory: Memory) -> int:
    kind = KINDS.get(memory.type)
    return kind.pack_order if kind else len(KINDS) + 1
