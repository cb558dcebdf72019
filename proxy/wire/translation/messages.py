"""Convert input items to chat messages.

The Responses API has a flat list of calls, outputs and messages; a chat conversation
has assistant messages that hold their calls, each directly followed by the calls' outputs. So the items
are gathered into turns of the assistant first: text, thoughts and parallel calls belong together until
an output or another's message comes. An output goes to the first call of its id that has none yet:
some servers number their calls from the start in every answer.

Strict chat templates take one system message, and only as the first. So the instructions and what the system
and developers say, wherever they say it, are folded into one.

What a host has run (web search, MCP servers …) cannot be asked for here, but a client may have it in its
history: it becomes a line of the assistant's text.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
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
from proxy.wire.translation.items import (
    CLIENT_CALLS,
    CLIENT_OUTPUTS,
    COMPACTION,
    COMPACTIONS,
    HOSTED,
    IN_USER,
    Item,
    Seals,
    call_id_of,
    response_of,
    shell_action,
    thoughts_in,
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
    # A compaction replaces all before it but system items.
    compacted = (i for i in reversed(range(len(earlier))) if _compacted(earlier[i], seals) is not None)
    place = next(compacted, 0)
    before = (item for item in earlier[:place] if item.get("role") in SYSTEM_ROLES)
    for item in (*before, *earlier[place:]):
        gathered.add(item, "input")
    for index, item in enumerate(own):
        gathered.add(item, f"input[{index}]")
    system = _text_or_parts([part for text in gathered.system if text for part in as_parts(text)], "\n\n")
    first: list[Message] = [{"role": "system", "content": system}] if system else []
    messages = [*first, *gathered.messages()]
    return ChatMessages(messages, tuple(dict.fromkeys(gathered.left_out)), tuple(gathered.thoughts))


def _compacted(item: Item, seals: Seals) -> str | None:
    """Return the text of a compaction of ours; None for other items, and for those sealed by others."""
    if item.get("type") not in COMPACTIONS:
        return None
    return seals.open(COMPACTION, item.get("encrypted_content"))


def as_parts(content: str | list[Message]) -> list[Message]:
    """Return a message's content as parts."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text_or_parts(parts: list[Message], between: str) -> str | list[Message]:
    """Return one string while all parts are text: every server understands that."""
    if all(part["type"] == "text" for part in parts):
        return between.join(part["text"] for part in parts)
    return parts


# ---------------------------------------------------------------- gathering
@dataclass(slots=True, eq=False)
class _Call:
    item: Item
    output: str | list[Message] | None = None

    @property
    def is_half_written(self) -> bool:
        kind = self.item["type"]
        mark = CLIENT_CALLS[kind].half_written if kind in CLIENT_CALLS else "incomplete"
        return self.item.get("status") == mark


@dataclass(slots=True)
class _Turn:
    """What the assistant said and called at once."""

    text: str | None = None
    extra: Message = field(default_factory=dict)  # Gemini's signature of the text
    thoughts: str = ""
    details: list[Message] = field(default_factory=list)  # OpenRouter's
    lines: list[str] = field(default_factory=list)  # what a host did for it
    calls: list[_Call] = field(default_factory=list)


