"""`memory-proxy migrate`: copy everything from the Redis layout of an earlier version into the store that the
configuration names. Redis is read, never written to.
"""

import argparse
import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING

from rich.progress import MofNCompleteColumn, TimeRemainingColumn

from proxy import telemetry
from proxy.cli.shared import add_place, progress, settings_of
from proxy.domain.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from proxy.config import Settings
    from proxy.storage.migrate.from_redis import Moved

URL = "MEMORY_PROXY_MIGRATE_FROM"  # a command line is seen by every user of the machine
_SCHEMES = ("redis://", "rediss://", "unix://")


def add_migrate(parser: argparse.ArgumentParser) -> None:
    """Make it the parser of `migrate`."""
    parser.description = (
        "Copy all that an earlier version stored in Redis into the store that the configuration names, which"
        " must be empty, in one step: broken off, it leaves nothing behind, and is run again. Stop every"
        " replica first. What is in Redis stays as it is."
    )
    add_place(parser)
    parser.add_argument(
        "--from",
        dest="origin",
        metavar="URL",
        help=f"redis://…, rediss://… or unix://…; one with a password is better given as {URL}",
    )
    parser.add_argument("--prefix", default="memory-proxy:", help="what the keys begin with (redis.prefix)")
    parser.add_argument("--json", action="store_true", help="print what was copied as JSON")
    parser.set_defaults(func=lambda args: asyncio.run(_run(args)))


async def _run(args: argparse.Namespace) -> int:
    telemetry.configure("error", "console")
    settings = settings_of(args.config, args.data_dir)
    url = args.origin or os.environ.get(URL, "")
    if not url.startswith(_SCHEMES):
        raise ConfigError(f"name the Redis to copy from: --from redis://HOST:6379/0, or {URL}")
    try:
        moved = await _move(url, args.prefix, settings)
    except StoreError as error:
        print(f"memory-proxy: {error}. Nothing was copied.", file=sys.stderr)
        return 1
    _say(moved, as_json=args.json)
    return 0


async def _move(url: str, prefix: str, settings: "Settings") -> "Moved":
    from proxy.app.open_stores import stores_of
    from proxy.storage.migrate.from_redis import OldRedis, move
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
    for table, count in moved.rows.items():
        print(f"{count:>12,}  {table}")
    print("Everything was copied. Redis is left as it is: delete it once the new store has proved itself.")
    if moved.without_vector:
        print(
            f"{moved.without_vector:,} memories have no vector here (they were in Qdrant): run"
            " `memory-proxy reembed`."
        )
