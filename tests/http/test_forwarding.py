"""Which session a request belongs to that continues a response."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from proxy.domain.core import MemoryOptions, Message, Scope, Turn
from proxy.http.exchange import RecentChains
from proxy.http.failopen import FailOpen
from proxy.http.forwarding import Progress, Relayed
from proxy.telemetry import Metrics
from proxy.wire.dialect import RESPONSES

TURN = Turn(
    request_id="r", scope=Scope("t", "anna"), session_id="by its beginning", model="m", at=0.0,
    messages=(Message("user", "hi"),), options=MemoryOptions(True, True, None, 5, None),
)  # fmt: skip


class Sessions:
    """A store to which another replica writes the response's session after some looks."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    async def session_of(self, scope: Scope, response_id: str) -> str | None:
        assert (scope, response_id) == (TURN.scope, "resp_1")
        self.left -= 1
        return "s1" if self.left < 0 else None


async def session(sessions: Sessions, *, patience_s: float = 0.0, named: bool = False) -> str:
    """Return the session of a request that continues resp_1."""
    unused: Any = None
    fail_open = FailOpen(lambda: 0.0, Metrics())
    relayed = Relayed(unused, RESPONSES, sessions, RecentChains(), fail_open, patience_s)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as tasks:
        progress = Progress(
            scope={"headers": []}, send=unused, downstream=unused, tasks=tasks, deadline_s=5.0,
            turn=replace(TURN, named=named), body={"previous_response_id": "resp_1"},
        )  # fmt: skip
        await relayed.adopt(progress)
    assert progress.turn is not None
    return progress.turn.session_id


async def test_a_request_belongs_to_the_session_of_what_it_continues() -> None:
    assert await session(Sessions(looks=0)) == "s1"
    assert await session(Sessions(looks=0), named=True) == TURN.session_id


@pytest.mark.parametrize(("patience_s", "expected"), [(0.01, "s1"), (0.0, TURN.session_id)])
async def test_what_another_replica_is_just_writing_down_is_waited_for_once(
    patience_s: float, expected: str
) -> None:
    assert await session(Sessions(looks=1), patience_s=patience_s) == expected
    assert await session(Sessions(looks=2), patience_s=patience_s) == TURN.session_id
