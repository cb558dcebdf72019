"""Convert a Responses request to a chat completion: the plan of one answer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proxy.domain.errors import InvalidRequest
from proxy.wire.body import Body
from proxy.wire.translation.checks import (
    ARRAY,
    STRING,
    checked,
    missing,
    optional,
    refused,
    required,
    shown,
    wrong_type,
)
from proxy.wire.translation.compacted import for_compaction
from proxy.wire.translation.items import Item, as_items
from proxy.wire.translation.messages import chat_messages
from proxy.wire.translation.parameters import chat_parameters, echoed
from proxy.wire.translation.sealed import PACKED, Seals
from proxy.wire.translation.tools import Key, loaded_tools, translate_tools


@dataclass(frozen=True, slots=True)
class Plan:
    """A Responses request as a chat completion, and what its response object has to echo."""

    chat: Body  # for POST /chat/completions; when streaming, stream_options.include_usage is set
    input_items: tuple[Item, ...]  # this request's own input, each with an id
    echo: Body  # the response object's fields that come from the request, defaults filled in
    dropped: tuple[str, ...]  # tools that cannot be had, by type; plain ASCII
    left_out: tuple[str, ...]  # types of the input items that were left out; plain ASCII
    tools: Mapping[str, Key]  # what can be called, by the name that the model knows
    stream: bool
    store: bool
    background: bool
    previous_response_id: str | None
    conversation: str | None
    thoughts: tuple[str, ...] = ()  # behind each assistant message of `chat`, in order
    seals: Seals = PACKED
    seal_thoughts: bool = False  # the client wants `encrypted_content`
    compacts: bool = False  # the answer is a compaction


def plan(
    body: Body,
    earlier: Sequence[Item],
    referenced: Mapping[str, Item] | None = None,
    seals: Seals = PACKED,
) -> Plan:
    """Return what to ask the upstream, and what to keep and to say of it. The body is not changed.

    `earlier`: all items, input and output, of the chain or conversation, oldest first. `referenced`: by
    id, the items that the input refers to (see referenced_ids) and that are not in `earlier`. Raises
    InvalidRequest, `param` set, for what is malformed and for what a chat completion cannot express.
    """
    if "model" not in body:
        raise missing("model")
    checked(body["model"], STRING, "model")
    parameters = chat_parameters(body)  # first, since with a prompt template `input` may be absent
    conversation = conversation_of(body)
    given = body.get("input")
    if not given and not isinstance(given, str) and not earlier:
        raise missing("input")
    own = as_items([] if given is None else given, earlier, referenced)
    tools = translate_tools(body, loaded_tools([*earlier, *own]))
    echo = {**echoed(body), **tools.echo}
    if conversation is not None:
        echo["conversation"] = {"id": conversation}
    if echo["background"] and not echo["store"]:
        raise refused("background", "a response in the background has to be stored: leave `store` on")
    told = chat_messages(echo["instructions"], earlier, own, tools, seals)
    chat = {"messages": told.messages, **parameters, **tools.chat}
    compacts = bool(own) and own[-1]["type"] == "compaction_trigger"
    return Plan(
        chat=for_compaction(chat) if compacts else chat,
        input_items=own,
        echo=echo,
        dropped=tools.dropped,
        left_out=told.left_out,
        tools=tools.offered,
        stream=body.get("stream") is True,
        store=echo["store"],
        background=echo["background"],
        previous_response_id=echo["previous_response_id"],
        conversation=conversation,
        thoughts=told.thoughts,
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
        raise refused(param, f"'{shown(given)}' is no id: expected one that begins with 'conv_'")


def conversation_of(body: Body) -> str | None:
    """Return the id of the conversation that the request belongs to. Raises InvalidRequest, also where it
    continues a response besides."""
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
