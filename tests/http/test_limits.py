"""Rate limits: refusals, budgets, and the times that processes share."""

import fcntl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proxy.domain.errors import Forbidden, StoreUnavailable
from proxy.domain.limits import Rate, RateVerdict
from proxy.http import limits as module
from proxy.http.asgi import ASGIApp, ASGIScope, Receive, Send, send_json
from proxy.http.auth.identity import Caller, admit, admitted
from proxy.http.limits import Ledger, RateLimiter, RateLimitMiddleware
from tests.http.auth.asking import Answer, get, scope_of

ANNA = Caller("t", "anna")


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "limits"


@pytest.fixture
def ledger(path):
    ledger = Ledger(path)
    yield ledger
    ledger.close()


async def plain(scope: ASGIScope, receive: Receive, send: Send) -> None:
    await send_json(send, 200, {"ok": True}, scope.get("answer_headers", ()))


def identify(scope: ASGIScope) -> Caller:
    if isinstance(error := scope.get("error"), Exception):
        raise error
    return admitted(scope)


def limited(limiter: RateLimiter, rate: Rate, name: str = "model") -> ASGIApp:
    return RateLimitMiddleware(plain, rate, name, limiter, identify)


async def call(app: ASGIApp, caller: Caller | Exception = ANNA, **more: Any) -> Answer:
    scope = scope_of(**more)
    if isinstance(caller, Exception):
        scope["error"] = caller
    else:
        admit(scope, caller)
    return await get(app, scope)


# ---------------------------------------------------------------- the limit
async def test_a_request_over_the_limit_is_refused_in_openai_s_shape(ledger, clock):
    app = limited(RateLimiter(ledger, clock), Rate(per_minute=50, burst=2))
    first, _, refused = [await call(app) for _ in range(3)]
    assert (first.status, first.header("x-ratelimit-remaining-requests")) == (200, "1")
    assert first.header("retry-after") is None
    assert (refused.status, refused.code, refused.error["type"]) == (429, "rate_limit_exceeded", "requests")
    assert set(refused.error) == {"message", "type", "param", "code"}
    assert "1.2s" in refused.error["message"]
    assert refused.header("retry-after") == "2"  # whole seconds, rounded up
    assert refused.header("x-ratelimit-limit-requests") == "2"
    assert refused.header("x-ratelimit-remaining-requests") == "0"
    assert refused.header("x-ratelimit-reset-requests") == "2.4s"
    clock.now += 1.2
    assert (await call(app)).status == 200


async def test_the_upstream_s_own_limit_is_passed_on_alone(ledger, clock):
    theirs = [(b"X-RateLimit-Remaining-Requests", b"4999")]
    answer = await call(limited(RateLimiter(ledger, clock), Rate(60, 10)), answer_headers=theirs)
    assert [h for h in answer.headers if b"ratelimit" in h[0].lower()] == theirs


async def test_routes_of_one_name_share_a_budget(ledger, clock):
    limiter, rate = RateLimiter(ledger, clock), Rate(60, 1)
    chat, responses = limited(limiter, rate), limited(limiter, rate)
    memory = limited(limiter, rate, "memory")
    assert [(await call(app)).status for app in (chat, responses, memory, memory)] == [200, 429, 200, 429]


KEY = "key:k1"


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (Caller("t", named="anna", label=KEY), Caller("t", named="ben", label=KEY), True),
        (Caller("t", "anna", label=KEY), Caller("t", "anna", label="key:k2"), False),
        (Caller("t", "anna", label="jwt"), Caller("t", "anna", label="jwt"), True),
        (Caller("t", "anna", label="jwt"), Caller("u", "anna", label="jwt"), False),
        (Caller("t", named="anna"), Caller("t", named="ben"), False),
        (Caller("a", "b-c"), Caller("a-b", "c"), False),
        (Caller("t"), Caller("t"), True),  # by the peer's address
        (Caller("t"), Caller("t", named="anna"), False),
        (Forbidden("no"), Caller("t"), True),
    ],
)
async def test_a_budget_belongs_to_the_key_else_the_user_else_the_address(
    ledger, clock, first, second, shared
):
    app = limited(RateLimiter(ledger, clock), Rate(60, 1))
    assert (await call(app, first)).status == 200
    assert (await call(app, second)).status == (429 if shared else 200)


