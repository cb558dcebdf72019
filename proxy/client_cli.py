"""`memory-proxy memory …`: see and change what a running proxy remembers, over its HTTP API.

Exit codes: 0 done, 1 refused by the proxy or by the person, 2 wrong use, 3 the proxy does not answer.
"""

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.domain import KINDS

DEFAULT_URL = "http://127.0.0.1:8080"
TIMEOUT_S = 30
REFUSED, WRONG_USE, NO_PROXY = 1, 2, 3


class Refused(Exception):
    """The proxy answered with an error; the message is the proxy's own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class NotAnswering(Exception):
    """Nothing that speaks HTTP answers at the address."""


@dataclass(frozen=True, slots=True)
class MemoryApi:
    """The memory API of a running proxy. Every call raises Refused or NotAnswering."""

    url: str
    api_key: str = ""

    def list(self, **filters: Any) -> dict[str, Any]:
        """Return one page, newest first. Filters: user_id, project_id, type, q, include, limit, after."""
        return self._call("GET", "/v1/memory", query=filters)

    def search(self, **body: Any) -> dict[str, Any]:
        """Return what memory finds. Body: query, user_id, project_id, memory_types, limit, …"""
        return self._call("POST", "/v1/memory/search", body=body)

    def add(self, **body: Any) -> dict[str, Any]:
        """Store a memory and return it. Body: content, type, user_id, project_id, …"""
        return self._call("POST", "/v1/memory", body=body)

    def get(self, memory_id: str, **query: Any) -> dict[str, Any]:
        """Return one memory."""
        return self._call("GET", _item(memory_id), query=query)

    def history(self, memory_id: str, **query: Any) -> dict[str, Any]:
        """Return what happened to one memory, oldest first."""
        return self._call("GET", _item(memory_id) + "/history", query=query)

    def forget(self, memory_id: str, **query: Any) -> dict[str, Any]:
        """Forget one memory."""
        return self._call("DELETE", _item(memory_id), query=query)

    def forget_all(self, **filters: Any) -> dict[str, Any]:
        """Forget a user's everything. Filters: user_id, project_id, type."""
        return self._call("DELETE", "/v1/memory", query=filters)

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, Any] | None = None,
        body: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        given = _given(query or {})
        address = self.url.rstrip("/").removesuffix("/v1") + path
        request = urllib.request.Request(
            address + ("?" + urllib.parse.urlencode(given) if given else ""),
            data=None if body is None else json.dumps(_given(body)).encode(),
            headers={"Content-Type": "application/json", "User-Agent": "memory-proxy-cli"},
            method=method,
        )
        if self.api_key:
            request.add_header("Authorization", f"Bearer {self.api_key}")
        try:
            with _open(request, timeout=TIMEOUT_S) as response:
                answer: Any = json.load(response)
        except urllib.error.HTTPError as e:
            with e:
                raise Refused(e.code, _message(e.code, e.read())) from None
        except (OSError, ValueError) as e:  # refused, no such host, cut off, not JSON
            raise NotAnswering(self.url) from e
        if not isinstance(answer, dict):
            raise NotAnswering(self.url)
        return answer


