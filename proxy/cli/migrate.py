"""`memory-proxy migrate`: move what a data directory holds into the stores of a fleet.

The directory is read, never emptied: until the fleet has taken over, going back is to start the old proxy.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import MofNCompleteColumn, TimeRemainingColumn
from rich.table import Table

from proxy import telemetry
from proxy.app.open_stores import stores_of
from proxy.cli.shared import progress, settings_of
from proxy.config import Settings
from proxy.domain.errors import ConfigError, StoreError, WrongModel
from proxy.models.catalog import short_name

if TYPE_CHECKING:
    from proxy.storage.migrate import Moved

_DOING = {"look": "looking at users", "move": "moving", "compare": "comparing"}
_NAMES = {
    "quarantine": "held in quarantine", "stored_responses": "stored responses", "items": "conversation items",
    "responses": "responses by session", "anchors": "standing instructions", "states": "session states",
    "marks": "marks of session states", "bodies": "responses and items",
    "passages": "passages of documents", "passage_vectors": "vectors of passages",
}  # fmt: skip


def add_migrate(parser: argparse.ArgumentParser) -> None:
    """Make it the parser of `migrate`."""
    parser.description = (
        "Copy all that a data directory holds into the stores that the configuration names, and compare the"
        " two. Stop the proxy on the directory and the replicas first. Broken off, it goes on where it was"
        " when it is run again. The directory stays as it is."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="the fleet's YAML file")
    parser.add_argument("--data-dir", type=Path, required=True, metavar="DIR", help="what to move")
    parser.add_argument("--from", dest="origin", choices=["sqlite"], default="sqlite", help=argparse.SUPPRESS)
    parser.add_argument("--to", choices=["redis", "redis+qdrant"], help="refuse unless it is this backend")
    parser.add_argument("--skip-others", action="store_true", help="leave out who has other data there")
    parser.add_argument(
        "--anew",
        action="store_true",
        help="move those again who have changed in the directory since an earlier run; what the fleet has"
        " stored of them since is erased",
    )
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    parser.set_defaults(func=lambda args: asyncio.run(_run(args)))


async def _run(args: argparse.Namespace) -> int:
    telemetry.configure("error", "console")
    settings = settings_of(args.config)
    backend = settings.storage.backend
    if backend == "sqlite":
        raise ConfigError("storage.backend is sqlite: name the fleet's configuration with --config")
    if args.to not in (None, backend):
        raise ConfigError(f"storage.backend is {backend}, not {args.to}")
    if not (args.data_dir / "memory.db").is_file():
        raise ConfigError(f"there are no memories in {args.data_dir}: set --data-dir")
    try:
        moved = await _move(args, settings)
    except StoreError as error:
        print(f"memory-proxy: {error}{_how_to_go_on(error)}", file=sys.stderr)
        return 1
    _say(moved, args, settings)
    return 1 if moved.differs else 0


def _how_to_go_on(error: StoreError) -> str:
    from proxy.storage.damage import DamagedRow
    from proxy.storage.migrate import Refused
    from proxy.storage.redis.stores import Unreachable

    if isinstance(error, Refused | Unreachable | WrongModel | DamagedRow):  # they say it themselves
        return ""
    return ". What is moved is kept: run it again to go on"


async def _move(args: argparse.Namespace, settings: Settings) -> "Moved":
    stores = stores_of(settings)
    # Redis's client is needed from here on: `stores_of` has told where it is missing.
    from proxy.storage import migrate
    from proxy.storage.redis.stores import RedisStores
    from proxy.storage.redis.unit import Units

    assert isinstance(stores, RedisStores)
    try:
        await stores.reach()
        await stores.connection.warn_if_forgetful()
        async with migrate.opened(args.data_dir) as source:
            with progress(_DOING, MofNCompleteColumn(), TimeRemainingColumn()) as told:
                move = migrate.Move(source, Units(stores.connection), stores.index, told)
                return await move.run(anew=args.anew, skip=args.skip_others)
    finally:
        await stores.close()


def _say(moved: "Moved", args: argparse.Namespace, settings: Settings) -> None:
    if args.json:
        print(json.dumps(_as_json(moved)))
        return
    out = Console(highlight=False, soft_wrap=True)
    out.print(_table(moved))
    before = f", {moved.before:,} of them by an earlier run" if moved.before else ""
    out.print(f"{moved.users:,} users moved{before}; {moved.keys:,} API keys.")
    if moved.left_out:
        out.print(f"{moved.left_out:,} users were left out: they have other data in the target.")
    if moved.model not in (None, short_name(settings.embedding.model)):
        out.print(
            f"The vectors were made with {moved.model}, and the configuration names"
            f" {settings.embedding.model}: set embedding.model, or run `memory-proxy reembed`."
        )
    if moved.differs:
        out.print("NOT THE SAME: " + ", ".join(_NAMES.get(name, name) for name in moved.differs))
    else:
        out.print(
            "The two sides agree. The directory is left as it is: keep it until the fleet has proved itself."
        )


def _table(moved: "Moved") -> Table:
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("")
    table.add_column("directory", justify="right")
    table.add_column("target", justify="right")
    for name, count in moved.old.counts.items():
        table.add_row(_NAMES.get(name, name), f"{count:,}", f"{moved.new.counts[name]:,}")
    for name, digest in moved.old.digests.items():
        shown = f"digest of {_NAMES.get(name, name)}"
        table.add_row(shown, f"{digest:016x}", f"{moved.new.digests[name]:016x}")
    return table


def _as_json(moved: "Moved") -> dict[str, Any]:
    return {
        "users": moved.users, "before": moved.before, "left_out": moved.left_out, "keys": moved.keys,
        "directory": moved.old.as_row(), "target": moved.new.as_row(),
        "differs": moved.differs,
    }  # fmt: skip
