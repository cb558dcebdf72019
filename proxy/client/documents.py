"""The commands about knowledge documents: add, list, show, delete."""

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from proxy.client import shown
from proxy.client.api import MemoryApi, Refused
from proxy.client.shown import REFUSED

STDIN = "-"
_MARKDOWN = (".md", ".markdown", ".mdown")
_CHANGES = {"created": "Added", "updated": "New version", "unchanged": "Unchanged"}


def add(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    """Post every file under its name; one that is refused does not keep the others from it."""
    if args.name and len(args.files) > 1:
        return shown.wrong_use("--name is for one file: others go by their file names.")
    if STDIN in args.files and not args.name:
        return shown.wrong_use("What comes from standard input needs a --name.")
    names = Counter(Path(file).name for file in dict.fromkeys(args.files))
    if alike := [name for name, count in names.items() if count > 1]:
        each = ", ".join(alike)
        return shown.wrong_use(f"Each of several files would take the last one's place as {each}:"
                               " add these one by one, with --name.")  # fmt: skip
    worst = 0
    for file in args.files:
        try:
            text = _read(file)
        except (OSError, UnicodeDecodeError) as e:
            reason = e.strerror if isinstance(e, OSError) else "it is no text in UTF-8"
            worst = max(worst, shown.wrong_use(f"Cannot read {file}: {reason}."))
            continue
        worst = max(worst, _add_one(args, api, out, file, text))
    return worst


def list_(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    page = api.documents(user_id=args.user, project_id=args.project, limit=args.limit, after=args.after)
    if args.json:
        return shown.print_json(page)
    table = shown.table("document", "version", "passages", "since")
    for one in page["data"]:
        mark = " [yellow](indexing)[/]" if one["status"] == "indexing" else ""
        cell = shown.two_lines(one["name"], one["id"], mark)
        table.add_row(cell, str(one["version"]), str(one["passages"]), shown.when(one["updated_at"]))
    return shown.print_page(page, table, "No documents.", out)


def show(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    include = "content" if args.content else None
    document = api.document(args.id, user_id=args.user, include=include)
    if args.json:
        return shown.print_json(document)
    if args.content:
        sys.stdout.write(document["content"])
        return 0
    about = f"{_size(document)}, {document['status']}"
    out.print(f"[bold]{escape(document['name'])}[/] [dim]{about}[/]", highlight=False)
    for section in document["outline"]:
        way = " › ".join(section["headings"]) or "(no heading)"
        mark = " [yellow](redacted)[/]" if section["redacted"] else ""
        out.print(f"{escape(way)}{mark}", highlight=False)
    return 0


def delete(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    answer = api.delete_document(args.id, user_id=args.user)
    if args.json:
        return shown.print_json(answer)
    out.print(f"Deleted: {escape(answer['id'])}, with the answers that were given with it in view.",
              highlight=False)  # fmt: skip
    out.print(f"[dim]Receipt: {escape(str(answer['receipt']))}[/]", highlight=False)
    return 0


def _add_one(args: argparse.Namespace, api: MemoryApi, out: Console, file: str, text: str) -> int:
    name = args.name or Path(file).name
    markdown = Path(file).suffix.lower() in _MARKDOWN or file == STDIN
    body: dict[str, Any] = {
        "name": name,
        "content": text,
        "format": args.format or ("markdown" if markdown else "text"),
        "user_id": args.user,
        "project_id": args.project,
    }
    try:
        document = api.add_document(**body)
    except Refused as e:
        shown.print_refusal(e, name)
        return REFUSED
    if args.json:
        return shown.print_json(document)
    what = f"{_CHANGES[document['change']]}: {escape(name)} {escape(document['id'])}"
    out.print(f"{what} ({_size(document)})", highlight=False)
    for heading in document["redacted"]:
        out.print(f"[yellow]Redacted under:[/] {escape(heading or '(no heading)')}", highlight=False)
    return 0


def _size(document: dict[str, Any]) -> str:
    passages = document["passages"]
    return f"version {document['version']}, {passages} passage{'' if passages == 1 else 's'}"


def _read(file: str) -> str:
    raw = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    return raw.decode("utf-8-sig")
