"""How a process says that it is well."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.app.maintenance import Care, needs_no_client, vitals
from proxy.config import load
from proxy.domain.core import Level
from proxy.domain.errors import StoreUnavailable

WELL: dict[str, Any] = {"is_open": True, "is_readable": True, "trouble": "", "failure": ""}


def told(
    *, resting: str | None = None, embedder: object = object(), judge: object = object(), **stores: Any
) -> tuple[Level, str]:
    parts: Any = SimpleNamespace(
        settings=load(None, {}, {}),
        stores=SimpleNamespace(**WELL | stores),
        fail_open=SimpleNamespace(resting=resting),
        embedder=embedder,
        judge=judge,
    )
    found = vitals(parts)
    return found.level, found.reason


@pytest.mark.parametrize(
    ("how", "level", "reason"),
    [
        ({}, Level.FULL, ""),
        ({"judge": None}, Level.UNJUDGED, "no_judge"),
        ({"embedder": None}, Level.LEXICAL, "no_embedding_model"),
        ({"resting": "deadline"}, Level.NONE, "deadline"),
        ({"is_open": False, "trouble": "store_disk_full"}, Level.NONE, "store_unavailable"),
        ({"trouble": "store_corrupt", "is_readable": False}, Level.NONE, "store_corrupt"),
        # Commits rest on a full disk; what is remembered is recalled.
        ({"trouble": "store_disk_full", "resting": "store_unavailable"}, Level.FULL, "store_disk_full"),
    ],
)
def test_what_is_wrong_is_said_by_its_cause(how: dict[str, Any], level: Level, reason: str) -> None:
    assert told(**how) == (level, reason)


# ---------------------------------------------------------------- what waits for a client's key
MODEL = {"llm_endpoint": "http://127.0.0.1:1/v1", "llm_model_name": "m"}


@pytest.mark.parametrize(
    ("sections", "is_so"),
    [
        ({}, False),
        ({"upstream": {"api_key": ""}}, False),
        ({"upstream": {"api_key": "sk-ours"}}, True),
        ({"upstream": {"api_key": "sk-ours"}, "memory": {"extraction": "off"}}, False),
        ({"memory": {"extraction": "verbatim"}}, True),
        ({"external_models": [{"model_role": "memory_extraction", **MODEL}]}, True),
        ({"external_models": [{"model_role": "memory_summary", **MODEL}]}, False),
    ],
)
def test_whose_key_extraction_needs_follows_from_the_settings(sections: dict[str, Any], is_so: bool) -> None:
    assert needs_no_client(load(None, {}, sections)) is is_so


class Waiting:
    """A queue of jobs that wait, in a store that is away at first."""

    def __init__(self, away: int) -> None:
        self.away, self.woken = away, 0

    async def wake(self, scope: None) -> bool:
        if self.away:
            self.away -= 1
            raise StoreUnavailable("gone")
        self.woken += 1
        return True


async def nothing(*_: object) -> int:
    return 0


@pytest.mark.parametrize(("key", "times"), [("sk-ours", 1), ("", 0)])
async def test_what_waits_is_woken_once_a_start_and_after_what_it_took_over(key: str, times: int) -> None:
    jobs, worker = Waiting(away=2), SimpleNamespace(wake=asyncio.Event())
    parts: Any = SimpleNamespace(
        settings=load(None, {}, {"upstream": {"api_key": key}}),
        stores=SimpleNamespace(is_open=True, upkeep=nothing, jobs=jobs, forms=None),
        learning=SimpleNamespace(forms=SimpleNamespace(sync=nothing)),
        clock=lambda: 0.0,
        written=SimpleNamespace(
            recorder=SimpleNamespace(catch_up=nothing),
            touches=SimpleNamespace(write=nothing),
            keeper=SimpleNamespace(close=nothing),
            library=SimpleNamespace(catch_up=nothing),
            worker=worker,
        ),
    )
    care = Care(parts)
    for _ in range(5):
        await care._catch_up()
    assert (jobs.woken, worker.wake.is_set()) == (times, bool(times))
    care.take_over()
    for _ in range(3):
        await care._catch_up()
    assert jobs.woken == 2 * times
