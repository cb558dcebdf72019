"""Commands that run in this process, on a data directory of their own."""

import os
from collections.abc import Callable

import pytest

from proxy import telemetry
from proxy.cli.main import main
from proxy.config import PREFIX

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path, capsys, monkeypatch):
    """Run a command on `tmp_path / "data"`; return exit status, standard output, standard error."""
    for name in [n for n in os.environ if n.startswith(("MEMORY_PROXY", PREFIX))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(telemetry, "configure", lambda *_: None)

    def run(*argv):
        capsys.readouterr()
        status = main([*argv, "--data-dir", str(tmp_path / "data")])
        printed = capsys.readouterr()
        # An earlier test may have configured the log; the command itself silences it.
        lines = printed.out.splitlines(keepends=True)
        return status, "".join(line for line in lines if " store." not in line), printed.err

    return run
