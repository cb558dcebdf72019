"""What the router does for all that lies behind it."""

import httpx2
import pytest

from proxy.edge.intercept import Intercept
from proxy.edge.memory_api.app import MemoryApi
from tests.e2e.conftest import House, Houses


@pytest.mark.parametrize(
    ("broken", "step", "method", "path"),
    [
        (MemoryApi, "_answer", "GET", "/memory?user_id=anna"),
        (Intercept, "_understand", "POST", "/chat/completions"),
    ],
)
async def test_what_nobody_foresaw_is_an_error_in_openai_s_shape(
    house: Houses, monkeypatch: pytest.MonkeyPatch, broken: type, step: str, method: str, path: str
) -> None:
    async def fails(*_: object) -> None:
        raise KeyError("Anna's diary")

    monkeypatch.setattr(broken, step, fails)
    async with house() as h, httpx2.AsyncClient(timeout=30) as http:
        answer = await http.request(method, f"{h.base_url}{path}", json={} if method == "POST" else None)
        assert answer.status_code == 500
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("server_error", "internal_error")
        assert "diary" not in answer.text
        assert _counted(h) == 1.0


def _counted(h: House) -> float:
    registry = h.app.routes.metrics.registry
    return sum(
        sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "memory_proxy_requests_total" and sample.labels["status"] == "5xx"
    )
