"""The `memory-proxy` command: serve, demo, doctor, keys, memory, and the commands that maintain the data."""

import argparse
import os
import sys
from typing import Any

from proxy import __version__
from proxy.client_cli import add_memory_parser
from proxy.commands.backup import add_backup_parsers
from proxy.commands.keys import add_keys_parser
from proxy.commands.migrate import add_migrate_parser
from proxy.commands.reembed import add_reembed_parser
from proxy.commands.shared import add_place
from proxy.errors import ConfigError
from proxy.settings import CONFIG_FILE, PREFIX, Settings, config_file, from_process


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 fine, 1 failed, 2 wrong usage or configuration."""
    args = _parser().parse_args(argv)
    try:
        status: int = args.func(args)
    except ConfigError as e:
        print(f"memory-proxy: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="memory-proxy",
        description="A streaming, OpenAI-compatible reverse proxy that gives any application a memory.",
        epilog="Start with `memory-proxy demo`, then `memory-proxy serve --upstream http://…/v1`.",
    )
    parser.add_argument("--version", action="version", version=f"memory-proxy {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_demo(commands)
    _add_doctor(commands)
    add_memory_parser(commands)
    add_keys_parser(commands)
    add_reembed_parser(commands)
    add_backup_parsers(commands)
    add_migrate_parser(commands)
    return parser


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser(
        "serve",
        help="run the proxy",
        description="Run the proxy. Without an upstream it serves a small scripted model, for trying it out.",
        epilog="Every setting of config/default.yaml can also be given as MEMORY_PROXY__SECTION__KEY.",
    )
    _add_settings(serve)
    serve.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=int, help="port to listen on (default 8080, 0: any free one)")
    serve.add_argument("--workers", type=int, metavar="N", help="processes that share the port (default 1)")
    serve.add_argument(
        "--allow-open",
        action="store_true",
        default=None,
        help="believe user ids from the network, too: identity mode `open` beyond loopback",
    )
    serve.set_defaults(func=_serve)


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser(
        "demo",
        help="see memory at work, in this terminal",
        description="Play two conversations through the proxy and show what it stores, injects and forgets.",
    )
    demo.add_argument("--upstream", metavar="URL", help="a real model's base URL, ending in /v1")
    demo.add_argument("--model", metavar="NAME", help="the model to ask for (with --upstream)")
    demo.add_argument("--fast", action="store_true", help="without pauses for reading")
    demo.set_defaults(func=_demo)


def _add_doctor(commands: Any) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="check configuration, upstream, store and models",
        description="Check a configuration against the real upstream, store and models, and say what to fix.",
    )
    _add_settings(doctor)
    doctor.set_defaults(func=_doctor)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    add_place(parser)
    parser.add_argument("--upstream", metavar="URL", help="the model provider's base URL, ending in /v1")


def _settings(args: argparse.Namespace) -> Settings:
    """Return the settings with the command line's on top, and leave them so for worker processes."""
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
    from proxy.admission import refuse_open_network
    from proxy.serve import serve

    settings = _settings(args)
    refuse_open_network(settings)
    return serve(settings)


def _demo(args: argparse.Namespace) -> int:
    from proxy.serve import demo

    return demo(args.upstream, args.model, fast=args.fast)


def _doctor(args: argparse.Namespace) -> int:
    from proxy.commands.doctor import diagnose

    return diagnose(_settings(args))
