"""Convert input items to chat messages.

The Responses API has a flat list of calls, outputs and messages; a chat conversation
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
from proxy.wire.body import (
    ARRAY,
    OBJECT,
    STRING,
    checked,
    dict_in,
    dicts_in,
    missing,
    refused,
    required,
    shown,
    text_in,
    unsupported,
)
from proxy.wire.dialect import SYSTEM_ROLES
from proxy.wire.translation.items import COMPACTION, Item, Seals, response_of, thoughts_in
from proxy.wire.translation.tool_items import (
    CLIENT_CALLS,
    CLIENT_OUTPUTS,
    COMPACTIONS,
    HOSTED,
    IN_USER,
    arguments_of,
    call_id_of,
    in_user,
    is_host_run,
    output_of,
)
from proxy.wire.translation.tools import CUSTOM_ARGUMENT, ToolName, TranslatedTools

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChatMessages:
    """Chat messages, and the types of the items that were left out."""

    messages: list[Message]
    left_out: tuple[str, ...]
    thoughts: tuple[str, ...]  # of each assistant message, in order


def chat_messages(
    instructions: str | None,
    earlier: Sequence[Item],
    own: Sequence[Item],
    tools: TranslatedTools,
    seals: Seals,
) -> ChatMessages:
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
    messages = [*first, *gathered.messages()]
    return ChatMessages(messages, tuple(dict.fromkeys(gathered.left_out)), tuple(gathered.thoughts))


def _since_compaction(earlier: Sequence[Item], seals: Seals) -> Iterable[Item]:
    """Return what a chain still holds: a compaction replaces all before it but system items."""
    compacted = (i for i in reversed(range(len(earlier))) if _compacted(earlier[i], seals) is not None)
    place = next(compacted, 0)
    before = (item for item in earlier[:place] if item.get("role") in SYSTEM_ROLES)
    return [*before, *earlier[place:]]


def _compacted(item: Item, seals: Seals) -> str | None:
    """Return the text of a compaction of ours; None for other items, and for those sealed by others."""
    if item.get("type") not in COMPACTIONS:
        return None
    return seals.open(COMPACTION, item.get("encrypted_content"))


def _joined(texts: Sequence[str | list[Message]]) -> str | list[Message]:
    """Return what the system says as one text, as parts if it is not only text."""
    parts = [part for text in texts if text for part in as_parts(text)]
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def as_parts(content: str | list[Message]) -> list[Message]:
    """Return a message's content as parts."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


# ---------------------------------------------------------------- gathering
@dataclass(slots=True, eq=False)
class _GatheredCall:
    item: Item
    output: str | list[Message] | None = None


@dataclass(slots=True)
class _Turn:
    """What the assistant said and called at once."""

    text: str | None = None
    extra: Message = field(default_factory=dict)  # Gemini's signature of the text
    thoughts: str = ""
    details: list[Message] = field(default_factory=list)  # OpenRouter's
    lines: list[str] = field(default_factory=list)  # what a host did for it
    calls: list[_GatheredCall] = field(default_factory=list)


@dataclass(slots=True)
class _Gathered:
    tools: TranslatedTools
    seals: Seals
    system: list[str | list[Message]] = field(default_factory=list)
    entries: list[Message | _Turn] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    turn: _Turn | None = None  # the one that still grows
    unanswered: dict[str, list[_GatheredCall]] = field(default_factory=dict)
    signatures: dict[str, Message] = field(default_factory=dict)  # of calls, if a client has them sealed

    def add(self, item: Item, param: str) -> None:
        kind = item.get("type", "message")
        if kind == "message":
            self._message(item, param)
        elif kind == "reasoning":
            self._reasoning(item, param)
        elif kind in HOSTED and (is_host_run(item) or kind not in (*CLIENT_CALLS, *CLIENT_OUTPUTS)):
            if line := HOSTED[kind][1](item):
                self._growing().lines.append(line)
        elif kind in ("function_call", "custom_tool_call") or kind in CLIENT_CALLS:
            call = _GatheredCall(item)
            self._growing().calls.append(call)
            self.unanswered.setdefault(call_id_of(item), []).append(call)
        elif kind in ("function_call_output", "custom_tool_call_output") or kind in CLIENT_OUTPUTS:
            self._output(item, param)
        elif kind in IN_USER:
            self._user(in_user(item))
        elif (summary := _compacted(item, self.seals)) is not None:
            self._user(f"<earlier_conversation>\n{summary}\n</earlier_conversation>")
        else:
            self.left_out.append(shown(kind))

    def _message(self, item: Item, param: str) -> None:
        param = f"{param}.content"
        if item["role"] in SYSTEM_ROLES:
            # Models that know developers read the system as the same; local templates drop `developer`.
            self.system.append(_chat_content(item["content"], param))
        elif item["role"] != "assistant":
            self._user(_chat_content(item["content"], param))
        else:
            if self.turn is not None and self.turn.text is not None:
                self.turn = None
            turn = self._growing()
            turn.text, turn.extra = _spoken(item["content"], param), dict_in(item, "extra_content")

    def _reasoning(self, item: Item, param: str) -> None:
        turn, sealed = self._growing(), thoughts_in(item, self.seals)
        turn.details += dicts_in(item.get("reasoning_details")) or sealed.details
        said = _reasoning_text(item.get("content"), f"{param}.content") or sealed.text
        is_ours = (response_of(str(item.get("id"))) or "").startswith("resp_mp")
        if not said and (item.get("encrypted_content") is None or is_ours):
            # A summary of ours holds all that was thought.
            said = _reasoning_text(item.get("summary"), f"{param}.summary")
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
        output = output_of(item) if item["type"] in CLIENT_OUTPUTS else item["output"]
        content = output if isinstance(output, str) else _tool_content(output, f"{param}.output")
        call = next((call for call in waiting if not _half_written(call)), waiting[0])
        call.output = content
        waiting.remove(call)

    def _growing(self) -> _Turn:
        if self.turn is None:
            self.turn = _Turn()
            self.entries.append(self.turn)
        return self.turn

    def messages(self) -> Iterable[Message]:
        """Yield what was gathered, the system's words aside."""
        users = (i for i, entry in enumerate(self.entries) if not isinstance(entry, _Turn))
        last_user = max(users, default=-1)
        for index, entry in enumerate(self.entries):
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
        if turn.extra:
            message["extra_content"] = turn.extra
        if calls:
            message["tool_calls"] = [self._tool_call(call.item) for call in calls]
        yield message
        for call in calls:
            call_id = call_id_of(call.item)
            if call.output is None:
                text = f"No tool output found for function call {shown(str(call_id))}."
                raise InvalidRequest(text, param="input")
            yield {"role": "tool", "tool_call_id": call_id, "content": call.output}

    def _tool_call(self, item: Item) -> Message:
        kind, space = item["type"], item.get("namespace")
        named = (item.get("name", ""), space if isinstance(space, str) and space else None)
        if kind in CLIENT_CALLS:
            key, arguments = ToolName(CLIENT_CALLS[kind].type, CLIENT_CALLS[kind].type), arguments_of(item)
        elif kind == "custom_tool_call":
            key = ToolName("custom", *named)
            arguments = json.dumps({CUSTOM_ARGUMENT: item["input"]}, ensure_ascii=False)
        else:  # servers parse the arguments
            key, arguments = ToolName("function", *named), item["arguments"] or "{}"
        function = {"name": self.tools.flat(key), "arguments": arguments}
        call: Message = {"id": call_id_of(item), "type": "function", "function": function}
        extra = item.get("extra_content") or self.signatures.get(call["id"])
        return {**call, "extra_content": extra} if isinstance(extra, dict) else call


