"""What is shipped next to the code: alerts, reasons in the documentation, its test suite."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
import yaml
from prometheus_client.parser import text_string_to_metric_families

from proxy.app import http as wiring
from proxy.domain.core import Level, Reason
from proxy.domain.errors import StoreUnavailable
from proxy.storage.sql.sessions import SqlSessions
from tests.e2e.conftest import house, models_dir
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


async def test_each_alert_asks_for_what_a_proxy_in_trouble_exposes(house, monkeypatch):
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


ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| `(\w+)` \| (.+) \|$", re.MULTILINE)


def table_of(heading: str) -> list[tuple[str, str]]:
    """Return the rows of the first table below a heading of docs/memory.md."""
    _, _, section = (ROOT / "docs/memory.md").read_text("utf-8").partition(f"\n## {heading}\n")
    return ROW.findall(section.partition("\n|---|---|\n")[2].partition("\n\n")[0])


def test_the_documentation_lists_each_reason_with_its_meaning_and_each_level():
    assert table_of("What X-Memory-Reason says") == [(one.value, one.meaning) for one in Reason]
    assert [word for word, _ in table_of("What X-Memory-Level says")] == [level.value for level in Level]


def test_each_reason_is_used_and_fits_into_a_header():
    sources = [p.read_text("utf-8") for p in (ROOT / "proxy").rglob("*.py")]
    said = set(re.findall(r"\bReason\.([A-Z_]+)", "\n".join(sources)))
    assert said == set(Reason.__members__)
    assert all(re.fullmatch("[a-z_]+", one.value) for one in Reason)


DOCS = Path(__file__).parent.parent / "docs" / "testing.md"
_FILE = re.compile(r"```python\n(# (\S+\.py)\n.*?)```", re.DOTALL)


def test_the_suite_in_the_docs_passes(tmp_path):
    for text, name in _FILE.findall(DOCS.read_text("utf-8")):
        (tmp_path / name).write_text(text)
    assert len(list(tmp_path.iterdir())) == 3
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("MEMORY_PROXY", "PYTEST"))
    }
    clean["PATH"] = f"{Path(sys.executable).parent}:{clean['PATH']}"
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path)]
    ran = subprocess.run(
        command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout
    assert "4 passed" in ran.stdout
