"""How many requests may come, what those that may not are told, and whose budget it is."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from openai import AsyncOpenAI, RateLimitError

from proxy.domain.errors import Forbidden, StoreUnavailable
from proxy.domain.rates import Rate, Verdict
from proxy.http.asgi import ASGIScope, Receive, Send, send_json
from proxy.http.auth.identity import Caller
from proxy.http.limits import Ledger, Limits
from tests.support.serving import serving

# ---------------------------------------------------------------- the step
ANNA = Caller("t", "anna")


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(tmp_path / "limits")
    yield ledger
    ledger.close()


def limits(ledger: Ledger, clock: Any, *, model: Rate | None = None, memory: Rate | None = None) -> Limits:
    def identify(scope: ASGIScope) -> Caller:
        caller: Caller | Exception = scope["caller"]
        if isinstance(caller, Exception):
            raise caller
        return caller

    return Limits(ledger, model, memory, identify, clock)


async def plain(scope: ASGIScope, receive: Receive, send: Send) -> None:
    await send_json(send, 200, {"ok": True}, scope.get("answer_headers", ()))


async def call(
    app: Any,
    caller: Caller | Exception = ANNA,
    **scope: Any,
) -> tuple[int, dict[str, str], Any]:
    """Send one request; return status, headers and body."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    defaults = {"type": "http", "headers": [], "client": ("192.0.2.1", 5), "caller": caller}
    await app({**defaults, **scope}, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, orjson.loads(sent[1]["body"])


async def test_a_request_too_many_is_refused_in_openais_shape(ledger: Ledger, clock: Clock) -> None:
    app = limits(ledger, clock, model=Rate(per_minute=50, burst=2)).of_model(plain)
    await call(app)
    await call(app)
    status, headers, body = await call(app)
    assert status == 429
    assert body["error"]["code"] == "rate_limit_exceeded"
    assert body["error"]["type"] == "requests"
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert "1.2s" in body["error"]["message"]
    assert headers["retry-after"] == "2"  # whole seconds, rounded up
    assert headers["x-ratelimit-limit-requests"] == "2"
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert headers["x-ratelimit-reset-requests"] == "2.4s"
    clock.now += 1.2
    assert (await call(app))[0] == 200


async def test_an_answer_that_passes_says_what_is_left(ledger: Ledger, clock: Clock) -> None:
    app = limits(ledger, clock, model=Rate(per_minute=60, burst=10)).of_model(plain)
    status, headers, body = await call(app)
    assert (status, body) == (200, {"ok": True})
    assert headers["x-ratelimit-limit-requests"] == "10"
    assert headers["x-ratelimit-remaining-requests"] == "9"
    assert headers["x-ratelimit-reset-requests"] == "1s"
    assert "retry-after" not in headers


async def test_an_upstreams_own_limit_is_passed_on_alone(ledger: Ledger, clock: Clock) -> None:
    app = limits(ledger, clock, model=Rate(60, 10)).of_model(plain)
    theirs = [(b"X-RateLimit-Remaining-Requests", b"4999")]
    _, headers, _ = await call(app, answer_headers=theirs)
    assert headers["X-RateLimit-Remaining-Requests"] == "4999"
    assert "x-ratelimit-limit-requests" not in headers
    assert "x-ratelimit-remaining-requests" not in headers


async def test_a_limit_that_is_off_leaves_the_app_as_it_is(ledger: Ledger, clock: Clock) -> None:
    off = limits(ledger, clock, memory=Rate(60, 1))
    assert off.of_model(plain) is plain
    assert Limits(None, None, None, lambda scope: Caller("t"), clock).of_memory(plain) is plain


async def test_all_routes_to_the_model_share_a_budget_and_the_memory_api_has_its_own(
    ledger: Ledger, clock: Clock
) -> None:
    both = limits(ledger, clock, model=Rate(60, 1), memory=Rate(60, 1))
    chat, responses, memory = both.of_model(plain), both.of_model(plain), both.of_memory(plain)
    assert [(await call(app))[0] for app in (chat, responses, memory, memory)] == [200, 429, 200, 429]


KEY = "key:k1"


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (Caller("t", "anna", label=KEY), Caller("t", "anna", label=KEY), True),
        (Caller("t", named="anna", label=KEY), Caller("t", named="ben", label=KEY), True),
        (Caller("t", "anna", label=KEY), Caller("t", "anna", label="key:k2"), False),
        (Caller("t", "anna", label="jwt"), Caller("t", "anna", label="jwt"), True),
        (Caller("t", "anna", label="jwt"), Caller("t", "ben", label="jwt"), False),
        (Caller("t", "anna", label="jwt"), Caller("u", "anna", label="jwt"), False),
        (Caller("t", named="anna"), Caller("t", named="anna"), True),
        (Caller("t", named="anna"), Caller("t", named="ben"), False),
        (Caller("a", "b-c"), Caller("a-b", "c"), False),
        (Caller("t"), Caller("t"), True),  # by the peer's address
        (Caller("t"), Caller("t", named="anna"), False),
        (Forbidden("no"), Caller("t"), True),
    ],
)
async def test_a_budget_belongs_to_the_key_else_the_user_else_the_address(
    ledger: Ledger, clock: Clock, first: Caller, second: Caller, shared: bool
) -> None:
    app = limits(ledger, clock, model=Rate(60, 1)).of_model(plain)
    assert (await call(app, first))[0] == 200
    assert (await call(app, second))[0] == (429 if shared else 200)


