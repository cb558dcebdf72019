"""Our own LLM calls, to servers that stream or compress whatever they are asked for."""

import gzip
import json

import pytest

from proxy.domain.core import Scope
from proxy.domain.errors import CompletionFailed
from proxy.domain.ports import CompletionRequest
from proxy.upstream.client import Upstream
from proxy.upstream.completer import Credentials, UpstreamCompleter
from tests.support.upstream import Exchange, Script, ScriptedUpstream, completion

PIECES = ({"content": '{"a"'}, {"content": ": 1}"})
STREAM = b"".join(
    b"data: %s\n\n" % json.dumps({"choices": [{"index": 0, "delta": piece}]}).encode() for piece in PIECES
)
DOCUMENT = json.dumps(completion('{"a": 1}')).encode()


async def completed(script: Script) -> str:
    request = CompletionRequest("memory_extraction", "Answer in JSON.", "Hi", "m", Scope("t", "ann"), "s")
    async with ScriptedUpstream(script) as scripted, Upstream(scripted.url) as upstream:
        return await UpstreamCompleter(upstream, Credentials(), {}).complete(request)


@pytest.mark.parametrize(
    ("kind", "body"),
    [(b"application/json", DOCUMENT), (b"text/event-stream", STREAM + b"data: [DONE]\n\n"), (b"", STREAM)],
)
@pytest.mark.parametrize("compressed", [False, True])
async def test_the_answer_is_read(kind: bytes, body: bytes, compressed: bool) -> None:
    async def script(exchange: Exchange) -> None:
        coding = [(b"content-encoding", b"gzip")] if compressed else []
        sent = gzip.compress(body) if compressed else body
        await exchange.reply(sent, headers=[(b"content-type", kind), *coding])

    assert await completed(script) == '{"a": 1}'


async def test_a_stream_without_a_word_is_a_failure() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.stream(b'data: {"error": {"message": "overloaded"}}\n\n', b"data: [DONE]\n\n")

    with pytest.raises(CompletionFailed):
        await completed(script)
