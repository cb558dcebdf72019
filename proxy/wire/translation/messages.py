"""Convert input items to chat messages.

The Responses API has a flat list in which calls, outputs and messages stand apart; a chat conversation
has assistant messages that hold their calls, each directly followed by the calls' outputs. So the items
are gathered into turns of the assistant first: text, thoughts and parallel calls belong together until
an output or another's message comes. An output goes to the first call of its id that has none yet:
some servers count their call ids anew in every answer.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.errors import InvalidRequest
from proxy.wire.translation.checks import shown
from proxy.wire.translation.items import Item
from proxy.wire.translation.parts import chat_content, reasoning_text, spoken, tool_content

Message = dict[str, Any]

# The argument of the function that stands for a custom tool: chat servers know only functions.
CUSTOM_ARGUMENT = "input"


def chat_messages(instructions: str | None, earlier: Iterable[Item], own: Sequence[Item]) -> list[Message]:
    """Return the conversation as chat messages. Raises InvalidRequest for a call without its output, an
    output without its call, and content that has no chat form."""
    gathered = _Gathered()
    if instructions:
        gathered.entries.append({"role": "system", "content": instructions})
    for item in earlier:
        gathered.add(item, "input")
    for index, item in enumerate(own):
        gathered.add(item, f"input[{index}]")
    return list(_said(gathered.entries))


# ---------------------------------------------------------------- gathering
@dataclass(slots=True, eq=False)
class _Call:
    item: Item
    output: str | list[Message] | None = None


@dataclass(slots=True)
class _Turn:
    """What the assistant said and called in one go."""

    text: str | None = None
    thoughts: str = ""
    calls: list[_Call] = field(default_factory=list)


@dataclass(slots=True)
class _Gathered:
    entries: list[Message | _Turn] = field(default_factory=list)
    turn: _Turn | None = None  # the one that still grows
    unanswered: dict[str, list[_Call]] = field(default_factory=dict)

    def add(self, item: Item, param: str) -> None:
        kind = item.get("type", "message")
        if kind == "message":
            self._message(item, param)
        elif kind in ("function_call", "custom_tool_call"):
            call = _Call(item)
            self._growing().calls.append(call)
            self.unanswered.setdefault(item["call_id"], []).append(call)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._output(item, param)
        elif kind == "reasoning":
            self._growing().thoughts += reasoning_text(item, param)

    def _message(self, item: Item, param: str) -> None:
        param = f"{param}.content"
        if item["role"] != "assistant":
            self.turn = None
            # Local chat templates know no `developer`: some drop it without a word, some fail. Models
            # that do know it read `system` as the same.
            role = "system" if item["role"] == "developer" else item["role"]
            self.entries.append({"role": role, "content": chat_content(item["content"], param)})
            return
        if self.turn is not None and self.turn.text is not None:
            self.turn = None
        self._growing().text = spoken(item["content"], param)

    def _output(self, item: Item, param: str) -> None:
        self.turn = None
        waiting = self.unanswered.get(item["call_id"])
        if not waiting:
            call_id = shown(item["call_id"])
            raise InvalidRequest(
                f"No tool call found for function call output with call_id {call_id}.", param="input"
            )
        output = item["output"]
        content = output if isinstance(output, str) else tool_content(output, f"{param}.output")
        call = next((call for call in waiting if not _half_written(call)), waiting[0])
        call.output = content
        waiting.remove(call)

    def _growing(self) -> _Turn:
        if self.turn is None:
            self.turn = _Turn()
            self.entries.append(self.turn)
        return self.turn


# ---------------------------------------------------------------- saying
def _said(entries: Sequence[Message | _Turn]) -> Iterable[Message]:
    last_user = max(
        (i for i, e in enumerate(entries) if not isinstance(e, _Turn) and e["role"] == "user"), default=-1
    )
    for index, entry in enumerate(entries):
        if isinstance(entry, _Turn):
            yield from _turn(entry, in_tool_loop=index > last_user)
        else:
            yield entry


def _turn(turn: _Turn, *, in_tool_loop: bool) -> Iterable[Message]:
    # A call that was cut off while it was written: nobody can have answered it.
    calls = [call for call in turn.calls if call.output is not None or not _half_written(call)]
    if turn.text is None and not calls:
        return
    message: Message = {"role": "assistant", "content": turn.text}
    # Models that think between their calls need those thoughts back until they have answered, and only
    # so long: before the last user message they are dead weight, and some servers refuse them there.
    if turn.thoughts and calls and in_tool_loop:
        message["reasoning_content"] = turn.thoughts
    if calls:
        message["tool_calls"] = [_tool_call(call.item) for call in calls]
    yield message
    for call in calls:
        yield {"role": "tool", "tool_call_id": call.item["call_id"], "content": _answer(call)}


def _half_written(call: _Call) -> bool:
    return call.item.get("status") == "incomplete"


def _answer(call: _Call) -> str | list[Message]:
    if call.output is None:
        call_id = shown(call.item["call_id"])
        raise InvalidRequest(f"No tool output found for function call {call_id}.", param="input")
    return call.output


def _tool_call(item: Item) -> Message:
    if item["type"] == "custom_tool_call":
        arguments = json.dumps({CUSTOM_ARGUMENT: item["input"]}, ensure_ascii=False)
    else:
        arguments = item["arguments"] or "{}"  # servers parse them
    function = {"name": item["name"], "arguments": arguments}
    return {"id": item["call_id"], "type": "function", "function": function}
