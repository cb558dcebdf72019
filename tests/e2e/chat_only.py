"""A scripted model whose server knows only chat completions."""

import json
from typing import Any

from tests.support.model import ScriptedModel, no_facts
from tests.support.upstream import Exchange, Received, completion, completion_events

NOT_FOUND = b"404 page not found"


class ChatOnly(ScriptedModel):
    """Answers chat completions, by `script` if one is given; anything else is 404."""

    def __init__(self, answer="All right.", facts=no_facts, script=None):
        super().__init__(answer, facts)
        self.unknown: list[Received] = []  # requests of routes that it does not have
        self._script = script

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request.target.partition(b"?")[0] != b"/v1/chat/completions":
            self.unknown.append(exchange.request)
            await exchange.reply(NOT_FOUND, 404, [(b"content-type", b"text/plain")])
        else:
            await super().__call__(exchange)

    async def converse(self, exchange: Exchange) -> None:
        """Answer by the script, else with the one answer."""
        await (self._script or self._say)(exchange)

    async def _say(self, exchange: Exchange) -> None:
        await self.say(exchange, self.answer)

    async def say(self, exchange: Exchange, text: str) -> None:
        """Answer with the text, streamed word by word if the request asks for a stream."""
        if exchange.request.json.get("stream"):
            await exchange.stream(*completion_events(*text.split(" ")))
        else:
            await exchange.json(completion(text))


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """Return one event of a streamed chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def tool_call(id_: str, name: str, arguments: str, index: int = 0) -> dict[str, Any]:
    """Return a call as it is in a message, or in its first delta."""
    return {
        "index": index, "id": id_, "type": "function", "function": {"name": name, "arguments": arguments},
    }  # fmt: skip
