"""Fill the token budget with ranked memories, and write the block of text that is injected.

The best match goes in first, whatever it costs, since it is what was asked for. The rest of a short budget
is filled by worth: the score divided by the square root of the cost, so that a long procedure does not push
out three facts that score a little less; preferences get a tenth more, since they shape every answer.
Between equals the kind decides.

Order in the block: the session's notes, the memories recalled for the message, best first, then the profile,
which has a budget of its own. If a project's preferences are in it with general ones, the block says which
take precedence; whether two of them conflict, the model sees better than a rule.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.domain import timezones
from proxy.domain.core import DEFAULT_TIMEZONE, KINDS, Memory, Message, Ranked
from proxy.domain.ports import TokenCounter
from proxy.domain.session import NO_NOTES, SessionNotes
from proxy.recall import reminders
from proxy.text.markup import NOTICE, fence, neutralise

SHORT_ID = 2  # characters: with the whole ids in X-Memory-Ids, enough to tell what an answer cites
OVERRULED = " A preference of the project stands above a general one."
PREFERRED = 1.1  # worth of a preference, compared with another memory of its score and length
PROFILE_LINES = 6


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be injected, in tokens. `profile_tokens`: for what holds in every conversation."""

    tokens: TokenCounter
    memory_tokens: int = 600
    profile_tokens: int = 150


@dataclass(frozen=True, slots=True)
class Block:
    """The text to insert ("" for nothing), the ids of the memories in it and behind them of the documents,
    its length in tokens (to a few)."""

    text: str
    memory_ids: tuple[str, ...]
    tokens: int


NO_BLOCK = Block("", (), 0)


def inject(
    ranked: Sequence[Ranked],
    profile: Sequence[Memory] = (),
    *,
    budget: Budget,
    model: str,
    notes: SessionNotes = NO_NOTES,
    messages: Sequence[Message] = (),
    timezone: str = DEFAULT_TIMEZONE,
) -> Block:
    """Return the block with as many whole memories as the budget holds, fence included, after what the
    session's `notes` say that the `messages` do not show, and before as much of the `profile` as its own
    budget holds.

    A memory that does not fit is left out and the next is tried.
    """

    def cost(line: str) -> int:
        return budget.tokens.count(line + "\n", model)

    if not ranked and not profile and notes == NO_NOTES:
        return NO_BLOCK
    frame, notice = budget.tokens.count(fence(["-"]), model), NOTICE
    first: list[str] = []
    if notes != NO_NOTES:
        of_session = cost(reminders.NOTICE)
        left = budget.memory_tokens - frame - of_session
        if first := reminders.reminders(notes, messages, budget_tokens=left, tokens=cost, timezone=timezone):
            frame, notice = frame + of_session + sum(map(cost, first)), NOTICE + reminders.NOTICE
    memories = [*(r.memory for r in ranked), *profile]
    if _may_differ(memories):
        frame, notice = frame + cost(OVERRULED), notice + OVERRULED
    id_chars = _distinct_chars([m.id for m in memories])
    lines = [render(m, id_chars, timezone) for m in memories]
    costs = [cost(line) for line in lines]
    chosen = _choose(ranked, costs, budget.memory_tokens - frame)
    chosen += _fitting(range(len(ranked), len(memories)), costs, budget.profile_tokens)
    if not (first or chosen):
        return NO_BLOCK
    # The sum, not a count of the whole: a line is counted once for all requests, a block for each.
    spent = frame + sum(costs[i] for i in chosen)
    text = fence([*first, *(lines[i] for i in chosen)], notice=notice)
    return Block(text, tuple(memories[i].id for i in chosen), spent)


def _fitting(places: Sequence[int], costs: Sequence[int], budget: int) -> list[int]:
    """Return the first places that fit into the budget, in order, PROFILE_LINES at most."""
    chosen: list[int] = []
    for place in places:
        if costs[place] <= budget and len(chosen) < PROFILE_LINES:
            chosen.append(place)
            budget -= costs[place]
    return chosen


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
