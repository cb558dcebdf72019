"""Commands that open the database themselves: backup, restore, receipts, migrate, reembed and reindex.

`restore` and `migrate` need stopped proxies; the others work while one runs. `backup` and `restore` are for
SQLite: PostgreSQL has its own tools.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, TaskProgressColumn, TimeRemainingColumn

from proxy.cli import add_run, database_of, opened_stores, progress
from proxy.config import Settings
from proxy.domain.core import ForgetCounts, Receipt
from proxy.domain.errors import ConfigError, EmbeddingFailed, StoreError
from proxy.domain.ports import Embedder

if TYPE_CHECKING:
    from proxy.storage.migration import Place
    from proxy.storage.sql.database import Database
    from proxy.storage.sql.vectors import SqlVectors


BATCH = 200  # memories that are embedded in one transaction
STANDARD = "-"  # standard input or output, in place of a file
MIGRATE_FROM = "MEMORY_PROXY_MIGRATE_FROM"  # every user of the machine can see a command line
_REDIS = ("redis://", "rediss://", "unix://")
_POSTGRES = ("postgresql://", "postgres://")
_STEPS = {"copy": "copying", "verify": "verifying", "forget": "repeating later deletions"}
_MIGRATION_STEPS = {"copy": "copying rows", "verify": "comparing rows"}
_NEWER = (
    "{} receipts name memories that are newer than the backup: memories that those\n"
    "had superseded may be current again."
)

T = TypeVar("T")
Run = Callable[[argparse.Namespace, Settings], int]


def add_backup(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a verified, consistent copy of the database to a file that only its owner can read. An"
        " existing FILE is replaced when the copy is complete. Memories that are forgotten later stay in a"
        " backup: do not keep backups longer than you must."
    )
    parser.add_argument("file", metavar="FILE", help="the copy; - for standard output")
    add_run(parser, partial(_run, _backup), json="print the result as JSON")


def add_restore(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Verify the backup, repeat in it the deletions since it was made, and put it in place. Stop the proxy"
        " first. The previous database is renamed and stays in the data directory."
    )
    parser.add_argument("file", metavar="FILE", help="a backup; - for standard input")
    parser.add_argument(
        "--receipts",
        type=Path,
        metavar="FILE",
        help="output of `memory-proxy receipts`: repeat these deletions too, if the current database is lost"
        " or cannot be read",
    )
    parser.add_argument(
        "--with-forgotten",
        action="store_true",
        help="bring back what was deleted since the backup, after a deletion by mistake",
    )
    add_run(parser, partial(_run, _restore), json="print the result as JSON")


def add_receipts(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write all receipts, one JSON object per line: what was deleted when, without the texts. With"
        " --repeat, delete again what saved receipts name, in a database that was restored from a backup."
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default=STANDARD, help="the receipts (default: -, standard output)"
    )
    parser.add_argument(
        "--repeat", type=Path, metavar="SAVED", help="an earlier output: repeat its deletions"
    )
    add_run(parser, partial(_run, _receipts), json="print the result as JSON")


def _run(run: Run, args: argparse.Namespace, settings: Settings) -> int:
    try:
        if settings.storage.backend != "sqlite" and run is not _receipts:
            raise ConfigError(
                f"storage.backend is {settings.storage.backend}: this command is for SQLite. Back up a"
                " database server with its own tools (`memory-proxy memory export` has memories only)"
            )
        return run(args, settings)
    except StoreError as error:
        error.add_note("Nothing was changed.")
        raise
    except OSError as error:
        print(f"memory-proxy: {args.file}: {error.strerror}", file=sys.stderr)
        return 1


# ---------------------------------------------------------------- backup
def _backup(args: argparse.Namespace, settings: Settings) -> int:
    from proxy.storage.sqlite import backup

    database = _existing(settings)
    streamed = args.file == STANDARD
    if streamed and sys.stdout.isatty():
        why = "a backup cannot be printed to a terminal: name a file, or redirect standard output"
        raise ConfigError(why)
    # In the data directory: as private as the database, and on a disk with space for a copy.
    target = settings.data_dir / "run" / "backup" if streamed else Path(args.file)
    if streamed:
        target.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        with progress(_STEPS, TaskProgressColumn()) as report:
            manifest = backup.write(database, target, report, now=time.time())
        if streamed:
            with target.open("rb") as copy:
                shutil.copyfileobj(copy, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    finally:
        if streamed:
            target.unlink(missing_ok=True)
    summary = sys.stderr if streamed else sys.stdout
    if args.json:
        print(json.dumps(asdict(manifest)), file=summary)
        return 0
    memories = manifest.counts.get("memories", 0)
    print(f"{_many(memories, 'memory')}, {manifest.bytes / 1e6:,.1f} MB, verified.", file=summary)
    return 0


# ---------------------------------------------------------------- restore
def _restore(args: argparse.Namespace, settings: Settings) -> int:
    from proxy.models.load import short_name
    from proxy.storage.sqlite.backup import Restore

    receipts = _read_receipts(args.receipts) if args.receipts else []
    with contextlib.ExitStack() as stack:
        backup = sys.stdin.buffer if args.file == STANDARD else stack.enter_context(open(args.file, "rb"))
        report = stack.enter_context(progress(_STEPS, TaskProgressColumn()))
        restore = Restore(settings.data_dir, report, receipts, forgets=not args.with_forgotten)
        done = restore.run(backup, "the backup" if args.file == STANDARD else args.file)
    if args.json:
        print(json.dumps(asdict(done), default=str))
        return 0
    manifest, carried = done.manifest, done.carried
    made = datetime.fromtimestamp(manifest.made_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    print(f"Restored: {database_of(settings)}, as it was on {made}.")
    if args.with_forgotten:
        print("Memories that were forgotten since then are back (--with-forgotten).")
    else:
        print(_repeated(done.present, carried.receipts, carried.erased))
    if done.present == "unreadable":
        print(
            "The previous database cannot be read. Deletions that only it recorded were not repeated, and\n"
            "keys are as they were then: restore again with saved --receipts FILE, and check\n"
            "`memory-proxy keys list`."
        )
    if carried.unknown:
        print(_NEWER.format(carried.unknown))
    if carried.keys:
        print(f"Keys created or revoked since: {carried.keys}. They stay as they are now.")
    if done.aside is not None:
        print(f"The previous database: {done.aside}\nDelete it after a check: forgotten memories stay in it.")
    if manifest.model not in (None, short_name(settings.embedding.model)):
        print(
            f"Its vectors are from {manifest.model}, but the settings name {settings.embedding.model}: run"
            " `memory-proxy reembed`, or set embedding.model."
        )
    return 0


def _repeated(present: str, receipts: int, erased: ForgetCounts) -> str:
    if not receipts and present == "none":
        return "There was no database, so later deletions are unknown (see --receipts)."
    if not receipts:
        return "No deletions since then are known."
    return (
        f"Repeated: {_many(receipts, 'deletion')} since then"
        f" ({_many(erased.memories, 'memory')}, {_many(erased.exchanges, 'exchange')})."
    )


def _many(count: int, noun: str) -> str:
    plural = noun.removesuffix("y") + "ies" if noun.endswith("y") else noun + "s"
    return f"{count:,} {noun if count == 1 else plural}"


# ---------------------------------------------------------------- receipts
def _receipts(args: argparse.Namespace, settings: Settings) -> int:
    from proxy.storage.sql.forget import receipts_in, to_lines
    from proxy.storage.sqlite import backup

    if args.repeat:
        return _repeat(_read_receipts(args.repeat), settings, as_json=args.json)
    if settings.storage.backend == "sqlite":
        found = backup.receipts_in(_existing(settings))
    else:
        found = asyncio.run(_in_stores(settings, lambda database: database.read(receipts_in)))
    lines = to_lines(found)
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


def _repeat(receipts: Sequence[Receipt], settings: Settings, *, as_json: bool) -> int:
    from proxy.storage.sql.forget import Repeated, repeat

    async def run(database: "Database") -> Repeated:
        done = Repeated()
        for receipt in receipts:  # each in a transaction of its own: run again, it skips what is done
            done = await database.write(partial(repeat, receipt=receipt, so_far=done))
        return done

    if settings.storage.backend == "sqlite":
        _existing(settings)
    done = asyncio.run(_in_stores(settings, run))
    if as_json:
        print(json.dumps(asdict(done)))
        return 0
    print(_repeated("read", done.receipts, done.erased))
    if done.unknown:
        print(_NEWER.format(done.unknown))
    return 0


async def _in_stores(settings: Settings, work: "Callable[[Database], Awaitable[T]]") -> T:
    """Run the work on the database that the settings name."""
    async with opened_stores(settings) as stores:
        return await work(stores.database)


def _read_receipts(path: Path) -> Sequence[Receipt]:
    from proxy.storage.sql.forget import from_lines

    with path.open(encoding="utf-8") as lines:
        try:
            return list(from_lines(lines))
        except ValueError as error:
            raise ConfigError(f"{path}: {error}; expected the output of `memory-proxy receipts`") from None


def _existing(settings: Settings) -> Path:
    database = database_of(settings)
    if not database.is_file():
        raise ConfigError(f"there is no {database}: set --data-dir")
    return database


# ---------------------------------------------------------------- migrate
def add_migrate(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Copy everything into the store that the configuration names, which must be empty, and compare both"
        " at the end. Stop every proxy on both stores first. The source stays as it is. A copy that was"
        " interrupted continues when the same command is run again; from Redis it starts again, and leaves"
        " nothing behind until it is complete."
    )
    parser.add_argument(
        "--from",
        dest="origin",
        metavar="SOURCE",
        help="a data directory, postgresql://…, or the Redis of an earlier version (redis://…, rediss://… or"
        f" unix://…); a URL with a password is better given as {MIGRATE_FROM}",
    )
    parser.add_argument("--prefix", default="memory-proxy:", help="of Redis: what the keys begin with")
    add_run(parser, _migrate, json="print what was copied as JSON")


def _migrate(args: argparse.Namespace, settings: Settings) -> int:
    origin = args.origin or os.environ.get(MIGRATE_FROM, "")
    if not origin:
        ways = f"--from DIR, --from postgresql://HOST/NAME, or {MIGRATE_FROM}"
        raise ConfigError(f"name the store to copy from: {ways}")
    if origin.startswith(_REDIS):
        return _from_redis(args, origin, settings)
    if "://" in origin and not origin.startswith(_POSTGRES):
        raise ConfigError("--from takes a directory, postgresql://…, redis://…, rediss://… or unix://…")
    return _from_database(args, origin if "://" in origin else Path(origin), settings)


def _from_database(args: argparse.Namespace, origin: "Place", settings: Settings) -> int:
    from proxy.app.factories import postgres_url_of
    from proxy.storage.migration import copy, open_source, open_target

    to = postgres_url_of(settings) if settings.storage.backend == "postgres" else settings.data_dir
    shown = progress(_MIGRATION_STEPS, MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with open_source(origin) as source, open_target(to) as target, shown as report:
            copied = copy(source, target, report)
    except StoreError as error:
        print(f"memory-proxy: {error}.", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(asdict(copied)))
        return 0
    _list(copied.rows)
    print(f"Everything was copied, and compared row by row. {source.place} is as it was.")
    if settings.storage.vectors != "exact":
        print("Run `memory-proxy reindex` to fill Qdrant from the new store.")
    return 0


def _list(rows: Mapping[str, int]) -> None:
    for table, count in rows.items():
        print(f"{count:>12,}  {table}")


def _from_redis(args: argparse.Namespace, url: str, settings: Settings) -> int:
    from proxy.storage.redis_migration import Moved, OldRedis, move

    async def run(old: OldRedis) -> Moved:
        columns = (MofNCompleteColumn(), TimeRemainingColumn())
        with progress({"move": "copying users"}, *columns) as report:
            return await _in_stores(
                settings, lambda database: database.write(lambda tx: move(tx, old, report))
            )

    try:
        with contextlib.closing(OldRedis(url, args.prefix)) as old:
            moved = asyncio.run(run(old))
    except ValueError as error:
        raise ConfigError("the URL of Redis is not valid") from error
    except StoreError as error:
        print(f"memory-proxy: {error}. Nothing was copied.", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps({"rows": dict(moved.rows), "without_vector": moved.without_vector}))
        return 0
    _list(moved.rows)
    print("Everything was copied. Redis is left as it is: delete it once the new store has proved itself.")
    if moved.without_vector:
        count = f"{moved.without_vector:,} memories have"
        print(f"{count} no vector here (they were in Qdrant): run `memory-proxy reembed`.")
    return 0


# ---------------------------------------------------------------- reembed and reindex
def add_reembed(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Embed all memories with the configured model, or with --model. A proxy on the same store may run:"
        " restart it with the new model at any time after the start of this command. If it is interrupted,"
        " run it again to resume."
    )
    parser.add_argument(
        "--model", metavar="DIR|NAME", help="a directory with the weights, or a name (default: the settings)"
    )
    parser.add_argument(
        "--force", action="store_true", help="also embed memories again that have a vector of this model"
    )
    add_run(parser, _run_reembed)


def add_reindex(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Delete the collections in Qdrant and fill them again from the database, after a change of"
        " quantization or replication. Running proxies answer with exact search until it is done. If it is"
        " interrupted, run it again to resume, or leave the rest to a running proxy."
    )
    add_run(parser, _run_reindex)


async def reembed(
    vectors: "SqlVectors", embedder: Embedder, report: Callable[[int, int], None], *, all_again: bool = False
) -> int:
    """Embed the memories without a vector of the model, or all; return how many vectors were stored.

    Memories that a proxy with another model writes during the run are embedded in a further round. Raises
    WrongModel if another run starts with yet another model.
    """
    from proxy.admit.gate import vectors_of

    generation = await vectors.begin(embedder.model, all_again=all_again)
    total, done = await vectors.count(generation), 0
    report(done, total)
    while batch := await vectors.stale(generation, None, BATCH):
        while batch:
            made = await vectors_of(embedder, [stale.content for stale in batch])
            done += await vectors.put(generation, list(zip(batch, made, strict=True)))
            total = max(total, done)
            report(done, total)
            batch = await vectors.stale(generation, batch[-1], BATCH)
    return done


def _run_reembed(args: argparse.Namespace, settings: Settings) -> int:
    from proxy.models.load import load_embedder

    given = args.model
    if settings.storage.backend == "sqlite" and not database_of(settings).is_file():
        raise ConfigError(f"there are no memories in {settings.data_dir}: set --data-dir")
    now = settings.embedding
    name, path = (now.model, now.path) if given is None else (given, None)
    if given is not None and Path(given).is_dir():
        name, path = Path(given).resolve().name, Path(given)
    elif given is not None and given.startswith((os.sep, ".", "~")):
        raise ConfigError(f"--model {given}: there is no such directory")
    models = settings.data_dir / "models"
    loaded = load_embedder(models, model=name, path=path, allow_download=now.allow_download)
    if (embedder := loaded.embedder) is None:
        why = "\n  ".join(loaded.notes)
        raise ConfigError(f"the model {name} cannot be loaded, and nothing was changed:\n  {why}")
    with contextlib.closing(embedder):
        if path is not None and loaded.source != "directory":
            raise ConfigError(f"{path} cannot be used, and nothing was changed: {loaded.notes[0]}")
        background = embedder.in_background()

        async def run() -> int:
            doing = {"embed": escape(embedder.model.name)}
            async with opened_stores(settings) as stores:
                with progress(doing, MofNCompleteColumn(), TimeRemainingColumn()) as report:
                    shown = partial(report, "embed")
                    return await reembed(stores.vectors, background, shown, all_again=args.force)

        try:
            count = asyncio.run(run())
        except (StoreError, EmbeddingFailed) as error:
            error.add_note("Vectors that are stored stay: run it again to resume")
            raise
    out, model = Console(highlight=False, soft_wrap=True), embedder.model
    noun = "memory" if count == 1 else "memories"
    out.print(escape(f"{count} {noun} embedded with {model.name} ({model.dimension} dimensions)."))
    if (now.model, now.dimension, now.path) != (name, model.dimension, path):
        shown_path = f", path: {path.resolve()}" if path else ""
        out.print("Use these settings from now on, and restart every proxy that uses another model:")
        wanted = f"{{model: {name}, dimension: {model.dimension}{shown_path}}}"
        out.print(f"  embedding: {escape(wanted)}")
    return 0


def _run_reindex(args: argparse.Namespace, settings: Settings) -> int:
    if settings.storage.vectors != "qdrant":
        raise ConfigError("storage.vectors is not qdrant: there is nothing to fill")

    async def run() -> int:
        async with opened_stores(settings) as stores:
            with progress({"send": "sending"}, MofNCompleteColumn(), TimeRemainingColumn()) as report:
                return await stores.reindex(partial(report, "send"))

    try:
        sent = asyncio.run(run())
    except StoreError as error:
        error.add_note("What was sent stays: run it again to resume")
        raise
    print(f"{sent:,} memories sent to {settings.qdrant.url}.")
    return 0
