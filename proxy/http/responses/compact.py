"""`POST /v1/responses/compact` and `/v1/responses/input_tokens` for an upstream that speaks only chat
completions.

The model writes the compaction, with the client's own key; the count is our tokenizer's. Neither has memory,
and nothing is stored.
"""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from proxy.domain.errors import (
    InvalidRequest,
    UpstreamBroken,
)
from proxy.domain.ports import TokenCounter
from proxy.http.asgi import OFF_LOOP, ASGIScope, Receive, Send, send_json
from proxy.http.auth.identity import caller_of
from proxy.http.forwarding import refusal_in
from proxy.http.responses.answer_output import AnswerParser, for_client, header_values, read_events
from proxy.http.responses.owners import new_id, owner_of, refuse_foreign_pages
from proxy.http.responses.response_store import ChainHistory
from proxy.http.responses.translated import TranslationPorts, changeable_in, dropped, in_form
from proxy.upstream.connection import UpstreamResponse
from proxy.upstream.forms import MAX_ATTEMPTS, Attempt, next_attempt
from proxy.upstream.relay import Downstream, relay
from proxy.wire import body as json_body
from proxy.wire.body import Body, BodyLimits, parse_bounded
from proxy.wire.extensions import take_extensions
from proxy.wire.translation.request import ChatPlan, conversation_of, previous_of
from proxy.wire.translation.response import compacted_response, translation_of

IN_THREAD_CHARS = 32 * 1024
TOKENS_OF_A_MESSAGE = 4  # its role and its borders
TOKENS_OF_AN_IMAGE = {"low": 85, "high": 765}
_TRIGGER = {"type": "compaction_trigger"}
# What a compaction is asked with: the rest shapes an answer that the client does not get.
_ASKED = frozenset("model input instructions previous_response_id conversation tools service_tier".split())


@dataclass(frozen=True, slots=True)
class CompactApi:
    """An ASGI app for both endpoints."""

    shared: TranslationPorts
    tokens: TokenCounter
    max_body_bytes: int

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        async with Downstream(receive) as downstream:
            raw = await downstream.read(self.max_body_bytes)
            body = await OFF_LOOP.run(len(raw), parse_bounded, raw, BodyLimits(), "input")
            if scope["path"].endswith("/input_tokens"):
                await self._count(scope, body, len(raw), send)
            else:
                await self._compact(scope, body, len(raw), downstream, send)

    async def _plan(
        self, scope: ASGIScope, body: Body, size: int, *, compacts: bool
    ) -> tuple[ChatPlan, ChainHistory]:
        user = take_extensions(body).user_id
        caller = caller_of(scope)
        refuse_foreign_pages(caller)
        owner = owner_of(caller, scope["headers"], caller.narrow(user))
        earlier = await self.shared.store.earlier(owner, previous_of(body), conversation_of(body))
        if compacts:
            given = body.get("input")
            said = [{"role": "user", "content": given}] if isinstance(given, str) else given
            if not said and not earlier.items:
                raise InvalidRequest(
                    "Missing required parameter: 'input'.", param="input", code="missing_required_parameter"
                )
            asked = {name: value for name, value in body.items() if name in _ASKED}
            body = {**asked, "input": [*said, _TRIGGER] if isinstance(said, list) else said or [_TRIGGER]}
        return await self.shared.plan(body, owner, earlier, size), earlier

    # ------------------------------------------------------------ a compaction
    async def _compact(
        self, scope: ASGIScope, body: Body, size: int, downstream: Downstream, send: Send
    ) -> None:
        planned, earlier = await self._plan(scope, body, size, compacts=True)
        opened = await self._ask(scope, planned, size + earlier.size)
        if not 200 <= opened.status < 300:
            await relay(opened, downstream, send)
            return
        id_, now = new_id("resp"), int(self.shared.clock())
        most = self.shared.max_answer_bytes
        with opened:
            translation = translation_of(planned, response_id=id_, created_at=now, limit_bytes=most)
            translation.start()
            parser = AnswerParser(translation, *header_values(opened.headers), most)
            async for _ in read_events(opened, parser):
                pass
        response = translation.response
        if response["status"] == "failed":
            raise UpstreamBroken(response["error"]["message"])
        headers = for_client(opened.headers, dropped(planned))
        made = compacted_response(response, [*earlier.items, *planned.input_items])
        downstream.settle()
        await send_json(send, 200, made, [h for h in headers if h[0] != b"cache-control"])

    async def _ask(self, scope: ASGIScope, planned: ChatPlan, size: int) -> UpstreamResponse:
        """Ask for a compaction, again in another form where the model refuses this one."""
        model = self.shared.learning.model(str(planned.chat["model"]), "chat")
        first = attempt = Attempt(self.shared.learning.forms.of(model), memory=False)
        request, left = changeable_in(planned), MAX_ATTEMPTS
        while True:
            payload = await OFF_LOOP.run(size, _written, planned, attempt)
            opened, left = await self.shared.ask(scope, payload), left - 1
            if opened.status < 400:
                self.shared.learning.forms.learn(model, first.form, attempt.form)
            refusal = await refusal_in(opened) if opened.status >= 400 and left else None
            following = next_attempt(attempt, request, refusal) if refusal else None
            if following is None:
                return opened
            opened.close()
            attempt = following

    # ------------------------------------------------------------ a count
    async def _count(self, scope: ASGIScope, body: Body, size: int, send: Send) -> None:
        planned, _ = await self._plan(scope, {"model": "", **body}, size, compacts=False)
        texts = list(_texts(planned.chat))
        model = str(planned.chat["model"])
        heavy = sum(map(len, texts)) > IN_THREAD_CHARS
        count = self._sum
        tokens = await asyncio.to_thread(count, texts, model) if heavy else count(texts, model)
        tokens += _borders(planned.chat)
        await send_json(
            send, 200, {"object": "response.input_tokens", "input_tokens": tokens}, dropped(planned)
        )

    def _sum(self, texts: Iterable[str], model: str) -> int:
        return sum(self.tokens.count(text, model) for text in texts)


def _written(planned: ChatPlan, attempt: Attempt) -> bytes:
    return json_body.dump(in_form(planned, planned.chat, attempt.form))


def _texts(chat: Body) -> Iterable[str]:
    """Yield all that a model reads of a chat body as text."""
    for message in chat["messages"]:
        content = message.get("content")
        parts: list[Any] = content if isinstance(content, list) else [{"text": content}]
        yield from (text for part in parts if isinstance(text := part.get("text"), str))
        if calls := message.get("tool_calls"):
            yield json.dumps([call["function"] for call in calls], ensure_ascii=False)
    if tools := chat.get("tools"):
        yield json.dumps(tools, ensure_ascii=False)


def _borders(chat: Body) -> int:
    """Return the tokens of the messages' borders, and of images."""
    images = [
        part["image_url"].get("detail", "high")
        for message in chat["messages"]
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if part.get("type") == "image_url"
    ]
    each = sum(TOKENS_OF_AN_IMAGE.get(detail, TOKENS_OF_AN_IMAGE["high"]) for detail in images)
    return TOKENS_OF_A_MESSAGE * len(chat["messages"]) + each
