"""Output items while they are being made. Each method returns the events that its change causes, still
without numbers.

An item is announced once (`output_item.added`), grows by deltas, and is done once with all it holds;
its `id` and `output_index` are given when it is announced.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.wire.body import clean, dict_in, dicts_in, text_in
from proxy.wire.translation.items import CLIENT_TOOLS, Seals, Thoughts
from proxy.wire.translation.tools import CUSTOM_ARGUMENT, ToolName

Event = dict[str, Any]
Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PartKind:
    """One kind of content part."""

    type: str
    field: str  # holds its text, in the part and in its done event
    event: str  # its events are <event>.delta and <event>.done
    part_event: str = "response.content_part"  # and <part_event>.added and <part_event>.done
    place: str = "content"  # the item's field that holds the parts; its index is in the events
    detailed: bool = False  # it has log probabilities, as its events do, and annotations


TEXT = PartKind("output_text", "text", "response.output_text", detailed=True)
REFUSAL = PartKind("refusal", "refusal", "response.refusal")
THOUGHT = PartKind("reasoning_text", "text", "response.reasoning_text")
SUMMARY = PartKind(
    "summary_text", "text", "response.reasoning_summary_text", "response.reasoning_summary_part", "summary"
)


class _Text:
    """A text that grows. A character that a server cut into two surrogates is joined: strict JSON readers
    refuse a half one."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._half = ""

    def grow(self, delta: str) -> str:
        """Append and return what is complete; a half that nothing follows is left out."""
        if self._half or not delta.isascii():
            delta = self._half + delta
            self._half = delta[-1] if "\ud800" <= delta[-1] <= "\udbff" else ""
            delta = clean(delta[:-1] if self._half else delta)
        if delta:
            self.pieces.append(delta)
        return delta

    def __str__(self) -> str:
        return "".join(self.pieces)


@dataclass(slots=True)
class _Part:
    kind: PartKind
    text: _Text = field(default_factory=_Text)
    logprobs: list[Any] = field(default_factory=list)
    annotations: list[Item] = field(default_factory=list)

    def shown(self) -> Item:
        part: Item = {"type": self.kind.type, self.kind.field: str(self.text)}
        if self.kind.detailed:
            part |= {"annotations": list(self.annotations), "logprobs": list(self.logprobs)}
        return part


@dataclass(slots=True, kw_only=True)
class OutputItem(ABC):
    """An item of a response, while it is made."""

    id: str
    output_index: int
    status: str = "in_progress"
    extra_content: Item | None = None  # Gemini's thought signature

    @abstractmethod
    def shown(self) -> Item:
        """Return the item as it is now."""

    def announce(self) -> list[Event]:
        """Return the event that adds the item, empty."""
        return [self._item_event("added")]

    def _item_event(self, change: str) -> Event:
        kind = f"response.output_item.{change}"
        return {"type": kind, "output_index": self.output_index, "item": self.shown()}

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": kind, "item_id": self.id, "output_index": self.output_index, **fields}


