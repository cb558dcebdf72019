"""What the commands that work on the stores directly have in common: where the settings are, and a progress
bar.
"""

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn

from proxy.config import Settings, config_file, from_process

Told = Callable[[str, int, int], None]
"""Is told what is being done, how much of it is done, and how much there is to do."""


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add --config and --data-dir, which `settings_of` takes."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file (see config/default.yaml)")
    parser.add_argument("--data-dir", metavar="DIR", help="where everything is stored")


def settings_of(config: Path | None, data_dir: str | None = None) -> Settings:
    """Return the settings of the file that is given, else of the one that the environment names, with the
    data directory on top. Raises ConfigError."""
    overrides = {"storage": {"data_dir": data_dir}} if data_dir is not None else None
    return from_process(config_file(config, os.environ), overrides)


@contextlib.contextmanager
def progress(doing: Mapping[str, str], *amount: ProgressColumn) -> Iterator[Told]:
    """Yield what shows, on standard error of a terminal and nowhere else, what is being done (in the words of
    `doing`) and how far it is (in the columns of `amount`)."""
    columns = (TextColumn("{task.description}"), BarColumn(), *amount)
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as shown:
        task = shown.add_task("", total=None)

        def told(what: str, done: int, total: int) -> None:
            shown.update(task, description=doing[what], completed=done, total=total)

        yield told
