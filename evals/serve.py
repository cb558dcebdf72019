"""Run the proxy with a clock that the evaluation sets: `python -m evals.serve --port N --data-dir D …`.

The personas live through months; the proxy has no setting for the date, and should have none. So
this launcher, and nothing in the product, lends it another `time.time`: the real one plus the offset (one
float64) that the file named by MEMORY_PROXY_TEST_CLOCK holds. Monotonic clocks, and so all waiting, stay
real. It must be in place before any of our modules is read: some take `time.time` as a default.
"""

import argparse
import mmap
import os
import struct
import time
from pathlib import Path

VARIABLE = "MEMORY_PROXY_TEST_CLOCK"
OFFSET = struct.Struct("<d")


class Clock:
    """The harness's hand on the clock of the proxies that it starts."""

    def __init__(self, file: Path) -> None:
        self.file = file
        if not file.exists():  # a proxy that starts again continues at the time it had
            file.write_bytes(OFFSET.pack(0.0))

    def set(self, at: float) -> None:
        """Set the time to `at`; it advances from there."""
        with self.file.open("r+b") as held:
            held.write(OFFSET.pack(at - time.time()))


def lend_clock(file: Path) -> None:
    """Replace this process's `time.time`."""
    real = time.time
    with file.open("rb") as held:
        shared = mmap.mmap(held.fileno(), OFFSET.size, access=mmap.ACCESS_READ)

    def now() -> float:
        return real() + float(OFFSET.unpack_from(shared)[0])

    time.time = now


def believe_jumps() -> None:
    """Let the proxy follow the clock at once: its own clock does not believe a jump for ten minutes, in which
    a whole evaluation is over."""
    from proxy.app import reloadable

    reloadable.JUMP_S = float("inf")  # every step is a small correction


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--upstream", required=True)
    options = parser.parse_args()
    lend_clock(Path(os.environ[VARIABLE]))
    believe_jumps()

    from proxy.app.server import serve
    from proxy.config import load

    overrides = {
        "server": {"port": options.port},
        "storage": {"data_dir": options.data_dir},
        "upstream": {"base_url": options.upstream},
    }
    return serve(load(None, os.environ, overrides))


if __name__ == "__main__":
    raise SystemExit(main())
