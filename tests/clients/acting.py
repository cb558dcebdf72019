"""A scripted model with just enough wit to be talked to by agents; its server knows only chat completions.

Cues in what the user says: CUT breaks the answer off, HANG goes silent in its middle, REFUSE answers 429.
It thinks where the user says "think", calls `get_weather` for each city that the user asks the weather of,
answers in JSON if a schema is requested, and repeats tool results and the figure in a memory block.
"""

import asyncio
import json
import re
from typing import Any

from tests.support.upstream import Exchange, Received

FACT, SAID, ASKED = (
    "User's budget for the Hawaii trip is $10,000.",
    "My budget for the Hawaii trip is $10,000.",
    "How much money can I spend on vacation?",
)
CITIES = ("Oslo", "Lima")
BOTH_CITIES = "What is the weather in Oslo and in Lima?"
CUT, HANG, REFUSE = "[cut]", "[hang]", "[429]"
TOO_MANY = {
    "error": {"message": "Slow down.", "type": "tokens", "param": None, "code": "rate_limit_exceeded"}
}
Message = dict[str, Any]
_FIGURE = re.compile(r"\$\d+,\d+")
_USAGE = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}


class Actor:
    """An upstream's script. `chats` holds the requests of conversations, not those of our own calls."""

    def __init__(self) -> None:
        self.chats: list[Received] = []
        self.left = asyncio.Event()  # a client has left a request that went silent

    async def __call__(self, exchange: Exchange) -> None:
        request = exchange.request
        if request.target.partition(b"?")[0] != b"/v1/chat/completions":
            await exchange.reply(b"404 page not found", 404, [(b"content-type", b"text/plain")])
            return
        body = request.json
        if b"memory-proxy" in (request.header(b"user-agent") or b""):
            message = {"content": json.dumps({"facts": facts_in(_text(body["messages"][-1]))})}
        else:
            self.chats.append(request)
            message = reply(body)
            cue = next((cue for cue in (CUT, HANG, REFUSE) if cue in _asked(body["messages"])), "")
            if cue:
                await self._misbehave(exchange, cue, message)
                return
        await (
            exchange.stream(*_events(message, body)) if body.get("stream") else exchange.json(_whole(message))
        )

    async def _misbehave(self, exchange: Exchange, cue: str, message: Message) -> None:
        if cue == REFUSE:
            headers = [(b"content-type", b"application/json"), (b"retry-after", b"7")]
            await exchange.reply(json.dumps(TOO_MANY).encode(), 429, headers)
            return
        await exchange.start_stream()
        await exchange.chunk(*_events(message, exchange.request.json)[:2])
        if cue == HANG:
            await exchange.client_left()
            self.left.set()
        exchange.close()

    def last_chat(self) -> dict[str, Any]:
        """Return the body of the last conversation request."""
        body: dict[str, Any] = self.chats[-1].json
        return body


def facts_in(prompt: str) -> list[dict[str, Any]]:
    """Return what the conversation in an extraction prompt states."""
    said = prompt.partition("<conversation>")[2]
    return [{"type": "semantic", "content": FACT, "confidence": 0.9}] if SAID in said else []


def reply(body: dict[str, Any]) -> Message:
    """Return the assistant's message, without its role."""
    messages = body["messages"]
    results = [message["content"] for message in _after_last_user(messages) if message["role"] == "tool"]
    asked = _asked(messages)
    if results:
        return {"content": "The tools say: " + "; ".join(map(str, results))}
    cities = [city for city in CITIES if "weather" in asked and city in asked]
    names = [tool["function"]["name"] for tool in body.get("tools") or ()]
    thought = {"reasoning_content": "Let me think."} if "think" in asked.lower() else {}
    if "verse" in asked and "write" in names:
        return {"content": None, "tool_calls": [_call(0, "a verse", "write", "input")]}
    if cities and "get_weather" in names:
        return {**thought, "content": None, "tool_calls": [_call(i, city) for i, city in enumerate(cities)]}
    if (body.get("response_format") or {}).get("type") == "json_schema":
        return {**thought, "content": '{"city": "Oslo", "degrees": 7}'}
    block = " ".join(_text(m) for m in messages if m["role"] == "system")
    if figure := _FIGURE.search(block):
        return {**thought, "content": f"You can spend {figure[0]}."}
    return {**thought, "content": "All right, noted."}


def _after_last_user(messages: list[Message]) -> list[Message]:
    last = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=0)
    return messages[last:]


def _asked(messages: list[Message]) -> str:
    return next((_text(m) for m in reversed(messages) if m["role"] == "user"), "")


def _text(message: Message) -> str:
    content = message["content"]
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def _call(index: int, value: str, name: str = "get_weather", argument: str = "city") -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps({argument: value})}
    return {"id": f"call_{index}", "type": "function", "function": function, "index": index}


def _choice(field: str, message: Message, finish: str | None) -> dict[str, Any]:
    return {"index": 0, field: message, "finish_reason": finish}


def _whole(message: Message) -> dict[str, Any]:
    calls = [{k: v for k, v in call.items() if k != "index"} for call in message.get("tool_calls", ())]
    said = {"role": "assistant", **message, **({"tool_calls": calls} if calls else {})}
    finish = "tool_calls" if calls else "stop"
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "scripted",
        "choices": [_choice("message", said, finish)], "usage": _USAGE,
    }  # fmt: skip


def _events(message: Message, body: dict[str, Any]) -> list[bytes]:
    """Return the message as a stream: word by word, arguments in two pieces, usage if it is asked for."""
    deltas: list[Message] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in _words(message.get("reasoning_content"))]
    deltas += [{"content": piece} for piece in _words(message.get("content"))]
    for call in message.get("tool_calls", ()):
        index, function = call["index"], call["function"]
        named = {**call, "function": {**function, "arguments": ""}}
        deltas.append({"tool_calls": [named]})
        for piece in (function["arguments"][:5], function["arguments"][5:]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    chunks = [_chunk([_choice("delta", delta, None)]) for delta in deltas]
    chunks.append(_chunk([_choice("delta", {}, finish)]))
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append(_chunk([], usage=_USAGE))
    return [*chunks, b"data: [DONE]\n\n"]


def _words(text: str | None) -> list[str]:
    return re.findall(r"\S+\s*", text or "")


def _chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    return b"data: " + json.dumps({**head, "choices": choices, **more}).encode() + b"\n\n"
