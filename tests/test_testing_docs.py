"""The test suite in docs/testing.md passes as a reader copies it."""

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs" / "testing.md"
_FILE = re.compile(r"```python\n(# (\S+\.py)\n.*?)```", re.DOTALL)


def test_the_suite_in_the_docs_passes(tmp_path: Path) -> None:
    for text, name in _FILE.findall(DOCS.read_text("utf-8")):
        (tmp_path / name).write_text(text)
    assert len(list(tmp_path.iterdir())) == 3
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("MEMORY_PROXY", "PYTEST"))
    }
    clean["PATH"] = f"{Path(sys.executable).parent}:{clean['PATH']}"
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path)]
    ran = subprocess.run(
        command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout
    assert "4 passed" in ran.stdout
