"""Rate limits: how many requests may come, of one key or user, over all processes of the machine.

The generic cell rate algorithm (ITU-T I.371), which needs one time for each subject: when the subject would
be back at nothing if it made no further request. Each request moves that time on by `interval_s`; a request
that would move it further than a burst ahead of now is refused, and moves nothing.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from proxy.edge.identity.caller import Caller
from proxy.edge.ledger import Ledger
from proxy.edge.reply import ASGIScope, Header, Receive, Send, send_error
from proxy.errors import ClientError, RateLimited
from proxy.ports import Clock

App = Callable[[ASGIScope, Receive, Send], Awaitable[None]]


# ---------------------------------------------------------------- the rule, without I/O
@dataclass(frozen=True, slots=True)
class Rate:
    """`per_minute` requests over time, `burst` at once."""

    per_minute: int
    burst: int

    @classmethod
    def of(cls, per_minute: int, burst: int) -> "Rate | None":
        """Return the rate as configured: no limit for 0, and a burst of a minute's worth for burst 0."""
        return cls(per_minute, burst or per_minute) if per_minute else None

    @property
    def interval_s(self) -> float:
        return 60 / self.per_minute


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the request may pass, how many more could follow at once, when all could again, and, of one
    refused, when it may come again."""

    passes: bool
    remaining: int
    reset_s: float
    retry_after_s: float = 0.0


def judge(rate: Rate, now: float, empty_at: float) -> tuple[float, Verdict]:
    """Return when the subject will be back at nothing, and the verdict on a request made now.

    `empty_at` is what the last call returned, 0.0 at first. One further ahead than a burst was computed
    under another rate, or before the clock was set back: it counts as a full burst.
    """
    interval, most = rate.interval_s, rate.interval_s * rate.burst
    ahead = min(max(empty_at - now, 0.0), most)
    # A hair of tolerance: the sum of n intervals is not exactly n times one.
    if ahead + interval > most * (1 + 1e-9):
        return now + ahead, Verdict(False, 0, ahead, ahead + interval - most)
    ahead += interval
    return now + ahead, Verdict(True, int((most - ahead) / interval + 1e-6), ahead)


# ---------------------------------------------------------------- the ASGI step
@dataclass(frozen=True, slots=True)
class Limited:
    """An app behind a limit. It stands behind the entrance: `identify` reads who was admitted."""

    app: App
    rate: Rate
    name: str  # apps of the same name share one budget
    ledger: Ledger
    identify: Callable[[ASGIScope], Caller]
    clock: Clock

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        key = f"{self.name}\0{_subject(scope, self.identify)}"
        now = self.clock()
        verdict = self.ledger.exchange(key, lambda empty_at: judge(self.rate, now, empty_at))
        told = _headers(self.rate, verdict)
        if verdict.passes:
            await self.app(scope, receive, _telling(send, told))
        else:
            error = _refusal(self.rate, verdict)
            retry = (b"retry-after", b"%d" % math.ceil(error.retry_after_s))
            await send_error(send, error, [retry, *told])


@dataclass(frozen=True, slots=True)
class Limits:
    """Puts apps behind the limits that are on; an app without one stays as it is."""

    ledger: Ledger | None
    model: Rate | None
    memory: Rate | None
    identify: Callable[[ASGIScope], Caller]
    clock: Clock

    def of_model(self, app: App) -> App:
        """Limit a route to the model; all of them share a subject's budget."""
        return self._limited(app, self.model, "model")

    def of_memory(self, app: App) -> App:
        """Limit the memory API."""
        return self._limited(app, self.memory, "memory")

    def _limited(self, app: App, rate: Rate | None, name: str) -> App:
        if rate is None or self.ledger is None:
            return app
        return Limited(app, rate, name, self.ledger, self.identify, self.clock)


def _subject(scope: ASGIScope, identify: Callable[[ASGIScope], Caller]) -> str:
    """Return whose budget the request is on: the key's, else the user's, else the peer address's.

    In mode open a caller may name any user, and so choose whose budget: there the limit is a courtesy
    among the users of an application that is trusted anyway.
    """
    try:
        caller = identify(scope)
    except ClientError:
        return _peer(scope)  # malformed: whoever serves it will say so, but not for free
    if caller.label.startswith("key:"):
        return caller.label
    user = caller.user or caller.named
    return f"user\0{caller.tenant}\0{user}" if user else _peer(scope)


def _peer(scope: ASGIScope) -> str:
    client = scope.get("client")
    return f"peer\0{client[0] if client else ''}"


def _refusal(rate: Rate, verdict: Verdict) -> RateLimited:
    wait = verdict.retry_after_s
    return RateLimited(
        f"Rate limit reached: {rate.per_minute} requests per minute, {rate.burst} at once. "
        f"Please try again in {_seconds(wait)}.",
        retry_after_s=wait,
    )


def _headers(rate: Rate, verdict: Verdict) -> list[Header]:
    return [
        (b"x-ratelimit-limit-requests", b"%d" % rate.burst),
        (b"x-ratelimit-remaining-requests", b"%d" % verdict.remaining),
        (b"x-ratelimit-reset-requests", _seconds(verdict.reset_s).encode()),
    ]


def _seconds(value: float) -> str:
    """Return "1.2s", rounded up: who waits so long has waited enough."""
    return f"{math.ceil(value * 10 - 1e-6) / 10:g}s"


def _telling(send: Send, told: list[Header]) -> Send:
    """Return a `send` that adds our headers to an answer that has none of the kind: an upstream's own limit
    is what its client should mind."""
    names = {name for name, _ in told}

    async def tell(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            if not any(name.lower() in names for name, _ in headers):
                message = {**message, "headers": [*headers, *told]}
        await send(message)

    return tell