# A proxy of the environment (HTTP_PROXY) must not come between us and our own machine.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def _item(memory_id: str) -> str:
    return "/v1/memory/" + urllib.parse.quote(memory_id, safe="")


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _message(status: int, raw: bytes) -> str:
    """Return the error's own words; a plain sentence where the body is not in OpenAI's shape."""
    try:
        return str(json.loads(raw)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the proxy answered with status {status}"


# ---------------------------------------------------------------- the commands
Command = Callable[[argparse.Namespace, MemoryApi, Console], int]


def add_memory_parser(subparsers: Any) -> None:
    """Add `memory` with its subcommands; each sets `func(args) -> exit code`."""
    memory = subparsers.add_parser(
        "memory",
        help="see and change what a running proxy remembers",
        description=(__doc__ or "").partition("\n\n")[0],
    )
    commands = memory.add_subparsers(dest="memory_command", required=True, metavar="command")

    listing = _command(commands, "list", _list, "show what is stored, newest first")
    listing.add_argument("--type", choices=sorted(KINDS), help="only this type")
    listing.add_argument("--text", metavar="WORDS", help="only memories that contain this text")
    listing.add_argument("--inactive", action="store_true", help="superseded, expired and archived ones too")
    listing.add_argument("--limit", type=_limit, default=20, help="how many, 1 to 100 (default 20)")
    listing.add_argument("--after", metavar="ID", help="continue after this memory")

    search = _command(commands, "search", _search, "show what memory finds for a question, and why")
    search.add_argument("query", help="the question")
    search.add_argument("--type", choices=sorted(KINDS), help="only this type")
    search.add_argument("--limit", type=_limit, default=10, help="how many, 1 to 100 (default 10)")
    search.add_argument(
        "--threshold", type=float, metavar="0..1", help="least similarity (default: the model's)"
    )

    add = _command(commands, "add", _add, "store a memory")
    add.add_argument("content", help="one fact that is understood by itself")
    add.add_argument("--type", choices=sorted(KINDS), default="semantic", help="default semantic")

    get = _command(commands, "get", _get, "show one memory and its history")
    get.add_argument("id")

    forget = _command(commands, "forget", _forget, "forget one memory, or everything of a user")
    forget.add_argument(
        "id", nargs="?", help="the memory; without it, everything that --user and the rest say"
    )
    forget.add_argument("--type", choices=sorted(KINDS), help="only this type")
    forget.add_argument("--yes", action="store_true", help="do not ask before forgetting everything")


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


def _guarded(command: Command, args: argparse.Namespace) -> int:
    """Run the command; what can go wrong becomes one line and an exit code."""
    errors = Console(stderr=True)
    api = MemoryApi(args.url, os.environ.get("MEMORY_PROXY_API_KEY", ""))
    try:
        return command(args, api, Console())
    except Refused as e:
        errors.print(f"[red]Refused ({e.status}):[/] {escape(str(e))}", highlight=False)
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


def _list(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    page = api.list(
        user_id=args.user,
        project_id=args.project,
        type=args.type,
        q=args.text,
        include="inactive" if args.inactive else None,
        limit=args.limit,
        after=args.after,
    )
    if args.json:
        return _print_json(page)
    if not page["data"]:
        out.print("Nothing is remembered here.")
        return 0
    out.print(memory_table(page["data"]))
    if page.get("has_more"):
        last = escape(page["data"][-1]["id"])
        out.print(f"{len(page['data'])} of {page['total']}; for more: --after {last}", highlight=False)
    return 0


def _search(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    found = api.search(
        query=args.query,
        user_id=args.user,
        project_id=args.project,
        memory_types=[args.type] if args.type else None,
        limit=args.limit,
        similarity_threshold=args.threshold,
    )
    if args.json:
        return _print_json(found)
    if not found["data"]:
        out.print("Nothing that is remembered fits.")
        return 0
    table = _table("score", "memory", "why")
    for match in found["data"]:
        memory = match["memory"]
        content = f"{escape(memory['content'])}\n[dim]{escape(memory['type'])} {escape(memory['id'])}[/]"
        table.add_row(f"{match['score']:.2f}", content, escape(str(match["why"])))
    out.print(table)
    return 0


def _add(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    memory = api.add(content=args.content, type=args.type, user_id=args.user, project_id=args.project)
    if args.json:
        return _print_json(memory)
    change = {"confirmed": "Known already", "superseded": "Stored, in place of an older one"}
    out.print(f"{change.get(memory.get('change', ''), 'Stored')}: {escape(memory['id'])}", highlight=False)
    return 0


def _get(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    memory = api.get(args.id, user_id=args.user)
    if args.json:
        return _print_json(memory)
    table = Table.grid(padding=(0, 2))
    for name, value in memory.items():
        if value in (None, "", []) or name in ("object", "evidence"):
            continue
        shown = when(value) if name.endswith(("_at", "_accessed", "_from", "_to")) else str(value)
        table.add_row(f"[dim]{name}[/]", escape(shown))
    out.print(table)
    for event in api.history(args.id, user_id=args.user)["data"]:
        line = f"[dim]{when(event['at'])}[/] {escape(event['action'])} by {escape(str(event['by']))}"
        out.print(f"{line}: {escape(event['content'])}", highlight=False)
    return 0


def _forget(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    if args.id:
        if args.project or args.type:
            Console(stderr=True).print("An id is enough: leave out --project and --type.")
            return WRONG_USE
        answer = api.forget(args.id, user_id=args.user)
    elif not args.user:
        Console(stderr=True).print("Say what to forget: an id, or --user for everything of one user.")
        return WRONG_USE
    else:
        filters = {"user_id": args.user, "project_id": args.project, "type": args.type}
        if not args.yes and not _agreed(api.list(**filters, include="inactive", limit=1)["total"], args, out):
            out.print("Nothing was forgotten.")
            return REFUSED
        answer = api.forget_all(**filters)
    if args.json:
        return _print_json(answer)
    count = answer.get("deleted_count", 1)
    out.print(f"Forgotten: {_counted(count)}, with what they came from.", highlight=False)
    return 0


def _agreed(count: int, args: argparse.Namespace, out: Console) -> bool:
    """Ask before everything of a user is forgotten; the question goes to a person, never to a pipe."""
    of = f" of project {args.project}" if args.project else ""
    what = f"{_counted(count)}{of} of user {args.user}" + (f", type {args.type}," if args.type else "")
    if not sys.stdin.isatty():
        Console(stderr=True).print(f"This would forget {escape(what)}. Say --yes to do it.", highlight=False)
        return False
    return out.input(f"Forget {escape(what)}? This cannot be undone. \\[y/N] ").strip().lower() in (
        "y",
        "yes",
    )


def memory_table(memories: list[dict[str, Any]]) -> Table:
    """Return memories as a table that fits 80 columns."""
    table = _table("memory", "type", "since")
    for memory in memories:
        ended = " [yellow](superseded)[/]" if memory.get("superseded_by") else ""
        content = f"{escape(memory['content'])}{ended}\n[dim]{escape(memory['id'])}[/]"
        table.add_row(content, escape(memory["type"]), when(memory["created_at"]))
    return table


def when(seconds: float) -> str:
    """Return a time of the API as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _table(*columns: str) -> Table:
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name in ("score", "type", "since"))
    return table


def _print_json(answer: dict[str, Any]) -> int:
    print(json.dumps(answer, ensure_ascii=False, indent=2))
    return 0


def _counted(count: int) -> str:
    return "1 memory" if count == 1 else f"{count} memories"


def _limit(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError("a whole number from 1 to 100")
    return int(text)