async def test_addresses_have_a_budget_each_and_a_socket_without_one_too(
    ledger: Ledger, clock: Clock
) -> None:
    app = limits(ledger, clock, model=Rate(60, 1)).of_model(plain)
    peers = [("192.0.2.1", 1), ("192.0.2.1", 2), ("192.0.2.2", 1), None, None]
    answers = [(await call(app, Caller("t"), client=peer))[0] for peer in peers]
    assert answers == [200, 429, 200, 200, 429]


# ---------------------------------------------------------------- over all replicas
class Shared:
    """What replicas share, as far as it can be reached."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Rate]] = []
        self.error: Exception | None = None

    async def ask(self, subject: str, rate: Rate) -> Verdict:
        self.asked.append((subject, rate))
        if self.error is not None:
            raise self.error
        return Verdict(passes=False, remaining=0, reset_s=9.0, retry_after_s=4.0)


def fleet(ledger: Ledger, clock: Clock, shared: Shared) -> Any:
    def identify(scope: ASGIScope) -> Caller:
        return ANNA

    return Limits(ledger, Rate(60, 1), None, identify, clock, shared).of_model(plain)


async def test_a_fleet_has_one_budget(ledger: Ledger, clock: Clock) -> None:
    shared = Shared()
    status, headers, _ = await call(fleet(ledger, clock, shared))
    assert (status, headers["retry-after"]) == (429, "4")
    assert shared.asked == [("model\0user\0t\0anna", Rate(60, 1))]


async def test_a_machine_counts_for_itself_while_the_fleet_cannot(ledger: Ledger, clock: Clock) -> None:
    shared = Shared()
    shared.error = StoreUnavailable("down")
    app = fleet(ledger, clock, shared)
    assert [(await call(app))[0] for _ in range(2)] == [200, 429]
    shared.error = None
    assert (await call(app))[1]["retry-after"] == "4"


async def test_the_openai_sdk_waits_as_long_as_it_is_told(ledger: Ledger, clock: Clock) -> None:
    asked = list[float]()
    answer = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
    }  # fmt: skip

    async def model(scope: ASGIScope, receive: Receive, send: Send) -> None:
        await send_json(send, 200, answer)

    def identify(scope: ASGIScope) -> Caller:
        asked.append(time.monotonic())
        if len(asked) == 4:  # until then no time goes by: a busy machine may take more than there is
            clock.now += 1
        return Caller("t", "anna")

    limited = Limits(ledger, Rate(per_minute=75, burst=1), None, identify, clock).of_model(model)
    async with serving(limited) as origin:
        patient = AsyncOpenAI(base_url=f"{origin}/v1", api_key="k", max_retries=1)
        question = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        await patient.chat.completions.create(**question)
        with pytest.raises(RateLimitError) as refused:
            await patient.with_options(max_retries=0).chat.completions.create(**question)
        assert refused.value.code == "rate_limit_exceeded"
        assert refused.value.response.headers["retry-after"] == "1"
        await patient.chat.completions.create(**question)
        _, _, refused_at, passed_at = asked
        assert passed_at - refused_at > 0.7  # of its own accord it would have come back after 0.5 s
        await patient.close()
