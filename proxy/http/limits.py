"""Rate limiting: how many requests a key or user may make, over all processes of the machine or all
replicas. The algorithm is in proxy.domain.rates.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from proxy.domain.errors import ClientError, RateLimited, StoreError
from proxy.domain.ports import Clock, RateLimits
from proxy.domain.rates import Rate as Rate
from proxy.domain.rates import Verdict, judge
from proxy.http.auth.caller import Caller
from proxy.http.ledger import Ledger
from proxy.http.reply import ASGIScope, Header, Receive, Send, send_error

App = Callable[[ASGIScope, Receive, Send], Awaitable[None]]


# ---------------------------------------------------------------- who counts
@dataclass(frozen=True, slots=True)
class OfMachine:
    """Limits over the processes that share a ledger."""

    ledger: Ledger
    clock: Clock

    async def ask(self, subject: str, rate: Rate) -> Verdict:
        """As the port says. Never raises."""
        now = self.clock()
        return self.ledger.exchange(subject, lambda empty_at: judge(rate, now, empty_at))


@dataclass(frozen=True, slots=True)
class OfFleet:
    """Limits over all replicas, and over this machine alone while what the replicas share is out of reach: a
    subject then has a budget on each machine, and no request is refused for our fault."""

    shared: RateLimits
    alone: RateLimits

    async def ask(self, subject: str, rate: Rate) -> Verdict:
        """As the port says. Never raises."""
        try:
            return await self.shared.ask(subject, rate)
        except StoreError:
            return await self.alone.ask(subject, rate)


# ---------------------------------------------------------------- the ASGI step
@dataclass(frozen=True, slots=True)
class Limited:
    """An app behind a limit. It stands behind the entrance: `identify` reads who was admitted."""

    app: App
    rate: Rate
    name: str  # apps of the same name share one budget
    limits: RateLimits
    identify: Callable[[ASGIScope], Caller]

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        subject = f"{self.name}\0{_subject(scope, self.identify)}"
        verdict = await self.limits.ask(subject, self.rate)
        told = _headers(self.rate, verdict)
        if verdict.passes:
            await self.app(scope, receive, _telling(send, told))
        else:
            error = _refusal(self.rate, verdict)
            retry = (b"retry-after", b"%d" % math.ceil(error.retry_after_s))
            await send_error(send, error, [retry, *told])


class Limits:
    """Puts apps behind the limits that are on; an app without one stays as it is."""

    def __init__(
        self,
        ledger: Ledger | None,
        model: Rate | None,
        memory: Rate | None,
        identify: Callable[[ASGIScope], Caller],
        clock: Clock,
        fleet: RateLimits | None = None,
    ) -> None:
        """`fleet`: what replicas on several machines share; None: the ledger's machine is all there is."""
        self._model, self._memory, self._identify = model, memory, identify
        self._limits: RateLimits | None = None
        if ledger is not None:
            alone = OfMachine(ledger, clock)
            self._limits = alone if fleet is None else OfFleet(fleet, alone)

    def of_model(self, app: App) -> App:
        """Limit a route to the model; all of them share a subject's budget."""
        return self._limited(app, self._model, "model")

    def of_memory(self, app: App) -> App:
        """Limit the memory API."""
        return self._limited(app, self._memory, "memory")

    def _limited(self, app: App, rate: Rate | None, name: str) -> App:
        if rate is None or self._limits is None:
            return app
        return Limited(app, rate, name, self._limits, self._identify)


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
