"""Metrics of several processes that share a directory."""

import ast
import errno
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

from proxy import telemetry
from proxy.telemetry import REMIND_S, ThrottledLog
from tests.storage.recording import recorded

_COUNTS = """
from proxy.telemetry import Metrics
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
    monkeypatch.delenv(telemetry.SHARED, raising=False)
    alone = counted(dict(os.environ))
    assert 'memory_proxy_requests_total{route="chat",status="2xx"} 1.0' in alone
    monkeypatch.setenv(telemetry.SHARED, "")  # restored afterwards
    telemetry.share_metrics(tmp_path / "metrics")
    first, second = counted(dict(os.environ)), counted(dict(os.environ))
    assert 'memory_proxy_requests_total{route="chat",status="2xx"} 1.0' in first
    assert 'memory_proxy_requests_total{route="chat",status="2xx"} 2.0' in second
    assert 'memory_proxy_jobs{state="queued"} 7.0' in second


def test_the_dashboard_shows_every_metric_and_no_other():
    file = Path(__file__).parent.parent / "config/grafana-dashboard.json"
    dashboard = json.loads(file.read_text("utf-8"))
    expressions = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    shown = {re.sub(r"_(bucket|total)$", "", name) for name in re.findall(r"memory_proxy_\w+", expressions)}
    assert shown == {metric.name for metric in telemetry.Metrics().registry.collect()}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_that_repeats_is_said_once_a_minute_with_the_number_left_out(monkeypatch):
    lines = recorded(monkeypatch, lambda facts: facts)
    clock = Clock()
    seldom = ThrottledLog(clock)
    for clock.now in range(0, round(2 * REMIND_S) + 1, 10):
        seldom.warning("store.away", error="Gone")
    logged = ("store.away", {"error": "Gone", "left_out": 5})
    assert lines == [("store.away", {"error": "Gone"}), logged, logged]
    clock.now = -86_400.0  # set back: nothing is held back for a day
    seldom.warning("store.away")
    assert len(lines) == 4


def test_a_log_that_cannot_be_written_costs_a_line_and_nothing_else(monkeypatch):
    class Full:
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

        def flush(self):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sys, "stderr", Full())
    telemetry._Stderr().write("a line")
    telemetry._Stderr().flush()


def test_what_a_library_logs_is_a_line_of_ours(monkeypatch):
    lines = recorded(monkeypatch, lambda facts: facts)
    library = logging.Logger("some.library")
    library.addHandler(telemetry._LibraryHandler())
    library.warning("%s is low\n", "water")
    try:
        raise ValueError("bad")
    except ValueError:
        library.exception("It broke")
    (_, said), (event, broke) = lines
    assert said == {"logger": "some.library", "message": "water is low"}
    assert (event, broke["message"]) == ("library.logged", "It broke")
    assert broke["exception"].startswith("Traceback")
    assert "ValueError: bad" in broke["exception"]


def test_lines_are_in_the_format_that_is_set_each_in_one_piece_so_that_no_other_process_writes_into_it():
    said = """
import logging, sys
from proxy import telemetry
class Noted:
    def write(self, text): sys.stdout.write(repr(text) + chr(10))
    def flush(self): pass
    def isatty(self): return False
telemetry.configure("info", "json")
sys.stderr = Noted()
telemetry.log.info("some.event")
logging.getLogger("lib").warning("low")
logging.getLogger("uvicorn.error").error("high")
"""
    output = subprocess.check_output([sys.executable, "-c", said], text=True, timeout=60)
    lines = [json.loads(ast.literal_eval(piece)) for piece in output.splitlines()]
    assert [(line["level"], line.get("logger")) for line in lines] == [
        ("info", None), ("warning", "lib"), ("error", "uvicorn.error"),
    ]  # fmt: skip
