"""Talking through the proxy with the OpenAI SDK, unmodified: all that is new is `base_url`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from openai import OpenAI


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer's text, and what the proxy says it did."""

    text: str
    headers: dict[str, str]  # the X-Memory-* ones and Server-Timing, names in lower case

    @property
    def memory_ids(self) -> list[str]:
        """Return the ids of the injected memories."""
        return [i.strip() for i in self.headers.get("x-memory-ids", "").split(",") if i.strip()]


@dataclass(frozen=True, slots=True)
class Conversation:
    """One session of one user. The application keeps the history, as applications do."""

    client: OpenAI
    model: str
    user_id: str
    session_id: str
    history: list[Any] = field(default_factory=list)

    def say(self, text: str, on_piece: Callable[[str], None]) -> Reply:
        """Send the text, hand on the answer as it streams in, and return it whole."""
        self.history.append({"role": "user", "content": text})
        raw = self.client.chat.completions.with_raw_response.create(
            model=self.model,
            messages=self.history,
            stream=True,
            extra_body={"memory_context": {"user_id": self.user_id, "session_id": self.session_id}},
        )
        heard: list[str] = []
        with raw.parse() as stream:
            for chunk in stream:
                piece = chunk.choices[0].delta.content if chunk.choices else None
                if piece:
                    heard.append(piece)
                    on_piece(piece)
        answer = "".join(heard)
        self.history.append({"role": "assistant", "content": answer})
        shown = {
            k.lower(): v
            for k, v in raw.headers.items()
            if k.lower().startswith(("x-memory-", "server-timing"))
        }
        return Reply(answer, shown)
