"""config/prometheus-alerts.yml, against what /metrics of a proxy in trouble exposes."""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from proxy.app import http as wiring
from proxy.domain.errors import StoreUnavailable
from proxy.storage.sql.sessions import SqlSessions
from tests.e2e.conftest import Houses, house, models_dir
from tests.support.model import ScriptedModel
from tests.support.upstream import Exchange

__all__ = ["house", "models_dir"]

FILE = Path(__file__).parent.parent / "config" / "prometheus-alerts.yml"
_SELECTOR = re.compile(r"(memory_proxy_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)=~?"([^"]*)"')


def series() -> Iterator[tuple[str, dict[str, str]]]:
    """Every series that an alert asks for; one of several alternatives is several."""
    for rule in yaml.safe_load(FILE.read_text("utf-8"))["groups"][0]["rules"]:
        for name, matchers in _SELECTOR.findall(rule["expr"]):
            labels = [
                [(label, one) for one in values.split("|")] for label, values in _MATCHER.findall(matchers)
            ]
            yield from ((name, dict(chosen)) for chosen in product(*labels))


class _Failing(ScriptedModel):
    async def __call__(self, exchange: Exchange) -> None:
        await exchange.json({"error": {"message": "out of order"}}, 500)


async def _away(*_: Any) -> None:
    raise StoreUnavailable("no disk")


async def test_each_alert_asks_for_what_a_proxy_in_trouble_exposes(
    house: Houses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqlSessions, "begin", _away)
    monkeypatch.setattr(wiring, "prepare", _away)
    body = {"model": "m", "messages": [{"role": "user", "content": "Where do I live?"}], "input": "Hi"}
    async with house(_Failing()) as h, httpx2.AsyncClient(timeout=30) as http:
        for path in ("chat/completions", "responses", "conversations", "embeddings"):
            await http.post(f"{h.base_url}/{path}", json=body, headers={"X-Memory-User-Id": "anna"})
        output = (await http.get(f"{h.origin}/metrics")).text
    exposed = [s for family in text_string_to_metric_families(output) for s in family.samples]
    wanted = list(series())
    assert len(wanted) > 10
    for name, labels in wanted:
        assert any(s.name == name and labels.items() <= s.labels.items() for s in exposed), (name, labels)
