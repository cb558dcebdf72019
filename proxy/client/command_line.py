"""The command line of `memory-proxy memory …`: its parsers, and how errors become messages and exit codes.

Exit codes: 0 done, 1 refused by the proxy or not confirmed, 2 wrong use, 3 the proxy does not answer.
"""

import argparse
import math
import os
import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from rich.markup import escape

from proxy.client import MemoryClient, NotAnswering, RequestRefused, commands
from proxy.client.commands import API_KEY, NEVER, REFUSED, WRONG_USE, CommandResult, WrongUse
from proxy.domain.core import KINDS
from proxy.domain.session import JOB_STATES

DEFAULT_URL = "http://127.0.0.1:8080"
NO_PROXY = 3
TIMES = (
    "a date (2026-12-31), a date and time (2026-12-31T18:30), a duration from now (12h, 30d, 2w),"
    " Unix seconds, or never"
)
_UNITS_S = {"h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(rf"(\d{{1,6}})([{''.join(_UNITS_S)}])")

Command = Callable[[argparse.Namespace, MemoryClient], CommandResult]


def add_memory(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `memory` and its subcommands; each sets `func(args) -> exit code`."""
    parser.description = (
        "Show and change the memories of a running proxy, over its HTTP API. The credential is read from the"
        f" environment variable {API_KEY}."
    )
    group = parser.add_subparsers(dest="memory_command", required=True, metavar="COMMAND")
    _add_reading(group)
    _add_writing(group)
    _add_documents(group)
    _add_oversight(group)


def _run(command: Command, args: argparse.Namespace) -> int:
    """Run the command, print its result or error, and return the exit code."""
    try:
        result = command(args, MemoryClient(args.url, os.environ.get(API_KEY, "")))
        return commands.print_result(result, as_json=args.json)
    except WrongUse as e:
        commands.print_error(escape(str(e)))
        return WRONG_USE
    except RequestRefused as e:
        commands.print_refusal(e)
        return REFUSED
    except NotAnswering:
        commands.print_error(
            f"[red]No memory-proxy answers at {escape(args.url)}.[/] Start one with `memory-proxy serve`, or"
            " name another with --url."
        )
        return NO_PROXY
    except (KeyboardInterrupt, EOFError):
        commands.print_error("Stopped.")
        return REFUSED


# ---------------------------------------------------------------- argument types
def page_limit(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError("must be a whole number from 1 to 100")
    return int(text)


def expiry(text: str) -> float | str:
    """Return the time in Unix seconds, or NEVER. Raises ArgumentTypeError.

    A date alone means midnight. Without an offset, times are in this machine's time zone.
    """
    if text == NEVER:
        return text
    if duration := _DURATION.fullmatch(text):
        return math.floor(time.time()) + int(duration[1]) * _UNITS_S[duration[2]]
    for parse in (float, lambda text: datetime.fromisoformat(text.upper()).timestamp()):
        try:
            seconds = parse(text)
        except (ValueError, OverflowError):  # some machines cannot represent the year 1
            continue
        if math.isfinite(seconds):
            return seconds
    raise argparse.ArgumentTypeError(f"must be {TIMES}")


# ---------------------------------------------------------------- subcommands
def _add_reading(group: Any) -> None:
    listing = _command(group, "list", commands.list_, "show what is stored, newest first")
    _type(listing)
    listing.add_argument("--text", metavar="WORDS", help="only memories that contain this text")
    listing.add_argument("--inactive", action="store_true", help="also superseded, expired and archived ones")
    then = "what was current then: a day, a month, Unix seconds"
    listing.add_argument("--as-of", metavar="WHEN", help=then)
    _timed(listing)
    _paged(listing)

    past = _command(group, "timeline", commands.timeline, "show what happened to memories, newest first")
    _timed(past)
    _paged(past)

    line = "show the people, places, projects and things that memories name, or the memories of one"
    named = _command(group, "entities", commands.entities, line)
    _id(named, nargs="?", help="as the list shows it")
    _paged(named)

    search = _command(group, "search", commands.search, "show which memories a question finds, and why")
    search.add_argument("query", metavar="QUESTION", help="a message as a user would write it")
    _type(search)
    setting = "(default: the proxy's setting)"
    search.add_argument("--limit", type=page_limit, metavar="N", help=f"how many, 1 to 100 {setting}")
    search.add_argument("--threshold", type=float, metavar="0..1", help=f"minimum similarity {setting}")

    _id(_command(group, "get", commands.get, "show one memory and its history"))

    line = "show a user's memories in numbers, and what fades next"
    numbers = _command(group, "insights", commands.insights, line)
    numbers.add_argument("--days", type=int, default=30, metavar="N", help="1 to 366 (default: 30)")

    export = _command(group, "export", commands.export, "write a user's memories to a file, one per line")
    export.add_argument("file", metavar="FILE", help="- for standard output")


def _add_writing(group: Any) -> None:
    add = _command(group, "add", commands.add, "store a memory")
    add.add_argument("content", metavar="TEXT", help="one fact that is understood without context")
    add.add_argument("--type", choices=sorted(KINDS), default="semantic", help="default: semantic")

    edit = _command(group, "edit", commands.edit, "correct a memory; its history has the old version")
    _id(edit)
    edit.add_argument("--content", metavar="TEXT", help="the new text")
    edit.add_argument("--type", choices=sorted(KINDS), help="the new type")
    edit.add_argument("--tags", metavar="A,B", help="the new tags, all of them; '' for none")
    edit.add_argument("--importance", type=float, metavar="0..1", help="the new importance")
    edit.add_argument("--expires", type=expiry, metavar="WHEN", help=f"when it expires: {TIMES}")
    edit.add_argument("--to-project", metavar="ID", help="move it to this project; `none` for no project")
    archived = edit.add_mutually_exclusive_group()
    for option, is_archived, line in (
        ("--archive", True, "exclude it from searches"),
        ("--restore", False, "include it in searches again"),
    ):
        archived.add_argument(option, dest="archived", action="store_const", const=is_archived, help=line)

    for name, line in (
        ("pin", "offer a memory in every conversation; it does not fade"),
        ("unpin", "remove a memory's pin"),
        ("archive", "hide a memory from searches and lists"),
        ("restore", "make an archived memory current again"),
    ):
        changed = _command(group, name, commands.change, line)
        changed.set_defaults(change=name)
        _id(changed)

    _id(_command(group, "undo", commands.undo, "delete a consolidated memory and restore its sources"))
    line = "list memories that cannot both be true, or decide: contradictions ID --keep newer"
    contradictions = _command(group, "contradictions", commands.contradictions, line)
    _id(contradictions, nargs="?", metavar="CONTRADICTION")
    choices = ("newer", "older", "both")
    contradictions.add_argument("--keep", choices=choices, default="both", help="which one")
    _paged(contradictions)

    evolve = _command(group, "evolve", commands.evolve, "do now what time and use change in the background")
    evolve.add_argument("--dry-run", action="store_true", help="show what would change; change nothing")

    forget = _command(group, "forget", commands.forget, "forget one memory, or everything about a user")
    _id(forget, nargs="?", help="the memory; without it, everything that --user and the filters match")
    _type(forget)
    forget.add_argument("--yes", action="store_true", help="do not ask before everything is forgotten")
    forget.add_argument("--dry-run", action="store_true", help="show what would be deleted; change nothing")

    line = "read an export; run it again to resume an interrupted import"
    imported = _command(group, "import", commands.import_, line)
    imported.add_argument("file", metavar="FILE", help="- for standard input")


def _add_documents(group: Any) -> None:
    line = "manage texts that are searched together with the memories: runbooks, handbooks, notes"
    documents = group.add_parser("documents", help=line, description=_sentence(line))
    actions = documents.add_subparsers(dest="documents_command", required=True, metavar="COMMAND")

    line = "store files; a file of the same name is the next version"
    add = _command(actions, "add", commands.add_documents, line)
    add.add_argument("files", nargs="+", metavar="FILE", help="- for standard input")
    add.add_argument("--name", help="name of the document (default: the file's name)")
    add.add_argument("--format", choices=("markdown", "text"), help="default: by the file's suffix")

    _paged(_command(actions, "list", commands.list_documents, "show all documents, newest first"))

    show = _command(actions, "show", commands.show_document, "show a document's headings, or its text")
    _id(show)
    show.add_argument("--content", action="store_true", help="print the stored text")

    line = "delete a document and stored answers that may quote it"
    _id(_command(actions, "delete", commands.delete_document, line))


def _add_oversight(group: Any) -> None:
    _paged(_command(group, "receipts", commands.receipts, "show what was forgotten, newest first"))
    _paged(_command(group, "sessions", commands.sessions, "show a user's sessions, last used first"))
    end = _command(group, "end", commands.end, "end a session: extract its waiting exchanges now")
    _id(end, metavar="SESSION")

    jobs = _command(group, "jobs", commands.jobs, "show extraction jobs, or queue failed ones again")
    jobs.add_argument("--state", choices=JOB_STATES, help="only jobs in this state")
    jobs.add_argument("--retry", action="store_true", help="queue all dead jobs again")
    _paged(jobs)

    line = "review candidates that were held back as suspicious"
    held = _command(group, "quarantine", commands.quarantine, line)
    decision = held.add_mutually_exclusive_group()
    decision.add_argument("--release", metavar="ID", help="store it as a memory")
    decision.add_argument("--discard", metavar="ID", help="delete it")
    _paged(held)


# ---------------------------------------------------------------- shared arguments
def _command(group: Any, name: str, command: Command, line: str) -> argparse.ArgumentParser:
    """Return the subcommand's parser with the arguments that all of them share."""
    parser: argparse.ArgumentParser = group.add_parser(name, help=line, description=_sentence(line))
    parser.add_argument(
        "--url",
        default=os.environ.get("MEMORY_PROXY_URL") or DEFAULT_URL,
        help=f"address of the proxy (default: $MEMORY_PROXY_URL or {DEFAULT_URL})",
    )
    parser.add_argument("--user", metavar="ID", help="the user, as in memory_context.user_id")
    parser.add_argument("--project", metavar="ID", help="only this project")
    parser.add_argument("--json", action="store_true", help="print the proxy's answer as JSON")
    parser.set_defaults(func=lambda args: _run(command, args))
    return parser


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def _id(parser: argparse.ArgumentParser, **options: Any) -> None:
    parser.add_argument("id", **{"metavar": "ID", "help": "as the list shows it", **options})


def _type(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--type", choices=sorted(KINDS), help="only memories of this type")


def _timed(parser: argparse.ArgumentParser) -> None:
    line = "from this time on: 2027-01-31, 2027-01, Unix seconds"
    parser.add_argument("--since", metavar="WHEN", help=line)
    parser.add_argument("--until", metavar="WHEN", help="up to this time; a day or month is included")


def _paged(parser: argparse.ArgumentParser) -> None:
    line = "how many, 1 to 100 (default: 20)"
    parser.add_argument("--limit", type=page_limit, default=20, metavar="N", help=line)
    parser.add_argument("--after", metavar="ID", help="continue after this entry")
