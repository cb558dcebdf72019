"""A compaction: what a model writes in the place of a conversation, as one opaque item.

    messages + prompt → chat → the model's text → {"type": "compaction", "encrypted_content": …}

The item comes back in the input of a later request, and is then given to the model as text (see messages).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from proxy.prompts import prompt
from proxy.wire.body import Body
from proxy.wire.translation.adapt import both
from proxy.wire.translation.items import Item, output_id
from proxy.wire.translation.output import Event
from proxy.wire.translation.sealed import COMPACTION, Seals

PROMPT = "compaction.v1"
# What shapes an answer for the user is not meant for a handover.
_NOT_ASKED = ("response_format", "logprobs", "top_logprobs", "verbosity", "parallel_tool_calls")


def for_compaction(chat: Body) -> Body:
    """Return a chat body that asks for the handover of its conversation. Tools stay: some servers refuse
    calls in the messages without them. None can be called."""
    asked = {name: value for name, value in chat.items() if name not in _NOT_ASKED}
    asked["messages"] = _with_prompt(chat["messages"])
    if "tools" in asked:
        asked["tool_choice"] = "none"
    return asked


def _with_prompt(messages: list[Item]) -> list[Item]:
    """Return the messages with the prompt at their end: in the user's last one where that is the last of all,
    since strict templates want the roles to alternate."""
    said, last = prompt(PROMPT), messages[-1] if messages else {}
    if last.get("role") == "user" and last.get("content"):
        return [*messages[:-1], {**last, "content": both(last["content"], said)}]
    return [*messages, {"role": "user", "content": said}]


def text_of(response: Body) -> str:
    """Return what the model wrote, without its thoughts."""
    texts = (
        part.get("text")
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )
    return "".join(text for text in texts if isinstance(text, str)).strip()


class CompactionItem:
    """The one output item of a response that compacts, while the model writes it."""

    def __init__(self, response_id: str, seals: Seals) -> None:
        self._id = output_id("cmp", response_id, 0)
        self._seals = seals
        self._item: Item | None = None
        self._begun = False

    def shown(self) -> list[Item]:
        """Return the response's current output."""
        return [] if self._item is None else [self._item]

    def begin(self) -> list[Event]:
        """Return the events that announce the item; none the second time."""
        if self._begun:
            return []
        self._begun = True
        item = {"id": self._id, "type": "compaction", "encrypted_content": ""}
        return [
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.compaction.compacting", "output_index": 0, "item_id": self._id},
        ]

    def end(self, text: str) -> list[Event]:
        """Return the events that end the item with this text."""
        events = self.begin()
        sealed = self._seals.seal(COMPACTION, text)
        self._item = {"id": self._id, "type": "compaction", "encrypted_content": sealed}
        return [*events, {"type": "response.output_item.done", "output_index": 0, "item": self._item}]


_EMPTY_USAGE: Mapping[str, Any] = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


def compacted_response(response: Body, items: Iterable[Item]) -> Body:
    """Return the answer of `/responses/compact`: the user's messages, then the compaction."""
    said = [item for item in items if item.get("type") == "message" and item.get("role") == "user"]
    return {
        "id": response["id"],
        "object": "response.compaction",
        "created_at": response["created_at"],
        "output": [*said, *response["output"]],
        "usage": response["usage"] or dict(_EMPTY_USAGE),
    }
