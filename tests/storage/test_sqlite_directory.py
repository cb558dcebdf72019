"""A data directory that cannot hold the database: what an operator reads."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from proxy.domain.errors import UnfitStore
from proxy.storage.sqlite import file
from proxy.storage.sqlite.stores import SqliteStores


@pytest.fixture
def open_dir():
    """A directory that every user may enter: each start of pytest closes those of pytest."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        directory.chmod(0o755)
        yield directory


def as_another_user(directory: Path) -> str:
    """Return the obstacle that user 65534 finds."""
    script = (
        "import pathlib, sys; from proxy.storage.sqlite.file import obstacle;"
        "print(obstacle(pathlib.Path(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(directory)],
        user=65534,
        group=65534,
        extra_groups=(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_a_directory_of_another_user_names_the_owner_and_what_to_run(open_dir):
    data = open_dir / "data"
    data.mkdir(mode=0o755)
    stated = as_another_user(data)
    assert "root (uid 0), mode 755" in stated
    assert "(uid 65534)" in stated
    assert f"chown -R 65534:65534 {data}" in stated
    assert f"mkdir -p {open_dir}/new/data" in as_another_user(open_dir / "new" / "data")
    data.chmod(0o777)
    assert as_another_user(data) == ""
    (data / "memory.db").touch(mode=0o600)
    assert f"{data}/memory.db cannot be written to" in as_another_user(data)


def test_a_directory_that_can_be_used_or_made_has_no_obstacle(tmp_path):
    assert file.obstacle(tmp_path) == file.obstacle(tmp_path / "a" / "b") == ""
    (tmp_path / "file").touch()
    assert "is not a directory" in file.obstacle(tmp_path / "file")


async def test_a_network_file_system_is_refused_unless_it_is_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "network_file_system", lambda _: "cifs")
    stores = SqliteStores(tmp_path)
    with pytest.raises(UnfitStore, match="network file system \\(cifs\\)"):
        await stores.open()
    assert "a database server" in stores.failure
    await stores.close()
    allowed = SqliteStores(tmp_path, allow_network=True)
    await allowed.open()
    assert allowed.failure == ""
    await allowed.close()
