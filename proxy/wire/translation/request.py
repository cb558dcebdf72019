"""Convert a Responses request to a chat completion: the plan of one answer."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from proxy.domain.errors import InvalidRequest
from proxy.prompts import prompt
from proxy.wire.body import (
    ARRAY,
    BOOLEAN,
    INTEGER,
    NUMBER,
    OBJECT,
    STRING,
    Body,
    Shape,
    checked,
    missing,
    optional,
    refused,
    required,
    shown,
    unsupported,
    wrong_type,
)
from proxy.wire.translation.items import PACKED, Item, Seals, as_items
from proxy.wire.translation.messages import Message, as_parts, chat_messages
from proxy.wire.translation.tools import ToolName, loaded_tools, translate_tools, unwrapped


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """A Responses request as a chat completion, and what its response object has to echo."""

    chat: Body  # for POST /chat/completions; when streaming, stream_options.include_usage is set
    input_items: tuple[Item, ...]  # this request's own input, each with an id
    echo: Body  # the response object's fields that come from the request, defaults filled in
    dropped: tuple[str, ...]  # tools that cannot be had, by type; plain ASCII
    left_out: tuple[str, ...]  # types of the input items that were left out; plain ASCII
    tools: Mapping[str, ToolName]  # what can be called, by the name that the model knows
    stream: bool
    store: bool
    background: bool
    previous_response_id: str | None
    conversation: str | None
    thoughts: tuple[str, ...] = ()  # of each assistant message of `chat`, in order
    seals: Seals = PACKED
    seal_thoughts: bool = False  # the client wants `encrypted_content`
    compacts: bool = False  # the answer is a compaction


def plan(
    body: Body,
    earlier: Sequence[Item],
    referenced: Mapping[str, Item] | None = None,
    seals: Seals = PACKED,
) -> ChatPlan:
    """Return what to ask the upstream, and what to store and report of it. The body is not changed.

    `earlier`: all items, input and output, of the chain or conversation, oldest first. `referenced`: by
    id, the items that the input refers to (see referenced_ids) and that are not in `earlier`. Raises
    InvalidRequest, `param` set, for what is malformed and for what a chat completion cannot express.
    """
    if "model" not in body:
        raise missing("model")
    checked(body["model"], STRING, "model")
    parameters = _chat_parameters(body)  # first, since with a prompt template `input` may be absent
    conversation = conversation_of(body)
    given = body.get("input")
    if not given and not isinstance(given, str) and not earlier:
        raise missing("input")
    own = as_items([] if given is None else given, earlier, referenced)
    tools = translate_tools(body, loaded_tools([*earlier, *own]))
    echo = {**_echoed(body), **tools.echo}
    if conversation is not None:
        echo["conversation"] = {"id": conversation}
    if echo["background"] and not echo["store"]:
        raise refused("background", "a response in the background has to be stored: leave `store` on")
    translated = chat_messages(echo["instructions"], earlier, own, tools, seals)
    chat = {"messages": translated.messages, **parameters, **tools.chat}
    compacts = bool(own) and own[-1]["type"] == "compaction_trigger"
    return ChatPlan(
        chat=_for_compaction(chat) if compacts else chat,
        input_items=own,
        echo=echo,
        dropped=tools.dropped,
        left_out=translated.left_out,
        tools=tools.offered,
        stream=body.get("stream") is True,
        store=echo["store"],
        background=echo["background"],
        previous_response_id=echo["previous_response_id"],
        conversation=conversation,
        thoughts=translated.thoughts,
        seals=seals,
        compacts=compacts,
        seal_thoughts="reasoning.encrypted_content" in (optional(body, "include", ARRAY) or ()),
    )


_CONVERSATION_ID = re.compile(r"conv_[A-Za-z0-9_-]{1,250}")


def previous_of(body: Body) -> str | None:
    """Return the id of the response that the request continues; "" names one, too, which is not there. Raises
    InvalidRequest."""
    given: str | None = optional(body, "previous_response_id", STRING)
    return given


def check_conversation_id(given: str, param: str) -> None:
    """Raise InvalidRequest for what cannot be the id of a conversation."""
    if not _CONVERSATION_ID.fullmatch(given):
        raise refused(param, f"'{shown(given)}' is not an id: expected one that begins with 'conv_'")


def conversation_of(body: Body) -> str | None:
    """Return the id of the conversation that the request belongs to. Raises InvalidRequest, also if it
    continues a response at the same time."""
    given = body.get("conversation")
    if given is None:
        return None
    if isinstance(given, dict):
        given = required(given, "id", STRING, within="conversation")
    if not isinstance(given, str):
        raise wrong_type("conversation", "a string or an object", given)
    check_conversation_id(given, "conversation")
    if previous_of(body) is not None:
        raise InvalidRequest(
            "Mutually exclusive parameters: give only one of 'previous_response_id' and 'conversation'.",
            param="conversation",
            code="mutually_exclusive_parameters",
        )
    return given


class _Echoed(NamedTuple):
    """A field that the response object always holds, as OpenAI checks it."""

    shape: Shape
    default: Any = None
    least: float | None = None
    most: float | None = None
    words: tuple[str, ...] = ()
    max_chars: int | None = None


_ECHOED: Mapping[str, _Echoed] = {
    "background": _Echoed(BOOLEAN, False),
    "frequency_penalty": _Echoed(NUMBER, 0.0, -2, 2),
    "instructions": _Echoed(STRING),
    "max_output_tokens": _Echoed(INTEGER, None, 1),  # OpenAI: 16. Local models are asked for less.
    "max_tool_calls": _Echoed(INTEGER, None, 1),
    "metadata": _Echoed(OBJECT, {}),
    "presence_penalty": _Echoed(NUMBER, 0.0, -2, 2),
    "previous_response_id": _Echoed(STRING),
    "prompt_cache_key": _Echoed(STRING, max_chars=1_024),  # OpenAI: 64
    "prompt_cache_retention": _Echoed(STRING, words=("in_memory", "in-memory", "24h")),
    "safety_identifier": _Echoed(STRING, max_chars=128),
    "service_tier": _Echoed(STRING, "default"),
    "store": _Echoed(BOOLEAN, True),
    "temperature": _Echoed(NUMBER, 1.0, 0, 2),
    "top_logprobs": _Echoed(INTEGER, 0, 0, 20),
    "top_p": _Echoed(NUMBER, 1.0, 0, 1),
    "truncation": _Echoed(STRING, "disabled", words=("auto", "disabled")),
    "user": _Echoed(STRING),
}
_SUMMARIES = ("auto", "concise", "detailed")
MAX_METADATA, KEY_CHARS, VALUE_CHARS = 16, 64, 512

# Forwarded under their own names: chat completions mean the same by them. null is the same as absent.
_SHARED = frozenset(
    "model temperature top_p frequency_penalty presence_penalty service_tier user safety_identifier"
    " prompt_cache_key prompt_cache_retention".split()
)

# Handled here or elsewhere, or meaningless to a chat completion: `max_tool_calls` counts calls of hosted
# tools, `truncation` and `context_management` are the work of a server that keeps the context.
_NOT_FORWARDED = frozenset(
    "background client_metadata context_management conversation include input instructions"
    " max_output_tokens max_tool_calls metadata parallel_tool_calls previous_response_id prompt reasoning"
    " store stream stream_options text tool_choice tools top_logprobs truncation".split()
)

# Ollama, LM Studio and others read only `max_tokens` and silently ignore `max_completion_tokens`
# (ollama/ollama#7125), Mistral refuses it; vLLM, llama.cpp and SGLang take both. Only OpenAI's reasoning
# models, wherever they are served, refuse the old name.
_NEW_LIMIT = re.compile(r"(?:^|/)(?:o[1-9]|gpt-[5-9])(?![a-z0-9])")


def _chat_parameters(body: Body) -> Body:
    """Return the chat body's fields other than messages and tools. Raises InvalidRequest."""
    if body.get("prompt") is not None:
        raise unsupported("prompt", "a prompt template")
    chat = {name: value for name, value in body.items() if name not in _NOT_FORWARDED}
    chat = {name: value for name, value in chat.items() if value is not None or name not in _SHARED}
    top_logprobs = optional(body, "top_logprobs", INTEGER) or None
    include, form = optional(body, "include", ARRAY) or (), _format(_section(body, "text"))
    if form["type"] == "json_schema":
        schema = {name: form[name] for name in _SCHEMA_FIELDS if form[name] is not None}
        form = {"type": "json_schema", "json_schema": schema}
    limit = "max_completion_tokens" if _NEW_LIMIT.search(body["model"]) else "max_tokens"
    renamed = {
        limit: optional(body, "max_output_tokens", INTEGER),
        "reasoning_effort": optional(_section(body, "reasoning"), "effort", STRING, within="reasoning"),
        "verbosity": optional(_section(body, "text"), "verbosity", STRING, within="text"),
        "response_format": None if form["type"] == "text" else form,
        # A number alone is refused without the switch.
        "logprobs": top_logprobs is not None or "message.output_text.logprobs" in include or None,
        "top_logprobs": top_logprobs,
    }
    chat |= {name: value for name, value in renamed.items() if value is not None}
    if optional(body, "stream", BOOLEAN):
        # The response object needs the usage, which a chat stream has only on request.
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    return chat


