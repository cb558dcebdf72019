"""`memory-proxy migrate`: copy everything from a data directory, a PostgreSQL database, or the Redis layout
of an earlier version into the store that the configuration names. The source is only read.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import MofNCompleteColumn, TimeRemainingColumn

from proxy import telemetry
from proxy.cli.shared import add_place, progress, settings_of
from proxy.domain.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from proxy.config import Settings
    from proxy.storage.migration import Place
    from proxy.storage.redis_migration import Moved

URL = "MEMORY_PROXY_MIGRATE_FROM"  # a command line is seen by every user of the machine
_REDIS = ("redis://", "rediss://", "unix://")
_POSTGRES = ("postgresql://", "postgres://")
_DOING = {"copy": "copying rows", "verify": "comparing rows"}


def add_migrate(parser: argparse.ArgumentParser) -> None:
    """Make it the parser of `migrate`."""
    parser.description = (
        "Copy everything into the store that the configuration names, which must be empty, and compare both"
        " at the end. Stop every proxy on both stores first. The source stays as it is. A copy that was"
        " interrupted continues when the same command is run again; from Redis it starts again, and leaves"
        " nothing behind until it is complete."
    )
    add_place(parser)
    parser.add_argument(
        "--from",
        dest="origin",
        metavar="SOURCE",
        help="a data directory, postgresql://…, or the Redis of an earlier version (redis://…, rediss://… or"
        f" unix://…); a URL with a password is better given as {URL}",
    )
    parser.add_argument("--prefix", default="memory-proxy:", help="of Redis: what the keys begin with")
    parser.add_argument("--json", action="store_true", help="print what was copied as JSON")
    parser.set_defaults(func=_run)


def _run(args: argparse.Namespace) -> int:
    telemetry.configure("error", "console")
    settings = settings_of(args.config, args.data_dir)
    origin = args.origin or os.environ.get(URL, "")
    if not origin:
        raise ConfigError(f"name the store to copy from: --from DIR, --from postgresql://HOST/NAME, or {URL}")
    if origin.startswith(_REDIS):
        return _from_redis(args, origin, settings)
    if "://" in origin and not origin.startswith(_POSTGRES):
        raise ConfigError("--from takes a directory, postgresql://…, redis://…, rediss://… or unix://…")
    return _from_database(args, origin if "://" in origin else Path(origin), settings)


# ---------------------------------------------------------------- from SQLite, from PostgreSQL
def _from_database(args: argparse.Namespace, origin: "Place", settings: "Settings") -> int:
    from proxy.app.open_stores import postgres_url_of
    from proxy.storage.migration import copy, open_source, open_target

    to = postgres_url_of(settings) if settings.storage.backend == "postgres" else settings.data_dir
    try:
        with (
            open_source(origin) as source,
            open_target(to) as target,
            progress(_DOING, MofNCompleteColumn(), TimeRemainingColumn()) as report,
        ):
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


# ---------------------------------------------------------------- from Redis
def _from_redis(args: argparse.Namespace, url: str, settings: "Settings") -> int:
    try:
        moved = asyncio.run(_move(url, args.prefix, settings))
    except StoreError as error:
        print(f"memory-proxy: {error}. Nothing was copied.", file=sys.stderr)
        return 1
    _say(moved, as_json=args.json)
    return 0


async def _move(url: str, prefix: str, settings: "Settings") -> "Moved":
    from proxy.app.open_stores import stores_of
    from proxy.storage.redis_migration import OldRedis, move
    from proxy.storage.sql.stores import SqlStores

    try:
        old = OldRedis(url, prefix)
    except ValueError as error:
        raise ConfigError("the URL of Redis is not valid") from error
    stores = stores_of(settings)
    assert isinstance(stores, SqlStores)
    try:
        await stores.open()
        with progress({"move": "copying users"}, MofNCompleteColumn(), TimeRemainingColumn()) as report:
            return await stores.database.write(lambda tx: move(tx, old, report))
    finally:
        await stores.close()
        old.close()


def _say(moved: "Moved", *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"rows": dict(moved.rows), "without_vector": moved.without_vector}))
        return
    _list(moved.rows)
    print("Everything was copied. Redis is left as it is: delete it once the new store has proved itself.")
    if moved.without_vector:
        print(
            f"{moved.without_vector:,} memories have no vector here (they were in Qdrant): run"
            " `memory-proxy reembed`."
        )
