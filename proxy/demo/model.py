"""A small OpenAI-compatible upstream with a scripted model, for `memory-proxy demo` and for first tries.

It has chat completions and a list of one model. The Responses API in front of it is the proxy's translation.
Like OpenAI it refuses unknown fields, which shows that the proxy removes its own from the body.

The model understands nothing. As a chat model it quotes the first remembered line, so the choice of the
memory is the proxy's. As the extraction model it returns the user's own sentences: the proxy's write gate,
with its trained heads, decides which of them become memories.
"""

import asyncio
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from proxy.domain.errors import ClientError, InvalidRequest, error_body
from proxy.text.words import is_question, sentences
from proxy.wire.authorship import CLOSE, OPEN, strip_blocks

MODEL = "scripted-demo"
MAX_FACTS = 10
MIN_SENTENCE_CHARS = 6  # "Hi!" states nothing
MAX_TOPIC_CHARS = 120

_BLOCK = re.compile(rf"^{re.escape(OPEN)}\n(.*?)(?:{re.escape(CLOSE)}|\Z)", re.DOTALL | re.MULTILINE)
# A memory's label ends in its id ("[semantic 2026-01-14 #ab12cd34] …"); lines of session notes have none.
_LINE = re.compile(r"^\[[^\]\n]+ #[\w-]+\] (.+)$", re.MULTILINE)
# The form of proxy/prompts/. A text cannot imitate it: the proxy escapes these tags in what it quotes.
_CONVERSATION = re.compile(r"<conversation>\n(.*?)\n</conversation>", re.DOTALL)
_USER = re.compile(r"^<user>\n(.*?)\n?</user>$", re.DOTALL | re.MULTILINE)

_NOTED = ("Noted.", "Thank you, noted.", "Good to know.", "All right.", "Understood.")
_GREETINGS = (
    "Hello! I am a scripted demo model, not an AI. Say something about yourself, then ask about it in a new"
    " session.",
    "Hi! I only follow a script. State a fact, such as a budget or a preference, and ask for it later.",
)
_UNKNOWN = (
    "I do not know: memory has nothing about that.",
    "I do not know that. Nothing in memory answers it.",
    "I cannot answer that: no memory came with your question.",
)

FIELDS = frozenset(
    "model messages stream stream_options temperature top_p n stop seed user store metadata tools tool_choice"
    " parallel_tool_calls max_tokens max_completion_tokens response_format reasoning_effort verbosity"
    " frequency_penalty presence_penalty logit_bias logprobs top_logprobs service_tier safety_identifier"
    " prompt_cache_key prompt_cache_retention modalities audio prediction web_search_options functions"
    " function_call".split()
)
MESSAGE_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
# About as long as a model's tokens: two characters of Chinese, Japanese or Korean, eight of other scripts.
_PIECE = re.compile(r"[\u2e80-\uffef]{1,2}|\s*[^\s\u2e80-\uffef]{1,8}|\s+")
_MODEL_CARD = {"id": MODEL, "object": "model", "created": 1767225600, "owned_by": "memory-proxy"}


@dataclass(frozen=True, slots=True)
class ChatMessage:
    role: str
    text: str


def answer(messages: Sequence[ChatMessage]) -> str:
    """Return the answer to the last user message."""
    asked = next((strip_blocks(m.text).strip() for m in reversed(messages) if m.role == "user"), "")
    if not any(map(is_question, sentences(asked))):
        return _one_of(_NOTED if statements(asked) else _GREETINGS, asked)
    # The first memory that was injected is the proxy's best match.
    blocks = (block for m in messages for block in _BLOCK.findall(m.text))
    remembered = next((line for block in blocks for line in _LINE.findall(block)), "")
    return f'From memory: "{remembered}"' if remembered else _one_of(_UNKNOWN, asked)


def statements(text: str) -> list[str]:
    """Return the user's sentences that are not questions, unchanged."""
    return [s for s in sentences(text) if len(s) >= MIN_SENTENCE_CHARS and not is_question(s)]


def extract(prompt: str) -> str:
    """Return every statement of the user in the prompt as a fact, in the form that the prompt asks for."""
    found = dict.fromkeys(s for said in _said(prompt) for s in statements(said))
    common = {"type": "semantic", "confidence": 0.9, "tags": [], "replaces": None}
    return _json({"facts": [{**common, "content": s, "evidence": s} for s in list(found)[:MAX_FACTS]]})


def summarise(prompt: str) -> str:
    """Return an empty summary: the proxy stores none."""
    return _json({"summary": "", "topics": [], "actions": [], "outcomes": []})


def session_state(prompt: str) -> str:
    """Return the session's state: the last message as its topic, and the latest statements."""
    said = _said(prompt)
    facts = [s for text in said for s in statements(text)]
    return _json({"topic": " ".join(said[-1].split())[:MAX_TOPIC_CHARS] if said else "", "facts": facts[-8:]})


ROLES: Mapping[str, Callable[[str], str]] = {
    "memory_extraction": extract,
    "memory_summary": summarise,
    "memory_state": session_state,
}


