"""The commit that a running proxy reports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy import COMMIT_VARIABLE, __version__, commit_of

HASH = "5edc378aa1b2c3d4e5f60718293a4b5c6d7e8f90"


def checkout(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / ".git" / name.replace("__", "/").replace("_", "-")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_commit_of_a_checkout_is_read_without_git(tmp_path: Path) -> None:
    branch = "ref: refs/heads/main\n"
    packed = f"# pack-refs with: peeled\n{'0' * 40} refs/heads/main2\n{HASH} refs/heads/main\n^{'1' * 40}\n"
    for name, files in {
        "loose": {"HEAD": branch, "refs__heads__main": f"{HASH}\n"},
        "packed": {"HEAD": branch, "packed_refs": packed},
        "detached": {"HEAD": f"{HASH}\n"},
    }.items():
        root = checkout(tmp_path / name, **files)
        assert commit_of(root, {}) == "5edc378aa1b2", name


def test_a_built_image_reports_the_commit_of_its_variable(tmp_path: Path) -> None:
    root = checkout(tmp_path, HEAD="0" * 40)
    assert commit_of(root, {COMMIT_VARIABLE: HASH}) == "5edc378aa1b2"
    assert commit_of(root, {COMMIT_VARIABLE: "v0.2-rc1"}) == "v0.2-rc1"
    assert commit_of(root, {COMMIT_VARIABLE: ""}) == "0" * 12  # an ARG without a value


@pytest.mark.parametrize(
    "files", [{}, {"HEAD": "ref: refs/heads/main"}, {"HEAD": "no such\nthing"}, {"HEAD": "é"}, {"config": ""}]
)
def test_without_a_readable_checkout_there_is_no_commit(tmp_path: Path, files: dict[str, str]) -> None:
    assert commit_of(checkout(tmp_path, **files), {}) is None


def test_the_version_command_prints_the_commit(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from proxy.cli.main import main; main(['--version'])"]
    environ = {**os.environ, COMMIT_VARIABLE: HASH, "PATH": ""}  # and no git
    printed = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["memory-proxy", __version__, "(5edc378aa1b2)"]
