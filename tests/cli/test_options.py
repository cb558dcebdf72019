"""Options and progress bar of the commands that open the stores themselves."""

import os
from pathlib import Path

import pytest

from proxy.cli import settings_of
from proxy.config import CONFIG_FILE, PREFIX
from proxy.domain.errors import ConfigError

PROXY = Path(__file__).parents[2] / "proxy"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in [n for n in os.environ if n.startswith(("MEMORY_PROXY", PREFIX))]:
        monkeypatch.delenv(name)


def test_the_command_line_wins_over_the_environment_and_the_file(tmp_path, monkeypatch):
    named, given = tmp_path / "named.yaml", tmp_path / "given.yaml"
    named.write_text("storage: {data_dir: /named}\nserver: {port: 1}\n")
    given.write_text("storage: {data_dir: /given}\nserver: {port: 2}\n")
    assert settings_of(None).server.port == 8080
    monkeypatch.setenv(CONFIG_FILE, str(named))
    assert (settings_of(None).server.port, settings_of(given).server.port) == (1, 2)
    assert str(settings_of(given).data_dir) == "/given"
    assert (settings_of(given, "/own").server.port, str(settings_of(given, "/own").data_dir)) == (2, "/own")
    with pytest.raises(ConfigError, match=r"data_dir: names no directory.*\(on the command line\)"):
        settings_of(given, "")  # of an unset variable: not the file's, least of all for a restore
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        settings_of(tmp_path / "absent.yaml")


def test_the_name_of_the_config_variable_is_written_once():
    naming = {file.name for file in PROXY.rglob("*.py") if f'"{CONFIG_FILE}"' in file.read_text("utf-8")}
    assert naming == {"config.py"}
