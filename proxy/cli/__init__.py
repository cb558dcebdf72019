"""The `memory-proxy` command line. Here: what its commands share. Imports are lazy, so that --help is
quick."""

import argparse
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from proxy.config import Settings
    from proxy.storage import Report
    from proxy.storage.sql.stores import SqlStores


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add --config and --data-dir, the arguments of `settings_of`."""
    line = "settings, a YAML file (see config/default.yaml)"
    parser.add_argument("--config", type=Path, metavar="FILE", help=line)
    parser.add_argument("--data-dir", metavar="DIR", help="directory of the database and the models")


def settings_of(config: Path | None, data_dir: str | None = None) -> "Settings":
    """Return the settings of `config`, or of the file that the environment names, with the data directory on
    top. Raises ConfigError."""
    from proxy.config import load

    overrides = {"storage": {"data_dir": data_dir}} if data_dir is not None else None
    return load(config, os.environ, overrides)


def add_run(
    parser: argparse.ArgumentParser, run: "Callable[[argparse.Namespace, Settings], int]", json: str = ""
) -> None:
    """Let the command call `run` with the settings. It logs errors only: standard output is for its result.
    `json`: the help for the argument --json, "" for a command without it."""
    add_place(parser)
    if json:
        parser.add_argument("--json", action="store_true", help=json)

    def configured(args: argparse.Namespace) -> int:
        from proxy import telemetry

        telemetry.configure("error", "console")
        return run(args, settings_of(args.config, args.data_dir))

    parser.set_defaults(func=configured)


@contextlib.asynccontextmanager
async def opened_stores(settings: "Settings") -> "AsyncIterator[SqlStores]":
    """Open the stores that the settings name, for the block. Raises StoreUnavailable."""
    from proxy.app.factories import stores_of

    stores = stores_of(settings)
    try:
        await stores.open()
        yield stores
    finally:
        await stores.close()


def database_of(settings: "Settings") -> Path:
    """Return the file of the SQLite database."""
    return settings.data_dir / "memory.db"


def is_present(database: Path) -> bool:
    """False if a start would create an empty database: the file is missing or has no byte."""
    return os.path.lexists(database) and not (database.is_file() and not database.stat().st_size)


def was_lost(database: Path) -> bool:
    """True if traces next to a missing database show that there was one."""
    traces = (database.with_suffix(".opening"), database.with_name(database.name + "-wal"))
    return any(trace.exists() for trace in traces)


@contextlib.contextmanager
def progress(doing: Mapping[str, str], *amount: "ProgressColumn") -> "Iterator[Report]":
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
