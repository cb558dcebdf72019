"""`memory-proxy keys …`: create, list and revoke the proxy's own API keys.

It opens the store itself, whether or not a proxy is running, and prints its place on standard error. A
running proxy sees a change within a second. Only the hash of a key is stored: it is printed when it is made.
"""

import argparse
import asyncio
import contextlib
import getpass
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.cli import add_run, database_of, is_present, opened_stores, was_lost
from proxy.config import Settings
from proxy.domain.errors import InvalidRequest, StoreUnavailable
from proxy.domain.ports import RIGHTS, Key, KeyStore
from proxy.http.auth import keys
from proxy.http.auth.identity import OPEN_TENANT, USER_RIGHTS, is_sendable
from proxy.wire.extensions import checked_id

DEFAULT_RIGHTS = "chat,memory"
MAX_NAME_CHARS = 100


def add_keys(parser: argparse.ArgumentParser) -> None:
    parser.description = "Manage the proxy's own API keys, for identity.mode `keys`."
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="create a key and print it; it cannot be printed again")
    create.add_argument("--name", required=True, help="a name that tells you who uses it")
    create.add_argument(
        "--tenant", default=OPEN_TENANT, help="tenant of its users and memories (default: %(default)s)"
    )
    create.add_argument("--user", help="the only user it is valid for (default: each request names its user)")
    create.add_argument(
        "--rights",
        default=DEFAULT_RIGHTS,
        help=f"any of {', '.join(sorted(RIGHTS))}, separated by commas (default: %(default)s)",
    )
    create.add_argument(
        "--upstream-key",
        metavar="-|ENV:NAME",
        help="the upstream key that its requests are sent with: - reads it from standard input, ENV:NAME from"
        " an environment variable (default: the setting upstream.api_key)",
    )
    add_run(create, lambda args, settings: asyncio.run(_create(args, settings)), json="print JSON")
    listed = actions.add_parser("list", help="show all keys; the secret keys themselves are not stored")
    add_run(listed, lambda args, settings: asyncio.run(_list(args, settings)), json="print JSON")
    revoke = actions.add_parser("revoke", help="revoke a key, with effect within a second")
    revoke.add_argument("id", metavar="ID", help="the id that `keys list` shows")
    add_run(revoke, lambda args, settings: asyncio.run(_revoke(args, settings)), json="print JSON")


# ---------------------------------------------------------------- actions
async def _create(args: argparse.Namespace, settings: Settings) -> int:
    if not args.name.strip() or len(args.name) > MAX_NAME_CHARS or not args.name.isprintable():
        raise InvalidRequest(f"--name must be one line of 1 to {MAX_NAME_CHARS} characters")
    secret = keys.new_key()
    key = Key(
        id=keys.new_id(),
        name=args.name.strip(),
        tenant=checked_id(args.tenant, "--tenant"),
        user=None if args.user is None else checked_id(args.user, "--user"),
        rights=_rights(args.rights, args.user),
        upstream_key=_sealed(secret, args.upstream_key),
        created_at=time.time(),
    )
    async with _store(settings) as store:
        await store.add(key, keys.digest_of(secret))
    if args.json:
        print(json.dumps({**_shown(key), "key": secret}))
        return 0
    print(secret)
    print(f"Key {key.id} is made. It is shown only this once: save it now.", file=sys.stderr)
    return 0


async def _list(args: argparse.Namespace, settings: Settings) -> int:
    found: Sequence[Key] = ()
    if is_there := _has_database(settings):  # else it printed the reason
        async with _store(settings) as store:
            found = await store.list()
    if args.json:
        print(json.dumps([_shown(key) for key in found]))
    elif found:
        Console().print(_table(found))
    elif is_there:
        print("No keys. Create one: memory-proxy keys create --name NAME", file=sys.stderr)
    return 0


