"""Which commit this program is of, as far as that can be known. Git itself is not needed."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from proxy import __version__

VARIABLE = "MEMORY_PROXY_COMMIT"  # set where an image is built (Dockerfile), which holds no .git
_NAME = re.compile(r"[\w.+-]{1,64}", re.ASCII)
_HASH = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


def commit_of(root: Path, environ: Mapping[str, str]) -> str | None:
    """Return the commit that the environment names, else the one that the checkout in `root` stands at; of a
    hash its first twelve digits. None where neither says. A checkout's own changes do not show."""
    told = environ.get(VARIABLE, "").strip() or _head(root / ".git")
    if told is None or not _NAME.fullmatch(told):
        return None
    return told[:12] if _HASH.fullmatch(told) else told


def _head(git: Path) -> str | None:
    try:
        head = (git / "HEAD").read_text("ascii").strip()
        branch = head.removeprefix("ref: ")
        if branch == head:
            return head
        loose = git / branch
        if loose.is_file():
            return loose.read_text("ascii").strip()
        packed = (line.split(" ") for line in (git / "packed-refs").read_text("utf-8").splitlines())
        return next((words[0] for words in packed if words[1:] == [branch]), None)
    except (OSError, ValueError):  # no checkout, or none that we can read: then nobody knows
        return None


COMMIT = commit_of(Path(__file__).parent.parent, os.environ)
"""That of this process: read when it starts, since a checkout may move on under one that runs."""

BUILD = f"{__version__} ({COMMIT})" if COMMIT else __version__
"""Version and commit, as people are told."""
