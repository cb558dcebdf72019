"""Metrics of several processes that share a directory."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from proxy import observe

_COUNTS = """
import json
import os
import re
from proxy.observe import Metrics
metrics = Metrics()
metrics.requests.labels("chat", "2xx").inc()
metrics.jobs.labels("queued").set(7)
metrics.degraded.set(0)
print(metrics.render().decode())
"""


def counted(env: dict[str, str]) -> str:
    return subprocess.run(
        [sys.executable, "-c", _COUNTS], env=env, check=True, capture_output=True, text=True, timeout=60
    ).stdout


def test_processes_that_share_a_directory_count_together(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.delenv(observe.SHARED, raising=False)
    alone = counted(dict(os.environ))
    assert 'memory_proxy_requests_total{route="chat",status="2xx"} 1.0' in alone
    monkeypatch.setenv(observe.SHARED, "")  # restored afterwards
    observe.share_metrics(tmp_path / "metrics")
    first, second = counted(dict(os.environ)), counted(dict(os.environ))
    assert 'memory_proxy_requests_total{route="chat",status="2xx"} 1.0' in first
    assert 'memory_proxy_requests_total{route="chat",status="2xx"} 2.0' in second
    assert 'memory_proxy_jobs{state="queued"} 7.0' in second


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    file = Path(__file__).parent.parent / "config/grafana-dashboard.json"
    dashboard = json.loads(file.read_text("utf-8"))
    expressions = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    shown = {re.sub(r"_(bucket|total)$", "", name) for name in re.findall(r"memory_proxy_\w+", expressions)}
    assert shown == {metric.name for metric in observe.Metrics().registry.collect()}


def test_a_log_that_cannot_be_written_costs_a_line_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def flush(self) -> None:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sys, "stderr", Full())
    observe._Stderr().write("a line")
    observe._Stderr().flush()
