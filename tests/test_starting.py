"""What a process does before it works: nothing that its command has no use for.

Measured by the modules that are loaded: seconds depend on the machine.
"""

import subprocess
import sys

import pytest

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


def test_a_process_of_the_tests_keeps_what_it_compiled_for_the_next() -> None:
    said = subprocess.check_output([sys.executable, "-c", "import sys; print(sys.dont_write_bytecode)"])
    assert said.strip() == b"False"


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["no-such-command"]], ids=" ".join)
def test_the_help_loads_nothing_that_it_does_not_show(argv: list[str]) -> None:
    modules = loaded(*argv)
    assert {name for name in modules if name.startswith("proxy.")} == {
        "proxy.cli",
        "proxy.domain",
    }
    assert not modules & {"pydantic", "yaml", "rich", "asyncio", "ssl"}


def test_a_client_loads_no_part_of_the_server() -> None:
    modules = loaded("memory", "list", "--user", "alice", "--url", "http://127.0.0.1:9")
    assert "proxy.client" in modules
    assert not modules & {"proxy.config", "proxy.storage", "proxy.http", "proxy.telemetry"}
    assert not modules & {"pydantic", "numpy", "starlette", "prometheus_client", "sqlite3"}


def test_the_server_starts_without_the_mcp_library() -> None:
    code = "import sys, proxy.app.server; print(*{'mcp', 'mcp_types', 'httpx2'} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []


@pytest.mark.parametrize(
    "argv", [["keys", "list", "--help"], ["backup", "--help"], ["migrate", "--help"]], ids=" ".join
)
def test_a_command_on_the_stores_loads_no_server(argv: list[str]) -> None:
    modules = loaded(*argv)
    assert "proxy.cli" in modules
    assert not modules & {"proxy.app", "proxy.recall", "proxy.learn"}
    assert not modules & {"numpy", "onnxruntime", "uvicorn", "httpx", "jwt"}
