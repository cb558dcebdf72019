"""Fill the token budget with ranked memories, and write the block of text that is injected.

The best match goes in first, whatever it costs, since it is what was asked for. The rest of a short budget
is filled by worth: the score divided by the square root of the cost, so that a long procedure does not push
out three facts that score a little less; preferences get a tenth more, since they shape every answer.
Between equals the kind decides. (Share of the answers of eleven personas that is in a block of 400 and of
250 tokens: .92 and .81; with half of the budget reserved by kind, .89 and .76.)

In the block the best match stands first, so that a reader, and a log, sees at the top what the search
ranked highest. What the session's notes say comes before all memories. Where a project's preferences stand
beside general ones, the block says which take precedence: whether two of them conflict, the model sees
better than a rule.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from proxy import timezones
from proxy.block import NOTICE, fence, neutralise
from proxy.domain import DEFAULT_TIMEZONE, KINDS, Memory, Message, Ranked
from proxy.notes import NOTHING, SessionNotes
from proxy.pipeline import reminders
from proxy.ports import TokenCounter

SHORT_ID = 2  # characters: with the whole ids in X-Memory-Ids, enough to tell what an answer cites
OVERRULED = " A preference of the project stands above a general one."
PREFERRED = 1.1  # what a preference is worth beside another memory of its score and length


@dataclass(frozen=True, slots=True)
class Block:
    """The text to insert ("" for nothing), the ids of the memories in it and behind them of the documents,
    its length in tokens (to a few)."""

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
    timezone: str = DEFAULT_TIMEZONE,
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
        if first := reminders.reminders(notes, messages, budget_tokens=left, tokens=cost, timezone=timezone):
            frame, notice = frame + of_session + sum(map(cost, first)), NOTICE + reminders.NOTICE
    if _may_differ([r.memory for r in ranked]):
        frame, notice = frame + cost(OVERRULED), notice + OVERRULED
    id_chars = _distinct_chars([r.memory.id for r in ranked])
    lines = [render(r.memory, id_chars, timezone) for r in ranked]
    costs = [cost(line) for line in lines]
    chosen = _choose(ranked, costs, budget_tokens - frame)
    if not (first or chosen):
        return Block("", (), 0)
    # The sum, not a count of the whole: a line is counted once for all requests, a block for each.
    spent = frame + sum(costs[i] for i in chosen)
    text = fence([*first, *(lines[i] for i in chosen)], notice=notice)
    return Block(text, tuple(ranked[i].memory.id for i in chosen), spent)


def _choose(ranked: Sequence[Ranked], costs: Sequence[int], budget: int) -> list[int]:
    """Return the places that fit, in order: the best match, then by worth. See the module's docstring."""

    def order(place: int) -> tuple[bool, float, int, int]:
        one = ranked[place]
        priority = _priority(one.memory)
        worth = one.score * (PREFERRED if priority == _FIRST else 1.0) / math.sqrt(costs[place])
        return place > 0, -worth, priority, place

    chosen = []
    for place in sorted(range(len(ranked)), key=order):
        if costs[place] <= budget:
            chosen.append(place)
            budget -= costs[place]
    return sorted(chosen)


def render(memory: Memory, id_chars: int = SHORT_ID, timezone: str = DEFAULT_TIMEZONE) -> str:
    """Return a memory's line: its type (and whether it is a preference for the project alone), the user's day
    from which it holds, the end of its id, its content."""
    of_project = memory.type == _PREFERENCE and memory.scope.project is not None
    kind = f"{memory.type} of the project" if of_project else memory.type
    day = timezones.local(memory.valid_from, timezone).date().isoformat()
    # The end of the id: ids that sort by time all begin alike.
    return f"[{kind} {day} #{memory.id[-id_chars:]}] {neutralise(memory.content)}"


def _may_differ(memories: Sequence[Memory]) -> bool:
    """True where preferences of a project stand beside general ones: which of them differ, the model sees."""
    projects = {m.scope.project for m in memories if m.type == _PREFERENCE}
    return len(projects) > 1 and None in projects


def _distinct_chars(ids: Sequence[str]) -> int:
    """Return how many characters of their ends tell the ids apart, SHORT_ID at least."""
    longest = max(map(len, ids), default=SHORT_ID)
    return next((n for n in range(SHORT_ID, longest) if len({i[-n:] for i in ids}) == len(ids)), longest)


def _priority(memory: Memory) -> int:
    kind = KINDS.get(memory.type)
    return kind.pack_order if kind else len(KINDS) + 1


_PREFERENCE = "preference"
_FIRST = min(kind.pack_order for kind in KINDS.values())
