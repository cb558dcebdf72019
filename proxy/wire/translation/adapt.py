"""Write a translated request in the form that a model takes: without fields, or with a part elsewhere."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from proxy.wire.body import Body

Message = dict[str, Any]

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
    return {**chat, "messages": _joined(chat["messages"])} if joined and has_neighbours(chat) else chat


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


def _joined(messages: Sequence[Message]) -> list[Message]:
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
