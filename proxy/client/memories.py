"""The commands about memories themselves: list, search, add, get, edit, forget, receipts."""

import argparse
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.client import shown
from proxy.client.api import MemoryApi
from proxy.client.shown import REFUSED
from proxy.client.times import NEVER

_NONE = "none"


def list_(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
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
        return shown.print_json(page)
    return shown.print_page(page, shown.memory_table(page["data"]), "Nothing is remembered here.", out)


def search(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    found = api.search(
        query=args.query,
        user_id=args.user,
        project_id=args.project,
        memory_types=[args.type] if args.type else None,
        limit=args.limit,
        similarity_threshold=args.threshold,
    )
    if args.json:
        return shown.print_json(found)
    table = shown.table("score", "memory", "why")
    for match in found["data"]:
        memory = match["memory"]
        cell = shown.two_lines(memory["content"], f"{memory['type']} {memory['id']}")
        table.add_row(f"{match['score']:.2f}", cell, escape(str(match["why"])))
    out.print(table if found["data"] else "Nothing that is remembered fits.")
    if found.get("would_inject") is False:
        out.print(f"A conversation that began with this would be shown none: {escape(str(found['reason']))}.")
    return 0


def add(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    memory = api.add(content=args.content, type=args.type, user_id=args.user, project_id=args.project)
    if args.json:
        return shown.print_json(memory)
    change = {"confirmed": "Known already", "superseded": "Stored, in place of an older one"}
    out.print(f"{change.get(memory.get('change', ''), 'Stored')}: {escape(memory['id'])}", highlight=False)
    return 0


def get(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    memory = api.get(args.id, user_id=args.user)
    if args.json:
        return shown.print_json(memory)
    table = Table.grid(padding=(0, 2))
    for name, value in memory.items():
        if value in (None, "", []) or name in ("object", "evidence"):
            continue
        text = shown.when(value) if name.endswith(("_at", "_accessed", "_from", "_to")) else str(value)
        table.add_row(f"[dim]{name}[/]", escape(text))
    out.print(table)
    for event in api.history(args.id, user_id=args.user)["data"]:
        line = f"[dim]{shown.when(event['at'])}[/] {escape(event['action'])} by {escape(str(event['by']))}"
        became = f" → {escape(event['became'])}" if event.get("became") else ""
        out.print(f"{line}: {escape(event['content'])}{became}", highlight=False)
    return 0


def edit(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    changes = _changes(args)
    if not changes:
        return shown.wrong_use("Say what to change: --content, --type, --tags, --importance, --archive, …")
    memory = api.edit(args.id, changes, user_id=args.user)
    if args.json:
        return shown.print_json(memory)
    expires = f", expires {shown.when(changes['expires_at'])}" if changes.get("expires_at") else ""
    out.print(f"Changed: {escape(memory['id'])}{expires}", highlight=False)
    return 0


def forget(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    if args.id:
        if args.project or args.type:
            return shown.wrong_use("An id is enough: leave out --project and --type.")
        return _forgotten(args, api.forget(args.id, user_id=args.user, dry_run=args.dry_run or None), out)
    if not args.user:
        return shown.wrong_use("Say what to forget: an id, or --user for everything of one user.")
    filters = {"user_id": args.user, "project_id": args.project, "type": args.type}
    if args.dry_run:
        return _forgotten(args, api.forget_all(**filters, dry_run=True), out)
    if not args.yes:
        total = _would_go(api.forget_all(**filters, dry_run=True))
        of = f" of project {args.project}" if args.project else ""
        kind = f", type {args.type}," if args.type else ""
        if not shown.agreed(f"{total}{of} of user {args.user}{kind}", out):
            out.print("Nothing was forgotten.")
            return REFUSED
    return _forgotten(args, api.forget_all(**filters), out)


def receipts(args: argparse.Namespace, api: MemoryApi, out: Console) -> int:
    page = api.receipts(user_id=args.user, limit=args.limit, after=args.after)
    if args.json:
        return shown.print_json(page)
    table = shown.table("when", "what", "forgotten", "by")
    for one in page["data"]:
        narrowed = [one[name] for name in ("memory_id", "project_id", "type") if one.get(name)]
        what = shown.two_lines(" ".join((one["user_id"], *narrowed)), one["id"])
        forgotten = shown.forgotten(one["counts"])
        table.add_row(shown.when(one["created_at"]), what, forgotten, escape(one["by"]))
    return shown.print_page(page, table, "Nothing was forgotten yet.", out)


def _changes(args: argparse.Namespace) -> dict[str, Any]:
    """Return what to send: only what was said, with None for never and none."""
    said: dict[str, Any] = {
        "content": args.content,
        "type": args.type,
        "importance": args.importance,
        "tags": None if args.tags is None else [tag.strip() for tag in args.tags.split(",") if tag.strip()],
        "archived": args.archived,
    }
    changes = {name: value for name, value in said.items() if value is not None}
    if args.expires is not None:
        changes["expires_at"] = None if args.expires == NEVER else args.expires
    if args.to_project is not None:
        changes["project_id"] = None if args.to_project == _NONE else args.to_project
    return changes


def _would_go(answer: dict[str, Any]) -> str:
    """Return how much a forget takes, or would take, in words."""
    documents = answer.get("deleted_documents", 0)
    return shown.forgotten({"memories": answer.get("deleted_count", 1), "documents": documents})


def _forgotten(args: argparse.Namespace, answer: dict[str, Any], out: Console) -> int:
    if args.json:
        return shown.print_json(answer)
    count = _would_go(answer)
    if answer.get("dry_run"):
        out.print(f"This would forget {count}, with what they came from. Nothing was changed.")
        return 0
    out.print(f"Forgotten: {count}, with what they came from.", highlight=False)
    if answer.get("receipt"):
        out.print(f"[dim]Receipt: {escape(answer['receipt'])}[/]", highlight=False)
    return 0