async def _revoke(args: argparse.Namespace, settings: Settings) -> int:
    if not _has_database(settings):
        return 1
    async with _store(settings) as store:
        revoked = await store.revoke(args.id, time.time())
    if not revoked:
        print(f"memory-proxy: no valid key has the id {args.id!r}", file=sys.stderr)
    elif args.json:
        print(json.dumps({"id": args.id, "revoked": True}))
    else:
        print(f"Key {args.id} is revoked.")
    return 0 if revoked else 1


@contextlib.asynccontextmanager
async def _store(settings: Settings) -> AsyncIterator[KeyStore]:
    """Open the store of the settings. Raises StoreUnavailable."""
    from proxy.app.factories import place_of  # slow to import: `--help` does not wait for it

    print(f"Keys in {place_of(settings)}", file=sys.stderr)
    database = database_of(settings)
    if settings.storage.backend == "sqlite" and not is_present(database) and was_lost(database):
        # A running proxy would take a new file for its lost one.
        raise StoreUnavailable(f"{database} is missing: put it back, or restore a backup")
    async with opened_stores(settings) as stores:
        yield stores.keys


def _has_database(settings: Settings) -> bool:
    """Return whether there is a database, else print why not. Listing keys must not create one."""
    if settings.storage.backend != "sqlite" or database_of(settings).is_file():
        return True
    print(
        f"memory-proxy: there is no data in {settings.data_dir}, so there are no keys. Name another directory"
        " with --data-dir or --config, or create the first key: memory-proxy keys create --name NAME",
        file=sys.stderr,
    )
    return False


# ---------------------------------------------------------------- arguments
def _rights(text: str, user: str | None) -> frozenset[str]:
    rights = frozenset(name.strip() for name in text.split(","))
    if not rights <= RIGHTS:
        unknown = min(rights - RIGHTS)
        raise InvalidRequest(f"--rights: {unknown!r} is not one of {', '.join(sorted(RIGHTS))}")
    if user is not None and not rights <= USER_RIGHTS:
        raise InvalidRequest("--rights: a key with --user is for that user only and cannot have `admin`")
    return rights


def _sealed(secret: str, source: str | None) -> bytes | None:
    """Return the encrypted upstream key. It is not an argument: other programs can read those."""
    if source is None:
        return None
    if source == "-":
        given = getpass.getpass("Upstream key: ") if sys.stdin.isatty() else sys.stdin.readline()
    elif source.startswith("ENV:"):
        name = source.removeprefix("ENV:")
        given = os.environ.get(name, "")
        if not given.strip():
            raise InvalidRequest(f"--upstream-key: the environment variable {name!r} is not set or empty")
    else:
        raise InvalidRequest("--upstream-key must be - (standard input) or ENV:NAME, not the key itself")
    if not is_sendable(given.strip()):
        raise InvalidRequest("--upstream-key: the key is empty, or has blanks or non-ASCII characters")
    return keys.seal(secret, given.strip())


# ---------------------------------------------------------------- output
def _shown(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "user_id": key.user,
        "rights": sorted(key.rights),
        "has_upstream_key": key.upstream_key is not None,
        "created_at": int(key.created_at),
        "revoked_at": None if key.revoked_at is None else int(key.revoked_at),
    }


def _table(found: Sequence[Key]) -> Table:
    """Return the keys as a table that fits a terminal of 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("ID", no_wrap=True, min_width=12)  # the argument of `revoke`
    for heading in ("Name", "Tenant", "User", "Rights", "Upstream", "Created", "State"):
        table.add_column(heading, overflow="fold")
    for key in found:
        cells = (
            key.id,
            key.name,
            key.tenant,
            key.user or "any",
            " ".join(sorted(key.rights)),
            "own key" if key.upstream_key else "server's",
            _day(key.created_at),
            "valid" if key.revoked_at is None else f"revoked {_day(key.revoked_at)}",
        )
        table.add_row(*map(escape, cells))
    return table


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))