class Fleet:
    """What replicas share, refusing all requests while it is reachable."""

    error: Exception | None = None

    async def ask(self, subject: str, rate: Rate) -> RateVerdict:
        assert (subject, rate) == ("model\0user\0t\0anna", Rate(60, 1))
        if self.error is not None:
            raise self.error
        return RateVerdict(passes=False, remaining=0, reset_s=9.0, retry_after_s=4.0)


async def test_replicas_share_a_budget_and_count_alone_while_they_cannot(ledger, clock):
    fleet = Fleet()
    app = limited(RateLimiter(ledger, clock, fleet), Rate(60, 1))
    assert (await call(app)).header("retry-after") == "4"
    fleet.error = StoreUnavailable("down")
    assert [(await call(app)).status for _ in range(2)] == [200, 429]
    fleet.error = None
    assert (await call(app)).header("retry-after") == "4"


# ---------------------------------------------------------------- times shared by processes
def put(ledger: Ledger, key: str, moment: float) -> float:
    """Set the key's time; return the one before."""
    return ledger.exchange(key, lambda before: (moment, before))


def test_times_are_kept_per_key_shared_and_outlive_the_process(path):
    first, second = Ledger(path), Ledger(path)
    size = path.stat().st_size
    for n in range(3_000):
        assert put(first, f"user {n}", float(n + 1)) == 0.0
    first.close()
    assert all(put(second, f"user {n}", 1.0) == n + 1 for n in range(3_000))
    second.close()
    assert path.stat().st_size == size, "the file does not grow"


def test_the_file_is_private_and_names_no_user(path):
    ledger = Ledger(path)
    put(ledger, "user\0acme\0anna@example.org", 5.0)
    assert b"anna" not in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    ledger.close()


@pytest.mark.parametrize("found", [b"something else", bytes(module._FILE_BYTES)])
def test_a_file_of_another_kind_is_replaced(path, found):
    path.parent.mkdir()
    path.write_bytes(found)
    ledger = Ledger(path)
    assert [put(ledger, "a", 5.0), put(ledger, "a", 5.0)] == [0.0, 5.0]
    assert path.read_bytes().startswith(module._MAGIC)
    ledger.close()


def test_without_a_file_or_locks_requests_are_still_counted(tmp_path, monkeypatch):
    (tmp_path / "run").write_text("a file, not a directory")
    ledger = Ledger(tmp_path / "run" / "limits")
    assert [put(ledger, "a", 5.0), put(ledger, "a", 0.0)] == [0.0, 5.0]
    ledger.close()

    def refuse(*args):
        raise OSError("No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    ledger = Ledger(tmp_path / "limits")
    assert [put(ledger, "a", 5.0), put(ledger, "a", 5.0)] == [0.0, 5.0]
    ledger.close()


COUNT = """
import sys
from pathlib import Path
from proxy.http import limits as module
from proxy.http.limits import Ledger, Rate, check_rate
module.LOCK_WAIT_S = 30.0  # on a busy machine the holder of a lock may have to wait for a processor
ledger = Ledger(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
rate, passed = Rate(60, 1_500), 0
for _ in range(1_000):
    passed += ledger.exchange("anna", lambda at: check_rate(rate, 1_000.0, at)).passes
print(passed)
"""


def test_processes_together_let_exactly_a_burst_through(path):
    counting = [
        subprocess.Popen(
            [sys.executable, "-c", COUNT, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        for _ in range(2)
    ]
    for process in counting:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in counting:  # all at once
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    assert sum(int(process.communicate(timeout=60)[0]) for process in counting) == 1_500
