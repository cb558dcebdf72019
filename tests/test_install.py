"""`scripts/install` with another Python in the place of .venv's, so that nothing is installed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
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


def test_each_extra_is_installed_once(checkout: Path) -> None:
    for extras in ((), (), ("otel", "download"), ("otel",), ("download",)):
        assert install(checkout, *extras)[0] == 0
    assert asked(checkout) == [".[demo]", ".[otel,download]"]


def test_what_the_tests_need_holds_the_demo_and_not_every_extra(checkout: Path) -> None:
    for extras in (("dev",), (), ("download",)):
        assert install(checkout, *extras)[0] == 0
    assert asked(checkout) == [".[dev]", ".[download]"]


def test_an_extra_that_does_not_exist_is_refused(checkout: Path) -> None:
    status, said = install(checkout, "otel", "otle")
    assert (status, asked(checkout)) == (1, [])
    assert said == "There is no extra 'otle'. There are: demo, dev, download, otel.\n"


def test_the_pinned_versions_leave_room_for_fastembed() -> None:
    """`scripts/install download` fails with 2.x (fastembed 0.9)."""
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text("utf-8"), re.M))
    assert int(pinned["huggingface-hub"].split(".")[0]) < 2


def test_no_text_refers_to_a_package_that_is_not_published() -> None:
    """The name `memory-proxy` is not ours on any package index."""
    files = [*(ROOT / "proxy").rglob("*.py"), *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    files += [*(ROOT / "config").iterdir(), ROOT / "Dockerfile", *(ROOT / "scripts").glob("*")]
    output = [f.name for f in files if f.is_file() and "memory-proxy[" in f.read_text("utf-8")]
    assert not output
