"""The `memory-proxy` command line: its subcommands, the options of serve, demo and doctor, and exit codes."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from proxy import BUILD
from proxy.domain.errors import ConfigError, EmbeddingFailed, InvalidRequest, StoreError

if TYPE_CHECKING:
    from proxy.config import Settings

# Name, line in the help, and the module with `add_NAME`, which adds the arguments. It is imported only for
# that command: the help does not wait for the server's libraries, nor `memory list` for those of the stores.
_COMMANDS = (
    ("serve", "run the proxy", "proxy.cli.main"),
    ("demo", "show memory at work in this terminal", "proxy.cli.main"),
    ("doctor", "check configuration, upstream, store and models", "proxy.cli.main"),
    ("memory", "show and change the memories of a running proxy", "proxy.client.command_line"),
    ("top", "show what a running proxy does, live", "proxy.cli.top"),
    ("mcp", "serve a running proxy's memory to an MCP client (stdio)", "proxy.client.mcp"),
    ("keys", "create, list and revoke API keys (identity mode `keys`)", "proxy.cli.keys"),
    ("reembed", "embed all memories with another embedding model", "proxy.cli.database"),
    ("reindex", "fill Qdrant again from the database", "proxy.cli.database"),
    ("backup", "copy the database into one file; the proxy may run", "proxy.cli.database"),
    ("restore", "replace the database with a backup; stop the proxy first", "proxy.cli.database"),
    ("receipts", "save the receipts of all deletions, for a later restore", "proxy.cli.database"),
    ("migrate", "copy everything between SQLite and PostgreSQL", "proxy.cli.database"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0 done, 1 failed, 2 wrong use or configuration."""
    argv = sys.argv[1:] if argv is None else argv
    args = _parser(asked=next((word for word in argv if not word.startswith("-")), None)).parse_args(argv)
    try:
        status: int = args.func(args)
    except (ConfigError, InvalidRequest, StoreError, EmbeddingFailed) as e:
        notes = getattr(e, "__notes__", ())  # such as what was left unchanged
        print(f"memory-proxy: {'. '.join([str(e), *notes])}", file=sys.stderr)
        return 2 if isinstance(e, ConfigError | InvalidRequest) else 1
    except KeyboardInterrupt:
        return 130
    return status


def _parser(asked: str | None) -> argparse.ArgumentParser:
    """Return the parser with all commands, and with the arguments of the command `asked`."""
    parser = argparse.ArgumentParser(
        prog="memory-proxy",
        description="A streaming, OpenAI-compatible reverse proxy that gives any application a memory.",
        epilog="Start with `memory-proxy demo`, then `memory-proxy serve --upstream http://…/v1`.",
    )
    parser.add_argument("--version", action="version", version=f"memory-proxy {BUILD}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, line, module in _COMMANDS:
        command = commands.add_parser(name, help=line)
        if name == asked:
            add: Callable[[argparse.ArgumentParser], None] = getattr(import_module(module), f"add_{name}")
            add(command)
    return parser


def add_serve(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run the proxy. Without an upstream it answers with a small scripted model, for first tries."
    )
    parser.epilog = "Every setting of config/default.yaml can also be given as MEMORY_PROXY__SECTION__KEY."
    _add_settings(parser)
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default: 8080; 0: any free port)")
    line = "number of processes that share the port (default: 1)"
    parser.add_argument("--workers", type=int, metavar="N", help=line)
    parser.add_argument(
        "--allow-open",
        action="store_true",
        default=None,
        help="allow identity mode `open` on a network address: every client may name any user",
    )
    parser.set_defaults(func=_serve)


def add_demo(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show in three acts what the proxy stores, injects and forgets. It needs no API key and uses a"
        " temporary data directory."
    )
    line = "base URL of a real model, as its provider documents it"
    parser.add_argument("--upstream", metavar="URL", help=line)
    parser.add_argument("--model", metavar="NAME", help="name of the model (with --upstream)")
    parser.add_argument("--fast", action="store_true", help="no pauses for reading")
    parser.set_defaults(func=_demo)


def add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check the configuration against the real upstream, store and models, and print what to fix."
    )
    _add_settings(parser)
    parser.set_defaults(func=_doctor)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    from proxy.cli import add_place

    add_place(parser)
    line = "base URL of the model provider, as it documents it"
    parser.add_argument("--upstream", metavar="URL", help=line)


def _settings(args: argparse.Namespace) -> "Settings":
    """Return the settings with those of the command line on top, and export these to worker processes."""
    from proxy.config import CONFIG_FILE, PREFIX, load

    flags = {
        "upstream": {"base_url": args.upstream},
        "storage": {"data_dir": args.data_dir},
        "server": {key: getattr(args, key, None) for key in ("host", "port", "workers", "allow_open")},
    }
    given = {
        section: set_
        for section, keys in flags.items()
        if (set_ := {key: value for key, value in keys.items() if value is not None})
    }
    for section, keys in given.items():
        os.environ.update({f"{PREFIX}{section}__{key}".upper(): str(value) for key, value in keys.items()})
    if args.config:
        os.environ[CONFIG_FILE] = str(args.config.absolute())
    return load(args.config, os.environ, given)


def _serve(args: argparse.Namespace) -> int:
    from proxy.app.factories import refuse_open_network
    from proxy.app.server import serve

    settings = _settings(args)
    refuse_open_network(settings)
    return serve(settings)


def _demo(args: argparse.Namespace) -> int:
    from proxy.app.server import demo

    return demo(args.upstream, args.model, fast=args.fast)


def _doctor(args: argparse.Namespace) -> int:
    from proxy.cli.doctor import diagnose

    return diagnose(_settings(args))
