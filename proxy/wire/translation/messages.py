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
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.domain.errors import InvalidRequest
from proxy.wire.body import Body, shown
from proxy.wire.translation.items import (
    COMPACTION,
    Item,
    Seals,
    chat_content,
    details_of,
    reasoning_text,
    response_of,
    spoken,
    thoughts_in,
    tool_content,
)
from proxy.wire.translation.tools import (
    CALLS,
    COMPACTIONS,
    CUSTOM_ARGUMENT,
    HOSTED,
    IN_USER,
    OUTPUTS,
    ToolName,
    TranslatedTools,
    arguments_of,
    call_id_of,
    in_user,
    is_host_run,
    line_of,
    output_of,
)

Message = dict[str, Any]
_SYSTEM = ("system", "developer")


@dataclass(frozen=True, slots=True)
class ChatMessages:
    """Chat messages, and the types of the items that were left out."""

    messages: list[Message]
    left_out: tuple[str, ...]
    thoughts: tuple[str, ...]  # behind each assistant message, in order


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
    messages = [*first, *gathered.said()]
    return ChatMessages(messages, tuple(dict.fromkeys(gathered.left_out)), tuple(gathered.thoughts))


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
    tools: TranslatedTools
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
            key, arguments = ToolName(CALLS[kind].type, CALLS[kind].type), arguments_of(item)
        elif kind == "custom_tool_call":
            key = ToolName("custom", *named)
            arguments = json.dumps({CUSTOM_ARGUMENT: item["input"]}, ensure_ascii=False)
        else:  # servers parse the arguments
            key, arguments = ToolName("function", *named), item["arguments"] or "{}"
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


SHOWN_BEHIND = "(shown in the next message)"  # a tool's output that holds no text
LIMITS = ("max_completion_tokens", "max_tokens")
"""The names that chat completions have for the limit of tokens."""

# Without these a request would mean something else. All others are hints, to a cache, a bill, a safety
# system, or to a model how much to think: an answer without them is better than none.
_MEANING = frozenset(
    "model messages stream tools tool_choice functions function_call response_format temperature top_p n seed"
    " stop frequency_penalty presence_penalty logit_bias logprobs top_logprobs modalities audio".split()
)


def optional_fields(chat: Body) -> frozenset[str]:
    """Return the fields of a translated request that may be left out where a server does not know them."""
    return frozenset(chat) - _MEANING - set(LIMITS)


def adapted(
    chat: Body,
    *,
    omit: Collection[str] = (),
    limit: str = "",
    tool_media: bool = True,
    joined: bool = False,
    system: bool = True,
    streams_only: bool = False,
) -> Body:
    """Return the request in this form; `chat` itself, which is never changed, where that is its form.

    `tool_media` False: images and files that tools returned are in a user message behind their outputs;
    `joined`: messages of the user in a row are one message, those of the assistant, too; `system` False: what
    the system says is said by the user; `streams_only`: the answer is asked for as a stream."""
    dropped = optional_fields(chat).intersection(omit)
    named = next((name for name in LIMITS if name in chat), "")
    if dropped or limit not in ("", named):
        chat = {
            limit if limit and name == named else name: v for name, v in chat.items() if name not in dropped
        }
    if not tool_media and has_tool_media(chat):
        chat = {**chat, "messages": list(_media_behind(chat["messages"]))}
    if not system and has_system(chat):
        chat = {**chat, "messages": [_by_user(message) for message in chat["messages"]]}
        joined = True
    if streams_only and not chat.get("stream"):
        counted = {} if "stream_options" in omit else {"stream_options": {"include_usage": True}}
        chat = {**chat, "stream": True, **counted}
    return (
        {**chat, "messages": _joined_neighbours(chat["messages"])}
        if joined and has_neighbours(chat)
        else chat
    )


def has_system(chat: Body) -> bool:
    """True if the system says something."""
    return any(message["role"] == "system" for message in chat["messages"])


def has_neighbours(chat: Body) -> bool:
    """True if two messages in a row could be one."""
    return any(map(_are_alike, chat["messages"], chat["messages"][1:]))


def has_tool_media(chat: Body) -> bool:
    """True if a tool's output is more than a text."""
    return any(m["role"] == "tool" and isinstance(m["content"], list) for m in chat["messages"])


def with_thoughts(chat: Body, thoughts: Sequence[str], which: str) -> Body:
    """Return the request with `reasoning_content` on the assistant messages that `which` says: `loop`, those
    of the tool loop under way, as `chat` has it; `all`; `none`."""
    if which == "loop":
        return chat
    behind, messages = iter(thoughts), list[Message]()
    for message in chat["messages"]:
        if message["role"] == "assistant":
            thought = next(behind, "")
            message = {name: value for name, value in message.items() if name != "reasoning_content"}
            if which == "all":  # servers that want it on each take a space, and some no empty text
                message["reasoning_content"] = thought or " "
        messages.append(message)
    return {**chat, "messages": messages}


def _by_user(message: Message) -> Message:
    return {**message, "role": "user"} if message["role"] == "system" else message


def _are_alike(one: Message, next_one: Message) -> bool:
    """True for two messages of the user, or two texts of the assistant."""
    plain = set(one) | set(next_one) <= {"role", "content"} and one.get("content") and next_one.get("content")
    return bool(plain) and one["role"] == next_one["role"] in ("user", "assistant")


def _joined_neighbours(messages: Sequence[Message]) -> list[Message]:
    joined: list[Message] = []
    for message in messages:
        if joined and _are_alike(joined[-1], message):
            before = joined.pop()
            message = {**before, "content": both(before["content"], message["content"])}
        joined.append(message)
    return joined


def both(one: str | list[Message], other: str | list[Message]) -> str | list[Message]:
    """Return the content of two messages as that of one."""
    if isinstance(one, str) and isinstance(other, str):
        return f"{one}\n\n{other}"
    contents = ([{"type": "text", "text": c}] if isinstance(c, str) else c for c in (one, other))
    return [part for parts in contents for part in parts]


def _media_behind(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages with what tools showed behind each run of their outputs: nothing may stand between
    the outputs of calls that were made together."""
    shown: list[Message] = []
    for message in messages:
        if message["role"] != "tool" and shown:
            yield {"role": "user", "content": shown}
            shown = []
        if message["role"] == "tool" and isinstance(message["content"], list):
            text = "\n".join(p["text"] for p in message["content"] if p["type"] == "text")
            media = [part for part in message["content"] if part["type"] != "text"]
            shown += [{"type": "text", "text": f"Output of {message['tool_call_id']}:"}, *media]
            message = {**message, "content": text or SHOWN_BEHIND}
        yield message
    if shown:
        yield {"role": "user", "content": shown}
