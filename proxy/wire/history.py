"""Divide a request's history into turns, and write the same request without some of them. No I/O.

A turn is what one exchange holds: the user's messages (as many as came with no answer between them) and
everything after them until the user speaks again. It is removed as a whole or not at all, so that no tool
call loses its output; a call with its output in another turn keeps both. A turn with an entry of an unknown
kind stays, since it is unknown what refers to it. System and developer messages, and a server's list
of tools, belong to no turn and stay where they are.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

from proxy.domain.core import Message
from proxy.wire.body import Body
from proxy.wire.dialect import CALLS, CHAT, RESPONSES, SYSTEM_ROLES, Dialect, text_of, tool_role


@dataclass(frozen=True, slots=True)
class HistoryTurn:
    """One turn. `start`, `asked` and `end` count messages as `Dialect.messages` gives them: the turn is
    [start:end], and [:asked] is the conversation of the request that asked it."""

    positions: tuple[int, ...]  # of its entries in the body's list
    start: int
    asked: int
    end: int
    whole: bool
    """It may be removed: it is all text, every call has its output and was answered, all is known."""


@dataclass(frozen=True, slots=True)
class HistoryFormat:
    """How one API writes a conversation."""

    dialect: Dialect
    elsewhere: tuple[str, ...]  # fields that say that the upstream holds the conversation
    read: Callable[[Any], "Entry"]  # what an entry is

    @property
    def field(self) -> str:
        """The field that holds the entries."""
        return self.dialect.conversation_field


@dataclass(frozen=True, slots=True)
class Entry:
    """What an entry of the list is to its turn."""

    part: str  # "asks" | "answers" | "thinks" | "stays" | "unknown"
    role: str | None = None  # of the Message that the dialect makes of it; None if it makes none
    calls: tuple[str, ...] = ()  # the ids of the calls in it that need an output
    output: str | None = None  # the id of the call that this is the output of
    plain: bool = True  # what a person or the model said in it is text and nothing else


def turns_of(body: Body, history: HistoryFormat, messages: Sequence[Message]) -> list[HistoryTurn]:
    """Return the body's turns, oldest first. `messages` are what the dialect reads in the body.

    There are none if the upstream holds the conversation, or entries and messages do not match.
    """
    entries = body.get(history.field)
    if not isinstance(entries, list) or any(body.get(name) for name in history.elsewhere):
        return []
    every = [history.read(entry) for entry in entries]
    given = [place for place, entry in enumerate(every) if entry.role]
    preface = len(messages) - len(given)  # instructions, which are not an entry
    if preface < 0:
        return []
    for place, message in zip(given, messages[preface:], strict=True):
        if every[place].part == "asks" and message.role == "tool":
            every[place] = _WRITTEN if every[place].plain else _SHOWN
        if every[place].role != message.role:
            return []
    before = list(accumulate((entry.role is not None for entry in every), initial=preface))
    ranges = list(_ranges(every))
    loose = frozenset(chain.from_iterable(_loose(read) for *_, read in ranges))
    return [
        HistoryTurn(
            positions=tuple(start + i for i, entry in enumerate(read) if entry.part != "stays"),
            start=before[start],
            asked=before[asked],
            end=before[end],
            whole=_is_known(read) and (not loose or loose.isdisjoint(_ids(read))),
        )
        for start, asked, end, read in ranges
    ]


def without(
    body: Body, history: HistoryFormat, removed: Iterable[HistoryTurn], block: str, placement: str
) -> Body:
    """Return the body with the block in place of the turns; it shares all else with `body`, which is
    unchanged. With no turns, no block, or no place for it, `body` itself is returned.

    The block takes the place of the first of the turns, so that the prompt is the same up to there from
    request to request; a placement other than `before_last_user` puts it in the place of memories.
    """
    positions = frozenset(place for turn in removed for place in turn.positions)
    if not positions or not block:
        return body
    entries: Sequence[Any] = body[history.field]
    first = min(positions)
    head = list(entries[:first])
    tail = [entry for at, entry in enumerate(entries[first:], first) if at not in positions]
    if placement == "before_last_user":
        return {**body, history.field: [*head, history.dialect.format.system(block), *tail]}
    shorter = {**body, history.field: head + tail}
    placed = history.dialect.insert(shorter, block, placement)
    return body if placed is shorter else placed


def remaining(messages: Sequence[Message], removed: Iterable[HistoryTurn]) -> tuple[Message, ...]:
    """Return the conversation as the model is shown it: system messages and the turns that stay."""
    left = list(messages)
    for turn in sorted(removed, key=lambda turn: turn.start, reverse=True):
        left[turn.start : turn.end] = [m for m in left[turn.start : turn.end] if m.role in SYSTEM_ROLES]
    return tuple(left)


# ---------------------------------------------------------------- turns
Range = tuple[int, int, int, list[Entry]]  # start, end of the question, end, the entries read


def _ranges(read: Sequence[Entry]) -> Iterator[Range]:
    """Yield the turns, without a gap from the first user message on."""
    start: int | None = None  # of the turn that is being read
    asked: int | None = None  # where its question ended
    entries: list[Entry] = []
    for place, entry in enumerate(read):
        if entry.part == "asks" and (start is None or asked is not None):
            if start is not None and asked is not None:
                yield start, asked, place, entries
            start, asked, entries = place, None, []
        elif start is None:
            continue  # the assistant's greeting, and whatever else precedes the first turn
        elif asked is None and (entry.part == "answers" or entry.role == "assistant"):
            asked = place
        entries.append(entry)
    if start is not None:
        yield start, len(read) if asked is None else asked, len(read), entries


def _is_known(read: Sequence[Entry]) -> bool:
    """True if all that the turn holds is known, and the model had the last word: the outcome of a tool's
    output is found nowhere else."""
    if any(entry.part == "unknown" or not entry.plain for entry in read):
        return False
    last = next((entry for entry in reversed(read) if entry.part != "stays"), _STAYS)
    return last.part == "answers" and last.output is None


def _loose(read: Sequence[Entry]) -> Iterable[str]:
    """Return the ids that the turn calls and does not answer, or answers and does not call: some other
    turn may hold the other half."""
    made = Counter(call for entry in read for call in entry.calls)
    answered = Counter(entry.output for entry in read if entry.output is not None)
    return [*(made - answered), *(answered - made)]


def _ids(read: Sequence[Entry]) -> Iterator[str]:
    for entry in read:
        yield from entry.calls
        if entry.output is not None:
            yield entry.output


# ---------------------------------------------------------------- what both APIs share
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
_UNKNOWN, _STAYS = Entry("unknown"), Entry("stays")
_SHOWN = Entry("unknown", "tool")  # an image, in a user message after a tool's output
_WRITTEN = Entry("thinks", "tool")  # text of the client's, in a user message after the user's own
_SAID = {
    role: {is_text: Entry(part, role, plain=is_text) for is_text in (True, False)}
    for role, part in (("user", "asks"), ("assistant", "answers"))
}
_SET = {role: Entry("stays", role) for role in SYSTEM_ROLES}


def _is_text(content: object) -> bool:
    """True if the content is text to its last part, or nothing."""
    if content is None or isinstance(content, str):
        return True
    return isinstance(content, list) and all(
        isinstance(part, str) or (isinstance(part, dict) and part.get("type") in _TEXT_PARTS)
        for part in content
    )


def _said(entry: dict[str, Any]) -> Entry:
    """Return what a message of a person, the model or the operator is."""
    role, content = entry.get("role"), entry.get("content")
    if not isinstance(role, str):
        return _UNKNOWN
    if role in _SAID:
        return _SAID[role][_is_text(content)]
    if role in _SET:
        # The dialects leave a system message without text out, since it may have been ours.
        return _SET[role] if text_of(content) else _STAYS
    return _UNKNOWN


def _output(call: object, role: str | None) -> Entry:
    # What a tool returned may be anything: the model's answer has what matters of it.
    return Entry("answers", role, output=call) if isinstance(call, str) else Entry("unknown", role)


# ---------------------------------------------------------------- chat completions
_FUNCTION = "function "  # the forerunner of tool calls has names for ids


def _read_message(entry: Any) -> Entry:
    if not isinstance(entry, dict):
        return _UNKNOWN
    role = entry.get("role")
    if role == "tool":
        return _output(entry.get("tool_call_id"), "tool")
    if role == "function":
        return _output(f"{_FUNCTION}{entry.get('name')}", "tool")
    if role == "assistant" and entry.keys() & _ASKS_MORE:
        return _read_calls(entry)
    return _said(entry)


_ASKS_MORE = frozenset(("tool_calls", "function_call", "audio"))


def _read_calls(message: dict[str, Any]) -> Entry:
    given = message.get("tool_calls") or []
    made = given if isinstance(given, list) else [None]
    ids = [call["id"] for call in made if isinstance(call, dict) and isinstance(call.get("id"), str)]
    if len(ids) < len(made):
        return Entry("unknown", "assistant")
    if isinstance(function := message.get("function_call"), dict):
        ids.append(f"{_FUNCTION}{function.get('name')}")
    plain = _is_text(message.get("content")) and not message.get("audio")
    return Entry("answers", "assistant", tuple(ids), plain=plain)


CHAT_HISTORY = HistoryFormat(CHAT, (), _read_message)


# ---------------------------------------------------------------- the Responses API
# The field in which an output names the call.
_OUTPUTS = {
    "function_call_output": "call_id",
    "custom_tool_call_output": "call_id",
    "computer_call_output": "call_id",
    "local_shell_call_output": "id",  # so the API has it
    "shell_call_output": "call_id",
    "apply_patch_call_output": "call_id",
    "mcp_approval_response": "approval_request_id",
}
_READ = {
    "reasoning": Entry("thinks"),
    # The upstream runs these itself, and they hold their own results. Others do too, but create what
    # later turns use: an image, a container, tools that were looked up.
    "web_search_call": Entry("answers", "assistant"),
    "file_search_call": Entry("answers", "assistant"),
    "mcp_call": Entry("answers", "assistant"),
    "mcp_list_tools": _STAYS,
}


def _read_item(item: Any) -> Entry:
    if not isinstance(item, dict):
        return _UNKNOWN
    kind = item.get("type") or "message"
    if kind == "message":
        return _said(item)
    if not isinstance(kind, str):
        return _UNKNOWN
    if kind in _READ:
        return _READ[kind]
    role = tool_role(kind)
    if kind in _OUTPUTS:
        return _output(item.get(_OUTPUTS[kind]), role)
    call = item.get(CALLS[kind]) if kind in CALLS else None
    return Entry("answers", role, (call,)) if isinstance(call, str) else Entry("unknown", role)


RESPONSES_HISTORY = HistoryFormat(RESPONSES, ("previous_response_id", "conversation"), _read_item)
