"""The servers of a run, our upstream and the proxies in front of it: started, pinned, ended again."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench import machine, tools

CONF = tools.HERE / "conf"
CHAT = b'{"model":"m-1-0","messages":[{"role":"user","content":"Are you there?"}]}'
_PR_SET_PDEATHSIG = 1


class DidNotStart(Exception):
    """A server gave no answer in time; the message ends with its last words."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a server is started; `headers` go with every request to it."""

    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    headers: tuple[str, ...] = ()


@dataclass(slots=True)
class Server:
    """A running server. `pid` None: the upstream itself, asked directly, whose processor time is not ours."""

    name: str
    port: int
    headers: tuple[str, ...] = ()
    started_s: float = 0.0
    idle_mib: float = 0.0
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None

    def pids(self) -> list[int]:
        return machine.family(self.process.pid) if self.process else []

    def stop(self) -> None:
        """End it and its children; returns when they are gone."""
        if self.process is None:
            return
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(6)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # what is left of its own group: see start()
        self.process.wait()


def start(name: str, port: int, plan: Plan, cpus: set[int], log: Path, *, timeout_s: float = 120) -> Server:
    """Return the server once it answers. Raises DidNotStart."""
    began = time.perf_counter()
    with log.open("ab") as output:
        process = subprocess.Popen(
            plan.command,
            env={**os.environ, **plan.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_pinned(cpus),
        )
    server = Server(name, port, plan.headers, process=process, log=log)
    while not _answers(server):
        if process.poll() is not None or time.perf_counter() - began > timeout_s:
            server.stop()
            raise DidNotStart(f"{name} gave no answer:\n{log.read_text(errors='replace')[-1500:]}")
        time.sleep(0.01)
    server.started_s = time.perf_counter() - began
    time.sleep(0.5)
    server.idle_mib = machine.memory_mib(server.pids())
    return server


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


# ------------------------------------------------------------ who
def upstream(port: int) -> Plan:
    return Plan((str(tools.built("upstream")), str(port)))


def memory_proxy(port: int, upstream_port: int, data_dir: Path) -> Plan:
    command = Path(sys.executable).with_name("memory-proxy")
    return Plan(
        (
            *(str(command), "serve", "--port", str(port), "--data-dir", str(data_dir)),
            *("--upstream", f"http://127.0.0.1:{upstream_port}/v1"),
        ),
        {"MEMORY_PROXY__SERVER__SHUTDOWN_SECONDS": "2"},
    )


def nginx(peer: tools.Peer, port: int, upstream_port: int, scratch: Path) -> Plan:
    """nginx as a reverse proxy that streams: what moving the bytes costs at least."""
    text = (CONF / "nginx.conf.in").read_text()
    for key, value in {"DIR": scratch, "UPSTREAM": f"127.0.0.1:{upstream_port}", "PORT": port}.items():
        text = text.replace(f"@{key}@", str(value))
    (scratch / "nginx.conf").write_text(text)
    return Plan((*peer.command, "-p", str(scratch), "-e", "stderr", "-c", str(scratch / "nginx.conf")))


def litellm(peer: tools.Peer, port: int, upstream_port: int, scratch: Path) -> Plan:
    text = (CONF / "litellm.yaml.in").read_text()
    (scratch / "config.yaml").write_text(text.replace("@UPSTREAM@", f"http://127.0.0.1:{upstream_port}/v1"))
    options = ("--host", "127.0.0.1", "--port", str(port), "--num_workers", "1", "--telemetry", "False")
    environment = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # fetch no price list at the start
        "LITELLM_TELEMETRY": "False",
        "LITELLM_MASTER_KEY": "sk-bench",
        "LITELLM_LOG": "ERROR",
        "PYTHONWARNINGS": "ignore",
    }
    return Plan((*peer.command, "--config", str(scratch / "config.yaml"), *options), environment)


def portkey(peer: tools.Peer, port: int, upstream_port: int, scratch: Path) -> Plan:
    headers = (
        "x-portkey-provider: openai",
        f"x-portkey-custom-host: http://127.0.0.1:{upstream_port}/v1",
    )
    return Plan((*peer.command, f"--port={port}", "--headless"), {"NODE_ENV": "production"}, headers)


PLANS: dict[str, Callable[[tools.Peer, int, int, Path], Plan]] = {
    "nginx": nginx,
    "litellm": litellm,
    "portkey": portkey,
}


# ------------------------------------------------------------ how
def _pinned(cpus: set[int]) -> Callable[[], None]:
    """Return what a child does first: bind itself to the processors, and its life to ours."""
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        os.sched_setaffinity(0, cpus)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return prepare


def _answers(server: Server) -> bool:
    head = [
        "POST /v1/chat/completions HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        "Authorization: Bearer sk-bench",
        "Content-Type: application/json",
        "Connection: close",
        f"Content-Length: {len(CHAT)}",
        *server.headers,
    ]
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as s:
            s.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + CHAT)
            return s.recv(100)[9:12] == b"200"
    except OSError:
        return False
