"""Turn a session's notes into lines of the block, the most binding first."""

from collections.abc import Callable, Iterator, Sequence

from proxy.domain import timezones
from proxy.domain.core import DEFAULT_TIMEZONE, Message
from proxy.domain.session import MOST_LINE_CHARS, Anchor, Line, SessionNotes, State

NOTICE = (
    " The exception are lines marked [anchor]: what the user asked for earlier in this very conversation, in"
    " their own words; it holds until the user says otherwise. Lines marked [state] and [turn] tell of this"
    " conversation's earlier turns, which are not shown."
)
LINE_TOKENS = 120  # for the last turns together


def reminders(
    notes: SessionNotes,
    messages: Sequence[Message],
    *,
    budget_tokens: int,
    tokens: Callable[[str], int],
    timezone: str = DEFAULT_TIMEZONE,
) -> list[str]:
    """Return the lines: the anchors that the conversation does not show, newest last, then what went before.

    Anchors come first in a short budget, the newest of them before older ones; state and turns share half of
    what they leave, so that memories find room too. Nothing is cut.
    """
    anchors = _fitting(
        [_anchor(a, timezone) for a in reversed(_unseen(notes.anchors, messages))], budget_tokens, tokens
    )
    left = (budget_tokens - sum(map(tokens, anchors))) // 2
    turns = _fitting(
        [_turn(line, timezone) for line in reversed(notes.lines)], min(left, LINE_TOKENS), tokens
    )
    left -= sum(map(tokens, turns))
    state = _fitting(_state(notes, timezone), left, tokens)
    return [*reversed(anchors), *state, *reversed(turns)]


def _unseen(anchors: Sequence[Anchor], messages: Sequence[Message]) -> list[Anchor]:
    """Return those that the user does not say in the conversation as the model is shown it."""
    said = [m.text for m in messages if m.role == "user"]
    return [a for a in anchors if not any(a.text.removesuffix("…") in text for text in said)]


def _fitting(lines: Sequence[str], budget: int, tokens: Callable[[str], int]) -> list[str]:
    """Return the first lines, up to the one that has no place."""
    chosen: list[str] = []
    for line in lines:
        budget -= tokens(line)
        if budget < 0:
            break
        chosen.append(line)
    return chosen


def _anchor(anchor: Anchor, timezone: str) -> str:
    return f"[anchor {_day(anchor.at, timezone)}] {anchor.text}"


def _turn(line: Line, timezone: str) -> str:
    answered = f" — assistant: {_short(line.answered)}" if line.answered.strip() else ""
    return f"[turn {_day(line.at, timezone)}] user: {_short(line.said)}{answered}"


def _short(text: str) -> str:
    """Return the first sentences of a message in at most 100 characters: a line has room for two sides."""
    flat, most = " ".join(text.split()), MOST_LINE_CHARS // 2
    if len(flat) <= most:
        return flat
    cut = flat[: most - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut[most // 2 :] else cut}…"


def _state(notes: SessionNotes, timezone: str) -> list[str]:
    if notes.state is None:
        return []
    told = "; ".join(_fields(notes.state))
    return [f"[state {_day(notes.state_at, timezone)}] {told}"] if told else []


def _fields(state: State) -> Iterator[str]:
    for key, value in state.items():
        if said := value if isinstance(value, str) else ", ".join(value):
            yield f"{key.replace('_', ' ')}: {said}"


def _day(at: float, timezone: str) -> str:
    return timezones.local(at, timezone).date().isoformat()