def _echoed(body: Body) -> Body:
    """Return the response object's fields that repeat the request's. Raises InvalidRequest."""
    echo: Body = {}
    for name, field in _ECHOED.items():
        value = optional(body, name, field.shape)
        echo[name] = field.default if value is None else value
        if value is not None:
            _check_value(name, value, field)
    reasoning, text = _section(body, "reasoning"), _section(body, "text")
    _check_word("reasoning.summary", reasoning.get("summary"), _SUMMARIES)
    _check_word("reasoning.generate_summary", reasoning.get("generate_summary"), _SUMMARIES)
    _check_word("text.verbosity", text.get("verbosity"), ("low", "medium", "high"))
    check_metadata(body.get("metadata"))
    for index, name in enumerate(optional(body, "include", ARRAY) or ()):
        checked(name, STRING, f"include[{index}]")
    optional(body, "stream_options", OBJECT)
    return {
        **echo,
        "model": body["model"],
        "reasoning": {"effort": None, "summary": None, **reasoning},
        "text": {
            "verbosity": "medium",
            **{name: value for name, value in text.items() if value is not None},
            "format": _format(text),
        },
    }


def _check_value(name: str, value: Any, field: _Echoed) -> None:
    """Raise InvalidRequest for a value that is too small, too large, too long, or not one of the words."""
    kind = "integer" if isinstance(value, int) else "decimal"
    if field.least is not None and not value >= field.least:  # NaN is not, either
        raise refused(name, f"{value} is below the minimum of {field.least}", f"{kind}_below_min_value")
    if field.most is not None and value > field.most:
        raise refused(name, f"{value} is above the maximum of {field.most}", f"{kind}_above_max_value")
    if field.max_chars is not None and len(value) > field.max_chars:
        raise refused(name, f"it is longer than {field.max_chars} characters", "string_above_max_length")
    if field.words:
        _check_word(name, value, field.words)


