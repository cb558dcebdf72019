"""What the soak runs against: the scripted model, and the real `memory-proxy serve`."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench import servers


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs."""

    proxy: servers.Server
    log: Path


@contextmanager
def stage(directory: Path, environment: dict[str, str]) -> Iterator[Stage]:
    """Run model and proxy while the block runs."""
    cpus = os.sched_getaffinity(0)
    with ExitStack() as stack:
        port, model_port, log = servers.free_port(), servers.free_port(), directory / "proxy.log"
        model = servers.start("model", model_port, _model(model_port), cpus, directory / "model.log")
        stack.callback(model.stop)
        plan = servers.memory_proxy(port, model_port, directory / "data")
        plan = replace(plan, environment=plan.environment | environment)
        proxy = servers.start("memory-proxy", port, plan, cpus, log)
        stack.callback(proxy.stop)
        yield Stage(proxy, log)


def _model(port: int) -> servers.Plan:
    """The demo's model: it extracts by rules and answers from the memory block."""
    options = ("--factory", "--port", str(port), "--log-level", "warning", "--no-access-log")
    return servers.Plan((sys.executable, "-m", "uvicorn", "proxy.demo.model:scripted_model", *options))