@dataclass(slots=True)
class _Gathered:
    tools: TranslatedTools
    seals: Seals
    system: list[str | list[Message]] = field(default_factory=list)
    entries: list[Message | _Turn] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    turn: _Turn | None = None  # the one that still grows
    unanswered: dict[str, list[_Call]] = field(default_factory=dict)
    signatures: dict[str, Message] = field(default_factory=dict)  # of calls, if a client has them sealed

    def add(self, item: Item, param: str) -> None:
        kind = item.get("type", "message")
        if kind == "message":
            self._message(item, f"{param}.content")
        elif kind == "reasoning":
            self._reasoning(item, param)
        elif kind in HOSTED and (_is_host_run(item) or kind not in (*CLIENT_CALLS, *CLIENT_OUTPUTS)):
            if line := _hosted_line(item):
                self._growing().lines.append(line)
        elif kind in ("function_call", "custom_tool_call") or kind in CLIENT_CALLS:
            call = _Call(item)
            self._growing().calls.append(call)
            self.unanswered.setdefault(call_id_of(item), []).append(call)
        elif kind in ("function_call_output", "custom_tool_call_output") or kind in CLIENT_OUTPUTS:
            self._output(item, param)
        elif kind in IN_USER:
            self._user(_in_user(item))
        elif (summary := _compacted(item, self.seals)) is not None:
            self._user(f"<earlier_conversation>\n{summary}\n</earlier_conversation>")
        else:
            self.left_out.append(shown(kind))

    def _message(self, item: Item, param: str) -> None:
        if item["role"] == "assistant":
            if self.turn is not None and self.turn.text is not None:
                self.turn = None
            turn, texts = self._growing(), list[str]()
            for index, part in enumerate(item["content"]):
                if part.get("type") == "refusal":  # it is what the assistant said, too
                    texts.append(required(part, "refusal", STRING, within=f"{param}[{index}]"))
                elif part.get("type") == "output_text":
                    texts.append(part["text"])
                else:
                    raise _unknown_part(part, f"{param}[{index}]", "output_text, refusal")
            turn.text, turn.extra = "".join(texts), dict_in(item, "extra_content")
            return
        parts = item["content"]
        if len(parts) == 1 and parts[0].get("type") == "input_text":
            content: str | list[Message] = str(parts[0]["text"])
        else:
            content = [_chat_part(part, f"{param}[{index}]") for index, part in enumerate(parts)]
        if item["role"] in SYSTEM_ROLES:
            # Models that know developers read the system as the same; local templates drop `developer`.
            self.system.append(content)
        else:
            self._user(content)

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
        call = next((call for call in waiting if not call.is_half_written), waiting[0])
        waiting.remove(call)
        output = _output_of(item) if item["type"] in CLIENT_OUTPUTS else item["output"]
        if isinstance(output, str):
            call.output = output
            return
        content: list[Message] = []
        for part in output:
            try:
                content.append(_chat_part(part, f"{param}.output"))
            except InvalidRequest:
                # A word: the client has the part in its history, and would be refused again and again.
                content.append({"type": "text", "text": f"[{shown(str(part.get('type')))}]"})
        # Few servers take an array from a tool, but images and files stay parts, for the upstream to judge.
        call.output = _text_or_parts(content, "\n")

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
        calls = [call for call in turn.calls if call.output is not None or not call.is_half_written]
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
            tool = CLIENT_CALLS[kind]
            key = ToolName(tool.type, tool.type)
            arguments = json.dumps(tool.arguments(item), ensure_ascii=False)
        elif kind == "custom_tool_call":
            key = ToolName("custom", *named)
            arguments = json.dumps({CUSTOM_ARGUMENT: item["input"]}, ensure_ascii=False)
        else:  # servers parse the arguments
            key, arguments = ToolName("function", *named), item["arguments"] or "{}"
        function = {"name": self.tools.flat(key), "arguments": arguments}
        call: Message = {"id": call_id_of(item), "type": "function", "function": function}
        extra = item.get("extra_content") or self.signatures.get(call["id"])
        return {**call, "extra_content": extra} if isinstance(extra, dict) else call


# ---------------------------------------------------------------- content parts
def _chat_part(part: Item, param: str) -> Message:
    """Return an input part as a chat message has it. Raises InvalidRequest for one that has no chat form."""
    match part.get("type"):
        case "input_text":
            return {"type": "text", "text": part["text"]}
        case "input_image":
            if part.get("image_url") is None:
                if part.get("file_id") is not None:
                    raise unsupported(f"{param}.file_id", "an image by its file id")
                raise missing(f"{param}.image_url")
            image = {"url": required(part, "image_url", STRING, within=param)}
            if part.get("detail") not in (None, "auto"):  # "auto" is what a chat completion assumes
                image["detail"] = part["detail"]
            return {"type": "image_url", "image_url": image}
        case "input_file":
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
        case "input_audio":
            audio = required(part, "input_audio", OBJECT, within=param)
            return {"type": "input_audio", "input_audio": audio}
    raise _unknown_part(part, param, "input_text, input_image, input_file, input_audio")


def _unknown_part(part: Item, param: str, known: str) -> InvalidRequest:
    return refused(f"{param}.type", f"'{shown(str(part.get('type')))}' is not one of {known}")


def _reasoning_text(parts: object, param: str) -> str:
    """Return the text of a reasoning item's `content`, or of its `summary`."""
    given = [checked(part, OBJECT, param) for part in checked(parts or [], ARRAY, param)]
    return "".join(text_in(part, "text") for part in given)