def _check_word(path: str, word: Any, words: tuple[str, ...]) -> None:
    if word is not None and word not in words:
        said = shown(word) if isinstance(word, str) else "the value"
        raise refused(path, f"'{said}' is not one of {', '.join(words)}")


def check_metadata(given: Any) -> dict[str, str]:
    """Return `metadata` if it is as OpenAI allows it, {} for none. Raises InvalidRequest."""
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise refused("metadata", "expected an object of strings", "invalid_type")
    too_long = any(len(key) > KEY_CHARS or len(value) > VALUE_CHARS for key, value in given.items())
    if len(given) > MAX_METADATA or too_long:
        most = f"{MAX_METADATA} pairs, keys of {KEY_CHARS} and values of {VALUE_CHARS} characters"
        raise refused("metadata", f"it holds at most {most}")
    return dict(given)


def _section(body: Body, name: str) -> Body:
    section: Body = optional(body, name, OBJECT) or {}
    return section


# ---------------------------------------------------------------- text.format
_FORMATS = ("text", "json_object", "json_schema")
_SCHEMA_FIELDS = ("name", "description", "schema", "strict")


def _format(text: Body) -> Body:
    """Return `text.format` in the flat shape, its fields filled in."""
    given = optional(text, "format", OBJECT, within="text") or {"type": "text"}
    param = "text.format"
    kind = required(given, "type", STRING, within=param)
    if kind not in _FORMATS:
        raise refused(f"{param}.type", f"'{shown(kind)}' is not one of {', '.join(_FORMATS)}")
    if kind != "json_schema":
        return {"type": kind}
    holder, within = unwrapped(given, kind, param)
    required(holder, "name", STRING, within=within)
    required(holder, "schema", OBJECT, within=within)
    return {"type": kind, **{name: holder.get(name) for name in _SCHEMA_FIELDS}}


