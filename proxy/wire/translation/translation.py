"""The state machine of one translated response: chat chunks in, the Responses API's events out. Sans-I/O.

    start → feed* → finish | fail        a stream
    complete                             a whole chat completion

The model speaks in one item at a time, a message or its reasoning; a call ends that item. Calls stay open
until the end, since their fragments may alternate. Whatever happens, each item is announced once and done
once, the final `output` is what the done events held, and there is exactly one terminal event; after it
nothing more is said.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from proxy.wire.body import Body, dump
from proxy.wire.translation.calls import Call, CallLog
from proxy.wire.translation.figures import citations, text_logprobs, usage_of
from proxy.wire.translation.items import Item, output_id
from proxy.wire.translation.output import (
    PREFIXES,
    REFUSAL,
    TEXT,
    THOUGHT,
    CallItem,
    ContentItem,
    Event,
    PartKind,
)
from proxy.wire.translation.request import Plan
from proxy.wire.translation.tools import Key

_CUT_SHORT = {"length": "max_output_tokens", "content_filter": "content_filter"}
# Those that the Responses API has; chat servers tell others too (Groq's "on_demand").
_TIERS = frozenset(("auto", "default", "flex", "scale", "priority", "fast"))
# Codes of a failed response that say the same as the upstream's own; all else is a server error.
_ERROR_CODES = frozenset(("server_error", "rate_limit_exceeded", "invalid_prompt"))


class Translation:
    """One response being made. Values of unknown types in what the upstream says are passed over."""

    def __init__(
        self, plan: Plan, *, response_id: str, created_at: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._echo = dict(plan.echo)
        self._head: Body = {"id": response_id, "object": "response", "created_at": created_at}
        self._clock = clock
        self._seals = plan.seal_thoughts
        self._tools = plan.tools
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
        self._log = CallLog()
        self._calls: list[tuple[Call, CallItem]] = []
        self._heard = False
        self._finish_reason: str | None = None
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
        """Return the events of one chat.completion.chunk; an error chunk fails the response."""
        if self._final is not None:
            return []
        if error := chunk.get("error"):
            return self.fail(*_told(error))
        self._note(chunk)
        choice = _first_choice(chunk.get("choices"))
        return [] if choice is None else self._hear(choice, choice.get("delta"))

    def complete(self, completion: Body) -> list[Event]:
        """Return all events of a whole chat.completion, the first two and the terminal one included."""
        events = self.start()
        if error := completion.get("error"):
            return events + self.fail(*_told(error))
        self._note(completion)
        choice = _first_choice(completion.get("choices"))
        message = choice.get("message") if choice else None
        if choice is None or not isinstance(message, dict):
            return events + self.fail("The upstream's answer holds no message.")
        events += self._hear(choice, {**message, "tool_calls": _counted(message.get("tool_calls"))})
        return events + self.finish(ended_well=True)

    def finish(self, *, ended_well: bool) -> list[Event]:
        """Return the done events and the terminal one: the upstream's stream is over.

        `ended_well`: it said so itself, by `[DONE]`. Without that only a finish reason makes the answer
        whole, since a connection that dies may look like one that was closed in order.
        """
        if self._final is not None:
            return []
        if self._finish_reason == "error" or not self._heard:
            return self.fail("The upstream gave no answer.")
        half_written = any(not item.is_whole() for _, item in self._calls)
        if self._finish_reason is None and (half_written or not ended_well):
            return self.fail("The upstream's answer broke off.")
        reason = _CUT_SHORT.get(self._finish_reason or "")
        events = self._end_items(cut=reason is not None)
        if reason is None:
            return events + self._terminate("completed", completed_at=int(self._clock()))
        return events + self._terminate("incomplete", incomplete_details={"reason": reason})

    def fail(self, message: str, code: str = "server_error") -> list[Event]:
        """Return the events that end the response as failed; what was under way becomes incomplete."""
        if self._final is not None:
            return []
        events = self._end_items(cut=True, all_open=True)
        return events + self._terminate("failed", error={"code": code, "message": message})

    # ------------------------------------------------------------ hearing
    def _note(self, chunk: Body) -> None:
        """Keep what a chunk says beside its choices; the last word counts."""
        self._heard = True
        self._usage = usage_of(chunk.get("usage")) or self._usage
        model, tier = chunk.get("model"), chunk.get("service_tier")
        if isinstance(model, str) and model:
            self._echo["model"] = model
        if isinstance(tier, str) and tier in _TIERS:
            self._echo["service_tier"] = tier

    def _hear(self, choice: Mapping[str, Any], delta: Any) -> list[Event]:
        said: Mapping[str, Any] = delta if isinstance(delta, dict) else {}
        events: list[Event] = []
        # Servers that changed the name send both for a while: the same words.
        events += self._say("reasoning", THOUGHT, said.get("reasoning_content") or said.get("reasoning"))
        events += self._say("message", TEXT, _plain(said.get("content")), text_logprobs(choice))
        if self._speaking is not None:
            events += self._speaking.annotate(citations(said))
        events += self._say("message", REFUSAL, said.get("refusal"))
        for call, arguments in self._log.take(said.get("tool_calls")):
            events += self._call(call, arguments)
        if isinstance(reason := choice.get("finish_reason"), str):
            self._finish_reason = reason
        return self._number(events)

    def _say(self, kind: str, part: PartKind, delta: Any, logprobs: list[Any] | None = None) -> list[Event]:
        if not delta or not isinstance(delta, str):
            return []
        events: list[Event] = []
        if self._speaking is None or self._speaking.type != kind:
            events += self._stop_speaking("completed")
            self._speaking = self._new_content(kind)
            events += self._speaking.announce()
        self._latest = self._speaking
        return events + self._speaking.grow(part, delta, logprobs or [])

    def _call(self, call: Call, arguments: str) -> list[Event]:
        item = next((item for known, item in self._calls if known is call), None)
        events: list[Event] = []
        if item is None:
            if call.name is None:  # cannot be announced yet
                call.waiting.append(arguments)
                return []
            events += self._stop_speaking("completed")
            item = self._new_call(call, call.name)
            events += item.announce()
            arguments = "".join(call.waiting) + arguments
        self._latest = item
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
        self._calls.append((call, item))
        return item

    def _call_id(self, call: Call) -> str:
        """Return the upstream's id. One that two calls share would leave their outputs no way home."""
        taken = {item.call_id for _, item in self._calls}
        return call.id if call.id and call.id not in taken else f"call_{uuid4().hex}"

    def _new_id(self, prefix: str) -> str:
        return output_id(prefix, self._head["id"], len(self._items))

    # ------------------------------------------------------------ ending
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
        for _, item in self._calls:
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


def _first_choice(choices: Any) -> Mapping[str, Any] | None:
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index") in (0, None):
            return choice
    return None


def _plain(content: Any) -> Any:
    """Return the text of a delta's content; some servers send it as parts."""
    if not isinstance(content, list):
        return content
    texts = (part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text")
    return "".join(text for text in texts if isinstance(text, str))


def _counted(calls: Any) -> list[Any]:
    """Return a whole message's calls with their indices: there each entry is a call of its own."""
    entries = calls if isinstance(calls, list) else ()
    return [{**call, "index": index} for index, call in enumerate(entries) if isinstance(call, dict)]


def _told(error: Any) -> tuple[str, str]:
    """Return the message and the code of an upstream's error."""
    holder = error if isinstance(error, dict) else {"message": error}
    message, code = holder.get("message"), holder.get("code")
    told = message if isinstance(message, str) and message else "The upstream's answer failed."
    return told, code if isinstance(code, str) and code in _ERROR_CODES else "server_error"
