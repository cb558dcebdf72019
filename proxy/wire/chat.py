"""The chat completions dialect: `POST /v1/chat/completions`."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from proxy.domain.core import Message
from proxy.text.thoughts import behind_thoughts
from proxy.wire.answers import Values, objects, tokens_of
from proxy.wire.body import Body
from proxy.wire.chat_answer import ChatReader, Kind, Said
from proxy.wire.content import conversation, joined, message, speakers, text_of
from proxy.wire.dialect import Answer, CommonFields, choice_forces_tool, key_of
from proxy.wire.placement import Form, place

_ROLES = {
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
        return tuple(_conversation(body))

    def insert(self, body: Body, block: str, placement: str) -> Body:
        """Return the body with the block as a message of its own or inside one."""
        placed = place(_entries(body), block, placement, _FORM) if block else None
        return body if placed is None else {**body, "messages": placed}

    def same_shape(self, body: Body) -> str:
        """Return `merge_system` where there is a leading system message to extend, else `in_user`."""
        return "merge_system" if _role_of(next(iter(_entries(body)), None)) in _SYSTEM else "in_user"

    def tool_forced(self, body: Body) -> bool:
        """True if `tool_choice`, or its forerunner `function_call`, demands a call."""
        return choice_forces_tool(body.get("tool_choice")) or isinstance(body.get("function_call"), dict)

    def previous_response_id(self, body: Body) -> str | None:
        """Return None: a chat request carries its whole conversation."""
        return None

    def conversation_key(self, body: Body) -> str:
        """Return the system texts and the first user message."""
        return key_of(_conversation(body))

    def answer(
        self, chunks: Sequence[bytes], content_type: str, content_encoding: str, *, cut: bool = False
    ) -> Answer:
        """Return the text of choice 0, without thoughts."""
        values, reader = Values(content_type, content_encoding), ChatReader()
        texts: dict[Kind, list[str]] = {Kind.TEXT: [], Kind.REFUSAL: [], Kind.THOUGHT: []}
        for pieces in chain(map(reader.take, objects(values, chunks)), [reader.flush()]):
            for piece in pieces:
                if isinstance(piece, Said):
                    texts[piece.kind].append(piece.text)
        ending = reader.ending(done=values.over, cut=cut or values.ragged or bool(values.trouble))
        # Cleaned as one text: an emoji, or an echo of our block, may be cut between two deltas.
        said = joined(("".join(texts[Kind.TEXT]), "".join(texts[Kind.REFUSAL])))
        return Answer(
            behind_thoughts(said),
            whole=ending.status != "failed",
            calls=reader.calls.found,
            usage=tokens_of(reader.usage),
            unread=values.trouble if chunks else "",
        )


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
