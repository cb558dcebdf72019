"""What a process does before it works."""

import subprocess
import sys


def test_a_process_of_the_tests_keeps_what_it_compiled_for_the_next() -> None:
    said = subprocess.check_output([sys.executable, "-c", "import sys; print(sys.dont_write_bytecode)"])
    assert said.strip() == b"False"