def _said(prompt: str) -> list[str]:
    conversation = _CONVERSATION.search(prompt)
    return _USER.findall(conversation[1]) if conversation else []


def _one_of(lines: Sequence[str], text: str) -> str:
    """Return one of the lines: the same text always gets the same line."""
    return lines[crc32(text.encode()) % len(lines)]


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


# ---------------------------------------------------------------- the server
def scripted_model(*, chunk_delay_s: float = 0.02) -> Starlette:
    """Return the upstream as an ASGI app. A stream waits `chunk_delay_s` before each event."""

    async def chat(request: Request) -> Response:
        body = parsed(await request.body())
        messages = [ChatMessage(m["role"], text_of(m.get("content"))) for m in body["messages"]]
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        completion = Completion(messages, _answer_in_role(request, messages), limit)
        if not body.get("stream"):
            return JSONResponse(completion.whole())
        options = body.get("stream_options")
        include_usage = isinstance(options, dict) and bool(options.get("include_usage"))

        async def paced() -> AsyncIterator[bytes]:
            for event in completion.events(include_usage=include_usage):
                await asyncio.sleep(chunk_delay_s)
                yield event

        return StreamingResponse(paced(), media_type="text/event-stream")

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_MODEL_CARD]})

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, ClientError)
        return JSONResponse(error_body(error.message, error.type, error.param, error.code), error.status)

    async def unknown_url(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"Invalid URL ({request.method} {request.url.path})"
        return JSONResponse(error_body(message, "invalid_request_error", None, None), error.status_code)

    return Starlette(
        routes=[
            Route("/v1/models", models, methods=["GET"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
        ],
        exception_handlers={ClientError: refuse, HTTPException: unknown_url},
    )


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer, cut at `max_tokens`, as an object or as a stream."""

    asked: Sequence[ChatMessage]
    text: str
    max_tokens: int | None = None
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": "".join(self._pieces()), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason()}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage()}

    def events(self, *, include_usage: bool) -> Iterator[bytes]:
        """Yield the stream's server-sent events, the last of them `[DONE]`."""
        # With include_usage every chunk has the key: null until the last one.
        usage: dict[str, Any] = {"usage": None} if include_usage else {}
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "", "refusal": None}]
        deltas += [{"content": piece} for piece in self._pieces()]
        for delta in deltas:
            yield self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}], usage)
        last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": self._finish_reason()}
        yield self._chunk([last], usage)
        if include_usage:
            yield self._chunk([], {"usage": self._usage()})
        yield b"data: [DONE]\n\n"

    def _pieces(self) -> list[str]:
        return _PIECE.findall(self.text)[: self.max_tokens]

    def _finish_reason(self) -> str:
        return "stop" if "".join(self._pieces()) == self.text else "length"

    def _head(self, kind: str) -> dict[str, Any]:
        head = {"id": self.id, "object": kind, "created": self.created, "model": MODEL}
        return {**head, "system_fingerprint": "fp_scripted_demo"}

    def _chunk(self, choices: list[dict[str, Any]], usage: dict[str, Any]) -> bytes:
        chunk = {**self._head("chat.completion.chunk"), "choices": choices, **usage}
        return b"data: " + orjson.dumps(chunk) + b"\n\n"

    def _usage(self) -> dict[str, Any]:
        prompt = sum(len(_PIECE.findall(m.text)) + 4 for m in self.asked)
        made = len(self._pieces())
        return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}


def parsed(raw: bytes) -> dict[str, Any]:
    """Return the body of a chat completions request. Raises InvalidRequest, in OpenAI's words."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise InvalidRequest("We could not parse the JSON body of your request.") from None
    if not isinstance(body, dict):
        raise InvalidRequest("The JSON body of your request must be an object.")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise InvalidRequest("you must provide a model parameter", param="model")
    if unknown := next((name for name in body if name not in FIELDS), None):
        raise InvalidRequest(f"Unknown parameter: '{unknown}'.", param=unknown, code="unknown_parameter")
    for name in ("max_tokens", "max_completion_tokens"):
        if not (body.get(name) is None or (type(body[name]) is int and body[name] > 0)):
            raise InvalidRequest(f"Invalid '{name}': expected a positive integer.", param=name)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("'messages' must be a non-empty array.", param="messages")
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in MESSAGE_ROLES:
            at = f"messages[{i}]" + (".role" if isinstance(message, dict) else "")
            raise InvalidRequest(f"Invalid value for '{at}'.", param=at, code="invalid_value")
    return body


def text_of(content: Any) -> str:
    """Return the text of a message's content: a string, or its text parts, one per line."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str))


def _answer_in_role(request: Request, messages: Sequence[ChatMessage]) -> str:
    """Return the chat answer, or what the role asks for that the proxy names in its User-Agent."""
    product, _, role = request.headers.get("user-agent", "").partition(" ")
    role = role.strip("()")
    if not product.startswith("memory-proxy/") or not role.startswith("memory_"):
        return answer(messages)
    if role not in ROLES:
        raise InvalidRequest(f"The scripted model has only the memory roles {', '.join(ROLES)}.")
    return ROLES[role]("\n".join(m.text for m in messages if m.role == "user"))
