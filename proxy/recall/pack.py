"""Fill the token budget with ranked memories, and write the block of text that is injected.

The best match goes in first, whatever it costs. The rest of a short budget is filled by worth: the score
divided by the square root of the cost, so that a long procedure does not displace three facts that score a
little less; preferences count a tenth more, since they shape every answer. Between equals the type decides.

Order in the block: the session's notes, the memories recalled for the message, best first, then the profile,
which has a budget of its own. If it holds preferences of a project and general ones, the block says which
take precedence. Memories that the conversation already shows are left out before (`unseen`).
"""

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from proxy.domain.core import DEFAULT_TIMEZONE, KINDS, Memory, Message, Ranked
from proxy.domain.ports import TokenCounter
from proxy.domain.session import MOST_LINE_CHARS, NO_NOTES, SessionNotes
from proxy.text.dates import local_time
from proxy.text.words import cut_short, fold, terms
from proxy.wire.authorship import NOTICE, fence, neutralise

SHORT_ID = 2  # characters: with the whole ids in X-Memory-Ids, enough to identify what an answer cites
WAS = " Lines marked [was] held only in the time that they name."
OVERRULED = " A preference of the project stands above a general one."
PREFERRED = 1.1  # worth of a preference, compared with another memory of its score and length
PROFILE_LINES = 6


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be injected, in tokens. `profile_tokens`: for what applies to every conversation."""

    tokens: TokenCounter
    memory_tokens: int = 600
    profile_tokens: int = 150


@dataclass(frozen=True, slots=True)
class Block:
    """The text to insert ("" for nothing), the ids of the memories in it, then of the documents, and its
    length in tokens (approximate)."""

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
    past: Sequence[Memory] = (),
) -> Block:
    """Return the block: the session's `notes` that the `messages` do not show, as many whole memories as the
    budget holds, fence included, and as much of the `profile` as its own budget holds. The rest of the
    budget is for `past` values that the message asks about, marked as such.

    A memory that does not fit is left out and the next is tried.
    """

    def cost(line: str) -> int:
        return budget.tokens.count(line + "\n", model)

    if not ranked and not profile and not past and notes == NO_NOTES:
        return NO_BLOCK
    frame, notice = budget.tokens.count(fence(["-"]), model), NOTICE
    first: list[str] = []
    if notes != NO_NOTES:
        of_session = cost(NOTES_NOTICE)
        left = budget.memory_tokens - frame - of_session
        if first := reminders(notes, messages, budget_tokens=left, tokens=cost, timezone=timezone):
            frame, notice = frame + of_session + sum(map(cost, first)), NOTICE + NOTES_NOTICE
    memories = [*(r.memory for r in ranked), *profile]
    if _may_differ(memories):
        frame, notice = frame + cost(OVERRULED), notice + OVERRULED
    id_chars = _distinct_chars([m.id for m in (*memories, *past)])
    lines = [render(m, id_chars, timezone) for m in memories]
    costs = [cost(line) for line in lines]
    chosen = _choose(ranked, costs, budget.memory_tokens - frame)
    # The sum, not a count of the whole block: counts of lines are cached across requests.
    spent = frame + sum(costs[i] for i in chosen)
    of_profile = _fitting(range(len(ranked), len(memories)), costs, budget.profile_tokens)
    if any(m.contradicted_by for m in memories):
        visible = {memories[i].id for i in (*chosen, *of_profile)}
        newer = {i: _newer_note(memories[i], visible, id_chars) for i in (*chosen, *of_profile)}
        lines = [f"{line}{newer.get(i, '')}" for i, line in enumerate(lines)]
        spent += sum(cost(note) for note in newer.values() if note)
    was = [_was_line(m, id_chars, timezone) for m in past]
    shown = _fitting(range(len(past)), list(map(cost, was)), budget.memory_tokens - spent - cost(WAS))
    if not (first or chosen or shown or of_profile):
        return NO_BLOCK
    if shown:
        spent, notice = spent + cost(WAS) + sum(cost(was[i]) for i in shown), notice + WAS
    spent += sum(costs[i] for i in of_profile)
    body = [*(lines[i] for i in chosen), *(was[i] for i in shown), *(lines[i] for i in of_profile)]
    ids = (
        [memories[i].id for i in chosen] + [past[i].id for i in shown] + [memories[i].id for i in of_profile]
    )
    return Block(fence([*first, *body], notice=notice), tuple(ids), spent)


def _fitting(indices: Sequence[int], costs: Sequence[int], budget: int) -> list[int]:
    """Return the first indices that fit into the budget, in order, PROFILE_LINES at most."""
    chosen: list[int] = []
    for i in indices:
        if costs[i] <= budget and len(chosen) < PROFILE_LINES:
            chosen.append(i)
            budget -= costs[i]
    return chosen


def _choose(ranked: Sequence[Ranked], costs: Sequence[int], budget: int) -> list[int]:
    """Return the indices that fit, in order: the best match, then by worth. See the module's docstring."""

    def order(i: int) -> tuple[bool, float, int, int]:
        one, kind = ranked[i], KINDS.get(ranked[i].memory.type)
        priority = kind.pack_order if kind else len(KINDS) + 1
        worth = one.score * (PREFERRED if priority == _FIRST else 1.0) / math.sqrt(costs[i])
        return i > 0, -worth, priority, i

    chosen = []
    for i in sorted(range(len(ranked)), key=order):
        if costs[i] <= budget:
            chosen.append(i)
            budget -= costs[i]
    return sorted(chosen)


