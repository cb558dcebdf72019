"""The two intercepted APIs, chat completions and responses, as the rest of the proxy sees them. No I/O.

A dialect reads a request's body without judging it: what it does not understand it leaves alone, and the
upstream gets it unchanged: content of an unknown form gives no text and no error. Only malformed JSON and our
own fields are refused (body, extensions).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.domain.core import Message
from proxy.wire.answers import Json, Values, objects, tokens_of
from proxy.wire.authorship import GAP, behind_thoughts, may_be_clients, split, strip_blocks
from proxy.wire.body import Body, clean
from proxy.wire.chat_answer import ChatReader, PieceKind
from proxy.wire.extensions import is_placeholder, is_usable_id

SYSTEM_ROLES = ("system", "developer")
# Content parts that people or models wrote, and the field of their text. Images, audio and files give none.
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
# Parts without words. Audio is none of them: a user may have spoken it.
_SILENT_PARTS = frozenset(
    ("image", "image_url", "input_image", "computer_screenshot", "file", "input_file", "video", "video_url")
)


def text_of(content: object) -> str:
    """Return the plain text of a message's content, a string or parts (joined by newlines), without
    our own injected blocks. It can always be encoded as UTF-8."""
    parts = content if isinstance(content, list) else [content]
    return joined(part_text(part) for part in parts)


def joined(texts: Iterable[str]) -> str:
    """Return the texts as one, as a message's parts are joined: cleaned, one a line, empty ones left out."""
    cleaned = (strip_blocks(clean(text)) for text in texts)
    return "\n".join(text for text in cleaned if text)


