"""The Dialect protocol: the two intercepted APIs as the rest of the proxy sees them. No I/O.

A dialect reads a request's body without judging it: whatever it does not understand it leaves alone,
and the upstream gets it as it came. Only malformed JSON and our own fields are refused (body, extensions).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from proxy.domain.core import Message
from proxy.wire.body import Body
from proxy.wire.content import clean
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
    for message in messages:
        if message.role == "user" and not message.is_clients:
            first = message.identity
            break
        if message.role == "user" and first is None:
            first = message.text
        elif message.role in ("system", "developer") and first is None:
            system.append(message.text)
        elif message.role == "assistant" and first is not None:
            break
    return "\n".join((*(f"{len(text)} {text}" for text in system), *([] if first is None else [first])))
