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


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["no-such-command"]], ids=" ".join)
def test_the_help_loads_nothing_that_it_does_not_show(argv):
    modules = loaded(*argv)
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


@pytest.mark.parametrize(
    "argv", [["keys", "list", "--help"], ["backup", "--help"], ["migrate", "--help"]], ids=" ".join
)
def test_a_command_on_the_stores_loads_no_server(argv):
    modules = loaded(*argv)
    assert "proxy.cli" in modules
    assert not modules & {"proxy.app", "proxy.recall", "proxy.learn"}
    assert not modules & {"numpy", "onnxruntime", "uvicorn", "httpx", "jwt"}


PROCESSORS = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1

MULTIPLY = """
import proxy
import numpy as np
from pathlib import Path

np.ones((2_000, 400), np.float32) @ np.ones((400, 400), np.float32)
print(len(list(Path("/proc/self/task").iterdir())))
"""


@pytest.mark.skipif(PROCESSORS < 2, reason="needs Linux and several processors")
@pytest.mark.parametrize(("chosen", "threads"), [(None, 1), ("2", 2)])
def test_matrix_products_start_no_busy_waiting_threads(chosen, threads):
    environment = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    if chosen is not None:  # the operator's choice
        environment["OPENBLAS_NUM_THREADS"] = chosen
    output = subprocess.run(
        [sys.executable, "-c", MULTIPLY], env=environment, capture_output=True, text=True, check=True
    )
    assert int(output.stdout) == threads


HASH = "5edc378aa1b2c3d4e5f60718293a4b5c6d7e8f90"


def repository(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / ".git" / name.replace("__", "/").replace("_", "-")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_commit_of_a_checkout_is_read_without_git(tmp_path):
    branch = "ref: refs/heads/main\n"
    packed = f"# pack-refs with: peeled\n{'0' * 40} refs/heads/main2\n{HASH} refs/heads/main\n^{'1' * 40}\n"
    for name, files in {
        "loose": {"HEAD": branch, "refs__heads__main": f"{HASH}\n"},
        "packed": {"HEAD": branch, "packed_refs": packed},
        "detached": {"HEAD": f"{HASH}\n"},
    }.items():
        root = repository(tmp_path / name, **files)
        assert commit_of(root, {}) == "5edc378aa1b2", name


def test_a_built_image_reports_the_commit_of_its_variable(tmp_path):
    root = repository(tmp_path, HEAD="0" * 40)
    assert commit_of(root, {COMMIT_VARIABLE: HASH}) == "5edc378aa1b2"
    assert commit_of(root, {COMMIT_VARIABLE: "v0.2-rc1"}) == "v0.2-rc1"
    assert commit_of(root, {COMMIT_VARIABLE: ""}) == "0" * 12  # an ARG without a value


@pytest.mark.parametrize(
    "files", [{}, {"HEAD": "ref: refs/heads/main"}, {"HEAD": "no such\nthing"}, {"HEAD": "é"}, {"config": ""}]
)
def test_without_a_readable_checkout_there_is_no_commit(tmp_path, files):
    assert commit_of(repository(tmp_path, **files), {}) is None


def test_the_version_command_prints_the_commit(tmp_path):
    command = [sys.executable, "-c", "from proxy.cli.main import main; main(['--version'])"]
    environ = {**os.environ, COMMIT_VARIABLE: HASH, "PATH": ""}  # and no git
    printed = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["memory-proxy", __version__, "(5edc378aa1b2)"]


ROOT = Path(__file__).parent.parent


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose .venv only writes down what it is asked to install."""
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/install", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "scripts" / "fetch-models").touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nif [ "$2" = pip ]; then for last; do :; done; echo "$last" >> asked; fi\n')
    python.chmod(0o755)
    return tmp_path


def install(checkout: Path, *extras: str) -> tuple[int, str]:
    """Return the exit status, and what was said."""
    run = subprocess.run(
        [str(checkout / "scripts" / "install"), *extras], env={**os.environ, "PYTHON": sys.executable},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    return run.returncode, run.stderr


def asked(checkout: Path) -> list[str]:
    written = checkout / "asked"
    return written.read_text("utf-8").splitlines() if written.exists() else []


def test_each_extra_is_installed_once(checkout):
    for extras in ((), (), ("otel", "download"), ("otel",), ("download",)):
        assert install(checkout, *extras)[0] == 0
    assert asked(checkout) == [".[demo]", ".[otel,download]"]


def test_what_the_tests_need_holds_the_demo_and_not_every_extra(checkout):
    for extras in (("dev",), (), ("download",)):
        assert install(checkout, *extras)[0] == 0
    assert asked(checkout) == [".[dev]", ".[download]"]


def test_an_extra_that_does_not_exist_is_refused(checkout):
    status, said = install(checkout, "otel", "otle")
    assert (status, asked(checkout)) == (1, [])
    assert said == "There is no extra 'otle'. There are: demo, dev, download, otel.\n"


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
