"""The state machine of one translated response: chat chunks in, the Responses API's events out. Sans-I/O.

    start → feed* → finish | fail

What the upstream says is read by ChatReader (wire/chat_answer), as memory reads it.
The model speaks in one item at a time, a message or its reasoning; a call ends that item. Calls stay open
until the end, since their fragments may alternate. Whatever happens, each item is announced once and done
once, the final `output` is what the done events held, and there is exactly one terminal event; after it
nothing more is said.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, assert_never
from uuid import uuid4

from proxy.wire.body import Body, dump
from proxy.wire.chat_answer import (
    LIMIT_BYTES,
    Call,
    CallPiece,
    ChatReader,
    Cited,
    Detailed,
    Ending,
    Kind,
    Piece,
    Said,
)
from proxy.wire.problems import Problem
from proxy.wire.translation.figures import citations, text_logprobs, usage_of
from proxy.wire.translation.items import Item, output_id
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
)
from proxy.wire.translation.request import Plan
from proxy.wire.translation.tools import Key

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
        plan: Plan,
        *,
        response_id: str,
        created_at: int,
        clock: Callable[[], float] = time.time,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        """`limit_bytes`: how much of the answer is kept; a longer one fails."""
        self._echo = dict(plan.echo)
        self._head: Body = {"id": response_id, "object": "response", "created_at": created_at}
        self._clock = clock
        self._seals = plan.seal_thoughts
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
        self._calls: dict[Call, CallItem] = {}
        self._call_ids: set[str] = set()
        self._usage: Body | None = None
        self._final: Body | None = None

    # ------------------------------------------------------------ what comes out
    @property
    def response(self) -> Body:
        """The response object as it stands; final after the terminal event, and then always the same."""
        return self._final if self._final is not None else self._shown()

    @property
    def status(self) -> str:
        """The response's status, without the cost of showing all of it."""
        status: str = self._state["status"]
        return status

    def _shown(self) -> Body:
        output = [item.shown() for item in self._items]
        return {**self._head, **self._state, **self._echo, "output": output, "usage": self._usage}

    def start(self) -> list[Event]:
        """Return response.created and response.in_progress; nothing the second time."""
        if self._numbered:
            return []
        kinds = ("response.created", "response.in_progress")
        return self._number({"type": kind, "response": self._shown()} for kind in kinds)

    # ------------------------------------------------------------ what comes in
    def feed(self, chunk: Body) -> list[Event]:
        """Return the events of one chat.completion.chunk, or of a whole chat.completion; an error fails the
        response."""
        if self._final is not None:
            return []
        pieces = self._reader.take(chunk)
        self._note()
        events = self._hear(pieces)
        if (problem := self._reader.problem) is not None:
            return events + self._failed(problem)
        return events

    def complete(self, completion: Body) -> list[Event]:
        """Return all events of a whole chat.completion, the first two and the terminal one included."""
        return self.start() + self.feed(completion) + self.finish(ended_well=True)

    def finish(self, *, ended_well: bool, cut: bool = False) -> list[Event]:
        """Return the done events and the terminal one: the upstream's answer is over.

        `ended_well`: it said so itself, by `[DONE]`, or it is a whole document; `cut`: it is not whole.
        """
        if self._final is not None:
            return []
        events = self._hear(self._reader.flush())
        return events + self._end(self._reader.ending(done=ended_well, cut=cut))

    def fail(self, message: str, code: str = "server_error") -> list[Event]:
        """Return the events that end the response as failed; what was under way becomes incomplete."""
        if self._final is not None:
            return []
        events = self._end_items(cut=True, all_open=True)
        return events + self._terminate("failed", error={"code": code, "message": message})

    # ------------------------------------------------------------ hearing
    def _note(self) -> None:
        """Take over what the answer says of itself."""
        reader = self._reader
        if reader.usage is not None:
            self._usage = usage_of(reader.usage)
        if reader.model is not None:
            self._echo["model"] = reader.model
        if reader.service_tier in _TIERS:
            self._echo["service_tier"] = reader.service_tier

    def _hear(self, pieces: Iterable[Piece]) -> list[Event]:
        events: list[Event] = []
        for piece in pieces:
            match piece:
                case Said(Kind.THOUGHT, text):
                    events += self._say("reasoning", self._thought, text)
                case Said(Kind.REFUSAL, text):
                    events += self._say("message", REFUSAL, text)
                case Said(_, text, logprobs):
                    events += self._say("message", TEXT, text, text_logprobs(logprobs))
                case Detailed():
                    events += self._detail(piece)
                case Cited(annotations):
                    events += self._speaking.annotate(citations(annotations)) if self._speaking else []
                case CallPiece(call, arguments):
                    events += self._call(call, arguments)
                case _:
                    assert_never(piece)
        return self._number(events)

    def _detail(self, piece: Detailed) -> list[Event]:
        """Keep at the item what a later request has to bring back."""
        events: list[Event] = []
        if piece.thoughts:
            events += self._speak("reasoning")
            assert self._speaking is not None
            self._speaking.detail(piece.thoughts)
        if piece.message is not None and self._speaking is not None:
            self._speaking.extra_content = piece.message
        return events

    def _say(self, kind: str, part: PartKind, delta: str, logprobs: list[Any] | None = None) -> list[Event]:
        events = self._speak(kind)
        assert self._speaking is not None
        return events + self._speaking.grow(part, delta, logprobs or [])

    def _speak(self, kind: str) -> list[Event]:
        """Have an item of the kind speaking."""
        events: list[Event] = []
        if self._speaking is None or self._speaking.type != kind:
            events += self._stop_speaking("completed")
            self._speaking = self._new_content(kind)
            events += self._speaking.announce()
        self._latest = self._speaking
        return events

    def _call(self, call: Call, arguments: str) -> list[Event]:
        item, events = self._calls.get(call), list[Event]()
        if item is None:
            if call.name is None:  # cannot be announced yet
                return []
            events += self._stop_speaking("completed")
            item = self._new_call(call, call.name)
            events += item.announce()
            arguments = "".join(call.arguments)
        self._latest, item.extra_content = item, call.extra_content
        return events + item.grow(arguments)

    def _new_content(self, kind: str) -> ContentItem:
        thinks = kind == "reasoning"
        item_id = self._new_id("rs" if thinks else "msg")
        item = ContentItem(kind, item_id, len(self._items), seals=thinks and self._seals)
        self._items.append(item)
        return item

    def _new_call(self, call: Call, name: str) -> CallItem:
        tool = _tool_named(name, self._tools)
        item = CallItem(
            id=self._new_id(PREFIXES[tool.kind]),
            output_index=len(self._items),
            call_id=self._call_id(call),
            tool=tool,
        )
        self._items.append(item)
        self._calls[call] = item
        return item

    def _call_id(self, call: Call) -> str:
        """Return the upstream's id. One that two calls share would leave their outputs no way home."""
        taken = self._call_ids
        chosen = call.id if call.id and call.id not in taken else f"call_{uuid4().hex}"
        taken.add(chosen)
        return chosen

    def _new_id(self, prefix: str) -> str:
        return output_id(prefix, self._head["id"], len(self._items))

    # ------------------------------------------------------------ ending
    def _end(self, ending: Ending) -> list[Event]:
        if ending.problem is not None:
            return self._failed(ending.problem)
        events = self._end_items(cut=ending.status == "incomplete")
        if ending.status == "completed":
            return events + self._terminate("completed", completed_at=int(self._clock()))
        return events + self._terminate("incomplete", incomplete_details={"reason": ending.reason})

    def _failed(self, problem: Problem) -> list[Event]:
        code = _CODES.get(problem.code or "", "server_error")
        return self.fail(problem.message, code)

    def _stop_speaking(self, status: str) -> list[Event]:
        item, self._speaking = self._speaking, None
        return [] if item is None else item.end(status)

    def _end_items(self, *, cut: bool, all_open: bool = False) -> list[Event]:
        """End what is open. A cut goes through the item that grew last, and through every call that is
        left without complete JSON; a failure leaves nothing whole that was open."""

        def status(item: ContentItem | CallItem) -> str:
            broken = isinstance(item, CallItem) and not item.is_whole()
            return "incomplete" if cut and (all_open or broken or item is self._latest) else "completed"

        events: list[Event] = []
        if self._speaking is not None:
            events += self._stop_speaking(status(self._speaking))
        for item in self._calls.values():
            events += item.end(status(item))
        return self._number(events)

    def _terminate(self, status: str, **state: Any) -> list[Event]:
        self._state |= {"status": status, **state}
        self._final = self._shown()
        return self._number([{"type": f"response.{status}", "response": self._final}])

    def _number(self, events: Any) -> list[Event]:
        numbered = []
        for event in events:
            numbered.append({"type": event["type"], "sequence_number": self._numbered, **event})
            self._numbered += 1
        return numbered


def encode(event: Event) -> bytes:
    """Return the event as server-sent bytes; its `event:` line is its type."""
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), dump(event))


def items_of(response: Body) -> list[Item]:
    """Return the response's output items as input items for the next request of the chain."""
    output = response.get("output")
    return [dict(item) for item in output if isinstance(item, dict)] if isinstance(output, list) else []


def _tool_named(name: str, tools: Mapping[str, Key]) -> Key:
    """Return the tool that a model means. Some leave the namespace out, or write it with a dot; a name that
    is not offered is a function for the client to refuse."""
    if name in tools:
        return tools[name]
    alike = [key for key in tools.values() if name in (key.name, f"{key.namespace}.{key.name}")]
    return alike[0] if len(alike) == 1 else Key("function", name)
