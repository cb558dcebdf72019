"""The Dialect protocol: the two intercepted APIs as the rest of the proxy sees them. No I/O.

A dialect reads a request's body without judging it: whatever it does not understand it leaves alone,
and the upstream gets it as it came. Only malformed JSON and our own fields are refused (body, extensions).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Protocol

from proxy.domain.core import Message
from proxy.text.markup import behind_thoughts
from proxy.wire.answers import Values, objects, tokens_of
from proxy.wire.body import Body
from proxy.wire.chat_answer import ChatReader, PieceKind, TextPiece
from proxy.wire.content import (
    MessageFormat,
    clean,
    conversation,
    joined,
    message,
    place,
    speakers,
    text_of,
    with_text_after,
    with_text_before,
)
from proxy.wire.extensions import is_placeholder, is_usable_id

MAX_MODEL_CHARS = 512  # of its name, which is stored with every exchange, and which clients choose


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said, without its reasoning."""

    text: str = ""
    whole: bool = False  # it came to its end: the model's, or a length limit's
    response_id: str | None = None  # of the Responses API only
    usage: tuple[int, int] | None = None  # tokens read and written, where the upstream says so
    calls: bool = False  # tools that the client has to use: the answer goes on with what they return
    unread: str = field(default="", compare=False)  # why the answer could not be read; no word of it


class Dialect(Protocol):
    """How one API writes requests and answers. No method raises for what a body holds."""

    @property
    def conversation_field(self) -> str:
        """The field that holds the conversation's entries."""
        ...

    def messages(self, body: Body) -> tuple[Message, ...]:
        """Return the conversation as memory sees it, without blocks that we injected earlier."""
        ...

    def insert(self, body: Body, block: str, placement: str) -> Body:
        """Return a body with the block at its place; it shares all else with `body`, which is unchanged.

        Where there is no place for it (no user message), or no block, `body` itself is returned.
        """
        ...

    def same_shape(self, body: Body) -> str:
        """Return the placement that leaves the number of messages and their roles as they are."""
        ...

    def tool_forced(self, body: Body) -> bool:
        """True if the model has to call a tool. Declaring tools forces none."""
        ...

    def model(self, body: Body) -> str:
        """Return the model's name, "" where there is none."""
        ...

    def openai_user(self, body: Body) -> str | None:
        """Return `safety_identifier`, else `user`; None where neither can name a user."""
        ...

    def is_unfilled(self, body: Body) -> bool:
        """True if one of these fields holds a placeholder that was never filled in."""
        ...

    def previous_response_id(self, body: Body) -> str | None:
        """Return the response that this request continues."""
        ...

    def conversation_key(self, body: Body) -> str:
        """Return a text that stays the same while a conversation grows; "" for an empty one."""
        ...

    def answer(
        self, chunks: Sequence[bytes], content_type: str, content_encoding: str, *, cut: bool = False
    ) -> Answer:
        """Return what was said in a response, streamed or not. `cut`: the chunks are not all of it."""
        ...


class CommonFields:
    """What both APIs spell alike."""

    def model(self, body: Body) -> str:
        """Return the model's name, "" where there is none, or what is there is too long to be one."""
        name = text_field(body, "model") or ""
        return name if len(name) <= MAX_MODEL_CHARS else ""

    def openai_user(self, body: Body) -> str | None:
        """Return `safety_identifier`, else `user`; None where neither can name a user."""
        for name in ("safety_identifier", "user"):
            value = text_field(body, name)
            if value and is_usable_id(value) and not is_placeholder(value):
                return value
        return None

    def is_unfilled(self, body: Body) -> bool:
        """True if OpenAI's own fields name a user by a placeholder that was never filled in."""
        named = (text_field(body, name) for name in ("safety_identifier", "user"))
        return any(is_placeholder(value) for value in named if value)


def text_field(body: Body, name: str) -> str | None:
    """Return the field if it is a string that says something, fit for UTF-8."""
    value = body.get(name)
    return clean(value) if value and isinstance(value, str) else None


