"""What a process does before it works: install, version, the modules and processors that it uses."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proxy import COMMIT_VARIABLE, __version__, commit_of

_THEN_TELL = """
import sys
from proxy.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print("LOADED", *sys.modules, file=sys.stderr)
"""


def loaded(*argv: str) -> set[str]:
    """Return the modules that a process has which ran the command, as `package` or `proxy.package`."""
    run = subprocess.run(
        [sys.executable, "-c", _THEN_TELL, *argv], capture_output=True, text=True, timeout=90, check=False
    )
    (printed,) = (line for line in run.stderr.splitlines() if line.startswith("LOADED "))
    names = [name.split(".") for name in printed.split()[1:]]
    return {".".join(parts[: 2 if parts[0] == "proxy" else 1]) for parts in names}


def test_a_process_of_the_tests_keeps_what_it_compiled_for_the_next():
    said = subprocess.check_output([sys.executable, "-c", "import sys; print(sys.dont_write_bytecode)"])
    assert said.strip() == b"False"


def test_the_help_loads_nothing_that_it_does_not_show():
    modules = loaded("--help")
    assert {name for name in modules if name.startswith("proxy.")} == {"proxy.cli", "proxy.domain"}
    assert not modules & {"pydantic", "yaml", "rich", "asyncio", "ssl"}


def test_a_client_loads_no_part_of_the_server():
    modules = loaded("memory", "list", "--user", "alice", "--url", "http://127.0.0.1:9")
    assert "proxy.client" in modules
    assert not modules & {"proxy.config", "proxy.storage", "proxy.http", "proxy.telemetry"}
    assert not modules & {"pydantic", "numpy", "starlette", "prometheus_client", "sqlite3"}


def test_the_server_starts_without_the_mcp_library():
    code = "import sys, proxy.app.server; print(*{'mcp', 'mcp_types', 'httpx2'} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []


@pytest.mark.parametrize("argv", [["keys", "list", "--help"], ["migrate", "--help"]], ids=" ".join)
def test_a_command_on_the_stores_loads_no_server(argv):
    modules = loaded(*argv)
    assert "proxy.cli" in modules
    assert not modules & {"proxy.app", "proxy.recall", "proxy.learn"}
    assert not modules & {"numpy", "onnxruntime", "uvicorn", "httpx", "jwt"}


MULTIPLY = """
import proxy
import numpy as np
from pathlib import Path

np.ones((2_000, 400), np.float32) @ np.ones((400, 400), np.float32)
print(len(list(Path("/proc/self/task").iterdir())))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_matrix_products_start_no_busy_waiting_threads():
    environment = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    assert (
        subprocess.check_output([sys.executable, "-c", MULTIPLY], env=environment, text=True).strip() == "1"
    )


HASH = "5edc378aa1b2c3d4e5f60718293a4b5c6d7e8f90"


def repository(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / ".git" / name.replace("__", "/").replace("_", "-")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_commit_of_a_checkout_is_read_without_git_and_that_of_an_image_from_its_variable(tmp_path):
    branch = "ref: refs/heads/main\n"
    packed = f"# pack-refs with: peeled\n{'0' * 40} refs/heads/main2\n{HASH} refs/heads/main\n^{'1' * 40}\n"
    for name, files in {
        "loose": {"HEAD": branch, "refs__heads__main": f"{HASH}\n"},
        "packed": {"HEAD": branch, "packed_refs": packed},
        "detached": {"HEAD": f"{HASH}\n"},
    }.items():
        root = repository(tmp_path / name, **files)
        assert commit_of(root, {COMMIT_VARIABLE: ""}) == "5edc378aa1b2", name  # an ARG without a value
        assert commit_of(root, {COMMIT_VARIABLE: "v0.2-rc1"}) == "v0.2-rc1"
    for n, files in enumerate(
        ({}, {"HEAD": branch}, {"HEAD": "no such\nthing"}, {"HEAD": "é"}, {"config": ""})
    ):
        assert commit_of(repository(tmp_path / f"{n}", **files), {}) is None


def test_the_version_command_prints_the_commit(tmp_path):
    command = [sys.executable, "-c", "from proxy.cli.main import main; main(['--version'])"]
    environ = {**os.environ, COMMIT_VARIABLE: HASH, "PATH": ""}  # and no git
    printed = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["memory-proxy", __version__, "(5edc378aa1b2)"]


ROOT = Path(__file__).parent.parent


def test_each_extra_is_installed_once_and_one_that_does_not_exist_is_refused(tmp_path):
    """In a checkout whose .venv only writes down what it is asked to install."""
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/install", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "scripts" / "fetch-models").touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nif [ "$2" = pip ]; then for last; do :; done; echo "$last" >> asked; fi\n')
    python.chmod(0o755)

    def install(*extras):
        command = [str(tmp_path / "scripts" / "install"), *extras]
        environ = {**os.environ, "PYTHON": sys.executable}
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30, check=False)

    for extras in ((), (), ("otel", "download"), ("otel",), ("dev",), ("download",)):
        assert install(*extras).returncode == 0
    assert (tmp_path / "asked").read_text("utf-8").split() == [".[demo]", ".[otel,download]", ".[dev]"]
    refused = install("otel", "otle")
    assert refused.returncode == 1
    assert refused.stderr == "There is no extra 'otle'. There are: demo, dev, download, otel.\n"


def test_the_pinned_versions_leave_room_for_fastembed():
    """`scripts/install download` fails with 2.x (fastembed 0.9)."""
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text("utf-8"), re.M))
    assert int(pinned["huggingface-hub"].split(".")[0]) < 2


def test_no_text_refers_to_a_package_that_is_not_published():
    """The name `memory-proxy` is not ours on any package index."""
    files = [*(ROOT / "proxy").rglob("*.py"), *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    files += [*(ROOT / "config").iterdir(), ROOT / "Dockerfile", *(ROOT / "scripts").glob("*")]
    output = [f.name for f in files if f.is_file() and "memory-proxy[" in f.read_text("utf-8")]
    assert not output
