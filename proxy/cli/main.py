"""The `memory-proxy` command: serve, demo, doctor, keys, memory, and the commands that maintain the data."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from proxy.build import BUILD
from proxy.domain.errors import ConfigError

if TYPE_CHECKING:
    from proxy.config import Settings

# Name, line in the help, and what adds the arguments: its module is imported for that command alone, so that
# the help does not wait for the server's libraries, nor `memory list` for those of the stores.
_COMMANDS = (
    ("serve", "run the proxy", "proxy.cli.main:add_serve"),
    ("demo", "see memory at work, in this terminal", "proxy.cli.main:add_demo"),
    ("doctor", "check configuration, upstream, store and models", "proxy.cli.main:add_doctor"),
    ("memory", "see and change what a running proxy remembers", "proxy.client.command_line:add_memory"),
    ("keys", "make, list and revoke API keys (identity mode `keys`)", "proxy.cli.keys:add_keys"),
    (
        "reembed",
        "give all memories the vectors of another embedding model",
        "proxy.cli.reembed:add_reembed",
    ),
    ("reindex", "fill Qdrant again from the database", "proxy.cli.reindex:add_reindex"),
    (
        "backup",
        "copy everything that is remembered into one file, while the proxy serves",
        "proxy.cli.backup:add_backup",
    ),
    ("restore", "put a backup in place of what is remembered now", "proxy.cli.backup:add_restore"),
    (
        "receipts",
        "save the receipts of everything that was forgotten, for a later restore",
        "proxy.cli.backup:add_receipts",
    ),
    ("migrate", "copy everything from the Redis of an earlier version", "proxy.cli.migrate:add_migrate"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 fine, 1 failed, 2 wrong usage or configuration."""
    argv = sys.argv[1:] if argv is None else argv
    args = _parser(asked=next((word for word in argv if not word.startswith("-")), None)).parse_args(argv)
    try:
        status: int = args.func(args)
    except ConfigError as e:
        print(f"memory-proxy: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status


def _parser(asked: str | None) -> argparse.ArgumentParser:
    """Return the parser of all commands, with the arguments of the one that is asked for."""
    parser = argparse.ArgumentParser(
        prog="memory-proxy",
        description="A streaming, OpenAI-compatible reverse proxy that gives any application a memory.",
        epilog="Start with `memory-proxy demo`, then `memory-proxy serve --upstream http://…/v1`.",
    )
    parser.add_argument("--version", action="version", version=f"memory-proxy {BUILD}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, line, place in _COMMANDS:
        command = commands.add_parser(name, help=line)
        if name == asked:
            module, _, function = place.partition(":")
            add: Callable[[argparse.ArgumentParser], None] = getattr(import_module(module), function)
            add(command)
    return parser


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Make it the parser of `serve`."""
    parser.description = (
        "Run the proxy. Without an upstream it serves a small scripted model, for trying it out."
    )
    parser.epilog = "Every setting of config/default.yaml can also be given as MEMORY_PROXY__SECTION__KEY."
    _add_settings(parser)
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default 8080, 0: any free one)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes that share the port (default 1)")
    parser.add_argument(
        "--allow-open",
        action="store_true",
        default=None,
        help="believe user ids from the network, too: identity mode `open` beyond loopback",
    )
    parser.set_defaults(func=_serve)


def add_demo(parser: argparse.ArgumentParser) -> None:
    """Make it the parser of `demo`."""
    parser.description = (
        "Play two conversations through the proxy and show what it stores, injects and forgets."
    )
    parser.add_argument("--upstream", metavar="URL", help="a real model's base URL, as it documents it")
    parser.add_argument("--model", metavar="NAME", help="the model to ask for (with --upstream)")
    parser.add_argument("--fast", action="store_true", help="without pauses for reading")
    parser.set_defaults(func=_demo)


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Make it the parser of `doctor`."""
    parser.description = (
        "Check a configuration against the real upstream, store and models, and say what to fix."
    )
    _add_settings(parser)
    parser.set_defaults(func=_doctor)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    from proxy.cli.shared import add_place

    add_place(parser)
    parser.add_argument("--upstream", metavar="URL", help="the model provider's base URL, as it documents it")


def _settings(args: argparse.Namespace) -> "Settings":
    """Return the settings with the command line's on top, and leave them so for worker processes."""
    from proxy.config import CONFIG_FILE, PREFIX, config_file, from_process

    flags = {
        "upstream": {"base_url": args.upstream},
        "storage": {"data_dir": args.data_dir},
        "server": {key: getattr(args, key, None) for key in ("host", "port", "workers", "allow_open")},
    }
    given = {
        section: kept
        for section, keys in flags.items()
        if (kept := {key: value for key, value in keys.items() if value is not None})
    }
    for section, keys in given.items():
        os.environ.update({f"{PREFIX}{section}__{key}".upper(): str(value) for key, value in keys.items()})
    if args.config:
        os.environ[CONFIG_FILE] = str(args.config.absolute())
    return from_process(config_file(args.config, os.environ), given)


def _serve(args: argparse.Namespace) -> int:
    from proxy.app.admission import refuse_open_network
    from proxy.app.serve import serve

    settings = _settings(args)
    refuse_open_network(settings)
    return serve(settings)


def _demo(args: argparse.Namespace) -> int:
    from proxy.app.serve import demo

    return demo(args.upstream, args.model, fast=args.fast)


def _doctor(args: argparse.Namespace) -> int:
    from proxy.cli.doctor import diagnose

    return diagnose(_settings(args))