def choice_forces_tool(choice: Any) -> bool:
    """True if a `tool_choice` of either API leaves the model no way but to call a tool."""
    if not isinstance(choice, dict):
        return choice in ("required", "any")
    kind = choice.get("type")
    if kind == "allowed_tools":
        # Chat completions nest the mode one deeper than the Responses API.
        allowed = choice.get("allowed_tools")
        return (allowed if isinstance(allowed, dict) else choice).get("mode") == "required"
    return kind not in (None, "auto", "none") or "function" in choice or "name" in choice


def key_of(messages: Iterable[Message]) -> str:
    """Return the system texts and the first user message, unambiguously joined; what follows is not read.

    A message that the client wrote is passed over where one of the user's follows it before any answer."""
    system: list[str] = []
    first: str | None = None
    for each in messages:
        if each.role == "user" and not each.is_clients:
            first = each.identity
            break
        if each.role == "user" and first is None:
            first = each.text
        elif each.role in ("system", "developer") and first is None:
            system.append(each.text)
        elif each.role == "assistant" and first is not None:
            break
    return "\n".join((*(f"{len(text)} {text}" for text in system), *([] if first is None else [first])))


_CHAT_ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


_SYSTEM = ("system", "developer")


class ChatDialect(CommonFields):
    """Dialect of chat completions. See Dialect for what the methods guarantee."""

    conversation_field = "messages"

    def messages(self, body: Body) -> tuple[Message, ...]:
        """Return the conversation; () where `messages` is no list."""
        return tuple(_chat_conversation(body))

    def insert(self, body: Body, block: str, placement: str) -> Body:
        """Return the body with the block as a message of its own or inside one."""
        placed = place(_chat_entries(body), block, placement, _CHAT_FORMAT) if block else None
        return body if placed is None else {**body, "messages": placed}

    def same_shape(self, body: Body) -> str:
        """Return `merge_system` where there is a leading system message to extend, else `in_user`."""
        return "merge_system" if _chat_role(next(iter(_chat_entries(body)), None)) in _SYSTEM else "in_user"

    def tool_forced(self, body: Body) -> bool:
        """True if `tool_choice`, or its forerunner `function_call`, demands a call."""
        return choice_forces_tool(body.get("tool_choice")) or isinstance(body.get("function_call"), dict)

    def previous_response_id(self, body: Body) -> str | None:
        """Return None: a chat request carries its whole conversation."""
        return None

    def conversation_key(self, body: Body) -> str:
        """Return the system texts and the first user message."""
        return key_of(_chat_conversation(body))

    def answer(
        self, chunks: Sequence[bytes], content_type: str, content_encoding: str, *, cut: bool = False
    ) -> Answer:
        """Return the text of choice 0, without thoughts."""
        values, reader = Values(content_type, content_encoding), ChatReader()
        texts: dict[PieceKind, list[str]] = {PieceKind.TEXT: [], PieceKind.REFUSAL: [], PieceKind.THOUGHT: []}
        for pieces in chain(map(reader.take, objects(values, chunks)), [reader.flush()]):
            for piece in pieces:
                if isinstance(piece, TextPiece):
                    texts[piece.kind].append(piece.text)
        ending = reader.ending(done=values.over, cut=cut or values.ragged or bool(values.trouble))
        # Cleaned as one text: an emoji, or an echo of our block, may be cut between two deltas.
        said = joined(("".join(texts[PieceKind.TEXT]), "".join(texts[PieceKind.REFUSAL])))
        return Answer(
            behind_thoughts(said),
            whole=ending.status != "failed",
            calls=reader.calls.found,
            usage=tokens_of(reader.usage),
            unread=values.trouble if chunks else "",
        )


CHAT = ChatDialect()


def _chat_entries(body: Body) -> list[Any]:
    entries = body.get("messages")
    return entries if isinstance(entries, list) else []


def _chat_role(entry: Any) -> str | None:
    role = entry.get("role") if isinstance(entry, dict) else None
    return _CHAT_ROLES.get(role) if isinstance(role, str) else None


_CHAT_FORMAT = MessageFormat(
    role_of=_chat_role,
    system=lambda text: {"role": "system", "content": text},
    part_type="text",
)


