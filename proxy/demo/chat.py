"""The scripted model's chat completions: one answer as an object, or as server-sent events."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from proxy.demo.answers import MODEL, Said
from proxy.demo.said import estimated_tokens, pieces

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Chat:
    """One answer, cut off at `max_tokens`, and what it takes to show it."""

    asked: list[Said]
    text: str
    max_tokens: int | None = None
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self) -> dict[str, Any]:
        """Return the chat.completion object."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(self._pieces()),
            "refusal": None,
            "annotations": [],
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason()}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage()}

    def events(self, *, include_usage: bool) -> Iterator[bytes]:
        """Yield the stream's events, `[DONE]` at the end."""
        # With include_usage every chunk carries the key, null until the last.
        usage: dict[str, Any] = {"usage": None} if include_usage else {}
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "", "refusal": None}]
        deltas += [{"content": piece} for piece in self._pieces()]
        for delta in deltas:
            yield self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}], usage)
        last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": self._finish_reason()}
        yield self._chunk([last], usage)
        if include_usage:
            yield self._chunk([], {"usage": self._usage()})
        yield DONE

    def _pieces(self) -> list[str]:
        return pieces(self.text)[: self.max_tokens]

    def _finish_reason(self) -> str:
        return "stop" if len(self._pieces()) == len(pieces(self.text)) else "length"

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": MODEL,
            "service_tier": "default",
            "system_fingerprint": "fp_scripted_demo",
        }

    def _chunk(self, choices: list[dict[str, Any]], usage: dict[str, Any]) -> bytes:
        chunk = {**self._head("chat.completion.chunk"), "choices": choices, **usage}
        return b"data: " + orjson.dumps(chunk) + b"\n\n"

    def _usage(self) -> dict[str, Any]:
        prompt = sum(estimated_tokens(m.text) + 4 for m in self.asked)
        completion = len(self._pieces())
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        }
