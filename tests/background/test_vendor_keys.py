"""The library's shapes, and when it is imported."""

import subprocess
import sys

from proxy.background.safety import vendor_keys


def test_a_start_does_not_wait_for_the_library() -> None:
    loaded = "import sys, proxy.app; print(*sorted({'detect_secrets', 'requests'} & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert told.stdout.split() == []


def test_every_plugin_gives_shapes() -> None:
    kinds = {row.hints for row in vendor_keys.rows()}
    assert kinds == {hints for _, _, hints in vendor_keys._PLUGINS}
