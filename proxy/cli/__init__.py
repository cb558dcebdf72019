"""The `memory-proxy` command line: options and a progress bar that its commands share."""

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from proxy.config import Settings

Report = Callable[[str, int, int], None]
"""Takes the name of the step, how much of it is done, and the total."""


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add --config and --data-dir, the arguments of `settings_of`."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings, a YAML file (see config/default.yaml)"
    )
    parser.add_argument("--data-dir", metavar="DIR", help="directory of the database and the models")


def settings_of(config: Path | None, data_dir: str | None = None) -> "Settings":
    """Return the settings of `config`, or of the file that the environment names, with the data directory on
    top. Raises ConfigError."""
    from proxy.config import config_file, load

    overrides = {"storage": {"data_dir": data_dir}} if data_dir is not None else None
    return load(config_file(config, os.environ), os.environ, overrides)


@contextlib.contextmanager
def progress(doing: Mapping[str, str], *amount: "ProgressColumn") -> Iterator[Report]:
    """Show a progress bar with the columns `amount` on standard error if that is a terminal. Yield the
    function that moves it; `doing` has the text for each step."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), *amount)
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as shown:
        task = shown.add_task("", total=None)

        def report(step: str, done: int, total: int) -> None:
            shown.update(task, description=doing[step], completed=done, total=total)

        yield report