def spoken(entries: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages without the system messages that have no text: our block was all they held."""
    return (m for m in entries if m.text or m.role not in SYSTEM_ROLES)


def message(role: str, text: str) -> Message:
    """Return the message, a user's with what the user typed of it."""
    if role != "user":
        return Message(role, text)
    found = split(text)
    if found.typed == text:
        return Message(role, text)
    return Message(role, text, found.typed, found.pasted)


def speakers(entries: Sequence[Any], role_of: Callable[[Any], str | None]) -> list[str | None]:
    """Return the role of each entry, as `role_of` says, but for two kinds of user messages that are a tool's:

    - one without words, after a tool's output: most models take no image in a tool's output, so agents send
      screenshots in this way;
    - one that the client wrote as a whole, after a user's message: the output of tools that the model calls
      in its text, a reminder, environment details.
    """
    found: list[str | None] = []
    returned = False  # a tool spoke last
    asked = False  # a user spoke before
    for entry in entries:
        role = role_of(entry)
        if role == "user":
            content = entry.get("content")
            parts = content if isinstance(content, list) else [content]
            if (returned or asked) and all(map(_is_silent, parts)):
                is_wordless = returned and not text_of(content).strip()
                by_client = asked and not (isinstance(content, str) and not may_be_clients(content))
                if is_wordless or (by_client and split(text_of(content)).is_clients):
                    role = "tool"
            asked = asked or role == "user"
        if role not in SYSTEM_ROLES:
            returned = role == "tool"
        found.append(role)
    return found


def _is_silent(part: object) -> bool:
    """True if what a part says, if anything, is its text. A part of an unknown kind may have other words."""
    if not isinstance(part, dict):
        return part is None or isinstance(part, str)
    kind = part.get("type")
    return isinstance(kind, str) and (kind in _TEXT_PARTS or kind in _SILENT_PARTS)


def with_text(content: object, text: str, part_type: str, *, first: bool) -> Any:
    """Return the content with the text put before or after it, in the content's own form; None if it has no
    known form."""
    if isinstance(content, str):
        return text + GAP + content if first else content + GAP + text
    if isinstance(content, list):
        part = {"type": part_type, "text": text}
        return [part, *content] if first else [*content, part]
    return None


def part_text(part: object) -> str:
    """Return the text of one content part, or of content that is a string, unchanged."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    kind = part.get("type")
    field = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    text = part.get(field) if field else None
    return text if isinstance(text, str) else ""


# ---------------------------------------------------------------- placement
PLACEMENTS = ("before_last_user", "after_system", "merge_system", "in_user")


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """How one API writes messages."""

    role_of: Callable[[Any], str | None]  # of a list entry; None for an entry that is not a message
    system: Callable[[str], dict[str, Any]]  # a system message that holds the text
    part_type: str  # of a text part in a request


def place(entries: list[Any], block: str, placement: str, form: MessageFormat) -> list[Any] | None:
    """Return a new list with the block in it. None if it has no place: there is no user message, or the
    message to extend has content of an unknown form. An unknown placement is a KeyError.

    What precedes the block is not changed, so that the provider's prompt cache still hits. No tool call is
    separated from its output, since a user message is never between the two.
    """
    roles = speakers(entries, form.role_of)
    if "user" not in roles:
        return None
    last_user = len(roles) - 1 - roles[::-1].index("user")
    is_system = (form.role_of(entry) in SYSTEM_ROLES for entry in entries)
    system_end = next((i for i, each in enumerate(is_system) if not each), len(entries))
    match placement:
        case "before_last_user":
            at = last_user
        case "after_system":
            at = system_end
        case "merge_system" if not system_end:
            at = 0
        case "merge_system" | "in_user":
            in_user = placement == "in_user"
            at = last_user if in_user else system_end - 1
            content = with_text(entries[at].get("content"), block, form.part_type, first=in_user)
            extended = {**entries[at], "content": content}
            return None if content is None else [*entries[:at], extended, *entries[at + 1 :]]
        case _:
            raise KeyError(placement)
    return [*entries[:at], form.system(block), *entries[at:]]


# ---------------------------------------------------------------- the dialects
_USER_FIELDS = ("safety_identifier", "user")
MAX_MODEL_CHARS = 512  # of its name, which is stored with every exchange, and which clients choose


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said, without its reasoning."""

    text: str = ""
    whole: bool = False  # it came to its end: the model's, or a length limit's
    response_id: str | None = None  # of the Responses API only
    usage: tuple[int, int] | None = None  # tokens read and written, if the upstream says so
    calls: bool = False  # tools that the client has to run: the answer continues with their outputs
    unread: str = field(default="", compare=False)  # why the answer could not be read; no word of it


class Dialect(ABC):
    """How one API writes requests and answers. No method raises for what a body holds."""

    conversation_field: str
    """The field that holds the conversation's entries."""
    format: MessageFormat
    """How an entry is written."""

    @abstractmethod
    def conversation(self, body: Body) -> Iterator[Message]:
        """Yield the conversation as memory sees it, without blocks that we injected earlier."""

    def messages(self, body: Body) -> tuple[Message, ...]:
        """Return the whole conversation."""
        return tuple(self.conversation(body))

    @abstractmethod
    def insert(self, body: Body, block: str, placement: str) -> Body:
        """Return a body with the block at its place; it shares all else with `body`, which is unchanged.

        If there is no place for it (no user message), or no block, `body` itself is returned.
        """

    @abstractmethod
    def same_shape(self, body: Body) -> str:
        """Return the placement that leaves the number of messages and their roles as they are."""

    @abstractmethod
    def answer(
        self, chunks: Sequence[bytes], content_type: str, content_encoding: str, *, cut: bool = False
    ) -> Answer:
        """Return what was said in a response, streamed or not. `cut`: the chunks are not all of it."""

    def previous_response_id(self, body: Body) -> str | None:
        """Return the response that this request continues."""
        return None

    def conversation_key(self, body: Body) -> str:
        """Return the system texts and the first user message, which stay the same while the conversation
        grows; "" for an empty one.

        A message that the client wrote counts only if none of the user's follows it before any answer.
        """
        system: list[str] = []
        first: str | None = None
        for each in self.conversation(body):
            if each.role == "user" and not each.is_clients:
                first = each.identity
                break
            if each.role == "user" and first is None:
                first = each.text
            elif each.role in SYSTEM_ROLES and first is None:
                system.append(each.text)
            elif each.role == "assistant" and first is not None:
                break
        return "\n".join((*(f"{len(text)} {text}" for text in system), *([] if first is None else [first])))

    def tool_forced(self, body: Body) -> bool:
        """True if the model has to call a tool. Declaring tools forces none."""
        choice = body.get("tool_choice")
        if not isinstance(choice, dict):
            return choice in ("required", "any")
        kind = choice.get("type")
        if kind == "allowed_tools":
            # Chat completions nest the mode one deeper than the Responses API.
            allowed = choice.get("allowed_tools")
            return (allowed if isinstance(allowed, dict) else choice).get("mode") == "required"
        return kind not in (None, "auto", "none") or "function" in choice or "name" in choice

    def model(self, body: Body) -> str:
        """Return the model's name, "" if there is none, or it is too long to be one."""
        name = text_field(body, "model") or ""
        return name if len(name) <= MAX_MODEL_CHARS else ""

    def openai_user(self, body: Body) -> str | None:
        """Return `safety_identifier`, else `user`; None if neither can name a user."""
        named = (text_field(body, name) for name in _USER_FIELDS)
        return next((v for v in named if v and is_usable_id(v) and not is_placeholder(v)), None)

    def is_unfilled(self, body: Body) -> bool:
        """True if one of these fields holds a placeholder that was never filled in."""
        named = (text_field(body, name) for name in _USER_FIELDS)
        return any(is_placeholder(value) for value in named if value)


def text_field(body: Body, name: str) -> str | None:
    """Return the field if it is a string that says something, fit for UTF-8."""
    value = body.get(name)
    return clean(value) if value and isinstance(value, str) else None


# ---------------------------------------------------------------- chat completions
_CHAT_ROLES = {role: role for role in ("system", "developer", "user", "assistant", "tool")}
_CHAT_ROLES["function"] = "tool"


def _list(body: Body, name: str) -> list[Any]:
    entries = body.get(name)
    return entries if isinstance(entries, list) else []


def _chat_role(entry: Any) -> str | None:
    role = entry.get("role") if isinstance(entry, dict) else None
    return _CHAT_ROLES.get(role) if isinstance(role, str) else None


class ChatDialect(Dialect):
    """`POST /v1/chat/completions`."""

    conversation_field = "messages"
    format = MessageFormat(_chat_role, lambda text: {"role": "system", "content": text}, "text")

    def conversation(self, body: Body) -> Iterator[Message]:
        entries = _list(body, "messages")
        return spoken(
            message(role, text_of(entry.get("content")))
            for entry, role in zip(entries, speakers(entries, _chat_role), strict=True)
            if role
        )

    def insert(self, body: Body, block: str, placement: str) -> Body:
        placed = place(_list(body, "messages"), block, placement, self.format) if block else None
        return body if placed is None else {**body, "messages": placed}

    def same_shape(self, body: Body) -> str:
        first = next(iter(_list(body, "messages")), None)
        return "merge_system" if _chat_role(first) in SYSTEM_ROLES else "in_user"

    def tool_forced(self, body: Body) -> bool:
        """As above; `function_call` is the forerunner of `tool_choice`."""
        return super().tool_forced(body) or isinstance(body.get("function_call"), dict)

    def answer(
        self, chunks: Sequence[bytes], content_type: str, content_encoding: str, *, cut: bool = False
    ) -> Answer:
        """Return the text of choice 0."""
        values, reader = Values(content_type, content_encoding), ChatReader()
        texts = reader.texts(objects(values, chunks))
        ending = reader.ending(done=values.over, cut=cut or values.ragged or bool(values.trouble))
        # Cleaned as one text: an emoji, or an echo of our block, may be cut between two deltas.
        said = joined((texts[PieceKind.TEXT], texts[PieceKind.REFUSAL]))
        return Answer(
            behind_thoughts(said),
            whole=ending.status != "failed",
            calls=reader.calls.found,
            usage=tokens_of(reader.usage),
            unread=values.trouble if chunks else "",
        )


CHAT = ChatDialect()


# ---------------------------------------------------------------- responses
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


def _items(body: Body) -> list[Any]:
    """Return the input as items: a string is short for one user message."""
    given = body.get("input")
    return [message_item("user", given)] if isinstance(given, str) else _list(body, "input")


def message_item(role: str, text: str) -> Json:
    """Return a message, spelt out in full: not all who imitate the API take its shorter forms."""
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def _input_role(item: Any) -> str | None:
    if not isinstance(item, dict) or (item.get("type") or "message") != "message":
        return None
    role = item.get("role")
    return role if isinstance(role, str) and role in _INPUT_ROLES else None


def tool_role(kind: str) -> str | None:
    """Return the role of an item of this type, None if it is not a message: a call is the assistant's, its
    output the tool's, and so is the approval of a call."""
    if kind.endswith("_call_output") or kind == "mcp_approval_response":
        return "tool"
    return "assistant" if kind.endswith("_call") or kind == "mcp_approval_request" else None


def _speaker(item: Any) -> str | None:
    """Return the role of an item: of a message, or of what tools are called by and answer with."""
    if (role := _input_role(item)) is not None:
        return role
    kind = item.get("type") if isinstance(item, dict) else None
    return tool_role(kind) if isinstance(kind, str) else None


class ResponsesDialect(Dialect):
    """`POST /v1/responses`, as forwarded to an upstream that knows it."""

    conversation_field = "input"
    format = MessageFormat(_speaker, lambda text: message_item("system", text), "input_text")

    def conversation(self, body: Body) -> Iterator[Message]:
        """Yield `instructions` as a system message, then what `input` holds of a conversation: a call as the
        assistant's turn and its output as a tool's; reasoning, references and everything else are not part of
        what was said."""
        found, items = [Message("system", text_of(body.get("instructions")))], _items(body)
        for item, role in zip(items, speakers(items, _speaker), strict=True):
            if role is not None and _input_role(item):
                found.append(message(role, text_of(item.get("content"))))
            elif role is not None:
                found.append(Message(role, text_of(item.get("output")) if role == "tool" else ""))
        return spoken(found)

    def insert(self, body: Body, block: str, placement: str) -> Body:
        """Return the body with the block as an input item, inside one, or in the instructions."""
        if not block:
            return body
        field, placed = "input", None
        if placement == "merge_system":
            field, given = "instructions", body.get("instructions")
            if "user" in speakers(_items(body), _speaker):
                part_type = self.format.part_type
                placed = block if given is None else with_text(given, block, part_type, first=False)
        elif placement == "in_user" and isinstance(body.get("input"), str):
            placed = with_text(body["input"], block, self.format.part_type, first=True)
        else:
            placed = place(_items(body), block, placement, self.format)
        return body if placed is None else {**body, field: placed}

    def same_shape(self, body: Body) -> str:
        return "merge_system" if body.get("instructions") else "in_user"

    def previous_response_id(self, body: Body) -> str | None:
        return text_field(body, "previous_response_id")

    def conversation_key(self, body: Body) -> str:
        """Return the upstream's own conversation id, else what chat completions have."""
        named = body.get("conversation")
        holder = named if isinstance(named, dict) else {"id": named}
        if conversation_id := text_field(holder, "id"):
            return f"conversation {conversation_id}"
        return super().conversation_key(body)

    def answer(
        self, chunks: Sequence[bytes], content_type: str, content_encoding: str, *, cut: bool = False
    ) -> Answer:
        """Return the text of the output's messages, and the response's id."""
        values = Values(content_type, content_encoding)
        read = _of_events(values, objects(values, chunks))
        return replace(read, unread=values.trouble if chunks else "")


RESPONSES = ResponsesDialect()


def asks_to_compact(body: Body) -> bool:
    """True if the request wants the conversation compacted: its last item says so."""
    last = next(reversed(_list(body, "input")), None)
    return isinstance(last, dict) and last.get("type") == "compaction_trigger"


# The field that holds a piece of the text ("delta") or all of a part's.
_TEXT_EVENTS = {
    "response.output_text.delta": "delta",
    "response.output_text.done": "text",
    "response.refusal.delta": "delta",
    "response.refusal.done": "refusal",
}


def _of_events(values: Values, events: Iterable[Json]) -> Answer:
    """Return the text of the deltas; of the final response, if a stream came to it; of the document."""
    parts: dict[tuple[Any, Any], list[str]] = {}  # texts by output and content index, as they appeared
    response_id, usage, calls = None, None, False
    for event in events:
        kind, response = event.get("type"), event.get("response")
        if values.streamed is False or event.get("object") == "response":
            return replace(_of_response(event), usage=tokens_of(event.get("usage")))
        if isinstance(response, dict):
            response_id = text_field(response, "id") or response_id
            usage = tokens_of(response.get("usage")) or usage
        if isinstance(kind, str) and kind in _TEXT_EVENTS:
            key, field = (event.get("output_index"), event.get("content_index")), _TEXT_EVENTS[kind]
            text = event.get(field)
            if isinstance(text, str) and all(isinstance(index, int | None) for index in key):
                pieces = parts.setdefault(key, [])
                if field != "delta":
                    pieces.clear()
                pieces.append(text)
        elif kind == "response.output_item.done":
            calls = calls or _is_call(event.get("item"))
        elif kind in ("response.completed", "response.incomplete"):
            final = _of_response(response) if isinstance(response, dict) else Answer()
            text = final.text or behind_thoughts(joined(map("".join, parts.values())))
            return Answer(text, True, response_id, usage=usage, calls=calls or final.calls)
    return Answer(behind_thoughts(joined(map("".join, parts.values()))), False, response_id, usage=usage)


def _of_response(response: Json) -> Answer:
    items = _list(response, "output")
    said = [text_of(item.get("content")) for item in items if _input_role(item) == "assistant"]
    # A lenient server may leave the status out, but then not the output.
    whole = response.get("status", "completed" if items else None) in ("completed", "incomplete")
    called = any(map(_is_call, items))
    return Answer(behind_thoughts(joined(said)), whole, text_field(response, "id"), calls=called)


def _is_call(item: Any) -> bool:
    kind = item.get("type") if isinstance(item, dict) else None
    return isinstance(kind, str) and kind in CALLS