def _chat_conversation(body: Body) -> Iterator[Message]:
    entries = _chat_entries(body)
    return conversation(
        message(role, text_of(entry.get("content")))
        for entry, role in zip(entries, speakers(entries, _chat_role), strict=True)
        if role
    )


CALLS = {
    "function_call": "call_id",
    "custom_tool_call": "call_id",
    "computer_call": "call_id",
    "local_shell_call": "call_id",
    "shell_call": "call_id",
    "apply_patch_call": "call_id",
    "mcp_approval_request": "id",
}
"""Items that ask the client for something, and the field in which they, or its answer, name the call."""

_INPUT_ROLES = ("system", "developer", "user", "assistant")


class ResponsesDialect(CommonFields):
    """Dialect of the Responses API. See Dialect for what the methods guarantee."""

    conversation_field = "input"

    def messages(self, body: Body) -> tuple[Message, ...]:
        """Return `instructions` as a system message, then what `input` holds of a conversation."""
        return tuple(_input_conversation(body))

    def insert(self, body: Body, block: str, placement: str) -> Body:
        """Return the body with the block as an input item, inside one, or in the instructions."""
        if not block:
            return body
        if placement == "merge_system":
            return _with_instructions(body, block)
        if placement == "in_user" and isinstance(body.get("input"), str):
            return {**body, "input": with_text_before(body["input"], block, _INPUT_FORMAT.part_type)}
        placed = place(_items(body), block, placement, _INPUT_FORMAT)
        return body if placed is None else {**body, "input": placed}

    def same_shape(self, body: Body) -> str:
        """Return `merge_system` where there are instructions to extend, else `in_user`."""
        return "merge_system" if body.get("instructions") else "in_user"

    def tool_forced(self, body: Body) -> bool:
        """True if `tool_choice` demands a call."""
        return choice_forces_tool(body.get("tool_choice"))

    def previous_response_id(self, body: Body) -> str | None:
        """Return the response that this request continues."""
        return text_field(body, "previous_response_id")

    def conversation_key(self, body: Body) -> str:
        """Return the upstream's own conversation id, else the system texts and the first user message."""
        named = body.get("conversation")
        holder = named if isinstance(named, dict) else {"id": named}
        if conversation_id := text_field(holder, "id"):
            return f"conversation {conversation_id}"
        return key_of(_input_conversation(body))

    def answer(
        self, chunks: Sequence[bytes], content_type: str, content_encoding: str, *, cut: bool = False
    ) -> Answer:
        """Return the text of the output's messages, and the response's id."""
        values = Values(content_type, content_encoding)
        read = _of_objects(values, objects(values, chunks))
        return replace(read, unread=values.trouble if chunks else "")


RESPONSES = ResponsesDialect()


# ---------------------------------------------------------------- requests
def asks_to_compact(body: Body) -> bool:
    """True if the request wants the conversation compacted: its last item says so."""
    given = body.get("input")
    last = given[-1] if isinstance(given, list) and given else None
    return isinstance(last, dict) and last.get("type") == "compaction_trigger"


def _items(body: Body) -> list[Any]:
    """Return the input as items: a string is short for one user message."""
    given = body.get("input")
    if isinstance(given, str):
        return [_message_item("user", given)]
    return given if isinstance(given, list) else []


def _message_item(role: str, text: str) -> dict[str, Any]:
    # Spelt out in full. The API takes shorter forms (no type, a string as content), but not all of
    # those who imitate it do.
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def _role_of(item: Any) -> str | None:
    if not isinstance(item, dict) or (item.get("type") or "message") != "message":
        return None
    role = item.get("role")
    return role if isinstance(role, str) and role in _INPUT_ROLES else None


def _speaker(item: Any) -> str | None:
    """Return whose an item is: a message, or what tools are called by and answer with."""
    if (role := _role_of(item)) is not None:
        return role
    kind = item.get("type") if isinstance(item, dict) else None
    return tool_role(kind) if isinstance(kind, str) else None


_INPUT_FORMAT = MessageFormat(
    role_of=_speaker, system=lambda text: _message_item("system", text), part_type="input_text"
)


