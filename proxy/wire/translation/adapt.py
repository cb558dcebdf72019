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


def adapted(chat: Body, *, omit: Collection[str] = (), limit: str = "", tool_media: bool = True) -> Body:
    """Return the request in this form; `chat` itself, which is never changed, where that is its form.

    `tool_media` False: images and files that tools returned are in a user message behind their outputs."""
    dropped = optional_fields(chat).intersection(omit)
    named = next((name for name in LIMITS if name in chat), "")
    if dropped or limit not in ("", named):
        chat = {
            limit if limit and name == named else name: v for name, v in chat.items() if name not in dropped
        }
    if tool_media or not has_tool_media(chat):
        return chat
    return {**chat, "messages": list(_media_behind(chat["messages"]))}


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
