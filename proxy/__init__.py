"""memory-proxy: a streaming, OpenAI-compatible reverse proxy that gives an application a memory."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

__version__ = "0.1.0"

# onnxruntime's Linux wheels report every session to Microsoft (mobile.events.data.microsoft.com, with a
# device id in ~/.cache), and the model hub's client counts downloads. Both variables are read on import; what
# an operator has set takes precedence.
for _name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ.setdefault(_name, "1")

# numpy's OpenBLAS starts a thread per processor, and after each shared product they all spin for some 30 ms:
# a request that needs 7 ms of one processor took 13 of two, and 40 if its upstream thinks for a while. What
# a request multiplies takes microseconds on one thread.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

COMMIT_VARIABLE = "MEMORY_PROXY_COMMIT"  # set where an image is built (Dockerfile), which has no .git


def commit_of(root: Path, environ: Mapping[str, str]) -> str | None:
    """Return the commit that the environment names, else that of the checkout in `root`, without running git.

    Of a hash the first twelve digits. None if neither is known. Changes in the working tree do not show.
    """
    commit = environ.get(COMMIT_VARIABLE, "").strip() or _head(root / ".git")
    if commit is None or not re.fullmatch(r"[\w.+-]{1,64}", commit, re.ASCII):
        return None
    return commit[:12] if re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", commit) else commit


def _head(git: Path) -> str | None:
    try:
        head = (git / "HEAD").read_text("ascii").strip()
        branch = head.removeprefix("ref: ")
        if branch == head:
            return head
        if (git / branch).is_file():
            return (git / branch).read_text("ascii").strip()
        packed = (line.split(" ") for line in (git / "packed-refs").read_text("utf-8").splitlines())
        return next((words[0] for words in packed if words[1:] == [branch]), None)
    except (OSError, ValueError):  # no checkout, or an unreadable one
        return None


COMMIT = commit_of(Path(__file__).parent.parent, os.environ)
"""The commit of this process. Read at the start: the checkout may change while the process runs."""

BUILD = f"{__version__} ({COMMIT})" if COMMIT else __version__
"""Version and commit, for people to read."""