# ---------------------------------------------------------------- what a client's tools returned
def _output_of(item: Mapping[str, Any]) -> str | list[Item]:
    """Return what a client's tool returned: text, or input parts."""
    kind, output = item["type"], item.get("output")
    if kind == "shell_call_output" and isinstance(output, list):
        chunks: list[str] = []
        for chunk in dicts_in(output):
            texts = [text for name in ("stdout", "stderr") if (text := text_in(chunk, name))]
            outcome = dict_in(chunk, "outcome")
            if outcome.get("type") == "timeout":
                texts.append("[timed out]")
            elif outcome.get("exit_code"):
                texts.append(f"[exit code {outcome['exit_code']}]")
            chunks.append("\n".join(texts))
        return "\n".join(chunks)
    if kind == "apply_patch_call_output":
        status = str(item.get("status") or "completed")
        return f"{status}: {output}" if output else status
    if kind == "tool_search_output":
        names = ", ".join(_tool_names(item.get("tools")))
        return f"Tools that can be called now: {names}" if names else "No tool was found."
    if kind == "computer_call_output" and isinstance(output, dict):
        url = output.get("image_url")
        return [{"type": "input_image", "image_url": url}] if isinstance(url, str) else "[a screenshot]"
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


def _tool_names(tools: Any) -> list[str]:
    names: list[str] = []
    for tool in dicts_in(tools):
        if isinstance(tool.get("name"), str):
            inner = _tool_names(tool.get("tools")) if tool.get("type") == "namespace" else []
            names += [f"{tool['name']}: {name}" for name in inner] or [tool["name"]]
    return names


# ---------------------------------------------------------------- what others did
_MAX_LINE_CHARS = 4_000  # of what a host returned


def _is_host_run(item: Mapping[str, Any]) -> bool:
    """True for an item that a host has made, though it has the type of what clients run: a tool search of the
    server's, a shell in a container."""
    if item.get("type") in ("tool_search_call", "tool_search_output"):
        call_id = item.get("call_id")
        return item.get("execution") == "server" or not (isinstance(call_id, str) and call_id)
    return str(dict_in(item, "environment").get("type", "local")) != "local"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_LINE_CHARS else f"{text[:_MAX_LINE_CHARS]} …"


def _hosted_line(item: Item) -> str:
    """Return what a host did as a line of the assistant's text, "" if it says nothing."""
    mcp = f"`{item.get('name')}` of the server `{item.get('server_label')}` with"
    match item["type"]:
        case "web_search_call":
            action = dict_in(item, "action")
            if action.get("type") in ("open_page", "find_in_page", "find"):
                return f"[Opened the web page {_short(action.get('url') or '')}]"
            query = action.get("query") or action.get("queries")
            return f"[Searched the web for: {_short(query)}]" if query else "[Searched the web]"
        case "file_search_call":
            texts = [str(result["text"]) for result in dicts_in(item.get("results")) if result.get("text")]
            found = f"; found: {_short(' … '.join(texts))}" if texts else ""
            return f"[Searched files for: {_short(item.get('queries') or [])}{found}]"
        case "code_interpreter_call":
            logs = [str(output["logs"]) for output in dicts_in(item.get("outputs")) if output.get("logs")]
            printed = f"\nIt printed:\n{_short(''.join(logs))}" if logs else ""
            return f"[Ran code:\n{_short(item.get('code') or '')}{printed}]"
        case "image_generation_call":
            prompt = item.get("revised_prompt")
            return f"[Made an image: {_short(prompt)}]" if prompt else "[Made an image]"
        case "mcp_call":
            returned = f"; it returned: {_short(item['output'])}" if item.get("output") else ""
            outcome = f"; it failed: {_short(item['error'])}" if item.get("error") else returned
            return f"[Called {mcp} {_short(item.get('arguments') or '{}')}{outcome}]"
        case "mcp_approval_request":
            return f"[Asked to call {mcp} {_short(item.get('arguments') or '{}')}]"
        case "program":
            return f"[Ran a program:\n{_short(item.get('code') or '')}]"
        case "program_output":
            return f"[It returned: {_short(item.get('result') or '')}]"
        case "shell_call":
            return f"[Ran in a container: {_short(shell_action(item).get('commands') or [])}]"
        case "shell_call_output":
            return f"[It returned: {_short(_output_of(item))}]"
    return ""


def _in_user(item: Item) -> str:
    """Return an item that is neither the user's words nor the assistant's as text for a user message, in tags
    that set it apart from what the user typed."""
    if item["type"] == "mcp_approval_response":
        verdict = "approved" if item.get("approve") else "refused"
        reason = f": {_short(item['reason'])}" if item.get("reason") else ""
        return f"<approval>The call was {verdict}{reason}</approval>"
    texts = [part["text"] for part in dicts_in(item.get("content")) if isinstance(part.get("text"), str)]
    return f"<agent_message>{_short(' '.join(texts))}</agent_message>" if texts else ""
