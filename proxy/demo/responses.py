"""The scripted model's Responses API: one answer as an object, or as the full sequence of events."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from proxy.demo.answers import MODEL, Said
from proxy.demo.said import estimated_tokens, pieces

# Echoed from the request where given; these are the values OpenAI shows where not.
_ECHOED: dict[str, Any] = {
    "background": False,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer to one request, cut off at the request's `max_output_tokens`."""

    request: dict[str, Any]
    asked: list[Said]
    text: str
    id: str = field(default_factory=lambda: f"resp_{uuid.uuid4().hex}")
    item_id: str = field(default_factory=lambda: f"msg_{uuid.uuid4().hex}")
    created_at: int = field(default_factory=lambda: int(time.time()))

    def whole(self) -> dict[str, Any]:
        """Return the finished response object."""
        incomplete = self._status() == "incomplete"
        return {
            **self._begun(),
            "status": self._status(),
            "completed_at": None if incomplete else int(time.time()),
            "incomplete_details": {"reason": "max_output_tokens"} if incomplete else None,
            "output": [self._item(self._status(), [self._part(self.shown())])],
            "usage": self._usage(),
        }

    def events(self) -> Iterator[bytes]:
        """Yield the stream's events in OpenAI's order, numbered without gaps; no `[DONE]`."""
        for number, event in enumerate(self._sequence()):
            numbered = {"type": event["type"], "sequence_number": number, **event}
            yield f"event: {event['type']}\n".encode() + b"data: " + orjson.dumps(numbered) + b"\n\n"

    def shown(self) -> str:
        """Return the text as far as it was allowed to go."""
        return "".join(self._pieces())

    def _sequence(self) -> Iterator[dict[str, Any]]:
        yield {"type": "response.created", "response": self._begun()}
        yield {"type": "response.in_progress", "response": self._begun()}
        item = {"output_index": 0}
        yield {"type": "response.output_item.added", **item, "item": self._item("in_progress", [])}
        part = {"item_id": self.item_id, "output_index": 0, "content_index": 0}
        yield {"type": "response.content_part.added", **part, "part": self._part("")}
        for piece in self._pieces():
            yield {"type": "response.output_text.delta", **part, "delta": piece, "logprobs": []}
        text = self.shown()
        yield {"type": "response.output_text.done", **part, "text": text, "logprobs": []}
        yield {"type": "response.content_part.done", **part, "part": self._part(text)}
        whole = self.whole()
        yield {"type": "response.output_item.done", **item, "item": whole["output"][0]}
        yield {"type": f"response.{whole['status']}", "response": whole}

    def _begun(self) -> dict[str, Any]:
        """Return the response object as it stands before the first word."""
        echoed = {k: self.request[k] if self.request.get(k) is not None else v for k, v in _ECHOED.items()}
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "status": "in_progress",
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "model": MODEL,
            "output": [],
            "usage": None,
            **echoed,
        }

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.item_id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}

    def _pieces(self) -> list[str]:
        return pieces(self.text)[: self.request.get("max_output_tokens")]

    def _status(self) -> str:
        return "completed" if self.shown() == self.text else "incomplete"

    def _usage(self) -> dict[str, Any]:
        given = sum(estimated_tokens(m.text) + 4 for m in self.asked)
        made = len(self._pieces())
        return {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": given + made,
        }