@dataclass(slots=True, kw_only=True)
class ContentItem(OutputItem):
    """A message or the model's reasoning: content parts, one growing at a time."""

    type: str  # "message" | "reasoning"
    seals: Seals | None = None  # of a reasoning item that is to hold its thoughts sealed as well
    parts: list[_Part] = field(default_factory=list)
    details: list[Item] = field(default_factory=list)  # entries of `reasoning_details` (OpenRouter)
    signatures: dict[str, Item] = field(default_factory=dict)  # of the calls that follow, by their ids
    _sealed: str | None = None  # when it is done

    def grow(self, kind: PartKind, delta: str, logprobs: list[Any]) -> list[Event]:
        """Append text to a part of the kind: the growing one, or a new one after it."""
        events: list[Event] = []
        if not self.parts or self.parts[-1].kind is not kind:
            events += self._end_part()
            self.parts.append(_Part(kind))
            events.append(self._event(f"{kind.part_event}.added", part=self.parts[-1].shown()))
        part = self.parts[-1]
        if not (delta := part.text.grow(delta)):
            return events
        part.logprobs += logprobs
        extra = {"logprobs": logprobs} if kind.detailed else {}
        return [*events, self._event(f"{kind.event}.delta", delta=delta, **extra)]

    def annotate(self, annotations: list[Item]) -> list[Event]:
        """Append annotations to the text that is growing; without one there is nothing to annotate."""
        if not self.parts or not self.parts[-1].kind.detailed:
            return []
        known, events = self.parts[-1].annotations, list[Event]()
        for annotation in annotations:
            place = {"annotation_index": len(known), "annotation": annotation}
            events.append(self._event("response.output_text.annotation.added", **place))
            known.append(annotation)
        return events

    def end(self, status: str) -> list[Event]:
        """Return the events that end the item, with the status that it has from now on."""
        events = self._end_part()
        self.status = status
        if self.seals is not None:  # once: a seal is another each time
            self._sealed = Thoughts(self.text, self.details, self.signatures).seal(self.seals)
        return [*events, self._item_event("done")]

    @property
    def text(self) -> str:
        """What was said or thought so far."""
        return "".join(str(part.text) for part in self.parts)

    def shown(self) -> Item:
        shown: Item = {"id": self.id, "type": self.type, "status": self.status}
        parts = [part.shown() for part in self.parts]
        if self.type == "message":
            shown |= {"role": "assistant", "content": parts}
            return shown if self.extra_content is None else {**shown, "extra_content": self.extra_content}
        summary = [part for part in parts if part["type"] == SUMMARY.type]
        shown |= {"summary": summary, "content": [part for part in parts if part not in summary]}
        if self.seals is not None:
            shown["encrypted_content"] = self._sealed
        if self.details and self.status != "in_progress":
            shown["reasoning_details"] = _joined(self.details)
        return shown

    def _end_part(self) -> list[Event]:
        if not self.parts:
            return []
        kind, shown = self.parts[-1].kind, self.parts[-1].shown()
        said = {name: shown[name] for name in (kind.field, "logprobs") if name in shown}
        done = self._event(f"{kind.event}.done", **said)
        return [done, self._event(f"{kind.part_event}.done", part=shown)]

    def _event(self, kind: str, **fields: Any) -> Event:
        place = f"{self.parts[-1].kind.place}_index"
        return OutputItem._event(self, kind, **{place: len(self.parts) - 1}, **fields)


@dataclass(slots=True, kw_only=True)
class CallItem(OutputItem):
    """A call of a function, or of the tool that the function represents."""

    call_id: str
    tool: ToolName
    _written: _Text = field(default_factory=_Text)  # the arguments
    _taken: int = 0  # of the fragments
    _fields: Item = field(default_factory=dict)  # of another tool's call; known when its JSON is complete

    def announce(self) -> list[Event]:
        """Return the event that adds the item, without arguments."""
        if self.tool.kind in CLIENT_TOOLS:
            self._fields = CLIENT_TOOLS[self.tool.kind].fields({})
        elif self.tool.kind == "custom":
            self._fields = {"input": ""}
        return [self._item_event("added")]

    def grow_with(self, fragments: list[str]) -> list[Event]:
        """Append what is new of the call's fragments: one chunk may hold several."""
        fresh, self._taken = fragments[self._taken :], len(fragments)
        return self.grow("".join(fresh))

    def grow(self, delta: str) -> list[Event]:
        if not delta or not (delta := self._written.grow(delta)) or self.tool.kind != "function":
            return []  # what the client gets of other tools is wrapped in this JSON, and known at its end
        return [self._event("response.function_call_arguments.delta", delta=delta)]

    def end(self, status: str) -> list[Event]:
        """Return the events that end the item, with the status that it has from now on."""
        self.status = status
        events: list[Event] = []
        if (known := CLIENT_TOOLS.get(self.tool.kind)) is not None:
            self.status = known.half_written if status == "incomplete" else status
            self._fields = known.fields(_arguments(str(self._written)))
        elif self.tool.kind == "custom":
            written = _arguments(str(self._written)).get(CUSTOM_ARGUMENT)
            if not isinstance(written, str):  # the model did not wrap it
                written = str(self._written)
            self._fields = {"input": written}
            if written:
                events.append(self._event("response.custom_tool_call_input.delta", delta=written))
            events.append(self._event("response.custom_tool_call_input.done", input=written))
        else:
            # Clients parse them; some servers write nothing if there are no arguments.
            events = self.grow("{}") if not self._written.pieces and status == "completed" else []
            said = {"name": self.tool.name, "arguments": str(self._written)}
            events.append(self._event("response.function_call_arguments.done", **said))
        return [*events, self._item_event("done")]

    def shown(self) -> Item:
        kind = _CALL_TYPES.get(self.tool.kind) or CLIENT_TOOLS[self.tool.kind].call
        frame: Item = {"id": self.id, "type": kind, "status": self.status, "call_id": self.call_id}
        if self.tool.kind not in CLIENT_TOOLS:
            frame["name"] = self.tool.name
        if self.tool.namespace is not None:
            frame["namespace"] = self.tool.namespace
        frame |= {"arguments": str(self._written)} if self.tool.kind == "function" else self._fields
        return frame if self.extra_content is None else {**frame, "extra_content": self.extra_content}


