"""What the soak runs against: the scripted model, a Redis if asked for, and the real `memory-proxy serve`."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench import servers

_START_S = 10.0


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs."""

    proxy: servers.Server
    redis_pid: int | None
    log: Path


@contextmanager
def stage(backend: str, directory: Path, environment: dict[str, str]) -> Iterator[Stage]:
    """Run model and proxy, and a Redis of their own, while the block runs."""
    cpus = os.sched_getaffinity(0)
    with ExitStack() as stack:
        redis_pid = None
        if backend == "redis":
            redis_pid, url = stack.enter_context(_redis(directory / "redis"))
            environment = environment | {
                "MEMORY_PROXY__STORAGE__BACKEND": "redis",
                "MEMORY_PROXY__REDIS__URL": url,
            }
        port, model_port, log = servers.free_port(), servers.free_port(), directory / "proxy.log"
        model = servers.start("model", model_port, _model(model_port), cpus, directory / "model.log")
        stack.callback(model.stop)
        plan = servers.memory_proxy(port, model_port, directory / "data")
        plan = replace(plan, environment=plan.environment | environment)
        proxy = servers.start("memory-proxy", port, plan, cpus, log)
        stack.callback(proxy.stop)
        yield Stage(proxy, redis_pid, log)


def _model(port: int) -> servers.Plan:
    """The demo's model: it extracts by rules what it was told, and answers from what it is given."""
    options = ("--factory", "--port", str(port), "--log-level", "warning", "--no-access-log")
    return servers.Plan((sys.executable, "-m", "uvicorn", "proxy.demo.model:scripted_model", *options))


@contextmanager
def _redis(directory: Path) -> Iterator[tuple[int, str]]:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise servers.DidNotStart("no Redis here: scripts/redis installs one")
    directory.mkdir()
    port = servers.free_port()
    options = ("--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", "")
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    process = subprocess.Popen((program, *options, *durable), stdout=subprocess.DEVNULL)
    try:
        _until_listening(port)
        yield process.pid, f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


def _until_listening(port: int) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise servers.DidNotStart("Redis gave no answer") from error
            time.sleep(0.02)