def render(memory: Memory, id_chars: int = SHORT_ID, timezone: str = DEFAULT_TIMEZONE) -> str:
    """Return a memory's line: its type (and whether it is a preference of the project), the day from which
    it is valid in the user's time zone, the end of its id, its content."""
    of_project = memory.type == _PREFERENCE and memory.scope.project is not None
    kind = f"{memory.type} of the project" if of_project else memory.type
    if memory.source == "reflection":
        kind += ", inferred, not said by the user"
    day = _day(memory.valid_from, timezone)
    # The end of the id: ids that sort by time share their beginning.
    return f"[{kind} {day} #{memory.id[-id_chars:]}] {neutralise(memory.content)}"


def _was_line(memory: Memory, id_chars: int, timezone: str) -> str:
    """Return the line of a superseded value: the days from and until which it held, and its content."""
    began, ended = (_day(at, timezone) for at in (memory.valid_from, memory.held_until))
    return f"[was {began} until {ended} #{memory.id[-id_chars:]}] {neutralise(memory.content)}"


def _newer_note(memory: Memory, shown: Collection[str], id_chars: int) -> str:
    """Return what to add to the line of a memory that contradicts a newer one which is shown, too."""
    newer = memory.contradicted_by
    return f" (#{newer[-id_chars:]} contradicts this and is newer)" if newer and newer in shown else ""


def _may_differ(memories: Sequence[Memory]) -> bool:
    """True if there are preferences of a project and general ones."""
    projects = {m.scope.project for m in memories if m.type == _PREFERENCE}
    return len(projects) > 1 and None in projects


def _distinct_chars(ids: Sequence[str]) -> int:
    """Return how many of their last characters distinguish the ids, SHORT_ID at least."""
    longest = max(map(len, ids), default=SHORT_ID)
    return next((n for n in range(SHORT_ID, longest) if len({i[-n:] for i in ids}) == len(ids)), longest)


_PREFERENCE = "preference"
_FIRST = min(kind.pack_order for kind in KINDS.values())


# ---------------------------------------------------------------- session notes
NOTES_NOTICE = (
    " The exception are lines marked [anchor]: what the user asked for earlier in this very conversation, in"
    " their own words; it holds until the user says otherwise. Lines marked [state] and [turn] tell of this"
    " conversation's earlier turns, which are not shown."
)
TURN_TOKENS = 120  # for the last turns together


def reminders(
    notes: SessionNotes,
    messages: Sequence[Message],
    *,
    budget_tokens: int,
    tokens: Callable[[str], int],
    timezone: str = DEFAULT_TIMEZONE,
) -> list[str]:
    """Return the lines: the anchors that the conversation does not show, newest last, then the state and the
    last turns.

    In a short budget anchors come first, the newest before older ones; state and turns share half of the
    rest, so that memories fit, too. No line is cut.
    """
    said = [m.text for m in messages if m.role == "user"]
    unsaid = [a for a in notes.anchors if not any(a.text.removesuffix("…") in text for text in said)]
    lines = [f"[anchor {_day(a.at, timezone)}] {a.text}" for a in reversed(unsaid)]
    anchors = _fitting_lines(lines, budget_tokens, tokens)
    left = (budget_tokens - sum(map(tokens, anchors))) // 2
    lines = []
    for one in reversed(notes.lines):
        answered = f" — assistant: {_beginning(one.answered)}" if one.answered.strip() else ""
        lines.append(f"[turn {_day(one.at, timezone)}] user: {_beginning(one.said)}{answered}")
    turns = _fitting_lines(lines, min(left, TURN_TOKENS), tokens)
    left -= sum(map(tokens, turns))
    fields = {key: v if isinstance(v, str) else ", ".join(v) for key, v in (notes.state or {}).items()}
    text = "; ".join(f"{key.replace('_', ' ')}: {said}" for key, said in fields.items() if said)
    state = [f"[state {_day(notes.state_at, timezone)}] {text}"] if text else []
    return [*reversed(anchors), *_fitting_lines(state, left, tokens), *reversed(turns)]


