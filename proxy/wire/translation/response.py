"""The state machine of one translated response: chat chunks in, the Responses API's events out. Sans-I/O.

    start → feed* → finish | fail

ChatReader (wire/chat_answer) reads the upstream's answer, as it does for memory.
The model speaks in one item at a time, a message or its reasoning; a call ends that item. Calls stay open
until the end, since their fragments may alternate. Whatever happens, each item is announced once and done
once, the final `output` is what the done events held, and there is exactly one terminal event; after it
nothing more is said.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, assert_never
from uuid import uuid4

from proxy.wire.answers import Problem
from proxy.wire.authorship import shows_thoughts
from proxy.wire.body import Body, dump
from proxy.wire.chat_answer import (
    LIMIT_BYTES,
    CallPiece,
    ChatReader,
    Cited,
    Detailed,
    Piece,
    PieceKind,
    TextPiece,
    ToolCall,
)
from proxy.wire.translation.items import COMPACTION, Item, output_id
from proxy.wire.translation.output import (
    PREFIXES,
    REFUSAL,
    SUMMARY,
    TEXT,
    THOUGHT,
    CallItem,
    ContentItem,
    Event,
    PartKind,
    citations,
    text_logprobs,
    usage_of,
)
from proxy.wire.translation.request import ChatPlan
from proxy.wire.translation.tools import ToolName

# Those that the Responses API has; chat servers tell others too (Groq's "on_demand").
_TIERS = frozenset(("auto", "default", "flex", "scale", "priority", "fast"))
# Codes of a failed response that say the same as the upstream's own; all else is a server error.
_CODES = {
    "rate_limit_exceeded": "rate_limit_exceeded",
    "429": "rate_limit_exceeded",
    "invalid_prompt": "invalid_prompt",
}


class Translation:
    """One response being made. Values of unknown types in what the upstream says are passed over."""

    def __init__(
        self,
        plan: ChatPlan,
        *,
        response_id: str,
        created_at: int,
        clock: Callable[[], float] = time.time,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        """`limit_bytes`: how much of the answer is stored; a longer one fails."""
        self._echo = dict(plan.echo)
        self._head: Body = {"id": response_id, "object": "response", "created_at": created_at}
        self._clock = clock
        self._seals = plan.seals if plan.seal_thoughts else None
        self._tools = plan.tools
        self._thought = SUMMARY if plan.echo["reasoning"].get("summary") else THOUGHT
        self._state: Body = {
            "status": "in_progress",
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
        }
        self._numbered = 0  # events so far
        self._items: list[ContentItem | CallItem] = []
        self._speaking: ContentItem | None = None
        self._latest: ContentItem | CallItem | None = None  # the item that grew last
        self._reader = ChatReader(limit_bytes)
        self._calls: dict[ToolCall, CallItem] = {}
        self._call_ids: set[str] = set()
        self._signed: set[str] = set()  # calls that a reasoning item has the signature of
        self._usage: Body | None = None
        self._final: Body | None = None

    # ------------------------------------------------------------ result
    @property
    def response(self) -> Body:
        """The current response object; after the terminal event it is final."""
        return self._final if self._final is not None else self._shown()

    @property
    def status(self) -> str:
        """The response's status, without the cost of showing all of it."""
        status: str = self._state["status"]
        return status

    @property
    def size(self) -> int:
        """About how many bytes the response has."""
        return self._reader.size

    def expect_thoughts(self) -> None:
        """The model begins a streamed text with thoughts, without their mark."""
        self._reader.expect_thoughts()

    def begins_in_thoughts(self) -> bool | None:
        """Return whether this answer shows that the model does that; None if it does not show."""
        contents = (item for item in self._items if isinstance(item, ContentItem))
        texts = [item.text for item in contents if item.type == "message"]
        if self._reader.thoughts_unclosed:
            return False if texts else None
        return True if self._reader.began_in_thoughts or any(map(shows_thoughts, texts)) else None

    def _shown(self) -> Body:
        output = [item.shown() for item in self._items]
        return {**self._head, **self._state, **self._echo, "output": output, "usage": self._usage}

    def start(self) -> list[Event]:
        """Return response.created and response.in_progress; nothing the second time."""
        if self._numbered:
            return []
        kinds = ("response.created", "response.in_progress")
        return self._number({"type": kind, "response": self._shown()} for kind in kinds)

    # ------------------------------------------------------------ input
    def feed(self, chunk: Body) -> list[Event]:
        """Return the events of one chat.completion.chunk, or of a whole chat.completion; an error fails the
        response."""
        if self._final is not None:
            return []
        reader = self._reader
        pieces = reader.take(chunk)
        if reader.usage is not None:
            self._usage = usage_of(reader.usage)
        if reader.model is not None:
            self._echo["model"] = reader.model
        if reader.service_tier in _TIERS:
            self._echo["service_tier"] = reader.service_tier
        events = self._events_of(pieces)
        problem = reader.problem
        return events if problem is None else events + self._failed(problem)

    def complete(self, completion: Body) -> list[Event]:
        """Return all events of a whole chat.completion, the first two and the terminal one included."""
        return self.start() + self.feed(completion) + self.finish(ended_well=True)

    def finish(self, *, ended_well: bool, cut: bool = False) -> list[Event]:
        """Return the done events and the terminal one: the upstream's answer is over.

        `ended_well`: it said so itself, by `[DONE]`, or it is a whole document; `cut`: it is not whole.
        """
        if self._final is not None:
            return []
        events = self._events_of(self._reader.flush())
        ending = self._reader.ending(done=ended_well, cut=cut)
        if ending.problem is not None:
            return events + self._failed(ending.problem)
        events += self._end_items(cut=ending.status == "incomplete")
        if ending.status == "completed":
            return events + self._terminate("completed", completed_at=int(self._clock()))
        return events + self._terminate("incomplete", incomplete_details={"reason": ending.reason})

    def fail(self, message: str, code: str = "server_error") -> list[Event]:
        """Return the events that end the response as failed; what was under way becomes incomplete."""
        if self._final is not None:
            return []
        events = self._end_items(cut=True, all_open=True)
        return events + self._terminate("failed", error={"code": code, "message": message})

    # ------------------------------------------------------------ reading
    def _events_of(self, pieces: Iterable[Piece]) -> list[Event]:
        events: list[Event] = []
        for piece in pieces:
            match piece:
                case TextPiece(PieceKind.THOUGHT, text):
                    events += self._say("reasoning", self._thought, text)
                case TextPiece(PieceKind.REFUSAL, text):
                    events += self._say("message", REFUSAL, text)
                case TextPiece(_, text, logprobs):
                    events += self._say("message", TEXT, text, text_logprobs(logprobs))
                case Detailed(thoughts, extra):  # what a later request has to bring back
                    if thoughts:
                        item, changes = self._speak("reasoning")
                        item.details += thoughts
                        events += changes
                    if extra is not None and self._speaking is not None:
                        self._speaking.extra_content = extra
                case Cited(annotations):
                    events += self._speaking.annotate(citations(annotations)) if self._speaking else []
                case CallPiece(call):
                    events += self._call(call)
                case _:
                    assert_never(piece)
        return self._number(events)

    def _say(self, kind: str, part: PartKind, delta: str, logprobs: list[Any] | None = None) -> list[Event]:
        item, events = self._speak(kind)
        return events + item.grow(part, delta, logprobs or [])

    def _speak(self, kind: str) -> tuple[ContentItem, list[Event]]:
        """Return the growing item, or a new one if it is of another kind, and the events of the change."""
        item, events = self._speaking, list[Event]()
        if item is None or item.type != kind:
            events = self._stop_speaking("completed")
            prefix, seals = ("rs", self._seals) if kind == "reasoning" else ("msg", None)
            item = ContentItem(type=kind, id=self._new_id(prefix), output_index=len(self._items), seals=seals)
            self._items.append(item)
            events += item.announce()
        self._latest = self._speaking = item
        return item, events

    def _call(self, call: ToolCall) -> list[Event]:
        item, events = self._calls.get(call), list[Event]()
        if item is None:
            if call.name is None:  # cannot be announced yet
                return []
            # An id that two calls share would leave their outputs no way home.
            call_id = call.id if call.id and call.id not in self._call_ids else f"call_{uuid4().hex}"
            self._call_ids.add(call_id)
            if call.extra_content is not None:
                events += self._sign(call_id, call.extra_content)
            events += self._stop_speaking("completed")
            # Some leave the namespace out, or write it with a dot; a name that is not offered is a function
            # for the client to refuse.
            alike = [t for t in self._tools.values() if call.name in (t.name, f"{t.namespace}.{t.name}")]
            named = alike[0] if len(alike) == 1 else ToolName("function", call.name)
            tool = self._tools.get(call.name, named)
            item_id = self._new_id(PREFIXES[tool.kind])
            item = CallItem(id=item_id, output_index=len(self._items), call_id=call_id, tool=tool)
            self._items.append(item)
            self._calls[call] = item
            events += item.announce()
        self._latest, item.extra_content = item, call.extra_content
        return events + item.grow_with(call.arguments)

    def _sign(self, call_id: str, extra: Item) -> list[Event]:
        """Put a call's signature into a reasoning item before it, sealed, for a client that keeps the items
        itself: most have no place for it at the call."""
        if self._seals is None:
            return []
        item, events = self._speak("reasoning")
        item.signatures[call_id] = extra
        self._signed.add(call_id)
        return events

    def _new_id(self, prefix: str) -> str:
        return output_id(prefix, self._head["id"], len(self._items))

    # ------------------------------------------------------------ ending
    def _failed(self, problem: Problem) -> list[Event]:
        code = _CODES.get(problem.code or "", "server_error")
        return self.fail(problem.message, code)

    def _stop_speaking(self, status: str) -> list[Event]:
        item, self._speaking = self._speaking, None
        return [] if item is None else item.end(status)

    def _end_items(self, *, cut: bool, all_open: bool = False) -> list[Event]:
        """End what is open. A cut goes through the item that grew last, and through every call that is
        left without complete JSON; a failure leaves nothing whole that was open."""
        events: list[Event] = []
        if self._speaking is not None:
            broken = cut and (all_open or self._speaking is self._latest)
            events += self._stop_speaking("incomplete" if broken else "completed")
        for call, item in self._calls.items():
            broken = cut and (all_open or item is self._latest or not call.is_whole)
            events += item.end("incomplete" if broken else "completed")
        for item in self._calls.values():  # signatures that came after their calls had begun
            if item.extra_content is not None and item.call_id not in self._signed:
                events += self._sign(item.call_id, item.extra_content)
        return self._number(events + self._stop_speaking("completed"))

    def _terminate(self, status: str, **state: Any) -> list[Event]:
        self._state |= {"status": status, **state}
        self._final = self._shown()
        return self._number([{"type": f"response.{status}", "response": self._final}])

    def _number(self, events: Iterable[Event]) -> list[Event]:
        numbered = []
        for event in events:
            numbered.append({"type": event["type"], "sequence_number": self._numbered, **event})
            self._numbered += 1
        return numbered


