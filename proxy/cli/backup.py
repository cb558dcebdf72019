"""`memory-proxy backup`, `restore` and `receipts`: back up and restore the data directory's database, and
export the receipts of what was forgotten.

They work on the data directory itself. A backup and the receipts are taken while a proxy serves; a restore
needs it stopped, and says so.
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from rich.progress import TaskProgressColumn

from proxy import telemetry
from proxy.cli.shared import add_place, progress, settings_of
from proxy.config import Settings
from proxy.domain.core import Forgotten
from proxy.domain.errors import ConfigError, StoreError
from proxy.domain.oversight import Receipt
from proxy.models.catalog import short_name
from proxy.storage.sqlite import carry_over

STANDARD = "-"
_DOING = {"copy": "copying", "verify": "verifying", "forget": "forgetting what was forgotten since"}

Run = Callable[[argparse.Namespace, Settings], int]


def add_backup(parser: argparse.ArgumentParser) -> None:
    """Make it the parser of `backup`."""
    parser.description = (
        "Write a verified copy of the database, as it is at one moment, into a private file. What was at FILE"
        " is replaced once the copy is whole. Forgetting does not reach into backups: keep them as long as"
        " you must, and no longer."
    )
    parser.add_argument("file", metavar="FILE", help="where to; - for standard output")
    _finish(parser, _backup)


def add_restore(parser: argparse.ArgumentParser) -> None:
    """Make it the parser of `restore`."""
    parser.description = (
        "Verify the backup, forget in it what was forgotten since it was made, and put it in place. The proxy"
        " has to be stopped; what was there before is kept beside it."
    )
    parser.add_argument("file", metavar="FILE", help="a backup; - for standard input")
    parser.add_argument(
        "--receipts",
        type=Path,
        metavar="FILE",
        help="what `memory-proxy receipts` wrote: carry these forgets out, too, where the present database is"
        " lost or cannot be read",
    )
    parser.add_argument(
        "--with-forgotten",
        action="store_true",
        help="bring back what was forgotten since the backup: for a forget that was a mistake",
    )
    _finish(parser, _restore)


def add_receipts(parser: argparse.ArgumentParser) -> None:
    """Make it the parser of `receipts`."""
    parser.description = (
        "Write all receipts, one JSON object a line: what was forgotten when, and none of it."
    )
    parser.add_argument("file", metavar="FILE", nargs="?", default=STANDARD, help="where to (default: -)")
    _finish(parser, _receipts)


def _finish(parser: argparse.ArgumentParser, run: Run) -> None:
    add_place(parser)
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    parser.set_defaults(func=lambda args: _run(args, run))


def _run(args: argparse.Namespace, run: Run) -> int:
    telemetry.configure("error", "console")
    try:
        settings = settings_of(args.config, args.data_dir)
        if settings.storage.backend != "sqlite":
            raise ConfigError(
                f"storage.backend is {settings.storage.backend}: this is for a data directory's own database."
                " Back up another server with its own tools: `memory-proxy memory export` has no more than"
                " memories"
            )
        return run(args, settings)
    except StoreError as error:
        print(f"memory-proxy: {error}. Nothing was changed.", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"memory-proxy: {args.file}: {error.strerror}", file=sys.stderr)
        return 1


# ---------------------------------------------------------------- backup
def _backup(args: argparse.Namespace, settings: Settings) -> int:
    from proxy.storage.sqlite import backup

    database = _present(settings)
    streamed = args.file == STANDARD
    if streamed and sys.stdout.isatty():
        raise ConfigError("a backup is not for the terminal: name a file, or redirect standard output")
    # Of the same privacy as the database, and on a disk that has room for one more.
    target = settings.data_dir / "run" / "backup" if streamed else Path(args.file)
    if streamed:
        target.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        with progress(_DOING, TaskProgressColumn()) as told:
            manifest = backup.write(database, target, told, now=time.time())
        if streamed:
            with target.open("rb") as copy:
                shutil.copyfileobj(copy, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    finally:
        if streamed:
            target.unlink(missing_ok=True)
    said = sys.stderr if streamed else sys.stdout
    if args.json:
        print(json.dumps(asdict(manifest)), file=said)
        return 0
    memories = manifest.counts.get("memories", 0)
    print(f"{_many(memories, 'memory')}, {manifest.bytes / 1e6:,.1f} MB, verified.", file=said)
    return 0


# ---------------------------------------------------------------- restore
def _restore(args: argparse.Namespace, settings: Settings) -> int:
    from proxy.storage.sqlite.restore import Restore

    receipts = _read_receipts(args.receipts) if args.receipts else []
    with _input(args.file) as backup, progress(_DOING, TaskProgressColumn()) as told:
        restore = Restore(settings.data_dir, told, receipts, forgets=not args.with_forgotten)
        done = restore.run(backup, "the backup" if args.file == STANDARD else args.file)
    if args.json:
        print(json.dumps(asdict(done), default=str))
        return 0
    manifest, carried = done.manifest, done.carried
    made = datetime.fromtimestamp(manifest.made_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    print(f"Restored: {settings.data_dir / 'memory.db'}, as it was on {made}.")
    if args.with_forgotten:
        print("What was forgotten since then is back, as you asked.")
    else:
        print(_forgotten_again(done.present, carried.receipts, carried.erased))
    if done.present == "unreadable":
        print(
            "The database that was there cannot be read: forgets that only it knew of were not carried out,\n"
            "and keys are as they were then. Give receipts that you saved with --receipts FILE, and look at\n"
            "`memory-proxy keys list`."
        )
    if carried.unknown:
        print(
            f"{carried.unknown} of the receipts name memories that are younger than the backup: what those"
            " had\nreplaced may be current again."
        )
    if carried.keys:
        print(f"Keys made or revoked since: {carried.keys}, kept as they are now.")
    if done.aside is not None:
        print(
            f"What was there before: {done.aside}\nDelete it when all is well: forgetting does not reach it."
        )
    if manifest.model not in (None, short_name(settings.embedding.model)):
        print(
            f"Its vectors were made with {manifest.model}, and the settings name {settings.embedding.model}:"
            " run `memory-proxy reembed`, or set embedding.model."
        )
    return 0


def _forgotten_again(present: str, receipts: int, erased: Forgotten) -> str:
    if not receipts and present == "none":
        return "There was no database: what was forgotten since then is not known (see --receipts)."
    if not receipts:
        return "No forgets since then are known."
    return (
        f"Forgotten again: what {_many(receipts, 'forget')} since then took"
        f" ({_many(erased.memories, 'memory')}, {_many(erased.exchanges, 'exchange')})."
    )


def _many(count: int, noun: str) -> str:
    plural = noun.removesuffix("y") + "ies" if noun.endswith("y") else noun + "s"
    return f"{count:,} {noun if count == 1 else plural}"


@contextlib.contextmanager
def _input(name: str) -> Iterator[BinaryIO]:
    if name == STANDARD:
        yield sys.stdin.buffer
    else:
        with Path(name).open("rb") as opened:
            yield opened


# ---------------------------------------------------------------- receipts
def _receipts(args: argparse.Namespace, settings: Settings) -> int:

    lines = carry_over.to_lines(carry_over.receipts_in(_present(settings)))
    if args.file == STANDARD:
        sys.stdout.writelines(lines)
        return 0
    target = Path(args.file)
    partial = target.with_name(target.name + ".partial")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as copy:
        copy.writelines(lines)
        copy.flush()
        os.fsync(copy.fileno())
    partial.replace(target)
    return 0


def _read_receipts(path: Path) -> Sequence[Receipt]:

    with path.open(encoding="utf-8") as lines:
        try:
            return list(carry_over.from_lines(lines))
        except ValueError as error:
            raise ConfigError(f"{path}: {error}; `memory-proxy receipts` writes them") from None


# ---------------------------------------------------------------- both
def _present(settings: Settings) -> Path:
    database = settings.data_dir / "memory.db"
    if not database.is_file():
        raise ConfigError(f"there is no {database}: set --data-dir")
    return database