def _fitting_lines(lines: Sequence[str], budget: int, tokens: Callable[[str], int]) -> list[str]:
    """Return the first lines, up to the first that does not fit."""
    chosen: list[str] = []
    for line in lines:
        budget -= tokens(line)
        if budget < 0:
            break
        chosen.append(line)
    return chosen


def _beginning(text: str) -> str:
    """Return the beginning of a message, 100 characters at most: a line has room for question and answer."""
    return cut_short(" ".join(text.split()), MOST_LINE_CHARS // 2)


@lru_cache(maxsize=4096)
def _day(at: float, timezone: str) -> str:
    return local_time(at, timezone).date().isoformat()


# ---------------------------------------------------------------- what the conversation shows
SAID_SHARE = 0.8  # of a memory's terms in one message: the message says it
SAID_TERMS = 3  # terms; fewer are found in too much
SPAN_CHARS = 8  # a shorter evidence span ("yes") proves nothing
LOOK_BACK_CHARS = 16_000  # of the conversation's end, at most

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_NUMBER = re.compile(r"\d+(?:[.:,]\d+)*")
# A full stop ends a sentence after three letters; after fewer ("Dr.", "z. B.") it may not.
_SENTENCE = re.compile(r"(?<=\w{3})\.\s+|(?<=[!?。！？\n])\s*")

T = TypeVar("T")


def unseen(shown: Sequence[T], messages: Sequence[Message], *, memory: Callable[[T], Memory]) -> list[T]:
    """Return the memories that no message states: neither literally, nor by the words that they were
    extracted from, nor by most of their terms with all of their numbers.

    A question states nothing: "is my budget still $7,500?" must not hide the budget.
    """
    said = _statements(messages) if shown else []
    if not said:
        return list(shown)
    everything = "\n".join(said)
    return [one for one in shown if not _is_said(memory(one), said, everything)]


def _is_said(memory: Memory, said: Sequence[str], everything: str) -> bool:
    content = _flat(memory.content)
    if content in everything:
        return True
    if any(
        len(span) >= SPAN_CHARS and span in everything for e in memory.evidence if (span := _flat(e.span))
    ):
        return True
    if not all(number in everything for number in _NUMBER.findall(content)):
        return False
    # A term is a substring of its word: searching it in the text is ten times faster than splitting the text.
    wanted = [t for t in dict.fromkeys(terms(content)) if len(t) > 2 or (len(t) == 2 and t > "\u2e7f")]
    if len(wanted) < SAID_TERMS or not _holds(everything, wanted):
        return False
    return any(_holds(text, wanted) for text in said)


def _holds(text: str, wanted: Sequence[str]) -> bool:
    """True if the text contains SAID_SHARE of the terms. Stops when too many are missing."""
    spare = len(wanted) * (1 - SAID_SHARE) + 1e-9
    for term in wanted:
        if term not in text:
            spare -= 1
            if spare < 0:
                return False
    return True


def _statements(messages: Sequence[Message]) -> list[str]:
    """Return the messages, newest first, folded to one line each, without questions."""
    said: list[str] = []
    for text in recent_texts(messages):
        if "?" in text or "？" in text:
            sentences = (sentence.rstrip(" \"'”’»」)") for sentence in _SENTENCE.split(text))
            text = " . ".join(s for s in sentences if not s.endswith(("?", "？")))
        if stated := _flat(text):
            said.append(stated)
    return said


def recent_texts(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the texts of the conversation's last LOOK_BACK_CHARS characters, newest first."""
    left = LOOK_BACK_CHARS
    for message in reversed(messages):
        if left <= 0:
            return
        text = message.text[-left:]
        left -= len(text)
        yield text


def _flat(text: str) -> str:
    folded = _THOUSANDS.sub("", fold(text, 2 * LOOK_BACK_CHARS))
    return " ".join(folded.split()).rstrip(" .!。")