def _half_written(call: _GatheredCall) -> bool:
    kind, status = call.item["type"], call.item.get("status")
    return status == (CLIENT_CALLS[kind].half_written if kind in CLIENT_CALLS else "incomplete")


# ---------------------------------------------------------------- content parts
def _chat_content(parts: Sequence[Item], param: str) -> str | list[Message]:
    """Return a chat message's content: a string if one text is all there is, since every server understands
    that, else chat parts. Raises InvalidRequest for a part that has no chat form."""
    if len(parts) == 1 and parts[0].get("type") == "input_text":
        return str(parts[0]["text"])
    return [_chat_part(part, f"{param}[{index}]") for index, part in enumerate(parts)]


def _tool_content(parts: Sequence[Item], param: str) -> str | list[Message]:
    """Return a tool message's content: one string while all parts are text, since few servers take an
    array from a tool; images and files stay parts, for the upstream to judge.

    A part that has no chat form becomes a word: the client has it in its history, and would be refused again
    and again."""
    content: list[Message] = []
    for part in parts:
        try:
            content.append(_chat_part(part, param))
        except InvalidRequest:
            content.append({"type": "text", "text": f"[{shown(str(part.get('type')))}]"})
    if all(part["type"] == "text" for part in content):
        return "\n".join(part["text"] for part in content)
    return content


def _spoken(parts: Sequence[Item], param: str) -> str:
    """Return what an assistant's message says. A refusal is what it said too."""
    said: list[str] = []
    for index, part in enumerate(parts):
        if part.get("type") == "refusal":
            said.append(required(part, "refusal", STRING, within=f"{param}[{index}]"))
        elif part.get("type") == "output_text":
            said.append(part["text"])
        else:
            raise _unknown_part(part, f"{param}[{index}]", "output_text, refusal")
    return "".join(said)


def _chat_part(part: Item, param: str) -> Message:
    match part.get("type"):
        case "input_text":
            return {"type": "text", "text": part["text"]}
        case "input_image":
            return _image(part, param)
        case "input_file":
            return _file(part, param)
        case "input_audio":
            audio = required(part, "input_audio", OBJECT, within=param)
            return {"type": "input_audio", "input_audio": audio}
    raise _unknown_part(part, param, "input_text, input_image, input_file, input_audio")


def _image(part: Item, param: str) -> Message:
    if part.get("image_url") is None:
        if part.get("file_id") is not None:
            raise unsupported(f"{param}.file_id", "an image by its file id")
        raise missing(f"{param}.image_url")
    image = {"url": required(part, "image_url", STRING, within=param)}
    if part.get("detail") not in (None, "auto"):  # "auto" is what a chat completion assumes
        image["detail"] = part["detail"]
    return {"type": "image_url", "image_url": image}


def _file(part: Item, param: str) -> Message:
    if part.get("file_url") is not None:
        raise unsupported(f"{param}.file_url", "a file by its URL")
    file = {
        name: checked(part[name], STRING, f"{param}.{name}")
        for name in ("file_id", "filename", "file_data")
        if part.get(name) is not None
    }
    if "file_id" not in file and "file_data" not in file:
        raise missing(f"{param}.file_data")
    return {"type": "file", "file": file}


def _unknown_part(part: Item, param: str, known: str) -> InvalidRequest:
    return refused(f"{param}.type", f"'{shown(str(part.get('type')))}' is not one of {known}")


def _reasoning_text(parts: object, param: str) -> str:
    """Return the text of a reasoning item's `content`, or of its `summary`."""
    given = [checked(part, OBJECT, param) for part in checked(parts or [], ARRAY, param)]
    return "".join(text_in(part, "text") for part in given)
