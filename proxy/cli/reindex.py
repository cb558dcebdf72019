"""`memory-proxy reindex`: make the collections in Qdrant again, from the database."""

import argparse
import asyncio
import sys
from functools import partial

from rich.progress import MofNCompleteColumn, TimeRemainingColumn

from proxy import telemetry
from proxy.app.open_stores import stores_of
from proxy.cli.shared import add_place, progress, settings_of
from proxy.config import Settings
from proxy.domain.errors import ConfigError, StoreError


def add_reindex(parser: argparse.ArgumentParser) -> None:
    """Make it the parser of `reindex`."""
    parser.description = (
        "Delete the collections in Qdrant and fill them again from the database: after a change of"
        " quantization or replication. Running proxies keep answering, with exact search until it is done."
        " Broken off, it goes on where it was, here or in a running proxy."
    )
    add_place(parser)
    parser.set_defaults(func=lambda args: _run(args))


def _run(args: argparse.Namespace) -> int:
    telemetry.configure("error", "console")
    try:
        settings = settings_of(args.config, args.data_dir)
        if settings.storage.vectors != "qdrant":
            raise ConfigError("storage.vectors is not qdrant: there is nothing to make again")
        sent = asyncio.run(_reindex(settings))
    except ConfigError as error:
        print(f"memory-proxy: {error}", file=sys.stderr)
        return 2
    except StoreError as error:
        print(f"memory-proxy: {error}. What is done stays: run it again to go on", file=sys.stderr)
        return 1
    print(f"{sent:,} memories sent to {settings.qdrant.url}.")
    return 0


async def _reindex(settings: Settings) -> int:
    stores = stores_of(settings)
    try:
        await stores.open()
        with progress({"send": "send"}, MofNCompleteColumn(), TimeRemainingColumn()) as told:
            return await stores.reindex(partial(told, "send"))
    finally:
        await stores.close()
