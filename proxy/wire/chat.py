"""The chat completions dialect: `POST /v1/chat/completions`."""

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.domain import Message
from proxy.thoughts import behind_thoughts
from proxy.wire.body import Body
from proxy.wire.content import conversation, joined, message, part_text, speakers, text_of
from proxy.wire.dialect import Answer, CommonFields, choice_forces_tool, key_of
from proxy.wire.placement import Form, place
from proxy.wire.tapped import json_values, usage_of

_ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


class ChatDialect(CommonFields):
    """Dialect of chat completions. See Dialect for what the methods guarantee."""

    def messages(self, body: Body) -> tuple[Message, ...]:
        """Return the conversation; () where `messages` is no list."""
        return tuple(_conversation(body))

    def insert(self, body: Body, block: str, placement: str) -> Body:
        """Return the body with the block as a message of its own or inside one."""
        placed = place(_entries(body), block, placement, _FORM) if block else None
        return body if placed is None else {**body, "messages": placed}

    def tool_forced(self, body: Body) -> bool:
        """True if `tool_choice`, or its forerunner `function_call`, demands a call."""
        return choice_forces_tool(body.get("tool_choice")) or isinstance(body.get("function_call"), dict)

    def previous_response_id(self, body: Body) -> str | None:
        """Return None: a chat request carries its whole conversation."""
        return None

    def conversation_key(self, body: Body) -> str:
        """Return the system texts and the first user message."""
        return key_of(_conversation(body))

    def answer(self, chunks: Sequence[bytes], content_type: str, content_encoding: str) -> Answer:
        """Return the text of choice 0. A stream is whole once that choice has its `finish_reason`."""
        streamed, values = json_values(chunks, content_type, content_encoding)
        choices = [choice for value in values if (choice := _first_choice(value)) is not None]
        if streamed and any(isinstance(choice.get("delta"), dict) for choice in choices):
            pieces = [choice.get("delta") for choice in choices]
        else:
            # Servers that only pretend to stream send the message as one event, or as it grows in each.
            pieces = [choice.get("message") for choice in choices[-1:]]
        finished = any(isinstance(choice.get("finish_reason"), str) for choice in choices)
        whole = finished if streamed else bool(choices)  # a document that parses was not cut
        texts = [text for piece in pieces for text in _texts(piece)]
        # A stream is cleaned as one text: an emoji, or an echo of our block, may lie across two deltas.
        said = behind_thoughts(joined(["".join(texts)] if streamed else texts))
        return Answer(said, whole, calls=any(map(_calls, pieces)), usage=usage_of(values))


CHAT = ChatDialect()


def _entries(body: Body) -> list[Any]:
    entries = body.get("messages")
    return entries if isinstance(entries, list) else []


def _role_of(entry: Any) -> str | None:
    role = entry.get("role") if isinstance(entry, dict) else None
    return _ROLES.get(role) if isinstance(role, str) else None


_FORM = Form(
    role_of=_role_of,
    system=lambda text: {"role": "system", "content": text},
    part_type="text",
)


def _conversation(body: Body) -> Iterator[Message]:
    entries = _entries(body)
    return conversation(
        message(role, text_of(entry.get("content")))
        for entry, role in zip(entries, speakers(entries, _role_of), strict=True)
        if role
    )


def _first_choice(value: dict[str, Any]) -> dict[str, Any] | None:
    choices = value.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index") in (0, None):
            return choice
    return None


def _calls(message: Any) -> bool:
    return isinstance(message, dict) and bool(message.get("tool_calls") or message.get("function_call"))


def _texts(message: Any) -> Iterator[str]:
    """Yield the pieces of content, refusal and spoken words as they stand."""
    if isinstance(message, dict):
        content = message.get("content")
        for part in content if isinstance(content, list) else [content]:
            yield part_text(part)
        yield part_text(message.get("refusal"))
        audio = message.get("audio")  # an answer that is spoken has no content
        yield part_text(audio.get("transcript")) if isinstance(audio, dict) else ""
