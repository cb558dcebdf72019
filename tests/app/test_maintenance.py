"""What a running process does on its own: its clock, its health, and jobs that wait for a credential."""

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.app.http import vitals
from proxy.app.reloadable import SteadyClock, extracts_without_client
from proxy.config import load
from proxy.domain.core import Level

DAY = 86_400.0


# ---------------------------------------------------------------- the clock
class Machine:
    """A machine whose clock can be set."""

    def __init__(self) -> None:
        self.wall, self.up = 1_000_000.0, 50.0
        self.clock = SteadyClock(lambda: self.wall, lambda: self.up, patience_s=600)

    def after(self, seconds: float, *, jump: float = 0.0) -> float:
        """Let time pass, and its clock jump; return the time of the process."""
        self.up += seconds
        self.wall += seconds + jump
        return self.clock()


@pytest.mark.parametrize("jump", [-DAY, 3_650 * DAY])
def test_a_jump_of_the_clock_is_adopted_only_if_it_lasts(jump):
    machine = Machine()
    assert machine.after(10, jump=jump) == 1_000_010
    assert machine.after(599) == 1_000_609
    assert machine.after(2) == 1_000_611 + jump
    assert machine.after(5) == 1_000_616 + jump


# ---------------------------------------------------------------- health
@pytest.mark.parametrize(
    ("state", "level", "reason"),
    [
        ({}, Level.FULL, ""),
        ({"embedder": None}, Level.LEXICAL, "no_embedding_model"),
        ({"resting": "deadline"}, Level.NONE, "deadline"),
        ({"is_open": False, "trouble": "store_disk_full"}, Level.NONE, "store_unavailable"),
        ({"trouble": "store_corrupt", "is_readable": False}, Level.NONE, "store_corrupt"),
        # A full disk stops commits, and memories are still recalled.
        ({"trouble": "store_disk_full", "resting": "store_unavailable"}, Level.FULL, "store_disk_full"),
    ],
)
def test_health_names_the_cause_of_a_degradation(state, level, reason):
    state = {"embedder": object(), "judge": object(), "resting": None, **state}
    stores = {"is_open": True, "is_readable": True, "trouble": "", "failure": "", **state}
    services: Any = SimpleNamespace(
        settings=load(None, {}, {}),
        stores=SimpleNamespace(**stores),
        fail_open=SimpleNamespace(resting=state["resting"]),
        models=SimpleNamespace(embedder=state["embedder"], judge=state["judge"]),
    )
    found = vitals(services)
    assert (found.level, found.reason) == (level, reason)


# ---------------------------------------------------------------- jobs that wait for a client's key
MODEL = {"llm_endpoint": "http://127.0.0.1:1/v1", "llm_model_name": "m"}


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({}, False),
        ({"upstream": {"api_key": "sk-ours"}}, True),
        ({"upstream": {"api_key": "sk-ours"}, "memory": {"extraction": "off"}}, False),
        ({"memory": {"extraction": "verbatim"}}, True),
        ({"external_models": [{"model_role": "memory_extraction", **MODEL}]}, True),
        ({"external_models": [{"model_role": "memory_summary", **MODEL}]}, False),
    ],
)
def test_the_settings_decide_whether_extraction_needs_the_clients_key(sections, expected):
    assert extracts_without_client(load(None, {}, sections)) is expected
