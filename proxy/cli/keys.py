"""`memory-proxy keys …`: make, list and revoke the proxy's own API keys.

It works on the stores themselves, whether a proxy runs on them or not, and says on standard error which they
are; a running one knows within a second. A key is shown once, when it is made: nobody can show it again.
"""

import argparse
import asyncio
import contextlib
import getpass
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy import telemetry
from proxy.cli.shared import add_place, settings_of
from proxy.config import Settings
from proxy.domain.errors import InvalidRequest, StoreError, StoreUnavailable
from proxy.domain.oversight import RIGHTS, Key
from proxy.domain.ports import KeyStore
from proxy.http.auth import keys
from proxy.http.auth.caller import OPEN_TENANT
from proxy.http.auth.credential import is_sendable
from proxy.http.auth.modes import USER_RIGHTS
from proxy.wire.extensions import checked_id

Run = Callable[[argparse.Namespace], Awaitable[int]]

DEFAULT_RIGHTS = "chat,memory"
MAX_NAME_CHARS = 100


def add_keys(parser: argparse.ArgumentParser) -> None:
    """Make it the parser of `keys` and its actions."""
    parser.description = "The proxy's own API keys. They count where identity.mode is `keys`."
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make a key, and print it: once")
    create.add_argument("--name", required=True, help="what you know it by")
    create.add_argument(
        "--tenant", default=OPEN_TENANT, help="whose users and memories (default: %(default)s)"
    )
    create.add_argument("--user", help="the one user that it is for; without, its requests name their user")
    create.add_argument(
        "--rights",
        default=DEFAULT_RIGHTS,
        help=f"of {', '.join(sorted(RIGHTS))}, joined by commas (default: %(default)s)",
    )
    create.add_argument(
        "--upstream-key",
        metavar="-|ENV:NAME",
        help="the upstream's key that it stands for: - reads it from standard input, ENV:NAME from the"
        " environment. Without, the server's upstream.api_key is used",
    )
    _finish(create, _create)
    _finish(actions.add_parser("list", help="show all keys, without the keys themselves"), _list)
    revoke = actions.add_parser("revoke", help="end a key; within a second, nobody gets in with it")
    revoke.add_argument("id", metavar="ID", help="as `keys list` shows it")
    _finish(revoke, _revoke)


def _finish(parser: argparse.ArgumentParser, run: Run) -> None:
    add_place(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(func=lambda args: asyncio.run(_run(args, run)))


async def _run(args: argparse.Namespace, run: Run) -> int:
    telemetry.configure("error", "console")  # the key is all that standard output gets
    try:
        return await run(args)
    except (StoreError, InvalidRequest) as error:
        print(f"memory-proxy: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidRequest) else 1


# ---------------------------------------------------------------- actions
async def _create(args: argparse.Namespace) -> int:
    secret = keys.new_key()
    key = Key(
        id=keys.new_id(),
        name=_name(args.name),
        tenant=checked_id(args.tenant, "--tenant"),
        user=None if args.user is None else checked_id(args.user, "--user"),
        rights=_rights(args.rights, args.user),
        upstream_key=_sealed(secret, args.upstream_key),
        created_at=time.time(),
    )
    async with _store(args) as store:
        await store.add(key, keys.digest_of(secret))
    if args.json:
        print(json.dumps({**_shown(key), "key": secret}))
        return 0
    print(secret)
    print(f"Key {key.id} is made. It is shown this once: keep it now.", file=sys.stderr)
    return 0


async def _list(args: argparse.Namespace) -> int:
    found: Sequence[Key] = ()
    if is_there := _has_data(args):
        async with _store(args) as store:
            found = await store.list()
    if args.json:
        print(json.dumps([_shown(key) for key in found]))
    elif not is_there:
        pass  # that has been said
    elif found:
        Console().print(_table(found))
    else:
        print("No keys. Make one: memory-proxy keys create --name NAME", file=sys.stderr)
    return 0


async def _revoke(args: argparse.Namespace) -> int:
    if not _has_data(args):
        return 1
    async with _store(args) as store:
        revoked = await store.revoke(args.id, time.time())
    if not revoked:
        print(f"memory-proxy: there is no valid key {args.id!r}", file=sys.stderr)
    elif args.json:
        print(json.dumps({"id": args.id, "revoked": True}))
    else:
        print(f"Key {args.id} is revoked.")
    return 0 if revoked else 1


@contextlib.asynccontextmanager
async def _store(args: argparse.Namespace) -> AsyncIterator[KeyStore]:
    """Open the keys where the settings say that they are."""
    from proxy.app.open_stores import stores_of  # slow to import, which `--help` need not wait for
    from proxy.cli import doctor_data

    settings = settings_of(args.config, args.data_dir)
    print(f"Keys in {_place(settings)}", file=sys.stderr)
    database = settings.data_dir / "memory.db"
    is_missing = settings.storage.backend == "sqlite" and not doctor_data.is_there(database)
    if is_missing and (found := doctor_data.absent(database)).mark == doctor_data.BAD:
        raise StoreUnavailable(found.text)  # made anew, a proxy that has lost it would take it for its own
    stores = stores_of(settings)
    try:
        await stores.open()
        yield stores.keys
    finally:
        await stores.close()


def _has_data(args: argparse.Namespace) -> bool:
    """Say so where there is nothing to read: to look for keys makes no directory and no database."""
    settings = settings_of(args.config, args.data_dir)
    if settings.storage.backend != "sqlite" or (settings.data_dir / "memory.db").is_file():
        return True
    print(
        f"memory-proxy: there is no data in {settings.data_dir}, and so no key: name the right directory with"
        " --data-dir or --config, or make the first key with: memory-proxy keys create --name NAME",
        file=sys.stderr,
    )
    return False


def _place(settings: Settings) -> str:
    if settings.storage.backend == "sqlite":
        return str(settings.data_dir)
    return f"Redis, prefix {settings.redis.prefix}"  # its URL may hold a password


# ---------------------------------------------------------------- what is given
def _name(name: str) -> str:
    if not name.strip() or len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise InvalidRequest(f"--name must be one line of 1 to {MAX_NAME_CHARS} characters")
    return name.strip()


def _rights(text: str, user: str | None) -> frozenset[str]:
    rights = frozenset(name.strip() for name in text.split(","))
    if not rights <= RIGHTS:
        unknown = min(rights - RIGHTS)
        raise InvalidRequest(f"--rights: {unknown!r} is none of {', '.join(sorted(RIGHTS))}")
    if user is not None and not rights <= USER_RIGHTS:
        raise InvalidRequest("--rights: a key with a --user cannot be admin: it sees that user only")
    return rights


def _sealed(secret: str, source: str | None) -> bytes | None:
    """Return the upstream key, sealed. It is never an argument: other programs see those."""
    if source is None:
        return None
    if source == "-":
        given = getpass.getpass("Upstream key: ") if sys.stdin.isatty() else sys.stdin.readline()
    elif source.startswith("ENV:"):
        name = source.removeprefix("ENV:")
        given = os.environ.get(name, "")
        if not given.strip():
            raise InvalidRequest(f"--upstream-key: the environment variable {name!r} is not set, or empty")
    else:
        raise InvalidRequest("--upstream-key must be - (standard input) or ENV:NAME, not the key itself")
    if not is_sendable(given.strip()):
        raise InvalidRequest(
            "--upstream-key: what was read is empty, or holds blanks or non-ASCII characters"
        )
    return keys.seal(secret, given.strip())


# ---------------------------------------------------------------- what is shown
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
    table.add_column("ID", no_wrap=True, min_width=12)  # what `revoke` has to be given
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