def _input_conversation(body: Body) -> Iterator[Message]:
    instructions = Message("system", text_of(body.get("instructions")))
    return conversation(chain([instructions], _input_messages(_items(body))))


def _input_messages(items: Sequence[Any]) -> Iterator[Message]:
    """Yield a call as the assistant's turn and its output as a tool's; reasoning, references and
    everything else are no part of what was said. A dozen kinds of tools share the two endings."""
    for item, role in zip(items, speakers(items, _speaker), strict=True):
        if role is not None and _role_of(item):
            yield message(role, text_of(item.get("content")))
        elif role is not None:
            yield Message(role, text_of(item.get("output")) if role == "tool" else "")


def tool_role(kind: str) -> str | None:
    """Return whose message an item is, None where it is none: a call is the assistant's, what came of it the
    tool's. So is leave to call it: nobody's words."""
    if kind.endswith("_call_output") or kind == "mcp_approval_response":
        return "tool"
    return "assistant" if kind.endswith("_call") or kind == "mcp_approval_request" else None


def _with_instructions(body: Body, block: str) -> Body:
    if "user" not in speakers(_items(body), _speaker):
        return body
    given = body.get("instructions")
    merged = block if given is None else with_text_after(given, block, _INPUT_FORMAT.part_type)
    return body if merged is None else {**body, "instructions": merged}


# ---------------------------------------------------------------- answers
Parts = dict[tuple[Any, Any], list[str]]  # texts by output and content index, in order of appearance
_ENDINGS = ("completed", "incomplete")
# The field that holds a piece of the text ("delta") or all of a part's.
_TEXT_EVENTS = {
    "response.output_text.delta": "delta",
    "response.output_text.done": "text",
    "response.refusal.delta": "delta",
    "response.refusal.done": "refusal",
}


def _of_response(response: dict[str, Any]) -> Answer:
    output = response.get("output")
    items = output if isinstance(output, list) else []
    said = [text_of(i.get("content")) for i in items if _role_of(i) == "assistant"]
    # A lenient server may leave the status out, but then not the output.
    whole = response.get("status", "completed" if items else None) in _ENDINGS
    return Answer(
        behind_thoughts(joined(said)), whole, text_field(response, "id"), calls=any(map(_calls, items))
    )


def _of_objects(values: Values, events: Iterable[dict[str, Any]]) -> Answer:
    """Return the text of the deltas; of the final response, where a stream came to it; of the document."""
    parts: Parts = {}
    response_id: str | None = None
    usage: tuple[int, int] | None = None
    calls = False
    for event in events:
        kind = event.get("type")
        response = event.get("response")
        if values.streamed is False or event.get("object") == "response":
            return replace(_of_response(event), usage=tokens_of(event.get("usage")))
        if isinstance(response, dict):
            response_id = text_field(response, "id") or response_id
            usage = tokens_of(response.get("usage")) or usage
        if isinstance(kind, str) and kind in _TEXT_EVENTS:
            _add_text(parts, event)
        elif kind == "response.output_item.done":
            calls = calls or _calls(event.get("item"))
        elif kind in ("response.completed", "response.incomplete"):
            final = _of_response(response) if isinstance(response, dict) else Answer()
            text = final.text or _text(parts)
            return Answer(text, True, response_id, usage=usage, calls=calls or final.calls)
    return Answer(_text(parts), False, response_id, usage=usage)


def _calls(item: Any) -> bool:
    kind = item.get("type") if isinstance(item, dict) else None
    return isinstance(kind, str) and kind in CALLS


def _text(parts: Parts) -> str:
    return behind_thoughts(joined(map("".join, parts.values())))


def _add_text(parts: Parts, event: dict[str, Any]) -> None:
    key = (event.get("output_index"), event.get("content_index"))
    if not all(isinstance(index, int | None) for index in key):
        return
    field = _TEXT_EVENTS[event["type"]]
    text = event.get(field)
    if isinstance(text, str):
        pieces = parts.setdefault(key, [])
        if field != "delta":
            pieces.clear()
        pieces.append(text)
