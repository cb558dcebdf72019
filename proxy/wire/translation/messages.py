"""Convert input items to chat messages.

The Responses API has a flat list in which calls, outputs and messages stand apart; a chat conversation
has assistant messages that hold their calls, each directly followed by the calls' outputs. So the items
are gathered into turns of the assistant first: text, thoughts and parallel calls belong together until
an output or another's message comes. An output goes to the first call of its id that has none yet:
some servers number their calls from the start in every answer.

Strict chat templates take one system message, and only as the first. So the instructions and what the system
and developers say, wherever they say it, are folded into one.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.domain.errors import InvalidRequest
from proxy.wire.translation.checks import shown
from proxy.wire.translation.items import Item, response_of
from proxy.wire.translation.parts import chat_content, reasoning_text, spoken, tool_content
from proxy.wire.translation.sealed import COMPACTION, Seals, details_of, thoughts_in
from proxy.wire.translation.tool_items import (
    CALLS,
    COMPACTIONS,
    HOSTED,
    IN_USER,
    OUTPUTS,
    arguments_of,
    call_id_of,
    in_user,
    is_host_run,
    line_of,
    output_of,
)
from proxy.wire.translation.tools import CUSTOM_ARGUMENT, Key, Tools

Message = dict[str, Any]
_SYSTEM = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Conversation:
    """Chat messages, and the types of the items that were left out."""

    messages: list[Message]
    left_out: tuple[str, ...]
    thoughts: tuple[str, ...]  # behind each assistant message, in order


def chat_messages(
    instructions: str | None, earlier: Sequence[Item], own: Sequence[Item], tools: Tools, seals: Seals
) -> Conversation:
    """Return the conversation as chat messages. Raises InvalidRequest for a call without its output, an
    output without its call, and content that has no chat form."""
    gathered = _Gathered(tools, seals)
    if instructions:
        gathered.system.append(instructions)
    for item in _since_compaction(earlier, seals):
        gathered.add(item, "input")
    for index, item in enumerate(own):
        gathered.add(item, f"input[{index}]")
    system = _joined(gathered.system)
    first: list[Message] = [{"role": "system", "content": system}] if system else []
    messages = [*first, *gathered.said()]
    return Conversation(messages, tuple(dict.fromkeys(gathered.left_out)), tuple(gathered.thoughts))


def _since_compaction(earlier: Sequence[Item], seals: Seals) -> Iterable[Item]:
    """Return what a chain still holds: a compaction replaces all before it but system items."""
    places = (i for i in reversed(range(len(earlier))) if _compacted(earlier[i], seals) is not None)
    place = next(places, 0)
    before = (item for item in earlier[:place] if item.get("role") in _SYSTEM)
    return [*before, *earlier[place:]]


def _compacted(item: Item, seals: Seals) -> str | None:
    """Return what a compaction of ours holds; None for another item, and for one that another has sealed."""
    if item.get("type") not in COMPACTIONS:
        return None
    return seals.open(COMPACTION, item.get("encrypted_content"))


def _joined(texts: Sequence[str | list[Message]]) -> str | list[Message]:
    """Return what the system says as one text, as parts where it is not only text."""
    if all(isinstance(text, str) for text in texts):
        return "\n\n".join(text for text in texts if isinstance(text, str) and text)
    parts: list[Message] = []
    for text in texts:
        parts += [{"type": "text", "text": text}] if isinstance(text, str) else text
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


# ---------------------------------------------------------------- gathering
@dataclass(slots=True, eq=False)
class _Call:
    item: Item
    output: str | list[Message] | None = None


@dataclass(slots=True)
class _Turn:
    """What the assistant said and called in one go. `lines`: what a host did for it."""

    text: str | None = None
    extra: Message | None = None  # Gemini's signature of the text
    thoughts: str = ""
    details: list[Message] = field(default_factory=list)  # OpenRouter's
    lines: list[str] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)


@dataclass(slots=True)
class _Gathered:
    tools: Tools
    seals: Seals
    system: list[str | list[Message]] = field(default_factory=list)
    entries: list[Message | _Turn] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    turn: _Turn | None = None  # the one that still grows
    unanswered: dict[str, list[_Call]] = field(default_factory=dict)
    signatures: dict[str, Message] = field(default_factory=dict)  # of calls, where a client has them sealed

    def add(self, item: Item, param: str) -> None:
        kind = item.get("type", "message")
        if kind == "message":
            self._message(item, param)
        elif kind == "reasoning":
            self._reasoning(item, param)
        elif kind in HOSTED and (is_host_run(item) or kind not in (*CALLS, *OUTPUTS)):
            if line := line_of(item):
                self._growing().lines.append(line)
        elif kind in ("function_call", "custom_tool_call") or kind in CALLS:
            call = _Call(item)
            self._growing().calls.append(call)
            self.unanswered.setdefault(call_id_of(item), []).append(call)
        elif kind in ("function_call_output", "custom_tool_call_output") or kind in OUTPUTS:
            self._output(item, param)
        elif kind in IN_USER:
            self._user(in_user(item))
        elif (summary := _compacted(item, self.seals)) is not None:
            self._user(f"<earlier_conversation>\n{summary}\n</earlier_conversation>")
        else:
            self.left_out.append(shown(kind))

    def _message(self, item: Item, param: str) -> None:
        param = f"{param}.content"
        if item["role"] in _SYSTEM:
            # Models that know developers read the system as the same; local templates drop `developer`.
            self.system.append(chat_content(item["content"], param))
        elif item["role"] != "assistant":
            self._user(chat_content(item["content"], param))
        else:
            if self.turn is not None and self.turn.text is not None:
                self.turn = None
            turn, extra = self._growing(), item.get("extra_content")
            turn.text, turn.extra = spoken(item["content"], param), extra if isinstance(extra, dict) else None

    def _reasoning(self, item: Item, param: str) -> None:
        turn, sealed = self._growing(), thoughts_in(item, self.seals)
        turn.details += details_of(item.get("reasoning_details")) or sealed.details
        said = reasoning_text(item.get("content"), f"{param}.content") or sealed.text
        if not said and (item.get("encrypted_content") is None or is_ours(item)):
            # A summary of ours holds all that was thought.
            said = reasoning_text(item.get("summary"), f"{param}.summary")
        turn.thoughts += said
        self.signatures |= sealed.calls

    def _user(self, content: str | list[Message]) -> None:
        self.turn = None
        self.entries.append({"role": "user", "content": content})

    def _output(self, item: Item, param: str) -> None:
        self.turn = None
        waiting = self.unanswered.get(call_id_of(item))
        if not waiting:
            what, call_id = item["type"].replace("_", " "), shown(str(call_id_of(item)))
            raise InvalidRequest(f"No tool call found for {what} with call_id {call_id}.", param="input")
        output = output_of(item) if item["type"] in OUTPUTS else item["output"]
        content = output if isinstance(output, str) else tool_content(output, f"{param}.output")
        call = next((call for call in waiting if not _half_written(call)), waiting[0])
        call.output = content
        waiting.remove(call)

    def _growing(self) -> _Turn:
        if self.turn is None:
            self.turn = _Turn()
            self.entries.append(self.turn)
        return self.turn

    # ------------------------------------------------------------ saying
    def said(self) -> Iterable[Message]:
        entries = self.entries
        last_user = max(
            (i for i, e in enumerate(entries) if not isinstance(e, _Turn) and e["role"] == "user"), default=-1
        )
        for index, entry in enumerate(entries):
            if isinstance(entry, _Turn):
                yield from self._turn(entry, in_tool_loop=index > last_user)
            else:
                yield entry

    def _turn(self, turn: _Turn, *, in_tool_loop: bool) -> Iterable[Message]:
        # A call that was cut off while it was written cannot have been answered.
        calls = [call for call in turn.calls if call.output is not None or not _half_written(call)]
        texts = turn.lines if turn.text is None else [*turn.lines, turn.text]
        if not texts and not calls:
            return  # thoughts alone: there is no message to put them in
        message: Message = {"role": "assistant", "content": "\n".join(texts) if texts else None}
        # Models that think between their calls need those thoughts back until they have answered, and only
        # so long: before the last user message they are dead weight, and some servers refuse them there.
        if turn.thoughts and calls and in_tool_loop:
            message["reasoning_content"] = turn.thoughts
        self.thoughts.append(turn.thoughts)
        if turn.details:
            message["reasoning_details"] = turn.details
        if turn.extra is not None:
            message["extra_content"] = turn.extra
        if calls:
            message["tool_calls"] = [self._tool_call(call.item) for call in calls]
        yield message
        for call in calls:
            yield {"role": "tool", "tool_call_id": call_id_of(call.item), "content": _answer(call)}

    def _tool_call(self, item: Item) -> Message:
        kind, space = item["type"], item.get("namespace")
        named = (item.get("name", ""), space if isinstance(space, str) and space else None)
        if kind in CALLS:
            key, arguments = Key(CALLS[kind].type, CALLS[kind].type), arguments_of(item)
        elif kind == "custom_tool_call":
            key = Key("custom", *named)
            arguments = json.dumps({CUSTOM_ARGUMENT: item["input"]}, ensure_ascii=False)
        else:  # servers parse the arguments
            key, arguments = Key("function", *named), item["arguments"] or "{}"
        function = {"name": self.tools.flat(key), "arguments": arguments}
        call: Message = {"id": call_id_of(item), "type": "function", "function": function}
        extra = item.get("extra_content") or self.signatures.get(call["id"])
        return {**call, "extra_content": extra} if isinstance(extra, dict) else call


def is_ours(item: Item) -> bool:
    """True for an output item of a response that we have made."""
    return (response_of(str(item.get("id"))) or "").startswith("resp_mp")


def _half_written(call: _Call) -> bool:
    kind, status = call.item["type"], call.item.get("status")
    return status == (CALLS[kind].half_written if kind in CALLS else "incomplete")


def _answer(call: _Call) -> str | list[Message]:
    if call.output is None:
        call_id = shown(str(call_id_of(call.item)))
        raise InvalidRequest(f"No tool output found for function call {call_id}.", param="input")
    return call.output
