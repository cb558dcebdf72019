"""Our own LLM calls, against an upstream that answers what a test wants."""

import asyncio
import gzip
import json
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy import __version__
from proxy.domain.core import Scope
from proxy.domain.errors import CompletionFailed, CompletionPostponed, CompletionRefused, CredentialNeeded
from proxy.domain.ports import CompletionRequest
from proxy.upstream.client import Credentials, Upstream
from proxy.upstream.completer import RoleModel, UpstreamCompleter, retry_after
from proxy.upstream.forms import Forms, Learning
from tests.support.upstream import Exchange, ScriptedUpstream, completion, completion_events, ok

ANN = Scope("t", "ann")
KEY = [(b"authorization", b"Bearer ann"), (b"openai-project", b"p"), (b"cookie", b"c")]


SCHEMA = {"type": "object", "properties": {"facts": {"type": "array"}}}


def question(role="memory_extraction", scope=ANN, schema=None):
    return CompletionRequest(role, "Answer in JSON.", "Hi", "model-1", scope, "s", schema)


class Hours:
    """A clock that is set by hand."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def asking(script, credentials=None, *, clock=None):
    """Yield an upstream that answers by the script, and a completer that asks it."""
    async with ScriptedUpstream(script) as scripted, Upstream(scripted.url) as upstream:
        clock = clock or Hours()
        learning = Learning(Forms(clock), scripted.url)
        credentials = credentials or Credentials()
        yield (
            scripted,
            UpstreamCompleter(upstream, credentials, {}, jitter=lambda: 1.0, clock=clock, learning=learning),
        )


def answering(value: Any, status: int = 200) -> Any:
    async def script(exchange: Exchange) -> None:
        await exchange.json(value, status)

    return script


async def test_a_call_asks_the_conversation_s_model_for_json_and_says_who_it_is():
    async with asking(answering(completion('{"a": 1}'))) as (scripted, completer):
        assert await completer.complete(question()) == '{"a": 1}'
    request = scripted.requests[0]
    assert request.line == b"POST /v1/chat/completions HTTP/1.1"
    assert request.header(b"user-agent") == f"memory-proxy/{__version__} (memory_extraction)".encode()
    assert request.header(b"authorization") is None
    assert request.json == {
        "model": "model-1",
        "messages": [{"role": "system", "content": "Answer in JSON."}, {"role": "user", "content": "Hi"}],
        "response_format": {"type": "json_object"}, "max_tokens": 1024, "temperature": 0.0,
    }  # fmt: skip


async def test_only_the_user_s_own_credential_is_used():
    credentials = Credentials()
    credentials.remember(ANN, KEY)

    async def script(exchange):
        body = json.dumps(completion("x")).encode()
        await exchange.reply(body, headers=[(b"set-cookie", b"session=ann; Path=/")])

    async with asking(script, credentials) as (scripted, completer):
        for scope in (ANN, Scope("t", "bob"), Scope("other", "ann")):
            await completer.complete(question(scope=scope))
    assert [r.header(b"authorization") for r in scripted.requests] == [b"Bearer ann", None, None]
    assert scripted.requests[0].header(b"openai-project") == b"p"
    assert [request.header(b"cookie") for request in scripted.requests] == [None, None, None]


async def test_a_role_s_endpoint_gets_its_own_key_and_never_the_client_s():
    credentials = Credentials()
    credentials.remember(ANN, KEY)
    async with ScriptedUpstream(answering(completion("x"))) as main, ScriptedUpstream(main.script) as own:
        roles = {
            "memory_extraction": RoleModel(own.url, "tiny", "own-key\n", max_tokens=7, temperature=None),
            "memory_rewrite": RoleModel(own.url),
        }
        async with Upstream(main.url) as upstream, Upstream(own.url) as other:
            completer = UpstreamCompleter(upstream, credentials, roles, {own.url: other})
            await completer.complete(question())
            await completer.complete(question("memory_rewrite"))
    assert main.requests == []
    assert [r.header(b"authorization") for r in own.requests] == [b"Bearer own-key", None]
    assert own.requests[0].json["model"] == "tiny"
    assert own.requests[0].json["max_tokens"] == 7
    assert "temperature" not in own.requests[0].json


@pytest.mark.parametrize(
    ("status", "error", "calls"),
    [
        (401, CredentialNeeded, 1),
        (400, CompletionRefused, 4),  # without options, without a system role, streamed
        (429, CompletionPostponed, 1),
        (500, CompletionFailed, 2),  # without options
    ],
)
async def test_each_refusal_has_its_meaning(status, error, calls):
    async with asking(answering({"error": {}}, status)) as (scripted, completer):
        with pytest.raises(CompletionFailed) as caught:
            await completer.complete(question())
    assert type(caught.value) is error
    assert len(scripted.requests) == calls


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"<html>", b"{}", b'{"choices": [{"message": {"content": ""}}]}',
        b'{"choices": [{"message": {"content": " ", "reasoning_content": "I think that"}}]}',
        b'data: {"error": {"message": "overloaded"}}\n\ndata: [DONE]\n\n', b"x" * (4 * 1024 * 1024 + 1),
    ],
    ids=range(7),
)  # fmt: skip
async def test_an_answer_that_is_not_a_completion_is_a_failure(answer):
    async def script(exchange):
        await exchange.reply(answer)

    async with asking(script) as (_, completer):
        with pytest.raises(CompletionFailed):
            await completer.complete(question())


async def test_a_model_that_is_too_slow_fails_and_is_hung_up_on():
    async with ScriptedUpstream(Exchange.client_left) as scripted, Upstream(scripted.url) as upstream:
        roles = {"memory_extraction": RoleModel(timeout_s=0.05)}
        completer = UpstreamCompleter(upstream, Credentials(), roles, own=RoleModel(timeout_s=0.06))
        for role, limit in (("memory_extraction", "0.05"), ("other", "0.06")):
            with pytest.raises(CompletionFailed, match=f"no answer within {limit} s"):
                await completer.complete(question(role))
        await scripted.until_closed()


# ---------------------------------------------------------------- options
# ---------------------------------------------------------------- pauses
def busy(status: int, **headers: str) -> Any:
    async def script(exchange: Exchange) -> None:
        given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        await exchange.reply(b"{}", status, given)

    return script


@pytest.mark.parametrize("status", [429, 503])
async def test_an_endpoint_that_wants_to_be_left_alone_is(status):
    hours = Hours()
    async with asking(busy(status, retry_after="30"), clock=hours) as (scripted, completer):
        with pytest.raises(CompletionFailed) as first:
            await completer.complete(question())
        assert first.value.retry_after_s == 31
        scripted.script = answering(completion("fine"))
        hours.now += 30
        with pytest.raises(CompletionPostponed) as second:
            await completer.complete(question())
        assert second.value.retry_after_s == 1
        assert len(scripted.requests) == 1
        hours.now += 1
        assert await completer.complete(question()) == "fine"
        assert await completer.complete(question()) == "fine"


async def test_a_user_s_429_leaves_alone_what_others_may_use():
    credentials, bob = Credentials(), Scope("t", "bob")
    credentials.remember(ANN, KEY)
    async with asking(busy(429), credentials) as (scripted, completer):
        with pytest.raises(CompletionPostponed) as anns:
            await completer.complete(question())
        assert not anns.value.shared
        scripted.script = answering(completion("fine"))
        with pytest.raises(CompletionPostponed):
            await completer.complete(question())
        assert await completer.complete(question(scope=bob)) == "fine"
        scripted.script = busy(429)
        with pytest.raises(CompletionPostponed) as servers:
            await completer.complete(question(scope=bob))
        assert servers.value.shared
        scripted.requests.pop()
    assert [r.header(b"authorization") for r in scripted.requests] == [b"Bearer ann", None]


async def test_an_upstream_that_is_away_is_asked_less_and_less_and_by_one_call_first():
    hours = Hours()
    async with asking(ok, clock=hours) as (scripted, completer):
        await scripted.__aexit__()
        pauses = []
        for _ in range(3):
            with pytest.raises(CompletionFailed) as away:
                await completer.complete(question())
            assert type(away.value) is CompletionFailed
            pauses.append(away.value.retry_after_s)
            hours.now += away.value.retry_after_s or 0
        assert pauses == [2, 4, 8]
        async with ScriptedUpstream(Exchange.client_left, port=scripted.port) as back:
            ahead = asyncio.create_task(completer.complete(question()))
            await back.until_requests(1)
            with pytest.raises(CompletionPostponed):
                await completer.complete(question())
            ahead.cancel()
            assert len(back.requests) == 1


# ---------------------------------------------------------------- credentials
def test_what_the_upstream_accepted_last_is_what_our_own_calls_carry():
    """Also if there was none: the older one may be of a key that was revoked since."""
    credentials = Credentials()
    credentials.remember(ANN, KEY)
    assert credentials.get(Scope("t", "ann", "project")) == KEY[:2]
    credentials.remember(ANN, [(b"openai-project", b"q"), (b"cookie", b"c")])
    assert credentials.get(ANN) == [(b"openai-project", b"q")]
    credentials.remember(ANN, KEY)
    credentials.forget(ANN)
    assert credentials.get(ANN) == []


async def test_a_redirect_is_followed_to_the_endpoint_s_own_origin_only():
    async def elsewhere(exchange):
        await exchange.reply(b"", 307, [(b"location", f"{other.origin}/v1/chat/completions".encode())])

    async def own(exchange):
        if exchange.request.target == b"/moved":
            await exchange.json(completion("x"))
        else:
            await exchange.reply(b"", 307, [(b"location", b"/moved")])

    credentials = Credentials()
    credentials.remember(ANN, KEY)
    async with ScriptedUpstream(answering(completion("y"))) as other:
        async with asking(own, credentials) as (scripted, completer):
            assert await completer.complete(question()) == "x"
        assert [request.header(b"authorization") for request in scripted.requests] == [b"Bearer ann"] * 2
        async with asking(elsewhere, credentials) as (_, completer):
            with pytest.raises(CompletionFailed, match="upstream_invalid_response"):
                await completer.complete(question())
        assert other.requests == []


# ---------------------------------------------------------------- upstreams that refuse how we ask
Body = dict[str, Any]


def no_system(body: Body) -> str:
    return "System role not supported" if body["messages"][0]["role"] == "system" else ""


def only_streams(body: Body) -> str:
    return "" if body.get("stream") else "This model only support stream mode, please enable it."


def no_format(body: Body) -> str:
    return "Internal server error" if "response_format" in body else ""


def no_limit(body: Body) -> str:
    return "Unsupported parameter: use 'max_completion_tokens'" if "max_tokens" in body else ""


def mute(*rules: Callable[[Body], str]) -> Callable[[Body], str]:
    """Return a rule that refuses as the rules do, and gives no reason."""
    return lambda body: "Bad request" if any(rule(body) for rule in rules) else ""


@pytest.mark.parametrize(
    ("rule", "status", "learnt_after"),
    [
        (no_system, 400, 1),
        (no_limit, 400, 1),
        (no_format, 500, 2),  # the first time it may have been any other fault
        (mute(no_system), 400, 1),
        (mute(only_streams, no_system, no_format), 422, 1),
    ],
)
async def test_the_form_that_an_upstream_takes_is_found_and_used_from_then_on(rule, status, learnt_after):
    refused = 0

    async def script(exchange):
        nonlocal refused
        body = exchange.request.json
        if why := rule(body):
            refused += 1
            await exchange.json({"error": {"message": why}}, status)
        elif body.get("stream"):
            await exchange.stream(*completion_events('{"a"', ": 1}"))
        else:
            await exchange.json(completion('{"a": 1}'))

    async with asking(script) as (scripted, completer):
        for _ in range(learnt_after):
            assert await completer.complete(question(schema=SCHEMA)) == '{"a": 1}'
        learning = refused
        for _ in range(3):
            assert await completer.complete(question(schema=SCHEMA)) == '{"a": 1}'
    assert refused == learning > 0
    sent = scripted.requests[-1].json["messages"]
    assert all(text in str(sent) for text in ("Answer in JSON.", "Hi"))


CALL = {"id": "c", "type": "function", "function": {"name": "facts", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    "message",
    [
        {"content": [{"type": "text", "text": '{"a": 1}'}, {"type": "other"}]},
        {"content": None, "reasoning_content": 'So {this} is it:\n{"a": 1}'},
        {"content": None, "tool_calls": [CALL]},
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_the_answer_is_read_where_the_upstream_puts_it(message, streamed):
    """Some servers stream, or compress, whatever they are asked for."""

    async def script(exchange):
        choice = {"index": 0, "finish_reason": "stop"}
        if not streamed:
            await exchange.json(completion("") | {"choices": [choice | {"message": message}]})
            return
        chunk = completion("") | {"choices": [choice | {"delta": message}]}
        stream = b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"
        await exchange.reply(gzip.compress(stream), headers=[(b"content-encoding", b"gzip")])

    async with asking(script) as (_, completer):
        assert await completer.complete(question()) == '{"a": 1}'


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([], None),
        ([(b"retry-after", b"1.5")], 1.5),
        ([(b"retry-after-ms", b"250"), (b"retry-after", b"1")], 0.25),
        ([(b"retry-after", b"Thu, 28 May 2026 20:26:50 GMT")], 10),
        *(([(b"retry-after", v)], None) for v in (b"", b"soon", b"-3", b"nan", b"1e9", b"\xb2")),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(headers, seconds):
    assert retry_after(headers, now=1_780_000_000.0) == seconds