_CALL_TYPES = {"function": "function_call", "custom": "custom_tool_call"}
PREFIXES = {"function": "fc", "custom": "ctc", **{kind: tool.prefix for kind, tool in CLIENT_TOOLS.items()}}
"""How the ids of call items begin, by the kind of their tool."""


def _arguments(text: str) -> Item:
    """Return the arguments that a model wrote; none if they are not an object."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _joined(pieces: Iterable[Item]) -> list[Item]:
    """Return the entries that the pieces make: neighbours of one type and index are one entry. Their texts
    are joined, and of the rest the last word counts."""
    entries: list[Item] = []
    texts: list[dict[str, list[str]]] = []
    for piece in pieces:
        last = entries[-1] if entries else {}
        is_more = "index" in piece and all(last.get(name) == piece.get(name) for name in ("type", "index"))
        if not is_more:
            entries.append({})
            texts.append({})
        entries[-1] |= {name: value for name, value in piece.items() if value is not None}
        for name in ("text", "summary", "data"):
            if isinstance(text := piece.get(name), str):
                texts[-1].setdefault(name, []).append(text)
    return [
        entry | {name: "".join(parts) for name, parts in held.items()}
        for entry, held in zip(entries, texts, strict=True)
    ]


# ---------------------------------------------------------------- log probabilities, citations, usage
def text_logprobs(entries: Iterable[Any]) -> list[Item]:
    """Return a choice's log probabilities of text as an output_text part holds them."""
    given = [each for each in entries if isinstance(each, dict) and isinstance(each.get("token"), str)]
    return [{**_token(each), "top_logprobs": _top(each)} for each in given]


def _top(entry: Item) -> list[Item]:
    top = dicts_in(entry.get("top_logprobs"))
    return [_token(other) for other in top if isinstance(other.get("token"), str)]


def _token(entry: Item) -> Item:
    token, octets = clean(entry["token"]), entry.get("bytes")
    if not isinstance(octets, list):  # null from some servers, absent from others
        octets = list(token.encode())
    return {"token": token, "bytes": octets, "logprob": entry.get("logprob", 0.0)}


def citations(annotations: Iterable[Any]) -> list[Item]:
    """Return the web pages that a text cites, in the flat shape of the Responses API."""
    pages = [dict_in(a, "url_citation") for a in annotations if isinstance(a, dict)]
    return [
        {
            "type": "url_citation",
            "start_index": _count(page, "start_index"),
            "end_index": _count(page, "end_index"),
            "url": page["url"],
            "title": text_in(page, "title"),
        }
        for page in pages
        if isinstance(page.get("url"), str)
    ]


def usage_of(value: Any) -> Item | None:
    """Return a chat completion's usage as a response's; None for none."""
    if not isinstance(value, dict):
        return None
    given, made = _count(value, "prompt_tokens"), _count(value, "completion_tokens")
    read, written = dict_in(value, "prompt_tokens_details"), dict_in(value, "completion_tokens_details")
    return {
        "input_tokens": given,
        "input_tokens_details": {
            "cached_tokens": _count(read, "cached_tokens"),
            "cache_write_tokens": _count(read, "cache_write_tokens"),
        },
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": _count(written, "reasoning_tokens")},
        "total_tokens": _count(value, "total_tokens") or given + made,
    }


def _count(value: Mapping[str, Any], name: str) -> int:
    count = value.get(name)
    return count if isinstance(count, int) and not isinstance(count, bool) else 0