# ---------------------------------------------------------------- compaction
# What shapes an answer for the user is not meant for a handover.
_NOT_ASKED = ("response_format", "logprobs", "top_logprobs", "verbosity", "parallel_tool_calls")


def _for_compaction(chat: Body) -> Body:
    """Return a chat body that asks for the handover of its conversation. Tools stay: some servers refuse
    calls in the messages without them. None can be called."""
    asked = {name: value for name, value in chat.items() if name not in _NOT_ASKED}
    if "tools" in asked:
        asked["tool_choice"] = "none"
    messages, said = chat["messages"], prompt("compaction.v1")
    last = messages[-1] if messages else {}
    if last.get("role") == "user" and last.get("content"):
        # In the user's message, since strict templates want the roles to alternate.
        asked["messages"] = [*messages[:-1], {**last, "content": _both(last["content"], said)}]
    else:
        asked["messages"] = [*messages, {"role": "user", "content": said}]
    return asked


# ---------------------------------------------------------------- in the form that a model takes
LIMITS = ("max_completion_tokens", "max_tokens")
"""The names that chat completions have for the limit of tokens."""

# Without these a request would mean something else. All others are hints, to a cache, a bill, a safety
# system, or to a model how much to think: an answer without them is better than none.
_MEANING = frozenset(
    "model messages stream tools tool_choice functions function_call response_format temperature top_p n seed"
    " stop frequency_penalty presence_penalty logit_bias logprobs top_logprobs modalities audio".split()
)


def optional_fields(chat: Body) -> frozenset[str]:
    """Return the fields of a translated request that may be left out if a server does not know them."""
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
    """Return the request in this form; `chat` itself, which is never changed, if it has this form already.

    `tool_media` False: images and files that tools returned are in a user message after their outputs;
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
        said = [{**m, "role": "user"} if m["role"] == "system" else m for m in chat["messages"]]
        chat, joined = {**chat, "messages": said}, True
    if streams_only and not chat.get("stream"):
        counted = {} if "stream_options" in omit else {"stream_options": {"include_usage": True}}
        chat = {**chat, "stream": True, **counted}
    if joined and has_neighbours(chat):
        messages: list[Message] = []
        for message in chat["messages"]:
            if messages and _are_alike(messages[-1], message):
                before = messages.pop()
                message = {**before, "content": _both(before["content"], message["content"])}
            messages.append(message)
        chat = {**chat, "messages": messages}
    return chat


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
    remaining, messages = iter(thoughts), list[Message]()
    for message in chat["messages"]:
        if message["role"] == "assistant":
            thought = next(remaining, "")
            message = {name: value for name, value in message.items() if name != "reasoning_content"}
            if which == "all":  # servers that want it on each take a space, and some no empty text
                message["reasoning_content"] = thought or " "
        messages.append(message)
    return {**chat, "messages": messages}


def _are_alike(one: Message, next_one: Message) -> bool:
    """True for two messages of the user, or two texts of the assistant."""
    plain = set(one) | set(next_one) <= {"role", "content"} and one.get("content") and next_one.get("content")
    return bool(plain) and one["role"] == next_one["role"] in ("user", "assistant")


def _both(one: str | list[Message], other: str | list[Message]) -> str | list[Message]:
    """Return the content of two messages as that of one."""
    if isinstance(one, str) and isinstance(other, str):
        return f"{one}\n\n{other}"
    return [*as_parts(one), *as_parts(other)]


def _media_behind(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages with what tools showed after each run of their outputs: nothing may separate the
    outputs of calls that were made together."""
    for _, run in groupby(messages, lambda message: message["role"] == "tool"):
        shown: list[Message] = []
        for message in run:
            if message["role"] == "tool" and isinstance(message["content"], list):
                text = "\n".join(p["text"] for p in message["content"] if p["type"] == "text")
                media = [part for part in message["content"] if part["type"] != "text"]
                shown += [{"type": "text", "text": f"Output of {message['tool_call_id']}:"}, *media]
                message = {**message, "content": text or "(shown in the next message)"}
            yield message
        if shown:
            yield {"role": "user", "content": shown}
