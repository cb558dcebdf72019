"""The command line of `memory-proxy memory …`, and how errors become messages and exit codes."""

import argparse
import os
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.markup import escape

from proxy.client import documents, memories, moving, oversight, shown
from proxy.client.api import MemoryApi, NotAnswering, Refused
from proxy.client.shown import REFUSED, Terminal, limit
from proxy.client.times import WAYS, expiry
from proxy.domain.core import KINDS
from proxy.domain.oversight import JOB_STATES

DEFAULT_URL = "http://127.0.0.1:8080"
NO_PROXY = 3

Command = Callable[[argparse.Namespace, MemoryApi, Console], int]


def add_memory(parser: argparse.ArgumentParser) -> None:
    """Make it the parser of `memory` with its subcommands; each sets `func(args) -> exit code`."""
    parser.description = (
        "See and change what a running proxy remembers, over its HTTP API. The credential is"
        f" ${shown.API_KEY}."
    )
    commands = parser.add_subparsers(dest="memory_command", required=True, metavar="command")
    _add_reading(commands)
    _add_writing(commands)
    _add_documents(commands)
    _add_moving(commands)
    _add_oversight(commands)


def _add_reading(commands: Any) -> None:
    listing = _command(commands, "list", memories.list_, "show what is stored, newest first")
    _type(listing)
    listing.add_argument("--text", metavar="WORDS", help="only memories that contain this text")
    listing.add_argument("--inactive", action="store_true", help="superseded, expired and archived ones too")
    _paged(listing)

    search = _command(commands, "search", memories.search, "show what memory finds for a question, and why")
    search.add_argument("query", help="the question")
    _type(search)
    search.add_argument("--limit", type=limit, help="how many, 1 to 100 (default: the proxy's, 10)")
    search.add_argument(
        "--threshold", type=float, metavar="0..1", help="least similarity (default: the proxy's)"
    )

    get = _command(commands, "get", memories.get, "show one memory and its history")
    get.add_argument("id")


def _add_writing(commands: Any) -> None:
    add = _command(commands, "add", memories.add, "store a memory")
    add.add_argument("content", help="one fact that is understood by itself")
    add.add_argument("--type", choices=sorted(KINDS), default="semantic", help="default semantic")

    edit = _command(commands, "edit", memories.edit, "correct a memory; its history keeps what it said")
    edit.add_argument("id")
    edit.add_argument("--content", help="what it should say")
    edit.add_argument("--type", choices=sorted(KINDS))
    edit.add_argument("--tags", metavar="A,B", help="all of its tags; '' for none")
    edit.add_argument("--importance", type=float, metavar="0..1")
    edit.add_argument("--expires", type=expiry, metavar="WHEN", help=WAYS)
    edit.add_argument("--to-project", metavar="ID", help="move it to this project, or none")
    archived = edit.add_mutually_exclusive_group()
    archived.add_argument("--archive", dest="archived", action="store_true", default=None)
    archived.add_argument("--restore", dest="archived", action="store_false", default=None)

    forget = _command(commands, "forget", memories.forget, "forget one memory, or everything of a user")
    forget.add_argument(
        "id", nargs="?", help="the memory; without it, everything that --user and the rest say"
    )
    _type(forget)
    forget.add_argument("--yes", action="store_true", help="do not ask before forgetting everything")
    forget.add_argument("--dry-run", action="store_true", help="say how much would go, and change nothing")

    receipts = _command(commands, "receipts", memories.receipts, "show what was forgotten, newest first")
    _paged(receipts)


def _add_documents(commands: Any) -> None:
    words = "texts that are searched beside the memories: runbooks, handbooks, notes"
    group = commands.add_parser("documents", help=words, description=words)
    of_documents = group.add_subparsers(dest="documents_command", required=True, metavar="command")

    add = _command(of_documents, "add", documents.add, "keep files; one of the same name is the next version")
    add.add_argument("files", nargs="+", metavar="FILE", help="- for standard input")
    add.add_argument("--name", help="what to call it (default: the file's name)")
    add.add_argument("--format", choices=("markdown", "text"), help="default: by the file's name")

    _paged(_command(of_documents, "list", documents.list_, "show what is kept, the last written first"))

    show = _command(of_documents, "show", documents.show, "show a document's headings, or its text")
    show.add_argument("id")
    show.add_argument("--content", action="store_true", help="print the text as it is kept")

    delete = _command(of_documents, "delete", documents.delete, "delete a document and what may repeat it")
    delete.add_argument("id")


def _add_moving(commands: Any) -> None:
    export = _command(commands, "export", moving.export, "write a user's memories to a file, one a line")
    export.add_argument("file", metavar="FILE", help="- for standard output")
    bring_in = _command(commands, "import", moving.bring_in, "read an export; run it again to resume it")
    bring_in.add_argument("file", metavar="FILE", help="- for standard input")


def _add_oversight(commands: Any) -> None:
    sessions = _command(commands, "sessions", oversight.sessions, "show a user's sessions, last used first")
    _paged(sessions)
    end = _command(commands, "end", oversight.end, "extract now what a session holds")
    end.add_argument("id", metavar="SESSION")

    jobs = _command(commands, "jobs", oversight.jobs, "show extraction jobs, or queue dead ones again")
    jobs.add_argument("--state", choices=JOB_STATES, help="only these")
    jobs.add_argument("--retry", action="store_true", help="queue the dead ones again")
    _paged(jobs)

    held = _command(commands, "quarantine", oversight.quarantine, "review what was held back as doubtful")
    decision = held.add_mutually_exclusive_group()
    decision.add_argument("--release", metavar="ID", help="remember it: it is harmless")
    decision.add_argument("--discard", metavar="ID", help="erase it")
    _paged(held)


# ---------------------------------------------------------------- what several have in common
def _command(commands: Any, name: str, func: Command, help_text: str) -> argparse.ArgumentParser:
    """Return the subcommand's parser with what all have in common."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_text, description=help_text)
    parser.add_argument(
        "--url",
        default=os.environ.get("MEMORY_PROXY_URL") or DEFAULT_URL,
        help=f"where the proxy listens (default $MEMORY_PROXY_URL or {DEFAULT_URL})",
    )
    parser.add_argument("--user", metavar="ID", help="whose memories")
    parser.add_argument("--project", metavar="ID", help="only this project's")
    parser.add_argument("--json", action="store_true", help="print the proxy's answer as JSON")
    parser.set_defaults(func=lambda args: _guarded(func, args))
    return parser


def _type(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--type", choices=sorted(KINDS), help="only this type")


def _paged(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=limit, default=20, help="how many, 1 to 100 (default 20)")
    parser.add_argument("--after", metavar="ID", help="continue after this one")


def _guarded(command: Command, args: argparse.Namespace) -> int:
    """Run the command; what can go wrong becomes one line and an exit code."""
    errors = Terminal(stderr=True)
    api = MemoryApi(args.url, os.environ.get(shown.API_KEY, ""))
    try:
        return command(args, api, Terminal())
    except Refused as e:
        shown.print_refusal(e)
        return REFUSED
    except NotAnswering:
        errors.print(
            f"[red]No memory-proxy answers at {escape(args.url)}.[/] Start one with `memory-proxy serve`,"
            " or name another with --url.",
            highlight=False,
        )
        return NO_PROXY
    except (KeyboardInterrupt, EOFError):
        errors.print("Stopped.")
        return REFUSED