class Compacting(Translation):
    """A response with one output item, the encrypted compaction of what the model writes.

    The item comes back in the input of a later request, and is then given to the model as text.
    """

    def __init__(self, plan: ChatPlan, *, response_id: str, created_at: int, **more: Any) -> None:
        super().__init__(plan, response_id=response_id, created_at=created_at, **more)
        self._owner_seals = plan.seals
        self._item: Item = {"id": output_id("cmp", response_id, 0), "type": "compaction"}
        self._begun = False
        self._output: list[Item] = []

    def _shown(self) -> Body:
        return {**super()._shown(), "output": self._output}

    def _number(self, events: Iterable[Event]) -> list[Event]:
        """Pass on the response's own events; the first text of the model's items begins ours."""
        passed: list[Event] = []
        for event in events:
            if "response" in event:
                passed.append(event)
            elif event["type"] == "response.output_text.delta":
                passed += self._begin()
        return super()._number(passed)

    def _begin(self) -> list[Event]:
        """Return the events that announce the item; none the second time."""
        if self._begun:
            return []
        self._begun = True
        kind, item = "response.output_item.added", {**self._item, "encrypted_content": ""}
        return [
            {"type": kind, "output_index": 0, "item": item},
            {"type": "response.compaction.compacting", "output_index": 0, "item_id": item["id"]},
        ]

    def _terminate(self, status: str, **state: Any) -> list[Event]:
        parts = (part for item in self._items if isinstance(item, ContentItem) for part in item.parts)
        text = "".join(str(part.text) for part in parts if part.kind is TEXT).strip()
        events: list[Event] = []
        if status != "failed" and text:
            self._output = [{**self._item, "encrypted_content": self._owner_seals.seal(COMPACTION, text)}]
            done = {"type": "response.output_item.done", "output_index": 0, "item": self._output[0]}
            events = super()._number([*self._begin(), done])
        elif status != "failed":
            error = {"code": "server_error", "message": "The upstream's answer holds no text to keep."}
            status, state = "failed", {**state, "completed_at": None, "error": error}
        return events + super()._terminate(status, **state)


def compacted_response(response: Body, items: Iterable[Item]) -> Body:
    """Return the answer of `/responses/compact`: the user's messages, then the compaction."""
    said = [item for item in items if item.get("type") == "message" and item.get("role") == "user"]
    return {
        "id": response["id"],
        "object": "response.compaction",
        "created_at": response["created_at"],
        "output": [*said, *response["output"]],
        "usage": response["usage"] or usage_of({}),
    }


def translation_of(
    plan: ChatPlan, *, response_id: str, created_at: int, limit_bytes: int = LIMIT_BYTES
) -> Translation:
    """Return what makes the response that a plan asks for."""
    made = Compacting if plan.compacts else Translation
    return made(plan, response_id=response_id, created_at=created_at, limit_bytes=limit_bytes)


def encode(event: Event, dump: Callable[[Event], bytes] = dump) -> bytes:
    """Return the event as server-sent bytes; its `event:` line is its type."""
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), dump(event))


def items_of(response: Body) -> list[Item]:
    """Return the response's output items as input items for the next request of the chain."""
    output = response.get("output")
    return [dict(item) for item in output if isinstance(item, dict)] if isinstance(output, list) else []
